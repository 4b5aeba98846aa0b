# Train the seeds of one cell on a GPU or the CPU, one after another in a child process of the job. Finished seeds stay.


rule train_cell:
    input:
        graph=f"{RESULTS}/download/{{dataset}}/graph.npz",
        preprocessed=PLAN.preprocessed_file,
    output:
        f"{RESULTS}/train/{{dataset}}/{{partition}}/{{method}}/seeds-{{seeds}}.json",
    log:
        f"{LOGS}/train/{{dataset}}/{{partition}}/{{method}}/seeds-{{seeds}}.log",
    benchmark:
        f"{BENCHMARKS}/train/{{dataset}}/{{partition}}/{{method}}/seeds-{{seeds}}.tsv"
    conda:
        CONDA_TRAINING
    threads: 1
    resources:
        gpu=1 if PLAN.config.device != "cpu" else 0,
        mem_mb=grows(PLAN.config.jobs.train_mem_mb),
        runtime=grows(PLAN.config.jobs.train_runtime_min),
    params:
        specs=PLAN.index.specs,
        cells=PLAN.index.cells,
        attempt=PLAN.attempt,
        options=dict(
            device=PLAN.config.device,
            mode=PLAN.config.mode,
            jobs_per_card=PLAN.config.jobs.jobs_per_card,
            chunk_clients=PLAN.config.jobs.chunk_clients,
            memory_mb=PLAN.config.jobs.memory_mb,
            memory_limit_mb=PLAN.config.jobs.memory_limit_mb,
            timeout_min=PLAN.config.jobs.train_timeout_min,
        ),
        components=lambda wildcards, input: PLAN.components,
        trust=lambda wildcards, input: PLAN.trust,
    message:
        "train {wildcards.method} on {wildcards.dataset} {wildcards.partition} seeds {wildcards.seeds}"
    script:
        "../scripts/train_cell.py"


rule train:
    input:
        lambda wildcards: PLAN.trained(map(wanted, PLAN.active)),
    message:
        "all cells are trained"
