# Make the tables of each study from its collected records. The study determines the names of the files.

for study in PLAN.studies:

    rule:
        name:
            f"tabulate_{study}"
        input:
            runs=f"{RESULTS}/studies/{study}/runs.parquet",
            study=f"{RESULTS}/studies/{study}/study.json",
            reference=reference_files(study),
        output:
            tables=table_paths(study),
            checksums=f"{RESULTS}/checksums/tables/{study}.json",
        log:
            f"{LOGS}/tables/{study}.log",
        benchmark:
            f"{BENCHMARKS}/tables/{study}.tsv"
        localrule: True
        conda:
            CONDA
        threads: 1
        resources:
            mem_mb=grows(2000),
            runtime=grows(10),
        params:
            version=REPORT_VERSION,
            references=lambda wildcards, input: str(REFERENCES),
        message:
            f"tables of study {study}"
        script:
            "../scripts/tabulate_study.py"


rule tables:
    input:
        [path for study in PLAN.active for path in table_paths(study)],
    message:
        "all tables are rendered"
