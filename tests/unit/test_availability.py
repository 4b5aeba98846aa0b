"""Whether a dataset can be had, from names alone."""

from pathlib import Path

from fglbench.datasets import catalogue
from fglbench.datasets.availability import why_unavailable

CORA = catalogue.get("cora")


def test_embedded_and_synthetic_datasets_are_always_there(tmp_path: Path):
    for name in ("digits", "karate", "sbm"):
        assert why_unavailable(catalogue.get(name), None, False) is None
        assert why_unavailable(catalogue.get(name), tmp_path, False) is None


def test_without_a_mirror_it_depends_on_whether_anything_may_be_fetched():
    assert why_unavailable(CORA, None, True) is None
    assert why_unavailable(CORA, None, False) == "there is no mirror, and data.download is false"


def test_a_mirror_must_have_every_file(tmp_path: Path):
    paths = list(CORA.raw_files)
    for path in paths[:-1]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert why_unavailable(CORA, tmp_path, True) == f"the mirror {tmp_path} lacks {paths[-1]}"
    (tmp_path / paths[-1]).touch()
    assert why_unavailable(CORA, tmp_path, False) is None
