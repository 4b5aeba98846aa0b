"""Captions, legends and notes of tables, which explain the numbers, their computation and their marks."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fglbench.evaluation.quantities import OF_RUNS, Quantity
from fglbench.evaluation.statistics import critical_difference, friedman, mean_ranks, paired_differences
from fglbench.records.study import FIELDS, PROBLEM, StudyRecord
from fglbench.reporting.cells import TableCell
from fglbench.reporting.frames import shown, titled
from fglbench.reporting.marks import ALIKE, competes
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
    "nodes": "Client mean: nodes (every node once; the score of one that several clients hold is the mean over them)",
    "weighted": "Client mean: weighted (each client by what it counts at the server in that round)",
}
OFTEN = "; a node that several clients hold counts once for each of them)"
GLOBAL_TESTS = {
    "whole": "Global test: each client's model on the test nodes of all clients, in the whole graph",
    "held_out": "Global test: each client's model on the graph of the nodes held out from all clients",
}
SAID = ("reading", "mean", "logits")
OF_RATIOS = ("split.train", "split.val", "split.test", "split.stratify")
MOST_PLACES = 6
MOST_REASONS = MOST_PAIRS = 12


def caption(
    study: StudyRecord, spec: Mapping[str, Any], unit: Quantity, cells: list[list[TableCell]], shows: str | None = None
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
    datasets = list(dict.fromkeys(cell.place["dataset"] for cell in flat if cell.place))
    of_runs = spec["metric"] in OF_RUNS
    split = spec.get("split", "test").replace("_", " ")
    what = unit.title if of_runs else f"{split} {unit.title}"
    sentences = [f"{what[:1].upper()}{what[1:]}{f' in {unit.unit}' if unit.unit else ''}: {shows or spread(flat)}"]
    if not of_runs:
        if split == "global test":
            sentences.append(GLOBAL_TESTS[study.settings["protocol"]["global_test"]])
        words = [
            *_readings(study, spec.get("reading", "val"), datasets),
            _mean(study, spec.get("mean", "pooled"), datasets),
        ]
        sentences += [text.replace("{targets}", spec.get("targets", "nodes")) for text in words]
    devices = sorted({cell.place["device"] for cell in flat if cell.place.get("device")})
    if devices:
        sentences.append(f"Device: {'; '.join(devices)}")
    sentences += _protocols(study, datasets)
    sentences += _training(study, flat)
    sentences += _overridden(study)
    if any(cell.best for cell in flat):
        direction = "highest" if unit.better == "higher" else "lowest"
        sentences.append(f"Best ({direction}) in bold, second underlined, ties as printed all marked")
        if central := list(dict.fromkeys(cell.place["label"] for cell in flat if cell.place.get("centralised"))):
            who = _listed(central)
            does = (
                "train on the whole graph in one place and are"
                if len(central) > 1
                else ("trains on the whole graph in one place and is")
            )
            sentences.append(f"{who[:1].upper()}{who[1:]} {does} not marked")
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
    own, common = study.settings.get("protocols") or {}, study.settings.get("protocol") or {}
    found: dict[str, list[str]] = {}
    for dataset in datasets or [""]:
        values = flattened(own.get(dataset, common))
        unsaid = SAID if ("split.kind", "ratios") in values else (*SAID, *OF_RATIOS)
        text = ", ".join(f"{name.removesuffix('.name')} {value}" for name, value in values if name not in unsaid)
        found.setdefault(text, []).append(dataset)
    if len(found) == 1:
        return [f"Protocol: {text}" for text in found if text]
    return [f"Protocol of {', '.join(names)}: {text}" for text, names in found.items()]


def _training(study: StudyRecord, cells: list[TableCell]) -> list[str]:
    """Return the training settings that the table's datasets, backbones and methods change from those of the study."""
    common = study.settings.get("training") or {}
    found = []
    for axis, kind in (("dataset", "datasets"), ("backbone", "backbones"), ("label", "methods")):
        entries = (study.settings.get("settings") or {}).get(kind) or []
        here = {cell.place[axis] for cell in cells if cell.place}
        who: dict[str, list[str]] = {}
        for label, entry in zip(study.order.get(axis) or [], entries, strict=False):
            own = [
                f"{name} {value}" + (f" (not {common[name]})" if common[name] is not None else "")
                for name, value in (entry.get("training") or {}).items()
                if name in common and value != common[name]
            ]
            if own and label in here:
                who.setdefault(", ".join(own), []).append(label)
        parts = [f"{_listed(labels)} with {changes}" for changes, labels in who.items()]
        found += [f"Training differs by {'method' if axis == 'label' else axis}: {'; '.join(parts)}"] if parts else []
    return found


