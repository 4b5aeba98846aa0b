"""Configuration: typed sections, one report of all problems, and the expansion into cells.

This package imports neither torch nor mlflow nor pandas, because every job parses the Snakefile with it.
"""
