"""Exception types of the package and the text that their messages share.

Every message names the problem, its place, the given value, the valid values with the closest match, and the next step.
"""

import re
from collections.abc import Iterable, Sequence


class FglbenchError(Exception):
    """Base class of all errors that a user can fix; the command line prints them without a traceback."""


class ConfigError(FglbenchError):
    """All problems of a configuration, in one report.

    Args:
        problems: one sentence per problem; each names its file and key.
    """

    def __init__(self, problems: list[str]):
        self.problems = problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{count} in the configuration:\n" + "\n".join(f"  - {problem}" for problem in problems))


class DataError(FglbenchError):
    """A dataset is missing, incomplete or altered, or unsuitable for the request."""


class ResourceError(DataError):
    """A dataset needs more disk space or memory than this machine has."""


class PartitionError(FglbenchError):
    """The requested partition or split is impossible."""


class StorageError(FglbenchError):
    """A stored file is missing, unreadable or does not match its checksum."""


class DiskError(StorageError):
    """A disk is full or not writable; existing files are unchanged."""


class ComponentError(FglbenchError):
    """A component (such as a method or a backbone) is unknown, or its file breaks the contract of its kind."""


def suggest(value: object, choices: Iterable[str]) -> str:
    """Return the end of an "unknown name" message: a suggestion, and the valid names.

    Names that other libraries use for a valid name are recognised, see `SYNONYMS`.

    Args:
        value: the unknown name.
        choices: the valid names.

    Returns:
        "Did you mean '<name>'? Valid: <names>."; without the question if no valid name is close.
    """
    from rapidfuzz import process

    names = sorted(set(choices))
    match = process.extractOne(str(value), names, processor=str.lower, score_cutoff=65)
    if closest := meant(str(value), names) or (match and match[0]):
        return f"Did you mean '{closest}'? Valid: {', '.join(names)}."
    return f"Valid: {', '.join(names)}."


SYNONYMS = {
    # devices
    "cuda": "gpu nvidia rocm hip",
    "cpu": "mps metal xpu",  # GPUs of other vendors, which the package does not use
    # metrics
    "accuracy": "acc testacc top1",
    "f1_macro": "f1 f1score fscore macrof1",
    "f1_micro": "microf1",
    "auc": "auroc roc",
    "ap": "averageprecision auprc prauc",
    "loss": "nll crossentropy",
    "train_seconds": "time runtime walltime seconds",
    "peak_memory_mb": "memory ram vram",
    "bytes_up": "communication traffic bytes",
    # keys
    "lr": "lrrate learningrate stepsize eta",
    "weight_decay": "wd l2 l2penalty",
    "hidden": "nhid hid hiddendim hiddenchannels embeddingdim width",
    "rounds": "commrounds globalepochs globalep iterations",
    "local_epochs": "epochs numepochs localep localsteps localiterations",
    "participation": "fraction frac samplingrate samplefraction clientfraction",
    "batch_size": "bs",
    "dropout": "droprate p",
    "optimiser": "opt",
    "seeds": "repeats repetitions runs numruns nruns trials",
    "clients": "parties participants workers",
    "methods": "algorithms algorithm algo strategies strategy aggregators",
    "method": "algorithm algo strategy aggregator",
    "backbones": "models model gnn architectures",
    "backbone": "model gnn architecture",
    "partitions": "schemes partitioners",
    # components
    "global": "centralized centralised",
    "local": "standalone isolated separate",
    "fedsage+": "fedsageplus",
    "gcfl+": "gcflplus",
    "dirichlet": "lda noniid labelskew",
    "random": "iid uniform",
    "sage": "graphsage sageconv",
    "cs": "coauthorcs",
    "physics": "coauthorphysics",
    "arxiv": "ogbnarxiv",
    "products": "ogbnproducts",
}
"""From valid names in configurations to their names in PyTorch, PyG, OGB and libraries of federated learning.

It lists only words whose spelling is not close to the valid name.
"""


def meant(word: str, names: Sequence[str]) -> str | None:
    """Return the valid name for a word that other libraries use, see `SYNONYMS`.

    Upper case, punctuation other than "+", and a device number such as ":0" are ignored.

    Args:
        word: as the user wrote it.
        names: the valid names.

    Returns:
        One of `names`; None if the word is no synonym of any.
    """
    plain = re.sub(r"[^a-z0-9+]", "", re.sub(r":\d+$", "", word.lower()))
    return next((name for name in names if plain in SYNONYMS.get(name, "").split()), None)
