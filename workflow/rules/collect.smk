# Collect the records of a study's cells in tidy tables. They are the only input of tables, figures and report.


rule collect_study:
    input:
        evaluated=lambda wildcards: PLAN.evaluated(wanted(wildcards.study)),
        archived=lambda wildcards: PLAN.availability.reused_files(wildcards.study),
    output:
        runs=f"{RESULTS}/studies/{{study}}/runs.parquet",
        curves=f"{RESULTS}/studies/{{study}}/curves.parquet",
        partitions=f"{RESULTS}/studies/{{study}}/partitions.parquet",
        mixing=f"{RESULTS}/studies/{{study}}/mixing.parquet",
        drawings=f"{RESULTS}/studies/{{study}}/drawings.parquet",
        study=f"{RESULTS}/studies/{{study}}/study.json",
        checksums=f"{RESULTS}/checksums/studies/{{study}}.json",
    log:
        f"{LOGS}/collect/{{study}}.log",
    benchmark:
        f"{BENCHMARKS}/collect/{{study}}.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=grows(4000),
        runtime=grows(30),
    params:
        version=COLLECT_VERSION,
        study=lambda wildcards: PLAN.studies[wildcards.study].study.model_dump(mode="json"),
        results=lambda wildcards, input: RESULTS,
        components=lambda wildcards, input: PLAN.components,
        not_run=lambda wildcards: PLAN.availability.not_run(wildcards.study),
        reused=lambda wildcards: PLAN.availability.reused(wildcards.study),
    message:
        "collect study {wildcards.study}"
    script:
        "../scripts/collect_study.py"
