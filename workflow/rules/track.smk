# One job imports the finished runs of a study into MLflow; training never waits for it.


rule track_study:
    input:
        runs=f"{RESULTS}/studies/{{study}}/runs.parquet",
        curves=f"{RESULTS}/studies/{{study}}/curves.parquet",
        study=f"{RESULTS}/studies/{{study}}/study.json",
    output:
        f"{RESULTS}/tracking/{{study}}.json",
    log:
        f"{LOGS}/track/{{study}}.log",
    benchmark:
        f"{BENCHMARKS}/track/{{study}}.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=grows(2000),
        runtime=grows(60),
    params:
        uri=PLAN.config.tracking.uri,
        experiment=PLAN.config.tracking.experiment,
        results=lambda wildcards, input: RESULTS,
    message:
        "import the runs of study {wildcards.study} into MLflow"
    script:
        "../scripts/track_study.py"
