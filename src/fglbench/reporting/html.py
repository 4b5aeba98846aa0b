"""The report page of a study: one self-contained file without network requests.

Its only script copies text to the clipboard.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from fglbench.errors import StorageError
from fglbench.records.checksums import check_made
from fglbench.records.presentation import FigureSpec
from fglbench.records.study import StudyRecord
from fglbench.reporting.captions import flattened
from fglbench.reporting.cells import Table
from fglbench.reporting.names import is_compared
from fglbench.reporting.outcomes import OUTCOMES
from fglbench.reporting.partitions import partition_table
from fglbench.reporting.render import environment, fragment, html_table
from fglbench.reporting.sheets import RENDERERS, Sheet

FIGURE_WORDS = {
    "accuracy_per_round": "Score after each round: mean over seeds, band of one sample standard deviation.",
    "accuracy_per_second": "Score over seconds of training, without start-up and evaluation: mean over seeds, band "
    "of one sample standard deviation.",
    "accuracy_by_clients": "Score against the number of clients: mean over seeds, bars of one sample standard "
    "deviation.",
    "label_heatmap": "Nodes of each class that each client holds, for the first seed.",
    "bytes_by_accuracy": "Score against the bytes sent up and down: mean over seeds, bars of one sample standard "
    "deviation. Methods that send nothing are horizontal lines.",
    "average_ranks": "Average rank of each method over datasets, each dataset counted once; a bar joins methods whose "
    "ranks differ by less than Nemenyi's critical difference.",
    "accuracy_by_participation": "Score against the fraction of clients that is drawn for a round: mean over seeds, "
    "bars of one sample standard deviation.",
    "accuracy_by_method": "Score of each method: mean over seeds, bars of one sample standard deviation.",
    "accuracy_by_local_epochs": "Score against the local epochs of a round: mean over seeds, bars of one sample "
    "standard deviation.",
    "graph": "The whole graph and what each client holds of it, for the first seed. Nodes are coloured by class; "
    "anchors, which several clients hold, are ringed. A force-directed layout places the nodes of each drawing.",
    "aggregation_weights": "Nodes of each class that each client holds, and beside them the weight with which each "
    "client (row) received the model of each client (column) in the round that is read, for the first seed. Methods "
    "that send all clients the same are left out.",
    "labels_and_convergence": "Nodes of each class that each client holds, for the first seed, and beside them the "
    "score after each round: mean over seeds, band of one sample standard deviation.",
    "seconds_by_method": "Seconds of local training and of the server over all rounds, without start-up and "
    "evaluation: mean over seeds, bars of one sample standard deviation of the sum.",
}

DOWNLOADS = {"csv": ("CSV", "text/csv;charset=utf-8"), "tex": ("LaTeX", "application/x-tex;charset=utf-8")}


def report_page(study: StudyRecord, tables_folder: Path, figures_folder: Path) -> str:
    """Render the report of a study.

    Args:
        study: the collected records.
        tables_folder: contains `<table>` and `<table>-compared` as `.html` from `render.to_html`, and the `.csv` and
            `.tex` files that the page embeds.
        figures_folder: contains `<figure>.png`.

    Returns:
        The page as HTML.

    Raises:
        StorageError: a table or figure of the study is missing.
    """
    settings = study.settings
    tables = []
    for table in study.tables:
        stems = [table.name, *([f"{table.name}-compared"] if is_compared(table, settings.get("reference")) else [])]
        parts = [_part(Path(tables_folder), stem) for stem in stems]
        tables.append({"name": table.name, "title": table.heading, "parts": parts})
    figures = [_figure(figure, Path(figures_folder)) for figure in study.figures]
    partitions = partition_table(study)
    script = environment().get_template("copy.js").render()
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            name=settings["name"],
            title=settings.get("title") or settings["name"],
            notes=_paragraphs(settings.get("notes")),
            tables=tables,
            figures=figures,
            partitions=_partitions(partitions) if partitions.rows else None,
            outcomes=outcome_counts(study.runs),
            facts=_facts(study),
            sections=[
                ("Protocol", flattened(settings.get("protocol") or {})),
                ("Training", flattened(settings.get("training") or {})),
                ("Versions", _versions(settings)),
                ("Hardware", flattened(settings.get("hardware") or {})),
            ],
            raw=_raw(settings),
            command=f"snakemake --cores all {settings['name']}",
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii"),
        )
    )


def _part(folder: Path, stem: str) -> dict[str, Any]:
    """Return one table of the page: its HTML and its files for download."""
    page = _read(folder / f"{stem}.html", "tables").decode("utf-8")
    files = [_file(f"{stem}.{suffix}", _read(folder / f"{stem}.{suffix}", "tables")) for suffix in DOWNLOADS]
    return {"table": Markup(fragment(page)), "files": files}


def _partitions(table: Table) -> dict[str, Any]:
    """Return the table of partitions, which has no files in the tables folder."""
    files = [_file(f"partitions.{suffix}", RENDERERS[suffix](Sheet(table)).encode("utf-8")) for suffix in DOWNLOADS]
    return {"table": html_table(table), "files": files}


def _file(name: str, content: bytes) -> dict[str, str]:
    """Return a file embedded in the page: name, text of the link, and data URL."""
    words, media_type = DOWNLOADS[name.rpartition(".")[2]]
    address = f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
    return {"name": name, "words": words, "address": address}


def outcome_counts(runs: pd.DataFrame) -> list[tuple[str, int]]:
    """Count the runs of every outcome.

    Args:
        runs: the frame `runs` of a study. A run in several columns of tables counts once.

    Returns:
        (meaning, number of runs) of the outcomes that occur, "ok" first.
    """
    once = runs.drop_duplicates(["cell", "seed"])
    counts = once["outcome"].value_counts()
    meanings = {"ok": "ok"} | {state: outcome.meaning for state, outcome in OUTCOMES.items()}
    return [(meaning, int(counts[state])) for state, meaning in meanings.items() if state in counts]


def _versions(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return versions and mode of all runs, with a remark if runs differ in torch or mode, which may change results."""
    versions = flattened(settings.get("versions") or {})
    mixed = {name for name, text in versions if name in ("torch", "mode") and ", " in text}
    return [
        (name, f"{text} (runs differ; see run.json of each run)" if name in mixed else text) for name, text in versions
    ]


