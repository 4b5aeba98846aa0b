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
    found = entries_problems(study)
    found += task_problems("protocol.task", study.protocol.task)
    found += dataset_task_problems(study)
    found += duplicates("clients", study.clients, str)
    found += seed_problems("seeds", study.seeds)
    found += training_of_entries(study)
    found += grid_problems(study)
    for index, override in enumerate(study.overrides):
        found += override_problems(study, f"overrides[{index}]", override)
    found += search_problems(study)
    found += client_problems(study)
    found += native_problems(study)
    found += partition_file_problems(study)
    found += protocol_problems(study)
    return found + name_problems(study)
