"""The exception types of the suite and the wording they share.

Every message says what is wrong, where, the value seen, the valid ones with the closest match, and the next step.
"""

from collections.abc import Iterable


class FglbenchError(Exception):
    """Base of every error that a user can act on; the command line prints it without a traceback."""


class ConfigError(FglbenchError):
    """Everything wrong with a configuration, in one report.

    Args:
        problems: one sentence per problem, each naming its file and key.
    """

    def __init__(self, problems: list[str]):
        self.problems = problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{count} in the configuration:\n" + "\n".join(f"  - {problem}" for problem in problems))


class DataError(FglbenchError):
    """A dataset is missing, incomplete, altered, or cannot serve the request."""


class ResourceError(DataError):
    """A dataset takes more disk or memory than this machine has."""


class PartitionError(FglbenchError):
    """The asked partition or split cannot be made."""


class StorageError(FglbenchError):
    """A stored file is missing, unreadable or does not match its checksum."""


class DiskError(StorageError):
    """A disk is full or may not be written; what was there before is untouched."""


class ComponentError(FglbenchError):
    """A method, backbone, partition scheme or sampler is unknown, or its file does not keep the contract."""


def suggest(value: object, choices: Iterable[str]) -> str:
    """The tail of an "unknown name" message: the valid name that is meant or closest, where one is, else all of them.

    A word that another library has for a valid name leads to it (see `fglbench.synonyms`).
    """
    from rapidfuzz import process

    from fglbench.synonyms import meant

    names = sorted(set(choices))
    match = process.extractOne(str(value), names, processor=str.lower, score_cutoff=65)
    if found := meant(str(value), names) or (match and match[0]):
        return f"Did you mean '{found}'? Valid: {', '.join(names)}."
    return f"Valid: {', '.join(names)}."
