"""The table of datasets and the settings of the generated one."""

import subprocess
import sys

import pytest

from fglbench.datasets import catalogue
from fglbench.datasets.spec import Counts
from fglbench.errors import DataError

# Nodes, entries of torch_geometric's edge_index (both directions), features, classes, as its documentation prints them.
PRINTED = {
    "cora": (2_708, 10_556, 1_433, 7),
    "citeseer": (3_327, 9_104, 3_703, 6),
    "cora-fedgta": (2_708, 10_556, 1_433, 7),
    "citeseer-fedgta": (3_327, 9_104, 3_703, 6),
    "pubmed": (19_717, 88_648, 500, 3),
    "computers": (13_752, 491_722, 767, 10),
    "photo": (7_650, 238_162, 745, 8),
    "cs": (18_333, 163_788, 6_805, 15),
    "physics": (34_493, 495_924, 8_415, 5),
    "dblp": (17_716, 105_734, 1_639, 4),
    "karate": (34, 156, 34, 4),
    # The FedGTA paper prints undirected edges of the largest components.
    "computers-lcc": (13_381, 2 * 245_778, 767, 10),
    "photo-lcc": (7_487, 2 * 119_043, 745, 8),
}


@pytest.mark.parametrize("name", PRINTED)
def test_counts_are_the_printed_ones(name):
    nodes, entries, features, classes = PRINTED[name]
    assert catalogue.get(name).counts == Counts(nodes, entries // 2, features, classes)


def test_every_row_is_complete():
    assert len(catalogue.names()) == 22
    for name in catalogue.names():
        spec = catalogue.get(name)
        assert all([spec.title, spec.about, spec.source, spec.citation, spec.license, spec.nodes, spec.classes]), name
        assert bool(spec.url) == spec.needs_files == (spec.loader not in ("embedded", "sbm")), name
        assert bool(spec.pyg[0]) == (spec.loader == "geometric"), name
        known = spec.announced is None
        assert all(known and len(digest) == 64 if digest else not known for digest in spec.raw_files.values()), name
        assert (spec.content_hash is None) == (spec.synthetic or not known), name
        assert spec.content_hash is None or len(spec.content_hash) == 64, name


def test_which_datasets_need_no_files():
    free = [name for name in catalogue.names() if not catalogue.get(name).needs_files]
    assert free == ["breast-cancer", "digits", "karate", "sbm"]
    assert list(catalogue.get("photo").raw_files) == ["Amazon/Photo/raw/amazon_electronics_photo.npz"]
    assert len(catalogue.get("cora").raw_files) == 8


def test_unknown_name_suggests_the_closest():
    with pytest.raises(DataError, match=r"'coraa' is not a dataset\. Did you mean 'cora'\?"):
        catalogue.get("coraa")


def test_the_table_is_light():
    code = (
        "import sys; import fglbench.datasets.catalogue;"
        "print([name for name in ('torch', 'torch_geometric', 'pandas', 'sklearn', 'scipy') if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_counts_follow_the_settings():
    assert catalogue.get("cora").counts_for({}) == catalogue.get("cora").counts
    assert catalogue.get("sbm").counts_for({}) == catalogue.get("sbm").counts
    asked = {"nodes": 1_000_000, "average_degree": 10, "features": 100, "classes": 7}
    assert catalogue.get("sbm").counts_for(asked) == Counts(1_000_000, 5_000_000, 100, 7)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("cora", {"nodes": 5}, "'nodes' is not a setting; this dataset has none"),
        ("sbm", {"homophilly": 0.5}, "'homophilly' is not a setting. Did you mean 'homophily'"),
        ("sbm", {"homophily": 1.5}, "homophily: Input should be less than or equal to 1 (found 1.5)"),
        ("sbm", {"signal": "1e-1"}, "signal: Input should be a valid number (found '1e-1')"),
        ("sbm", {"nodes": 10, "classes": 6}, "classes 6 > nodes / 2 = 5"),
        ("sbm", {"nodes": 10, "classes": 2, "average_degree": 8.0}, "request 32 edges within one class"),
        ("sbm", {"nodes": 10, "classes": 2, "average_degree": 8.0, "homophily": 0.0}, "edges between two classes"),
    ],
)
def test_bad_settings_are_refused(name, values, message):
    with pytest.raises(DataError) as caught:
        catalogue.get(name).read_settings(values)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"dataset '{name}': ")


def test_all_problems_come_in_one_message():
    with pytest.raises(DataError) as caught:
        catalogue.get("sbm").read_settings({"nodes": 1, "features": 0})
    assert "nodes:" in str(caught.value)
    assert "features:" in str(caught.value)
