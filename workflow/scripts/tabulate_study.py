"""Rules tabulate_<study>: write the tables of a study, and their comparison with a paper."""

from pathlib import Path

from fglbench.stages.job import list_checksums, logged
from fglbench.stages.tables import make_tables

with logged(snakemake.log[0]):
    study = Path(snakemake.input.study).parent
    make_tables(study, Path(snakemake.output.tables[0]).parent, Path(snakemake.params.references))
    list_checksums(Path(snakemake.output.checksums), snakemake.output.tables)
