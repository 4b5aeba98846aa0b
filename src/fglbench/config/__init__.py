"""Configuration: typed sections, one report of all problems, and the expansion into cells.

Imports neither torch nor mlflow nor pandas: the Snakefile parses with it, in every job.
"""
