# Write one self-contained page per study, and define a target named after each study.

for study in PLAN.studies:

    rule:
        name:
            f"report_{study}"
        input:
            runs=f"{RESULTS}/studies/{study}/runs.parquet",
            study=f"{RESULTS}/studies/{study}/study.json",
            tables=table_paths(study),
            figures=figure_paths(study),
        output:
            page=f"{RESULTS}/report/{study}.html",
            checksums=f"{RESULTS}/checksums/report/{study}.json",
        log:
            f"{LOGS}/report/{study}.log",
        benchmark:
            f"{BENCHMARKS}/report/{study}.tsv"
        localrule: True
        conda:
            CONDA
        threads: 1
        resources:
            mem_mb=grows(2000),
            runtime=grows(10),
        params:
            version=REPORT_VERSION,
            tables=lambda wildcards, input, study=study: f"{RESULTS}/tables/{study}",
            figures=lambda wildcards, input, study=study: f"{RESULTS}/figures/{study}",
        message:
            f"report of study {study}"
        script:
            "../scripts/report_study.py"

    rule:
        name:
            study
        input:
            study_files(study),
        localrule: True
        message:
            f"study {study} is complete"


rule report:
    input:
        [f"{RESULTS}/report/{study}.html" for study in PLAN.active],
    message:
        "all reports are written"
