"""Functions for the Snakemake workflow: jobs of the studies, the run lock, and one cell without Snakemake."""
