"""Rule collect_study: all records of a study as tidy tables."""

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
    names = ("runs", "curves", "partitions", "mixing", "study")
    list_checksums(Path(snakemake.output.checksums), [getattr(snakemake.output, name) for name in names])
    print(f"study {study}:", ", ".join(f"{n} {state}" for state, n in sorted(outcomes.items())))
