"""Pinned numbers of every method and backbone: they may change only together with a version.

`pytest --update-golden` rewrites `golden.json`. It refuses to do so where numbers changed and no version did, since
cached results of other people would then be taken for the new numbers.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
from federations import SPLITTING
from pairs import BACKBONES, CORE, METHODS, parameters
from safetensors.numpy import load_file

from fglbench import registry
from fglbench.config.expand import expand
from fglbench.config.identity import ENGINE_VERSION, PREPROCESS_VERSION, SPLIT_VERSION, Cell
from fglbench.config.schema import Study
from fglbench.records.metrics import EVALUATE_VERSION
from fglbench.stages.download import download
from fglbench.stages.evaluate import evaluate
from fglbench.stages.preprocess import preprocess
from fglbench.stages.split import split
from fglbench.stages.train import train_seeds
from fglbench.storage import fingerprint, read_json
from fglbench.tasks import DEFAULT_TASK, selecting_metric

GOLDEN = Path(__file__).with_name("golden.json")
DATASET = {"name": "sbm", "nodes": 240, "classes": 3, "average_degree": 6.0, "features": 12, "signal": 1.5}
STUDY = {
    "datasets": [DATASET],
    "partitions": ["random"],
    "clients": [3],
    "methods": METHODS,
    "backbones": BACKBONES,
    "seeds": 1,
    "training": {"rounds": 5, "local_epochs": 2, "hidden": 16, "dropout": 0.5},
}
TRANSDUCTIVE = [f"{method}-{backbone}" for method in METHODS for backbone in BACKBONES]
IN_CORE = {f"{method}-{backbone}" for method, backbone in CORE}
# What other settings than the defaults do: where the clusters of gcfl and gcfl+ split, and named variants.
VARIANTS = {
    **STUDY,
    "methods": [
        "fedavg",
        {"name": "gcfl", "label": "gcfl splitting", **SPLITTING},
        {"name": "gcfl+", "label": "gcfl+ splitting", **SPLITTING, "window": 2},
        {"name": "moon", "label": "moon 1", "mu": 1.0},
        {"name": "feddc", "label": "feddc paper", "variant": "paper"},
        {"name": "fedgta", "label": "fedgta public", "variant": "public"},
        {"name": "fedgl", "label": "fedgl sure", "confidence": 0.4, "label_weight": 1.0, "aggregation": "fedgta"},
        {"name": "fedsage+", "label": "fedsage+ fedgta", "aggregation": "fedgta"},
        "fedbn",
    ],
    "backbones": [
        "gcn",
        {"name": "gcn", "label": "gcn normed", "norm": "batch"},
        {"name": "mlp", "label": "mlp normed", "norm": "batch"},
        "sage",
        {"name": "sage", "label": "sage sampled", "neighbours": 2},
        {"name": "gamlp", "label": "gamlp jk", "attention": "jk"},
    ],
}
VARIANT = [
    *(f"{method['label']}-gcn" for method in VARIANTS["methods"][1:6]),
    *(f"{method['label']}-sage" for method in VARIANTS["methods"][6:8]),
    *(f"{method}-{backbone} normed" for method in ("fedavg", "fedbn") for backbone in ("gcn", "mlp")),
    "fedavg-sage sampled",
    "fedavg-gamlp jk",
]
# Where clients differ in size and labels, each choice gives numbers of its own: absolute thresholds split here, but
# relative ones do not, and moments tell clients apart.
THRESHOLDS = {"first_round": 1, "eps1": 0.3, "eps2": 0.0}
UNEVEN = {
    **STUDY,
    "partitions": ["dirichlet"],
    "backbones": ["gcn"],
    "methods": [
        {"name": "fedgta", "label": "fedgta raw", "epsilon": 0.95, "moments": "raw"},
        {"name": "fedgta", "label": "fedgta central", "epsilon": 0.95, "moments": "central"},
        {"name": "fedgta", "label": "fedgta hybrid", "epsilon": 0.95, "moments": "hybrid"},
        {"name": "fedgta", "label": "fedgta no moments", "epsilon": 0.95, "no_moments": True},
        {"name": "fedgta", "label": "fedgta no confidence", "epsilon": 0.95, "no_confidence": True},
        {"name": "gcfl", "label": "gcfl absolute", **THRESHOLDS, "relative": False},
        {"name": "gcfl", "label": "gcfl relative", **THRESHOLDS, "relative": True},
        {"name": "gcfl+", "label": "gcfl+ plain", **THRESHOLDS, "window": 2, "relative": False, "standardise": False},
        {"name": "gcfl+", "label": "gcfl+ relative", **THRESHOLDS, "window": 2, "relative": True},
        {"name": "gcfl+", "label": "gcfl+ standard", **THRESHOLDS, "window": 2, "relative": False, "standardise": True},
        {"name": "scaffold", "label": "scaffold nodes", "weights": "nodes"},
        {"name": "scaffold", "label": "scaffold equal", "weights": "equal"},
    ],
}
NOTHING_DRAWN = ("native", "file")  # take the clients of a dataset or of a file, and so have no numbers of their own
CHOICE = [f"{method['label']}-gcn dirichlet" for method in UNEVEN["methods"]]
SCHEMES = {
    **STUDY,
    "methods": ["fedavg"],
    "backbones": ["gcn"],
    "partitions": [
        *(name for name in registry.names("scheme") if name not in ("random", "whole", *NOTHING_DRAWN)),
        {"name": "metis", "label": "metis recursive", "recursive": True},
        {"name": "louvain-anchor", "label": "louvain-anchor joined", "between_copies": True},
    ],
}
SCHEME = [f"fedavg-gcn {entry if isinstance(entry, str) else entry['label']}" for entry in SCHEMES["partitions"]]
INDUCTIVE = [f"{pair} inductive" for pair in ("fedgta-gcn", "fedgta-sign", "fedgl-sage", "fedsage+-sage", "global-gat")]

# Another task, and noise on what clients upload.
RECONSTRUCTION = {**STUDY, "methods": ["fedavg"], "protocol": {"task": "feature_reconstruction"}}
PROTECTED = {
    **STUDY,
    "methods": ["fedavg"],
    "backbones": ["gcn"],
    "training": {"rounds": 5, "local_epochs": 2, "hidden": 16, "ldp": {"clip": 0.01, "noise": 0.001}},
}
LINKS = {
    **STUDY,
    "methods": ["fedavg", "fedvgae", "fed-pub", "global"],
    "backbones": ["gcn", "vgae"],
    "protocol": {"task": "link_prediction"},
}
ALL_PAIRS = {**LINKS, "protocol": {"task": {"name": "link_prediction", "pairs": "all"}, "features": "identity"}}
# A score falls below that of the client's own model, so that fine-tuning sets in.
FEDVGAE = {
    **STUDY,
    "methods": [
        {"name": "fedvgae", "label": "fedvgae all", "share": "all", "queue": 2, "drop": 0.0},
        {"name": "fedvgae", "label": "fedvgae plain", "no_contrast": True, "no_fine_tuning": True},
    ],
    "backbones": [{"name": "vgae", "kl_per": "node", "kl": 0.1}],
}
# Clients that share nodes settle within the rounds, so that phase 2 adds links.
WEIGHTS = ("labelled_times_nodes", "nodes", "labelled")
ANCHORED = {
    **STUDY,
    "partitions": ["louvain-anchor"],
    "methods": [
        *(
            {"name": name, "label": f"{name} {augment}", "alpha": 1.0, "augment": augment, "weights": weights}
            for name in ("fedgala", "fedgalap")
            for augment, weights in zip(("anchors", "local", "none"), WEIGHTS, strict=True)
        ),
        *(
            {"name": name, "label": f"{name} by {weights}", "weights": weights}
            for name in ("fedavg", "fedprox", "fedper")
            for weights in WEIGHTS
        ),
        {"name": "fedprox", "label": "fedprox adapted", "mu": 1.0, "mu_step": 0.5},
    ],
    "backbones": ["gcn"],
    "training": {"rounds": 7, "local_epochs": 2, "hidden": 16, "tolerance": 0.0001},
}
OTHERS = {
    **{f"{method['label']}-gcn": ANCHORED for method in ANCHORED["methods"]},
    **{f"{pair} links": LINKS for pair in ("fedavg-gcn", "fedavg-vgae", "fedvgae-vgae", "fed-pub-gcn", "global-gcn")},
    "fedavg-gcn all pairs": ALL_PAIRS,
    **{f"fedavg-{backbone} features": RECONSTRUCTION for backbone in ("gcn", "mlp")},
    "fedavg-gcn private": PROTECTED,
    "fedvgae all-vgae": FEDVGAE,
    "fedvgae plain-vgae": FEDVGAE,
}

BEYOND_PAIRS = [*VARIANT, *CHOICE, *SCHEME, *INDUCTIVE, *OTHERS]
PINNED = [*TRANSDUCTIVE, *BEYOND_PAIRS]


def versions(cell: Cell) -> dict[str, int | str]:
    """Every version that stands behind a cell's numbers, and a hash of the settings, whose defaults may change."""
    method = cell.method.spec
    return {
        "dataset": cell.dataset.spec["version"],
        "scheme": cell.partition.spec["version"],
        "method": method["version"],
        "backbone": method["backbone"]["version"],
        "settings": fingerprint([method["settings"], method["backbone"]["settings"]]),
        "split": SPLIT_VERSION,
        "preprocess": PREPROCESS_VERSION,
        "engine": ENGINE_VERSION,
        "evaluate": EVALUATE_VERSION,
    }


