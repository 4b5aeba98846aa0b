# fglbench: a benchmark of federated graph learning, from raw data to the tables of the papers.
#
#   snakemake --cores 8 --resources gpu=2      run everything in config.yaml
#   snakemake --cores 8 <study>                run one study of workflow/studies/
#   snakemake --cores 8 data | train | tables | figures | report    run the workflow up to that stage
#
# To read the code, start with README, this file, workflow/rules/train.smk, and in src/fglbench: engine/loop.py,
# methods/base.py, methods/fedavg.py.

from snakemake.utils import min_version

min_version("9.27")

if not workflow.overwrite_configfiles:

    configfile: f"{workflow.basedir}/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/download.smk"
include: "workflow/rules/split.smk"
include: "workflow/rules/preprocess.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/collect.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/track.smk"
include: "workflow/rules/tune.smk"


rule all:
    default_target: True
    input:
        [study_files(study) for study in PLAN.active],


onstart:
    try:
        check_writable(Path(RESULTS))
        claim(Path(RESULTS))
    except FglbenchError as error:
        raise WorkflowError(str(error)) from None
    os.environ[FORCED] = "1" if forced() else ""


onsuccess:
    from fglbench.stages.summary import summary

    for study in asked():
        print(summary(Path(RESULTS), study, REFERENCES, PLAN.retried), flush=True)
    if failed := failures():
        raise WorkflowError(failed)
