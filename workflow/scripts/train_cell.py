"""Rule train_cell: the seeds of one cell, one after another, in a child process that this one looks after."""

from pathlib import Path

from fglbench.stages.failures import note, only_failed
from fglbench.stages.job import finish, logged, not_run_seeds
from fglbench.stages.run_record import TRIED_AGAIN, failed_seeds
from fglbench.stages.supervise import train_supervised

with logged(snakemake.log[0]):
    output, attempt = Path(snakemake.output[0]), snakemake.params.attempt
    folder = output.parent
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
        tried_again=("failed",) if only_failed(output, attempt) else TRIED_AGAIN,
        **snakemake.params.options,
    )
    note(output, attempt, failed_seeds(folder, cells))
    finish(output, [folder / f"seed{seed}" / "run.json" for seed in cells], refused)
