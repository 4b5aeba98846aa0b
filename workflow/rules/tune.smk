# Search settings by the validation score, one job per search. The targets of studies exclude it: run tune_<study>.


rule tune_search:
    input:
        graph=PLAN.searched_graph,
    output:
        f"{RESULTS}/tune/{{study}}/{{search}}.json",
    log:
        f"{LOGS}/tune/{{study}}/{{search}}.log",
    benchmark:
        f"{BENCHMARKS}/tune/{{study}}/{{search}}.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        gpu=1 if PLAN.config.device != "cpu" else 0,
        mem_mb=grows(PLAN.config.jobs.train_mem_mb),
        runtime=grows(PLAN.config.jobs.train_runtime_min),
    params:
        study=lambda wildcards: PLAN.studies[wildcards.study].study.model_dump(mode="json"),
        attempt=PLAN.search_attempt,
        device=PLAN.config.device,
        mode=PLAN.config.mode,
        jobs_per_card=PLAN.config.jobs.jobs_per_card,
        chunk_clients=PLAN.config.jobs.chunk_clients,
        memory_mb=PLAN.config.jobs.memory_mb,
        memory_limit_mb=PLAN.config.jobs.memory_limit_mb,
        data=lambda wildcards, input: {"mirror": PLAN.mirror, "download": PLAN.config.data.download},
        results=lambda wildcards, input: RESULTS,
        studies=lambda wildcards, input: str(STUDIES),
        components=lambda wildcards, input: PLAN.components,
    message:
        "search {wildcards.search}"
    script:
        "../scripts/tune_search.py"


for study in PLAN.searches:

    rule:
        name:
            f"tune_{study}"
        input:
            [f"{RESULTS}/tune/{study}/{search}.json" for search in PLAN.searches[study]],
        output:
            f"{RESULTS}/tune/{study}.yaml",
        log:
            f"{LOGS}/tune/{study}.log",
        benchmark:
            f"{BENCHMARKS}/tune/{study}.tsv"
        localrule: True
        conda:
            CONDA
        threads: 1
        resources:
            mem_mb=grows(1000),
            runtime=grows(5),
        params:
            study=PLAN.studies[study].study.model_dump(mode="json"),
            components=lambda wildcards, input: PLAN.components,
        message:
            f"settings found for study {study}"
        script:
            "../scripts/gather_tuned.py"


rule tune:
    input:
        [f"{RESULTS}/tune/{study}.yaml" for study in PLAN.active if study in PLAN.searches],
    message:
        "all searches are done"