def _listed(names: list[str]) -> str:
    """Join names for a sentence: "Photo, Computers, CS and Physics"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _overridden(study: StudyRecord) -> list[str]:
    """Return the source of the settings of single datasets, backbones or methods."""
    settings = study.settings.get("settings") or {}
    if settings.get("tuned"):
        return [f"Settings found by searches on validation nodes: tuned/{settings['tuned']}.yaml"]
    return ["Settings differ as the study's overrides say"] if settings.get("overrides") else []


def _readings(study: StudyRecord, reading: str, datasets: list[str]) -> list[str]:
    """Return the words for the scored round; for `val`, datasets without validation nodes use the last round."""
    validation = study.runs[study.runs["split"] == "val"]
    most = validation[validation["dataset"].isin(datasets)].groupby("dataset")["evaluated"].max()
    without = [dataset for dataset in datasets if most.get(dataset, 1) == 0] if reading == "val" else []
    if not without:
        return [READINGS[reading]]
    why = "ast round, for no client has validation {targets} to choose one by"
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


def legend(cells: list[list[TableCell]], level: float | None = None) -> list[tuple[str, str]]:
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
        entries.append((ALIKE, f"not separable from the best with these seeds {_test(level)}"))
    return entries


def _test(level: float) -> str:
    return f"(paired t-test over common seeds, Holm-corrected, level {100 * level:g} %)"


def notes(spec: Mapping[str, Any], unit: Quantity, cells: list[list[TableCell]], frame: pd.DataFrame) -> list[str]:
    """Return the sentences below a table.

    Args:
        spec: the table's entry in `study.json`.
        unit: the quantity that the table shows.
        cells: [rows][columns], with marks.
        frame: the table's records, one row per cell placement and seed.

    Returns:
        Sentences in print order: missing numbers, clients without nodes, tests, average ranks, paired differences.
    """
    if frame.empty:
        return ["No record matches this table's filter."]
    return [
        *_reasons(spec, cells),
        *_clients(spec, frame),
        *_separable(spec, unit, cells),
        *_ranking(spec, unit, cells),
        *_pairs(spec, unit, cells),
    ]


def _name(spec: Mapping[str, Any], cell: TableCell) -> str:
    """Return the row and column values of a cell in one line."""
    fields = [name for name in FIELDS if name in (*spec["rows"], *spec["columns"])]
    return titled(fields, [cell.place[name] for name in fields])


def _reasons(spec: Mapping[str, Any], cells: list[list[TableCell]]) -> list[str]:
    alike: dict[str, list[TableCell]] = {}
    for cell in (cell for row in cells for cell in row):
        if cell.detail and cell.place:
            alike.setdefault(cell.detail, []).append(cell)
    known = [f"{_places(spec, group)}: {detail}." for detail, group in alike.items()]
    if len(known) > MOST_REASONS:
        return [*known[:MOST_REASONS], f"{len(known) - MOST_REASONS} more cells without a number: see runs.parquet."]
    return known


def _places(spec: Mapping[str, Any], cells: list[TableCell]) -> str:
    """Return the places of cells with the same reason; beyond `MOST_PLACES`, the number of cells per dataset."""
    if len(cells) <= MOST_PLACES:
        return "; ".join(_name(spec, cell) for cell in cells)
    counts = Counter(cell.place["dataset"] for cell in cells)
    return "; ".join(f"{dataset}, {count} cell{'s' * (count > 1)}" for dataset, count in counts.items())


def _clients(spec: Mapping[str, Any], frame: pd.DataFrame) -> list[str]:
    if not {"evaluated", "of"} <= set(frame.columns):
        return []
    fields = [name for name in PROBLEM if name in (*spec["rows"], *spec["columns"])]
    short = frame[frame["evaluated"] < frame["of"]]
    lines = []
    for key, group in short.groupby(fields or ["dataset"], sort=False):
        place = titled(fields or ["dataset"], key)
        low, high, of = int(group["evaluated"].min()), int(group["evaluated"].max()), int(group["of"].max())
        lines.append(f"{place}: {low if low == high else f'{low} to {high}'} of {of} clients evaluated.")
    return lines


def _separable(spec: Mapping[str, Any], unit: Quantity, cells: list[list[TableCell]]) -> list[str]:
    """Return how many cells the test separates from the best, which shows that a table without marks was tested."""
    level = spec.get("separable")
    rivals = [cell for row in cells for cell in row if competes(cell) and cell.mean is not None]
    if level is None or unit.better is None or len(rivals) < 2:
        return []
    tests = [cell.against_best for cell in rivals if cell.against_best]
    apart = sum(test.p < level for test in tests)
    line = f"Separable from the best {_test(level)}: {apart} of {len(tests)} cells"
    untested = sum(not cell.best and cell.against_best is None for cell in rivals)
    return [line + (f"; {untested} more have no rival or fewer than two common seeds." if untested else ".")]


def _ranking(spec: Mapping[str, Any], unit: Quantity, cells: list[list[TableCell]]) -> list[str]:
    """Return average ranks over the problems in which every competing method has a number; none for mixed devices."""
    names = [name for name in ("backbone", "label", "method") if name in (*spec["rows"], *spec["columns"])]
    rivals = [cell for row in cells for cell in row if cell.place and not cell.place["centralised"]]
    if unit.better is None or not names or len({cell.place["device"] for cell in rivals if cell.mean is not None}) > 1:
        return []
    entrants: dict[str, dict[tuple[Any, ...], float | None]] = {}
    for cell in rivals:
        *context, own = [str(cell.place[name]) for name in names]
        who = f"{own} ({', '.join(context)})" if context else own
        entrants.setdefault(who, {})[tuple(cell.place[name] for name in PROBLEM)] = cell.mean
    problems = {key for known in entrants.values() for key in known}
    shared = sorted((key for key in problems if all(e.get(key) is not None for e in entrants.values())), key=str)
    if len(entrants) < 2 or len(shared) < 2:
        return []
    values = np.array([[entrants[who][key] for who in entrants] for key in shared], dtype=float)
    by_dataset = mean_ranks(values, [str(key[0]) for key in shared], unit.better)
    order = sorted(zip(by_dataset.mean(axis=0).tolist(), entrants, strict=True))
    each = ", each dataset counted once" if 1 < len(by_dataset) < len(shared) else ""
    line = f"Average rank over {len(shared)} columns{each}: " + ", ".join(f"{who} {rank:.2f}" for rank, who in order)
    if len(by_dataset) < 2:  # The columns of one dataset are not independent.
        return [f"{line}."]
    line += f"; critical difference (Nemenyi, 5 %): {critical_difference(len(entrants), len(by_dataset)):.2f}"
    test = friedman(-by_dataset)
    return [line + (f"; Friedman p = {test[1]:.3g}." if test else ".")]


def _pairs(spec: Mapping[str, Any], unit: Quantity, cells: list[list[TableCell]]) -> list[str]:
    """Return the lead of each single best cell over the second, paired by seed; empty beyond `MOST_PAIRS` problems."""
    problems: dict[tuple[Any, ...], tuple[list[TableCell], list[TableCell]]] = {}
    for cell in (cell for column in zip(*cells, strict=True) for cell in column):
        if cell.best or cell.second:
            pair = problems.setdefault(tuple(cell.place[name] for name in PROBLEM), ([], []))
            pair[0 if cell.best else 1].append(cell)
    parts = []
    fields = [name for name in PROBLEM if name in (*spec["rows"], *spec["columns"])]
    for key, (best, second) in problems.items():
        if len(best) == len(second) == 1:
            lead = paired_differences(best[0].values, second[0].values)
            if lead is not None and lead.std is not None:
                digits = spec.get("digits", 1)
                place = ", ".join(shown(name, key[PROBLEM.index(name)]) for name in fields)
                sign = "+" if lead.mean >= 0 else "−"
                parts.append(f"{place} {sign}{abs(lead.mean):.{digits}f} ± {lead.std:.{digits}f}".strip())
    return [f"Best minus second, paired by seed: {'; '.join(parts)}."] if 0 < len(parts) <= MOST_PAIRS else []
