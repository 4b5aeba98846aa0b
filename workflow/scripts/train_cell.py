"""Rule train_cell: train the seeds of one cell, one after another, in a supervised child process."""

from pathlib import Path

from fglbench.records.component_files import changes, own_files
from fglbench.records.run import RETRIED, RUN, RunRecord, failed_seeds
from fglbench.registry import use_folders
from fglbench.stages.failures import note, only_failed
from fglbench.stages.job import finish, logged, not_run_seeds
from fglbench.stages.supervise import train_supervised

with logged(snakemake.log[0]) as say:
    output, attempt = Path(snakemake.output[0]), snakemake.params.attempt
    folder = output.parent
    refused = not_run_seeds(Path(snakemake.input.preprocessed))
    use_folders([Path(path) for path in snakemake.params.components])
    specs = {part: snakemake.params.specs[part] for part in ("dataset", "partition", "prepared", "method")}
    cells = {seed: cell for seed, cell in snakemake.params.cells.items() if seed not in refused}
    train_supervised(
        Path(snakemake.input.graph).parent,
        Path(snakemake.input.preprocessed).parent,
        specs,
        cells,
        folder,
        threads=snakemake.threads,
        log=snakemake.log[0],
        components=snakemake.params.components,
        retried=("failed",) if only_failed(output, attempt) else RETRIED,
        trust=snakemake.params.trust,
        **snakemake.params.options,
    )
    note(output, attempt, failed_seeds(folder, cells))
    files = own_files(specs)
    kept = [RunRecord.read(folder / f"seed{seed}").component_files for seed in cells] if files else []
    for line in dict.fromkeys(line for recorded in kept for line in changes(recorded, files)):
        say(f"kept: {line}")
    finish(output, [folder / f"seed{seed}" / RUN for seed in cells], refused)
