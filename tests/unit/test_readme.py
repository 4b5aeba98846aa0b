"""The table of the README is what the archived records say."""

from pathlib import Path

from fglbench.records.study import read_study
from fglbench.reporting.comparison_tables import comparison_sheet
from fglbench.reporting.reference import load_reference

ROOT = Path(__file__).parents[2]


def table() -> list[str]:
    """Table 3 of FedGTA's study with GCN by validation, ours / printed, as Markdown."""
    study = read_study(ROOT / "results" / "published" / "fedgta")
    (spec,) = (spec for spec in study.tables if spec.name == "table3")
    printed = spec.printed_table.model_copy(update={"where": {**spec.printed_table.where, "backbone": "gcn"}})
    chosen = {"where": {**spec.where, "backbone": ["GCN"]}, "reference": printed, "percent": None}
    spec = spec.model_copy(update=chosen)
    reference = load_reference(ROOT / "workflow" / "studies" / "reference" / "fedgta.csv")
    matrix = comparison_sheet(study, spec, reference).table
    made = [place for place, column in enumerate(zip(*matrix.cells, strict=True)) if any(c.mean for c in column)]
    lines = [f"| | {' | '.join(matrix.columns[place][0] for place in made)} |", f"| --- |{' ---: |' * len(made)}"]
    for (_, label), cells in zip(matrix.rows, matrix.cells, strict=True):
        lines.append(f"| {label} | {' | '.join(f'{cells[p].text} {cells[p].mark}'.rstrip() for p in made)} |")
    return lines


def test_the_table_of_the_readme_is_recomputed_from_the_archived_records() -> None:
    text = (ROOT / "README.md").read_text()
    assert "\n".join(table()) in text, "\n" + "\n".join(table())
