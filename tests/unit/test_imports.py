"""The packages form layers: every import points down. The page on architecture shows them as they are."""

import re

import pytest
from imports import LAYERS, NO_LAYER, PAGE, import_graph, redrawn


@pytest.mark.parametrize("package", LAYERS)
def test_imports_point_down(package):
    allowed = {*LAYERS[LAYERS.index(package) :]}
    upward = {path: sorted(names - allowed) for path, names in import_graph()[package].items()}
    assert {path: names for path, names in upward.items() if names} == {}


def test_every_package_has_its_layer():
    assert set(import_graph()) - NO_LAYER == set(LAYERS)


def test_the_page_draws_the_imports_of_today():
    page = PAGE.read_text(encoding="utf-8")
    assert redrawn(page) == page, "run 'python tests/imports.py'"


def test_the_page_has_a_paragraph_for_every_package_and_names_files_that_exist():
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^\*\*`(\w+)", page, flags=re.MULTILINE) == list(LAYERS)
    named = re.findall(r"`((?:src|workflow|tests|benchmarks)/[\w./-]+|Snakefile|config\.yaml)`", page)
    assert len(named) > 5
    assert [path for path in named if not (PAGE.parents[1] / path).exists()] == []
