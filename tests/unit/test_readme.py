"""The table of the README is what the packed records say."""

from pathlib import Path

from fglbench.reporting.compare import compare
from fglbench.reporting.records import load_study
from fglbench.reporting.reference import load_reference
from fglbench.reporting.tables import build_table

ROOT = Path(__file__).parents[2]
SIGNS = {"above": " ▴", "below": " ▾", "match": "", "": ""}


def table() -> list[str]:
    """Table 3 of FedGTA's study with GCN after the last round, ours / printed, as Markdown."""
    study = load_study(ROOT / "results" / "published" / "fedgta")
    (spec,) = (spec for spec in study.settings["tables"] if spec["name"] == "table3-last")
    spec = {**spec, "where": {**spec["where"], "backbone": ["GCN"]}, "percent": None}
    reference = load_reference(ROOT / "workflow" / "studies" / "reference" / "fedgta.csv")
    printed = {(row.place["dataset"], row.place["label"]): row for row in compare(study, spec, reference)}
    ours = {
        (cell.place["dataset"], cell.place["label"]): cell.mean
        for row in build_table(study, spec).cells
        for cell in row
        if cell.mean is not None
    }
    datasets = [name for name in study.order["dataset"] if any(name == dataset for dataset, _ in ours)]
    lines = [f"| | {' | '.join(datasets)} |", f"| --- |{' ---: |' * len(datasets)}"]
    for label in dict.fromkeys(label for _, label in ours):
        cells = []
        for dataset in datasets:
            row = printed.get((dataset, label))
            theirs = f"{row.printed.value:.1f}{SIGNS[row.verdict]}" if row and row.printed.value is not None else "–"
            cells.append(f"{ours[dataset, label]:.1f} / {theirs}" if (dataset, label) in ours else "–")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def test_the_table_of_the_readme_is_recomputed_from_the_packed_records() -> None:
    text = (ROOT / "README.md").read_text()
    assert "\n".join(table()) in text, "\n" + "\n".join(table())
