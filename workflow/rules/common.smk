# Configuration, path patterns and resources shared by all stages. This file has no rules.

import os
import re
import sys

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

sys.path.insert(0, str(Path(workflow.basedir) / "src"))

from fglbench.config.identity import COLLECT_VERSION, REPORT_VERSION, TRACK_VERSION
from fglbench.records.metrics import EVALUATE_VERSION
from fglbench.config.load import typed
from fglbench.workflow.plan import Plan
from fglbench.workflow.resources import download_mb, download_min
from fglbench.errors import FglbenchError
from fglbench.reporting.names import figure_files, table_files
from fglbench.records.study import FRAMES, STUDY as STUDY_FILE
from fglbench.stages.failures import FORCED, failure_report
from fglbench.stages.job import share_package
from fglbench.storage import check_writable, fingerprint
from fglbench.runtime.terminal import show_anything
from fglbench.tracking.postponed import failed_imports
from fglbench.workflow.run_lock import claim, look, set_back_times

STUDIES = Path(workflow.basedir) / "workflow" / "studies"
REFERENCES = STUDIES / "reference"
PUBLISHED = Path(os.environ.get("FGLBENCH_PUBLISHED") or Path(workflow.basedir) / "results" / "published")

share_package()
show_anything()

try:
    PLAN = Plan(
        typed(dict(config), dict(workflow.config_settings.config)),
        source=", ".join(os.path.relpath(path) for path in workflow.configfiles) or "--config",
        studies=STUDIES,
        archives=PUBLISHED.resolve(),
        files=[Path(path) for path in workflow.configfiles],
        given=workflow.config_settings.config,
    )
except FglbenchError as error:
    raise WorkflowError(str(error)) from None

if workflow.is_main_process:
    for found in filter(None, (look(Path(PLAN.root)), set_back_times(Path(PLAN.root)))):
        logger.warning(found)

RESULTS = PLAN.root
LOGS = f"{RESULTS}/logs"
BENCHMARKS = f"{RESULTS}/benchmarks"
CONDA = "../../envs/cpu.yaml"
CONDA_TRAINING = "../../envs/gpu.yaml"
SAID = set()
STUDY_SETTINGS = {study: expansion.study for study, expansion in PLAN.studies.items()}


wildcard_constraints:
    dataset=r"[a-z0-9.+-]+",
    partition=r"[a-z0-9.+-]+",
    preprocessed=r"[a-z0-9.+-]+",
    method=r"[a-z0-9.+-]+",
    seeds=r"[0-9+-]+",
    search=r"[a-z0-9.+-]+",
    study="|".join(map(re.escape, PLAN.studies)),


# On a cluster, these rules run on the machine that runs Snakemake: each takes seconds on one core, and download needs
# the network.
localrules:
    all,
    data,
    train,
    tables,
    figures,
    report,
    tune,
    download_dataset,
    evaluate_cell,
    collect_study,
    track_study,


def grows(amount):
    """Return a function that doubles memory or minutes with every attempt.

    Args:
        amount: a number, or a function of the wildcards.
    """
    return lambda wildcards, attempt: (amount(wildcards) if callable(amount) else amount) * 2 ** (attempt - 1)


def reference_files(study):
    """Return the file of printed numbers of a study, as a list; empty if there is none.

    The tables of the study report a missing file.
    """
    path = REFERENCES / f"{STUDY_SETTINGS[study].reference}.csv"
    return [str(path)] if path.is_file() else []


def table_paths(study):
    """Return the paths of a study's tables."""
    settings = STUDY_SETTINGS[study]
    return [f"{RESULTS}/tables/{study}/{name}" for name in table_files(settings.tables, settings.reference)]


def figure_paths(study):
    """Return the paths of a study's figures."""
    return [f"{RESULTS}/figures/{study}/{name}" for name in figure_files(STUDY_SETTINGS[study].figures)]


def asked():
    """Return the studies named on the command line. Any other target adds the studies of the configuration."""
    targets = set(workflow.dag_settings.targets or ["all"])
    others = targets - set(PLAN.studies)
    return [study for study in PLAN.studies if study in targets or (others and study in PLAN.active)]


def forced():
    """Return whether the command line forces jobs that would not run otherwise."""
    settings = workflow.dag_settings
    return bool(settings.forcerun or settings.forceall or settings.forcetargets)


def failures():
    """Return a description of the failures in the jobs of this command; None if there are none, or if they are kept."""
    made = [job.output[0] for job in workflow.dag.jobs if job.rule.name in ("train_cell", "tune_search")]
    return failure_report(map(Path, made)) if PLAN.retried else None


def wanted(study):
    """Return the study, and log a warning for each of its datasets that is not run."""
    if workflow.is_main_process:
        for line in (f"not run: {slug}: {reason}" for slug, reason in PLAN.availability.not_run(study).items()):
            if line not in SAID:
                logger.warning(line)
                SAID.add(line)
    return study


def study_files(study):
    """Return the paths of a study's records, tables, figures and report, of their checksums and the MLflow import."""
    made = {
        "studies": [f"{RESULTS}/studies/{study}/{name}" for name in (*(f"{n}.parquet" for n in FRAMES), STUDY_FILE)],
        "tables": table_paths(study),
        "figures": figure_paths(study),
        "report": [f"{RESULTS}/report/{study}.html"],
    }
    files = [path for paths in made.values() for path in paths]
    files += [f"{RESULTS}/checksums/{stage}/{study}.json" for stage, paths in made.items() if paths]
    return files + ([f"{RESULTS}/tracking/{study}.json"] if PLAN.tracked else [])
