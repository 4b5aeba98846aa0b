# Compute scores from predictions, with one evaluator for all methods and without torch.


rule evaluate_cell:
    input:
        graph=f"{RESULTS}/download/{{dataset}}/graph.npz",
        split=f"{RESULTS}/split/{{dataset}}/{{partition}}/seeds-{{seeds}}.json",
        train=f"{RESULTS}/train/{{dataset}}/{{partition}}/{{method}}/seeds-{{seeds}}.json",
    output:
        f"{RESULTS}/evaluate/{{dataset}}/{{partition}}/{{method}}/seeds-{{seeds}}.json",
    log:
        f"{LOGS}/evaluate/{{dataset}}/{{partition}}/{{method}}/seeds-{{seeds}}.log",
    benchmark:
        f"{BENCHMARKS}/evaluate/{{dataset}}/{{partition}}/{{method}}/seeds-{{seeds}}.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=grows(1000),
        runtime=grows(10),
    params:
        components=lambda wildcards, input: PLAN.components,
        version=EVALUATE_VERSION,
    message:
        "evaluate {wildcards.method} on {wildcards.dataset} {wildcards.partition} seeds {wildcards.seeds}"
    script:
        "../scripts/evaluate_cell.py"
