"""Captions and legends of tables, which explain the numbers, their computation and their marks."""

from collections.abc import Mapping
from typing import Any

from fglbench.evaluation.quantities import OF_RUNS, Quantity
from fglbench.records.presentation import TableSpec
from fglbench.records.study import StudyRecord
from fglbench.reporting.cells import TableCell
from fglbench.reporting.marks import ALIKE
from fglbench.reporting.outcomes import OUTCOMES

READINGS = {
    "val": "Round chosen by the validation {targets}",
    "last": "Last round",
    "test": "Best-on-test: the round is chosen by the test {targets} themselves, which is optimistic and only meant "
    "for comparison with papers that do so",
}
MEANS = {
    "pooled": "Client mean: pooled (the {targets} of all clients counted together)",
    "macro": "Client mean: macro (plain mean over the clients that have such {targets})",
    "nodes": "Client mean: nodes (every node counts once, with the mean score over the clients that hold it)",
    "weighted": "Client mean: weighted (each client by its aggregation weight at the server in that round)",
}
OFTEN = "; a node that several clients hold counts once for each of them)"
GLOBAL_TESTS = {
    "whole": "Global test: each client's model on the test nodes of all clients, in the whole graph",
    "held_out": "Global test: each client's model on the graph of the nodes held out from all clients",
}
OMITTED = ("reading", "mean", "logits")
OF_RATIOS = ("split.train", "split.val", "split.test", "split.stratify")


def caption(
    study: StudyRecord, spec: TableSpec, unit: Quantity, cells: list[list[TableCell]], shows: str | None = None
) -> list[str]:
    """Return the sentences above a table.

    Args:
        study: the collected records.
        spec: the table's entry in `study.json`.
        unit: the quantity that the table shows.
        cells: [rows][columns], with marks.
        shows: description of the content of a cell; None for mean and standard deviation over seeds.

    Returns:
        Sentences in print order, each with a full stop: quantity, reading and client mean, devices, protocol, training,
        overrides, marks.
    """
    flat = [cell for row in cells for cell in row]
    datasets = list(dict.fromkeys(cell.coordinates["dataset"] for cell in flat if cell.coordinates))
    of_runs = spec.metric in OF_RUNS
    split = spec.split.replace("_", " ")
    name = unit.title if of_runs else f"{split} {unit.title}"
    in_unit = f" in {unit.unit}" if unit.unit else ""
    sentences = [f"{name[:1].upper()}{name[1:]}{in_unit}: {shows or spread(flat)}"]
    if not of_runs:
        if split == "global test":
            sentences.append(GLOBAL_TESTS[study.settings["protocol"]["global_test"]])
        templates = [
            *_readings(study, spec.reading, datasets),
            _mean(study, spec.mean, datasets),
        ]
        sentences += [text.replace("{targets}", spec.targets) for text in templates]
    devices = sorted({cell.coordinates["device"] for cell in flat if cell.coordinates.get("device")})
    if devices:
        sentences.append(f"Device: {'; '.join(devices)}")
    sentences += _protocols(study, datasets)
    sentences += _training(study, flat)
    sentences += _overridden(study)
    if any(cell.best for cell in flat):
        direction = "highest" if unit.better == "higher" else "lowest"
        sentences.append(f"Best ({direction}) in bold, second underlined; equal printed numbers share the mark")
        if central := list(
            dict.fromkeys(cell.coordinates["label"] for cell in flat if cell.coordinates.get("centralised"))
        ):
            subject = _listed(central)
            train, are = ("train", "are") if len(central) > 1 else ("trains", "is")
            sentence = f"{subject} {train} on the whole graph in one place and {are} not marked"
            sentences.append(f"{sentence[:1].upper()}{sentence[1:]}")
    return [f"{sentence}." for sentence in sentences]


def _mean(study: StudyRecord, mean: str, datasets: list[str]) -> str:
    """Return the words for the client mean; for `pooled`, they say how shared nodes count if clients share nodes."""
    shared = study.runs.loc[study.runs["mean"] == "nodes", "dataset"].isin(datasets).any()
    return MEANS[mean].removesuffix(")") + OFTEN if mean == "pooled" and shared else MEANS[mean]


def _protocols(study: StudyRecord, datasets: list[str]) -> list[str]:
    """Return one sentence on the protocol, or one for each protocol if the datasets differ.

    The reading and the client mean are left out because each table chooses its own; `logits` is left out as well.
    Ratios are left out if the split does not use ratios.
    """
    by_dataset, common = study.settings.get("protocols") or {}, study.settings.get("protocol") or {}
    protocols: dict[str, list[str]] = {}
    for dataset in datasets or [""]:
        values = flattened(by_dataset.get(dataset, common))
        omitted = OMITTED if ("split.kind", "ratios") in values else (*OMITTED, *OF_RATIOS)
        text = ", ".join(f"{name.removesuffix('.name')} {value}" for name, value in values if name not in omitted)
        protocols.setdefault(text, []).append(dataset)
    if len(protocols) == 1:
        return [f"Protocol: {text}" for text in protocols if text]
    return [f"Protocol of {', '.join(names)}: {text}" for text, names in protocols.items()]


