"""Rules report_<study>: write the self-contained page of a study."""

from pathlib import Path

from fglbench.stages.job import list_checksums, logged
from fglbench.stages.report import make_report

with logged(snakemake.log[0]):
    tables, figures = Path(snakemake.params.tables), Path(snakemake.params.figures)
    make_report(Path(snakemake.input.study).parent, tables, figures, Path(snakemake.output.page))
    list_checksums(Path(snakemake.output.checksums), [snakemake.output.page])