def measure(cell: Cell, root: Path) -> dict[str, Any]:
    """Runs a cell through all stages."""
    graph = root / "download" / cell.dataset.slug
    folders = {stage: (root / cell.folder(stage)).parent for stage in ("split", "preprocess", "train", "evaluate")}
    download(cell.dataset.spec, graph)
    split(graph, cell.partition.spec, [0], folders["split"])
    preprocess(graph, folders["split"], cell.preprocessed.spec, [0], folders["preprocess"])
    specs = cell.specs
    train_seeds(graph, folders["preprocess"], specs, {0: cell.id}, folders["train"], device="cpu")
    evaluate(folders["train"], folders["split"], graph, [0], folders["evaluate"])
    metrics = read_json(folders["evaluate"] / "seed0" / "metrics.json")
    found: dict[str, Any] = {"versions": versions(cell), "outcome": metrics["outcome"]["state"]}
    if found["outcome"] == "ok":
        weights = load_file(folders["train"] / "seed0" / "checkpoint.safetensors")
        squares = [float(np.square(tensor.astype(np.float64)).sum()) for tensor in weights.values()]
        score = selecting_metric(cell.method.spec.get("task", {"name": DEFAULT_TASK})["name"])
        found["accuracy"] = metrics["readings"]["val"]["test"][score]["pooled"]
        found["norm"] = round(sum(squares) ** 0.5, 4)
    return found


