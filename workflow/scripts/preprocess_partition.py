"""Rule preprocess_partition: make operators and propagated features of one partition, for a range of seeds."""

from pathlib import Path

from fglbench.config.identity import seeds_of
from fglbench.records.federation import FEDERATION
from fglbench.stages.job import finish, logged, not_run_seeds
from fglbench.stages.preprocess import preprocess

with logged(snakemake.log[0]):
    refused = not_run_seeds(Path(snakemake.input.split))
    seeds = [seed for seed in seeds_of(snakemake.wildcards.seeds) if seed not in refused]
    folder = Path(snakemake.output[0]).parent
    graph, split = Path(snakemake.input.graph).parent, Path(snakemake.input.split).parent
    preprocess(graph, split, snakemake.params.preprocessed, seeds, folder)
    finish(Path(snakemake.output[0]), [folder / f"seed{seed}" / FEDERATION for seed in seeds], refused)
