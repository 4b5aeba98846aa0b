# Convert raw files, from the mirror or a download, to the canonical graph, and check its counts and content hash.


rule download_dataset:
    output:
        graph=f"{RESULTS}/download/{{dataset}}/graph.npz",
        card=f"{RESULTS}/download/{{dataset}}/graph.json",
    log:
        f"{LOGS}/download/{{dataset}}.log",
    benchmark:
        f"{BENCHMARKS}/download/{{dataset}}.tsv"
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=grows(lambda wildcards: download_mb(PLAN.index.dataset(wildcards)["name"])),
        runtime=grows(lambda wildcards: download_min(PLAN.index.dataset(wildcards)["name"])),
    # Snakemake ignores changes of params that are functions of `input`, so a new mirror does not rerun the job.
    params:
        dataset=PLAN.index.dataset,
        mirror=lambda wildcards, input: PLAN.mirror,
        components=lambda wildcards, input: PLAN.components,
        trust=lambda wildcards, input: PLAN.trust,
        forbidden=lambda wildcards, input: PLAN.forbidden,
    message:
        "download {wildcards.dataset}"
    script:
        "../scripts/download_dataset.py"


rule data:
    input:
        lambda wildcards: PLAN.graphs(map(wanted, PLAN.active)),
    message:
        "graphs of all datasets are in place"
