# Import the finished runs of a study into MLflow, in one job. Training never waits for it.


# Snakemake reruns a job when its params change. These two values change after a failed import, with another server
# (which has no runs yet), and after the project was moved (the store then has old artifact paths). They are read once,
# before any job, because Snakemake stores the params of a finished job. The server is hashed because its address may
# contain a password.
TRACKED_TO = fingerprint(
    PLAN.config.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI") or str(Path(RESULTS).resolve())
)
FAILED_IMPORTS = {study: failed_imports(Path(f"{RESULTS}/tracking/{study}.json")) for study in PLAN.studies}


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
        version=TRACK_VERSION,
        uri=PLAN.config.tracking.uri,
        server=TRACKED_TO,
        experiment=PLAN.config.tracking.experiment,
        results=lambda wildcards, input: RESULTS,
        failures=lambda wildcards: FAILED_IMPORTS[wildcards.study],
        settings=lambda wildcards: PLAN.studies[wildcards.study].study.model_dump(mode="json"),
        components=lambda wildcards, input: PLAN.components,
    message:
        "import the runs of study {wildcards.study} into MLflow"
    script:
        "../scripts/track_study.py"
