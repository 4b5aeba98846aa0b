"""Rule train_cell: the seeds of one cell, one after another."""

from pathlib import Path

from fglbench.cards import claimed_card
from fglbench.registry import use_folders
from fglbench.stages.job import finish, logged, not_run_seeds
from fglbench.stages.train import RECORD, train

with logged(snakemake.log[0]), claimed_card(snakemake.params.device, snakemake.params.jobs_per_card):
    use_folders([Path(folder) for folder in snakemake.params.components])
    folder = Path(snakemake.output[0]).parent
    refused = not_run_seeds(Path(snakemake.input.prepared))
    cells = {seed: cell for seed, cell in snakemake.params.cells.items() if seed not in refused}
    train(
        Path(snakemake.input.graph).parent,
        Path(snakemake.input.prepared).parent,
        snakemake.params.specs,
        cells,
        folder,
        device=snakemake.params.device,
        threads=snakemake.threads,
        chunk_clients=snakemake.params.chunk_clients,
        memory_mb=snakemake.params.memory_mb,
    )
    finish(Path(snakemake.output[0]), [folder / f"seed{seed}" / RECORD for seed in cells], refused)
