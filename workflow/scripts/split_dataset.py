"""Rule split_dataset: assign nodes to clients and draw roles for one partition, for a range of seeds."""

from pathlib import Path

from fglbench.config.identity import seeds_of
from fglbench.records.split import SPLIT_CARD
from fglbench.registry import use_folders
from fglbench.stages.job import finish, logged
from fglbench.stages.split import split

with logged(snakemake.log[0]) as say:
    use_folders([Path(folder) for folder in snakemake.params.components])
    seeds = seeds_of(snakemake.wildcards.seeds)
    folder = Path(snakemake.output[0]).parent
    graph = Path(snakemake.input.graph).parent
    # A retry would fail again, so the seed is recorded as not run, and the other seeds continue.
    params = snakemake.params
    refused = split(graph, params.partition, seeds, folder, file=params.file, keep_going=True, trust=params.trust)
    for seed, reason in refused.items():
        say(f"not run: {snakemake.wildcards.dataset}, {snakemake.wildcards.partition}, seed {seed}: {reason}")
    made = [folder / f"seed{seed}" / SPLIT_CARD for seed in seeds if seed not in refused]
    finish(Path(snakemake.output[0]), made, refused)
