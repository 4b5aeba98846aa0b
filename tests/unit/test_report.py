"""The report page: complete, self-contained, escaped, and readable in a real browser."""

import base64
import hashlib
import re
from dataclasses import replace

import browser
import pytest
from synthetic_records import frame, full_study, run_rows, study_of, write_study

from fglbench.errors import StorageError
from fglbench.reporting.html import outcome_counts
from fglbench.reporting.partitions import partition_table
from fglbench.stages.figures import make_figures
from fglbench.stages.report import make_report
from fglbench.stages.tables import make_tables

WIDTHS = (1280, 400)
OVERFLOW = """(() => [...document.querySelectorAll('main *')].filter(element =>
    !element.closest('.scroll, .zoom, pre') &&
    element.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map(element => element.outerHTML.slice(0, 80)))()"""
SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll('table *, p, li, dd, dt, figcaption')].map(
    element => parseFloat(getComputedStyle(element).fontSize)))"""
# After scrolling each table to its right end: the row heads' distance from the table's left edge, and their width.
HEADS = """(() => [...document.querySelectorAll('.scroll')].map(box => {
    box.scrollLeft = box.scrollWidth;
    const head = box.querySelector('tbody th.head').getBoundingClientRect();
    const found = {scrolled: box.scrollLeft, offset: head.left - box.getBoundingClientRect().left, width: head.width,
                   height: head.height};
    box.scrollLeft = 0;
    return found;
}))()"""

# Presses the button by the keyboard's way, and waits until the page says what happened.
COPY = """new Promise(said => {
    const [button, status] = [document.querySelector('button'), document.querySelector('[role=status]')];
    new MutationObserver(() => said(status.textContent)).observe(status, {childList: true});
    button.focus();
    button.click();
})"""


@pytest.fixture(scope="module")
def page(tmp_path_factory, pytestconfig):
    root = tmp_path_factory.mktemp("report")
    study = full_study()
    write_study(study, root / "study")
    make_tables(root / "study", root / "tables", pytestconfig.rootpath / "workflow" / "studies" / "reference")
    make_figures(root / "study", root / "figures")
    make_report(root / "study", root / "tables", root / "figures", root / "report.html")
    return root / "report.html"


def test_the_page_holds_everything(page):
    text = page.read_text(encoding="utf-8")
    for words in (
        "A small study of federated methods",
        "Made-up numbers.",
        "Main results: ours and printed",
        "94 ok",
        "2 diverged",
        "Sizes, missing links and label distributions",
        "split.train",
        "local_epochs",
        "cpu: made-up",
        "Everything the study asked for",
    ):
        assert words in text, words
    assert text.count('src="data:image/png;base64,') == 6
    assert all(len(alt) > 20 for alt in re.findall(r'<img[^>]* alt="([^"]*)"', text))


def test_the_page_asks_for_nothing(page):
    text = page.read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'\"" in text
    assert text.count("<script") == 1
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', text)
    assert "url(" not in text
    assert "@import" not in text


def test_every_table_carries_its_files_and_the_page_its_command(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r'<a href="data:([a-z/-]+);charset=utf-8;base64,([^"]*)" download="([^"]*)"', text)
    carried = {name: (kind, base64.b64decode(content)) for kind, content, name in links}
    tables = ("main", "main-compared", "wide", "partitions")
    assert set(carried) == {f"{table}.{suffix}" for table in tables for suffix in ("csv", "tex")}
    for name in carried.keys() - {"partitions.csv", "partitions.tex"}:
        assert carried[name][1] == (page.parent / "tables" / name).read_bytes()
    assert carried["main.csv"][0] == "text/csv" and carried["main.tex"][0] == "application/x-tex"
    assert carried["partitions.csv"][1].startswith(b"dataset,scheme,clients,nodes per client,")
    assert '<code id="command">snakemake --cores all small</code>' in text


def test_the_contents_lead_to_every_table_and_figure(page):
    text = page.read_text(encoding="utf-8")
    nav = text.partition('<nav class="contents"')[2].partition("</nav>")[0]
    targets = re.findall(r'href="#([^"]*)"', nav)
    assert targets[:3] == ["tables", "table-main", "table-wide"]
    assert "figure-accuracy_per_round" in targets
    assert all(text.count(f'id="{target}"') == 1 for target in targets)


def test_titles_and_labels_are_text(tmp_path):
    hostile = "<script>alert(1)</script>"
    study = study_of(
        frame(run_rows([0.8], label=hostile)), seeds=[0], title=hostile, notes=hostile, training={hostile: 1}
    )
    study = replace(study, partitions=full_study().partitions, curves=full_study().curves)
    table = {"name": "main", "title": hostile, "rows": ["label"], "columns": ["dataset"], "metric": "accuracy"}
    study.settings["tables"] = [table]
    write_study(study, tmp_path / "study")
    make_tables(tmp_path / "study", tmp_path / "tables", tmp_path)
    make_report(tmp_path / "study", tmp_path / "tables", tmp_path / "figures", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(1)") >= 6


def test_runs_that_differ_in_torch_or_mode_are_said_to(tmp_path):
    versions = {"torch": "2.7.0, 2.8.0", "mode": "deterministic, fast", "numpy": "1.26, 2.0"}
    study = study_of(frame(run_rows([0.8])), seeds=[0], versions=versions, tables=[])
    write_study(replace(study, partitions=full_study().partitions, curves=full_study().curves), tmp_path / "study")
    make_report(tmp_path / "study", tmp_path / "tables", tmp_path / "figures", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "2.7.0, 2.8.0 (runs differ; see run.json of each run)" in text
    assert "deterministic, fast (runs differ; see run.json of each run)" in text
    assert "1.26, 2.0<" in text


def test_the_first_note_heads_the_page_and_the_others_follow_what_they_explain(tmp_path, pytestconfig):
    study = full_study()
    study.settings["notes"] = "What this is.\n\nWhat was tried.\n\nWhat is open: `a<b`."
    write_study(study, tmp_path / "study")
    make_tables(tmp_path / "study", tmp_path / "tables", pytestconfig.rootpath / "workflow" / "studies" / "reference")
    make_figures(tmp_path / "study", tmp_path / "figures")
    make_report(tmp_path / "study", tmp_path / "tables", tmp_path / "figures", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    order = [
        "What this is.",
        'id="tables"',
        'id="figures"',
        'id="notes"',
        "What was tried.",
        "What is open: <code>a&lt;b</code>.",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert 'href="#notes"' in text


def test_missing_pieces_are_named(tmp_path):
    write_study(full_study(), tmp_path / "study")
    with pytest.raises(StorageError, match=r"main\.html cannot be read.*tables stage"):
        make_report(tmp_path / "study", tmp_path / "tables", tmp_path / "figures", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_run_in_several_columns_counts_once():
    runs = frame(run_rows([0.9, 0.9], label="Global"), run_rows([0.9, 0.9], label="Global", clients=5))
    runs["cell"] = "the same"
    assert outcome_counts(runs) == [("ok", 2)]


def test_partition_statistics():
    study = full_study(datasets=("cora",), schemes=("louvain",), seeds=3)
    study.partitions.loc[(study.partitions["client"] == 0) & (study.partitions["seed"] == 0), "test"] = 0
    table = partition_table(study)
    assert [row[-1] for row in table.rows] == ["5 clients", "10 clients"]
    sizes, edges, cut, share, distance, empty = (cell.text for cell in table.cells[0])
    assert sizes == "540 / 540 / 540"
    assert edges == "5400 ± 0"
    assert cut == "401 ± 1"
    assert share == "6.9 ± 0.0"
    assert distance == "0.410 ± 0.010"
    assert empty == "1 test"


def test_a_study_in_which_nothing_was_partitioned(tmp_path):
    outcome = {"outcome": "not_run", "outcome_round": float("nan"), "reason": None}
    study = study_of(frame(run_rows(None, outcomes={0: outcome})), seeds=[0])
    write_study(study, tmp_path / "study")
    make_report(tmp_path / "study", tmp_path / "tables", tmp_path / "figures", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "1 not run" in text
    assert 'id="partitions"' not in text


@pytest.mark.slow
@pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "a browser is installed")
def test_the_page_is_readable_in_a_browser(page, tmp_path):
    with browser.browser(tmp_path / "profile") as window:
        for width in WIDTHS:
            window.resize(width, 900)
            window.open(page)
            assert window.console() == [], "the console has messages"
            outside = [address for address in window.requests() if not address.startswith(("file:", "data:"))]
            assert outside == []
            assert window.ask("document.documentElement.clientWidth") > 0.9 * width
            assert window.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            assert not window.ask("document.querySelector('.study-table details').open"), "the long list is not folded"
            window.ask("document.querySelectorAll('details').forEach(part => part.open = true)")
            assert window.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            assert window.ask(OVERFLOW) == []
            assert window.ask(SMALLEST_TEXT) >= 12
            heads = window.ask(HEADS)
            assert len(heads) == 6
            for head in heads:
                assert -1 <= head["offset"] <= 2, "the first column leaves when the table is scrolled"
                assert 40 <= head["width"] <= width / 2
                assert head["height"] < 60, "the first column is too narrow for its text"
            assert window.ask("[...document.images].every(image => image.complete && image.naturalWidth > 500)")
        assert any(head["scrolled"] > 0 for head in heads), "no table was wide enough to scroll at 400 pixels"


@pytest.mark.slow
@pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "a browser is installed")
def test_contents_follow_a_wide_page_and_the_command_is_copied(page, tmp_path):
    with browser.browser(tmp_path / "profile") as window:
        for width, follows in ((1280, True), (400, False)):
            window.resize(width, 900)
            window.open(page)
            for place in ("figures", "settings"):
                window.ask(f"document.getElementById('{place}').scrollIntoView()")
                nav = window.ask("document.querySelector('nav').getBoundingClientRect().toJSON()")
                assert window.ask("scrollY") > 900
                assert (nav["top"] >= 0 and nav["bottom"] <= 900) == follows
                heading = window.ask(f"document.getElementById('{place}').getBoundingClientRect().toJSON()")
                assert heading["left"] > nav["right"] or not follows
        allowed = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        window.call("goog/cdp/execute", cmd="Browser.grantPermissions", params={"permissions": allowed})
        assert window.ask(COPY) == "Copied"
        assert window.ask("navigator.clipboard.readText()") == "snakemake --cores all small"
        assert window.ask("getComputedStyle(document.querySelector('button')).outlineStyle") == "solid"
        assert window.console() == []
