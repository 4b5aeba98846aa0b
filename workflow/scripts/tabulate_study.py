"""Rules tabulate_<study>: the tables of a study, and their comparison with a paper."""

from pathlib import Path

from fglbench.stages.job import logged
from fglbench.stages.tables import make_tables

with logged(snakemake.log[0]):
    study = Path(snakemake.input.study).parent
    make_tables(study, Path(snakemake.output[0]).parent, Path(snakemake.params.references))
