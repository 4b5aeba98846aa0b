"""Rule collect_study: collect all records of a study into tidy tables."""

from pathlib import Path

from fglbench.config.expand import expand
from fglbench.config.schema import Study
from fglbench.registry import use_folders
from fglbench.stages.collect import collect
from fglbench.stages.job import list_checksums, logged

with logged(snakemake.log[0]):
    use_folders([Path(folder) for folder in snakemake.params.components])
    expansion = expand(Study.model_validate(snakemake.params.study))
    folder = Path(snakemake.output.runs).parent
    reused = {cell: Path(path) for cell, path in snakemake.params.reused.items()}
    results, study = Path(snakemake.params.results), snakemake.wildcards.study
    outcomes = collect(expansion, study, results, folder, reused, snakemake.params.not_run)
    checksums = snakemake.output.checksums
    list_checksums(Path(checksums), [path for path in snakemake.output if path != checksums])
    print(f"study {study}:", ", ".join(f"{n} {state}" for state, n in sorted(outcomes.items())))