def _training(study: StudyRecord, cells: list[TableCell]) -> list[str]:
    """Return the training settings that the table's datasets, backbones and methods change from those of the study."""
    common = study.settings.get("training") or {}
    sentences = []
    for axis, kind in (("dataset", "datasets"), ("backbone", "backbones"), ("label", "methods")):
        entries = (study.settings.get("settings") or {}).get(kind) or []
        shown = {cell.coordinates[axis] for cell in cells if cell.coordinates}
        labels_by_changes: dict[str, list[str]] = {}
        for label, entry in zip(study.order.get(axis) or [], entries, strict=False):
            changes = [
                f"{name} {value}" + (f" (not {common[name]})" if common[name] is not None else "")
                for name, value in (entry.get("training") or {}).items()
                if name in common and value != common[name]
            ]
            if changes and label in shown:
                labels_by_changes.setdefault(", ".join(changes), []).append(label)
        parts = [f"{_listed(labels)} with {text}" for text, labels in labels_by_changes.items()]
        if parts:
            sentences.append(f"Training differs by {'method' if axis == 'label' else axis}: {'; '.join(parts)}")
    return sentences


def _listed(names: list[str]) -> str:
    """Join names for a sentence: "Photo, Computers, CS and Physics"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _overridden(study: StudyRecord) -> list[str]:
    """Return the source of the settings of single datasets, backbones or methods."""
    settings = study.settings.get("settings") or {}
    if settings.get("tuned"):
        return [f"Settings found by searches on validation nodes: tuned/{settings['tuned']}.yaml"]
    return ["Some cells have settings from the overrides of the study"] if settings.get("overrides") else []


def _readings(study: StudyRecord, reading: str, datasets: list[str]) -> list[str]:
    """Return the words for the scored round; for `val`, datasets without validation nodes use the last round."""
    validation = study.runs[study.runs["split"] == "val"]
    most = validation[validation["dataset"].isin(datasets)].groupby("dataset")["evaluated"].max()
    without = [dataset for dataset in datasets if most.get(dataset, 1) == 0] if reading == "val" else []
    if not without:
        return [READINGS[reading]]
    why = "ast round, because no client has validation {targets}"
    return [f"L{why}"] if len(without) == len(datasets) else [READINGS[reading], f"{_listed(without)}: l{why}"]


def spread(cells: list[TableCell]) -> str:
    """Describe how a cell summarises its seeds.

    Args:
        cells: all cells of one table.

    Returns:
        A phrase without a full stop, such as "mean ± sample standard deviation (n − 1) over n = 3 seeds".
    """
    sizes = sorted({cell.n for cell in cells if cell.state == "ok"})
    if not sizes:
        return "no complete cell"
    if sizes == [1]:
        return "one seed (n = 1)"
    if len(sizes) == 1:
        return f"mean ± sample standard deviation (n − 1) over n = {sizes[0]} seeds"
    return "mean ± sample standard deviation (n − 1) over seeds, (n) in each cell"


def flattened(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Flatten nested settings into pairs of dotted name and text.

    Args:
        values: nested settings.
        prefix: text before every name, such as "split.".

    Returns:
        (dotted name, text) in the order of `values`; the items of a list are joined by "/", settings that are None are
        left out.
    """
    lines: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += flattened(value, f"{prefix}{name}.")
        elif value is not None:
            text = "/".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            lines.append((f"{prefix}{name}", text))
    return lines


def symbols_of(cells: list[list[TableCell]], level: float | None = None) -> list[tuple[str, str]]:
    """Return the symbols that occur in a table, with their meanings.

    Args:
        cells: [rows][columns].
        level: significance level of the test against the best cell; None for a table without this test.

    Returns:
        (symbol, meaning), outcomes first.
    """
    texts = [cell.text for row in cells for cell in row if cell.state not in ("ok", "text")]
    entries = [(o.symbol, o.meaning) for o in OUTCOMES.values() if any(o.symbol in text for text in texts)]
    if any(cell.state == "partial" for row in cells for cell in row):
        entries.append(("k of n:", "only k of n seeds ended well, so there is no average"))
    if level is not None and any(cell.mark == ALIKE for row in cells for cell in row):
        entries.append((ALIKE, f"not separable from the best with these seeds {test_of(level)}"))
    return entries


def test_of(level: float) -> str:
    """Name the test against the best cell, as legends and notes do.

    Args:
        level: significance level.

    Returns:
        A phrase in parentheses.
    """
    return f"(paired t-test over common seeds, Holm-corrected, level {100 * level:g} %)"
