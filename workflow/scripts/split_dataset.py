"""Rule split_dataset: clients and roles of one partition, for a range of seeds."""

from pathlib import Path

from fglbench.config.identity import seeds_of
from fglbench.registry import use_folders
from fglbench.stages.job import finish, logged
from fglbench.stages.split import split

with logged(snakemake.log[0]):
    use_folders([Path(folder) for folder in snakemake.params.components])
    seeds = seeds_of(snakemake.wildcards.seeds)
    folder = Path(snakemake.output[0]).parent
    split(Path(snakemake.input.graph).parent, snakemake.params.partition, seeds, folder)
    finish(Path(snakemake.output[0]), [folder / f"seed{seed}" / "card.json" for seed in seeds])
