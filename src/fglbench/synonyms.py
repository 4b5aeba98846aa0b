"""What PyTorch, PyG, OGB and libraries of federated learning call the things that a configuration names.

Only words that are not close to the valid name in spelling need a place here.
"""

import re
from collections.abc import Sequence

_WORDS = {
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


def meant(word: str, names: Sequence[str]) -> str | None:
    """The valid name that a word stands for elsewhere; capitals, signs and a device's number do not count."""
    plain = re.sub(r"[^a-z0-9+]", "", re.sub(r":\d+$", "", word.lower()))
    return next((name for name in names if plain in _WORDS.get(name, "").split()), None)