def same_numbers(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if one["outcome"] != other["outcome"]:
        return False
    if one["outcome"] != "ok":
        return True
    return abs(one["accuracy"] - other["accuracy"]) <= 1e-6 and abs(one["norm"] - other["norm"]) <= 1e-4 * other["norm"]


def verdict(name: str, found: dict[str, Any], pinned: dict[str, Any] | None) -> str | None:
    """What is wrong with a cell's numbers, or None."""
    if pinned is None:
        return f"{name} has no pinned numbers yet: run pytest --update-golden."
    if found["versions"] != pinned["versions"]:
        return f"{name}: a version was raised or a default changed: run pytest --update-golden and look at the change."
    if not same_numbers(found, pinned):
        return (
            f"{name}: numbers changed from {pinned} to {found}, and no version did. Find the cause, or raise the "
            "VERSION of the component (or of the stage, in config/identity.py) and run pytest --update-golden."
        )
    return None


@pytest.fixture(scope="module")
def cells() -> dict[str, Cell]:
    placements = expand(Study.model_validate(STUDY)).placements
    found = {f"{placement.method}-{placement.backbone}": placement.cell for placement in placements}
    variants = expand(Study.model_validate(VARIANTS)).placements
    found |= {f"{placement.label}-{placement.backbone}": placement.cell for placement in variants}
    uneven = expand(Study.model_validate(UNEVEN)).placements
    found |= {f"{placement.label}-gcn dirichlet": placement.cell for placement in uneven}
    schemes = expand(Study.model_validate(SCHEMES)).placements
    found |= {f"fedavg-gcn {placement.scheme}": placement.cell for placement in schemes}
    inductive = expand(Study.model_validate({**STUDY, "protocol": {"setting": "inductive"}})).placements
    named = {f"{placement.method}-{placement.backbone} inductive": placement.cell for placement in inductive}
    others = {
        name: placement.cell
        for name, study in OTHERS.items()
        for placement in expand(Study.model_validate(study)).placements
        if f"{name} ".startswith(f"{placement.label}-{placement.backbone} ")
    }
    return {name: (found | named | others)[name] for name in PINNED}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="module")
