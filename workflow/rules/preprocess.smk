# Compute the normalised operators and propagated features that all methods share, per seed and kind of backbone.


rule preprocess_partition:
    input:
        graph=f"{RESULTS}/download/{{dataset}}/graph.npz",
        card=f"{RESULTS}/download/{{dataset}}/graph.json",
        split=f"{RESULTS}/split/{{dataset}}/{{partition}}/seeds-{{seeds}}.json",
    output:
        f"{RESULTS}/preprocess/{{dataset}}/{{partition}}/{{preprocessed}}/seeds-{{seeds}}.json",
    log:
        f"{LOGS}/preprocess/{{dataset}}/{{partition}}/{{preprocessed}}/seeds-{{seeds}}.log",
    benchmark:
        f"{BENCHMARKS}/preprocess/{{dataset}}/{{partition}}/{{preprocessed}}/seeds-{{seeds}}.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=grows(4000),
        runtime=grows(60),
    params:
        preprocessed=PLAN.index.preprocessed,
    message:
        "preprocess {wildcards.dataset} {wildcards.partition} seeds {wildcards.seeds}"
    script:
        "../scripts/preprocess_partition.py"
