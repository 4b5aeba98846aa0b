# Draw the figures of each study from its collected records.

for study in PLAN.studies:

    rule:
        name:
            f"draw_{study}"
        input:
            runs=f"{RESULTS}/studies/{study}/runs.parquet",
            curves=f"{RESULTS}/studies/{study}/curves.parquet",
            partitions=f"{RESULTS}/studies/{study}/partitions.parquet",
            mixing=f"{RESULTS}/studies/{study}/mixing.parquet",
            drawings=f"{RESULTS}/studies/{study}/drawings.parquet",
            study=f"{RESULTS}/studies/{study}/study.json",
        output:
            figures=figure_paths(study),
            checksums=f"{RESULTS}/checksums/figures/{study}.json",
        log:
            f"{LOGS}/figures/{study}.log",
        benchmark:
            f"{BENCHMARKS}/figures/{study}.tsv"
        localrule: True
        conda:
            CONDA
        threads: 1
        resources:
            mem_mb=grows(2000),
            runtime=grows(20),
        params:
            version=REPORT_VERSION,
        message:
            f"figures of study {study}"
        script:
            "../scripts/draw_study.py"


rule figures:
    input:
        [path for study in PLAN.active for path in figure_paths(study)],
    message:
        "all figures are drawn"
