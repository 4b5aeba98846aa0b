# Assign nodes to clients and roles to nodes, per seed. The partition card describes the result.


rule split_dataset:
    input:
        graph=f"{RESULTS}/download/{{dataset}}/graph.npz",
        card=f"{RESULTS}/download/{{dataset}}/graph.json",
    output:
        f"{RESULTS}/split/{{dataset}}/{{partition}}/seeds-{{seeds}}.json",
    log:
        f"{LOGS}/split/{{dataset}}/{{partition}}/seeds-{{seeds}}.log",
    benchmark:
        f"{BENCHMARKS}/split/{{dataset}}/{{partition}}/seeds-{{seeds}}.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=grows(4000),
        runtime=grows(60),
    params:
        partition=PLAN.index.partition,
        file=PLAN.index.partition_file,
        components=lambda wildcards, input: PLAN.components,
        trust=lambda wildcards, input: PLAN.trust,
    message:
        "split {wildcards.dataset} {wildcards.partition} seeds {wildcards.seeds}"
    script:
        "../scripts/split_dataset.py"
