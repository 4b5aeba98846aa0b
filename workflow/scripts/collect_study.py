"""Rule collect_study: all records of a study as tidy tables."""

from pathlib import Path

from fglbench.config.expand import expand
from fglbench.config.schema import Study
from fglbench.registry import use_folders
from fglbench.stages.collect import collect
from fglbench.stages.job import logged

with logged(snakemake.log[0]):
    use_folders([Path(folder) for folder in snakemake.params.components])
    expansion = expand(Study.model_validate(snakemake.params.study))
    folder = Path(snakemake.output.runs).parent
    published = {cell: Path(path) for cell, path in snakemake.params.published.items()}
    outcomes = collect(expansion, snakemake.wildcards.study, Path(snakemake.params.results), folder, published)
    print(f"study {snakemake.wildcards.study}:", ", ".join(f"{n} {state}" for state, n in sorted(outcomes.items())))
