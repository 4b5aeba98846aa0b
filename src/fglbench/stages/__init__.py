"""Stages of the workflow. Each module is one stage: a function that reads folders and writes folders."""
