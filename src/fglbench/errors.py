"""The exception types of the suite and the wording they share.

Every message says what is wrong, where, the value seen, the valid ones with the closest match, and the next step.
"""

import re
from collections.abc import Iterable, Sequence


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

    A word that another library has for a valid name leads to it.
    """
    from rapidfuzz import process

    names = sorted(set(choices))
    match = process.extractOne(str(value), names, processor=str.lower, score_cutoff=65)
    if found := meant(str(value), names) or (match and match[0]):
        return f"Did you mean '{found}'? Valid: {', '.join(names)}."
    return f"Valid: {', '.join(names)}."


SYNONYMS = {
    # devices
    "cuda": "gpu nvidia rocm hip",
    "cpu": "mps metal xpu",  # of other makers' cards, which the suite does not use
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
"""What PyTorch, PyG, OGB and libraries of federated learning call the things that a configuration names, where the word
is not close to the valid name in spelling."""


def meant(word: str, names: Sequence[str]) -> str | None:
    """The valid name that a word stands for elsewhere; capitals, signs and a device's number do not count."""
    plain = re.sub(r"[^a-z0-9+]", "", re.sub(r":\d+$", "", word.lower()))
    return next((name for name in names if plain in SYNONYMS.get(name, "").split()), None)