def pinned(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The pinned numbers; changes made to them by tests under --update-golden are stored."""
    stored = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    yield stored
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@pytest.mark.parametrize("name", [*parameters(TRANSDUCTIVE, IN_CORE.__contains__, str), *BEYOND_PAIRS])
def test_numbers_change_only_with_a_version(
    request: pytest.FixtureRequest, name: str, cells: dict[str, Cell], root: Path, pinned: dict[str, Any]
) -> None:
    found = measure(cells[name], root)
    problem = verdict(name, found, pinned.get(name))
    if problem and request.config.getoption("--update-golden") and "no version did" not in problem:
        pinned[name] = found
        problem = None
    assert problem is None, problem


def test_the_pinned_are_those_there_are_with_their_versions(
    request: pytest.FixtureRequest, cells: dict[str, Cell], pinned: dict[str, Any]
) -> None:
    """Of all pairs, also where a run trains those of the core alone."""
    if request.config.getoption("--update-golden"):
        for name in set(pinned) - set(cells):
            del pinned[name]
    assert {name: found["versions"] for name, found in pinned.items()} == {
        name: versions(cell) for name, cell in cells.items()
    }, "run pytest --update-golden"


def used(cell: Cell) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The components of a cell, each with its settings."""
    method, scheme = cell.method.spec, cell.partition.spec
    yield f"method {method['method']}", method["settings"]
    yield f"backbone {method['backbone']['name']}", method["backbone"]["settings"]
    yield f"scheme {scheme['scheme']}", scheme["settings"]
    task = method.get("task", {"name": DEFAULT_TASK, "settings": {}})
    yield f"task {task['name']}", task["settings"]


def choices(annotation: Any) -> tuple[Any, ...]:
    """The values of a setting that has a closed list of them, each of which is an algorithm of its own."""
    if annotation is bool:
        return (True, False)
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(value for part in get_args(annotation) for value in choices(part))


def test_every_component_and_every_choice_of_its_settings_is_pinned(cells: dict[str, Cell]) -> None:
    pinned = {name for cell in cells.values() for name, _ in used(cell)}
    pinned |= {
        f"{name}: {key}={value}"
        for cell in cells.values()
        for name, settings in used(cell)
        for key, value in settings.items()
        if not isinstance(value, dict)
    }
    wanted = set()
    for kind in ("method", "backbone", "scheme", "task"):
        for name in set(registry.names(kind)) - {*NOTHING_DRAWN}:
            wanted.add(f"{kind} {name}")
            for key, field in registry.declaration(kind, name).settings.model_fields.items():
                wanted |= {f"{kind} {name}: {key}={value}" for value in choices(field.annotation)}
    assert wanted - pinned == set()
    assert {"scheme louvain", "method gcfl+: standardise=False", "scheme metis: recursive=True"} <= wanted


def test_verdicts() -> None:
    number = {"outcome": "ok", "accuracy": 0.5, "norm": 2.0, "versions": {"method": 1}}
    assert verdict("m", number, number) is None
    assert verdict("m", {**number, "accuracy": 0.5 + 1e-7, "norm": 2.0001}, number) is None
    assert "no version did" in str(verdict("m", {**number, "accuracy": 0.501}, number))
    assert "no version did" in str(verdict("m", {**number, "norm": 2.001}, number))
    assert "no version did" in str(verdict("m", {**number, "outcome": "diverged"}, number))
    assert "was raised or a default changed" in str(
        verdict("m", {**number, "norm": 3.0, "versions": {"method": 2}}, number)
    )
    assert "no pinned" in str(verdict("m", number, None))
