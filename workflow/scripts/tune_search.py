"""Rule tune_search: run the unfinished trials of one search."""

from pathlib import Path

from fglbench.config.schema import Study
from fglbench.config.searches import plan_searches
from fglbench.config.tuned import shipped_searches
from fglbench.registry import use_folders
from fglbench.runtime.devices import claimed_device
from fglbench.runtime.processes import limit_memory
from fglbench.stages import failures
from fglbench.stages.job import logged
from fglbench.tuning.search import run_search

with logged(snakemake.log[0]), claimed_device(snakemake.params.device, snakemake.params.jobs_per_card):
    use_folders([Path(folder) for folder in snakemake.params.components])
    study = Study.model_validate(snakemake.params.study)
    (search,) = (search for search in plan_searches(study) if search.slug == snakemake.wildcards.search)
    limit_memory(snakemake.params.memory_limit_mb)
    jobs = {"chunk_clients": snakemake.params.chunk_clients, "memory_mb": snakemake.params.memory_mb}
    values = {
        "device": snakemake.params.device,
        "mode": snakemake.params.mode,
        "data": snakemake.params.data,
        "jobs": jobs,
    }
    results, output = Path(snakemake.params.results), Path(snakemake.output[0])
    attempt = snakemake.params.attempt
    retry = attempt != failures.attempt_number(output, retry=False)
    known = shipped_searches(study, Path(snakemake.params.studies)).get(search.slug)
    record = run_search(search, study.tune.trials, values, results, output.parent, snakemake.threads, known, retry)
    failures.note(output, attempt, record.get("failed", {}))
