"""Validation of a well-typed study: one module for each part of the YAML."""

from fglbench.config.schema import Study
from fglbench.config.validation.entries import entries_problems, task_problems
from fglbench.config.validation.grids import client_problems, grid_problems, seed_problems
from fglbench.config.validation.overrides import override_problems
from fglbench.config.validation.partitions import native_problems, partition_file_problems
from fglbench.config.validation.protocol import dataset_task_problems, protocol_problems
from fglbench.config.validation.search import search_problems
from fglbench.config.validation.tables import name_problems
from fglbench.config.validation.training import training_of_entries
from fglbench.config.validation.wording import duplicates


def study_problems(study: Study) -> list[str]:
    """Return all problems of a study except those that `shown_problems` finds in its tables and figures.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    problems = entries_problems(study)
    problems += task_problems("protocol.task", study.protocol.task)
    problems += dataset_task_problems(study)
    problems += duplicates("clients", study.clients, str)
    problems += seed_problems("seeds", study.seeds)
    problems += training_of_entries(study)
    problems += grid_problems(study)
    for index, override in enumerate(study.overrides):
        problems += override_problems(study, f"overrides[{index}]", override)
    problems += search_problems(study)
    problems += client_problems(study)
    problems += native_problems(study)
    problems += partition_file_problems(study)
    problems += protocol_problems(study)
    return problems + name_problems(study)
