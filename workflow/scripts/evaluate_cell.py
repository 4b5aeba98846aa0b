"""Rule evaluate_cell: scores of the stored predictions of one cell, for a range of seeds."""

from pathlib import Path

from fglbench.config.identity import seeds_of
from fglbench.stages.evaluate import evaluate
from fglbench.stages.job import finish, logged

with logged(snakemake.log[0]):
    seeds = seeds_of(snakemake.wildcards.seeds)
    folder = Path(snakemake.output[0]).parent
    train, split, graph = (
        Path(path).parent for path in (snakemake.input.train, snakemake.input.split, snakemake.input.graph)
    )
    evaluate(train, split, graph, seeds, folder)
    finish(Path(snakemake.output[0]), [folder / f"seed{seed}" / "metrics.json" for seed in seeds])
