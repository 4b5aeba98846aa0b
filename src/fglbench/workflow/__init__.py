"""What Snakemake asks the package for: the jobs of the studies, the run lock; and one cell without Snakemake."""
