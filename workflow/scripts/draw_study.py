"""Rules draw_<study>: the figures of a study."""

from pathlib import Path

from fglbench.stages.figures import make_figures
from fglbench.stages.job import logged

with logged(snakemake.log[0]):
    make_figures(Path(snakemake.input.study).parent, Path(snakemake.output[0]).parent)
