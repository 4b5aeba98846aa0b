"""Rule download_dataset: one dataset to its canonical graph."""

from pathlib import Path

from fglbench.stages.download import download
from fglbench.stages.job import logged

with logged(snakemake.log[0]):
    mirror = snakemake.params.mirror
    download(snakemake.params.dataset, Path(snakemake.output.graph).parent, Path(mirror) if mirror else None)
