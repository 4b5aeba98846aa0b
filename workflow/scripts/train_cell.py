"""Rule train_cell: the seeds of one cell, one after another, in a child process that this one looks after."""

from pathlib import Path

from fglbench.stages.job import finish, logged, not_run_seeds
from fglbench.stages.supervise import train_supervised

with logged(snakemake.log[0]):
    folder = Path(snakemake.output[0]).parent
    refused = not_run_seeds(Path(snakemake.input.prepared))
    cells = {seed: cell for seed, cell in snakemake.params.cells.items() if seed not in refused}
    train_supervised(
        Path(snakemake.input.graph).parent,
        Path(snakemake.input.prepared).parent,
        snakemake.params.specs,
        cells,
        folder,
        threads=snakemake.threads,
        log=snakemake.log[0],
        components=snakemake.params.components,
        **snakemake.params.options,
    )
    finish(Path(snakemake.output[0]), [folder / f"seed{seed}" / "run.json" for seed in cells], refused)
