"""Rules draw_<study>: draw the figures of a study."""

from pathlib import Path

from fglbench.stages.figures import make_figures
from fglbench.stages.job import list_checksums, logged

with logged(snakemake.log[0]):
    make_figures(Path(snakemake.input.study).parent, Path(snakemake.output.figures[0]).parent)
    list_checksums(Path(snakemake.output.checksums), snakemake.output.figures)
