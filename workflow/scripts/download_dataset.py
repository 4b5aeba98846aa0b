"""Rule download_dataset: store the canonical graph of one dataset."""

from pathlib import Path

from fglbench.registry import use_folders
from fglbench.stages.download import download
from fglbench.stages.job import logged

with logged(snakemake.log[0]):
    use_folders([Path(folder) for folder in snakemake.params.components])
    mirror = Path(snakemake.params.mirror) if snakemake.params.mirror else None
    folder = Path(snakemake.output.graph).parent
    download(snakemake.params.dataset, folder, mirror, snakemake.params.forbidden, snakemake.params.trust)