def _facts(study: StudyRecord) -> list[tuple[str, str]]:
    """Return the size of the study: numbers of datasets, schemes, client counts, methods and seeds."""
    facts = []
    for field, noun in (
        ("dataset", "datasets"),
        ("scheme", "schemes"),
        ("clients", "client counts"),
        ("label", "methods"),
    ):
        values = sorted({str(value) for value in study.runs[field]}, key=lambda value: (len(value), value))
        facts.append((str(len(values)), noun if len(values) != 1 else noun.removesuffix("s")))
    seeds = study.settings.get("seeds") or sorted(set(study.runs["seed"]))
    return [*facts, (str(len(seeds)), "seeds" if len(seeds) != 1 else "seed")]


def _figure(spec: FigureSpec, folder: Path) -> dict[str, str]:
    picture = base64.b64encode(_read(folder / f"{spec.name}.png", "figures")).decode("ascii")
    words = FIGURE_WORDS[spec.kind]
    if spec.kind not in ("label_heatmap", "graph"):
        words += " Cells in which a seed did not end well are not drawn."
    return {
        "name": spec.name,
        "title": spec.heading,
        "words": words,
        "alt": f"{spec.heading}. {words}",
        "source": f"data:image/png;base64,{picture}",
    }


def _read(path: Path, stage: str) -> bytes:
    check_made(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error}). Run the {stage} stage of this study again.") from error


def _paragraphs(notes: Any) -> list[Markup]:
    """Return the escaped paragraphs of the notes; text in backticks becomes code."""
    if not notes:
        return []
    texts = notes if isinstance(notes, list) else str(notes).split("\n\n")
    plain = [" ".join(str(text).split()) for text in texts if str(text).strip()]
    return [Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text)))) for text in plain]


def _raw(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False)
