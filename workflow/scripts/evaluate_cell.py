"""Rule evaluate_cell: score the stored predictions of one cell, for a range of seeds."""

from pathlib import Path

from fglbench.config.identity import seeds_of
from fglbench.records.metrics import METRICS
from fglbench.registry import use_folders
from fglbench.stages.evaluate import evaluate, record_not_run
from fglbench.stages.job import finish, logged, not_run_seeds

with logged(snakemake.log[0]):
    use_folders([Path(folder) for folder in snakemake.params.components])
    seeds = seeds_of(snakemake.wildcards.seeds)
    folder = Path(snakemake.output[0]).parent
    train, split, graph = (
        Path(path).parent for path in (snakemake.input.train, snakemake.input.split, snakemake.input.graph)
    )
    refused = not_run_seeds(Path(snakemake.input.train))
    evaluate(train, split, graph, [seed for seed in seeds if seed not in refused], folder)
    record_not_run(refused, folder)
    finish(Path(snakemake.output[0]), [folder / f"seed{seed}" / METRICS for seed in seeds])
