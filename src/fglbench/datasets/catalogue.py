"""The table of datasets: size, origin and checksums of each one.

Users' own datasets, from the folders of `components`, are rows as well.

The workflow reads this table while Snakemake parses it. To keep that fast, nothing here imports torch, pandas or a
loader.
"""

from typing import Any

from fglbench import registry
from fglbench.datasets.own_spec import own_spec
from fglbench.datasets.raw_checksums import RAW_FILES
from fglbench.datasets.spec import Announced, Counts, DatasetSpec, SbmSettings
from fglbench.errors import ComponentError, DataError, suggest


def _files(prefix: str) -> dict[str, str]:
    return {path: digest for path, digest in RAW_FILES.items() if path.startswith(prefix)}


_PLANETOID: dict[str, Any] = {
    "family": "planetoid",
    "loader": "geometric",
    "about": "Nodes are papers, edges citations, features words of the text, classes topics. Public split of 20 "
    "training nodes per class, 500 validation and 1,000 test nodes.",
    "source": "Planetoid (github.com/kimiyoung/planetoid)",
    "citation": "Yang, Cohen, Salakhutdinov: Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016",
    "license": "no terms stated for the data; the repository that distributes it is under the MIT licence",
    "url": "https://github.com/kimiyoung/planetoid/raw/master/data",
}
_PITFALLS: dict[str, Any] = {
    "loader": "geometric",
    "source": "gnn-benchmark (github.com/shchur/gnn-benchmark)",
    "citation": "Shchur, Mumme, Bojchevski, Günnemann: Pitfalls of Graph Neural Network Evaluation, 2018",
    "license": "no terms stated for the data; the repository that distributes it is under the MIT licence",
    "url": "https://github.com/shchur/gnn-benchmark/raw/master/data/npz",
}
_AMAZON: dict[str, Any] = _PITFALLS | {
    "family": "amazon",
    "about": "Nodes are goods, edges join goods often bought together, features say which words the reviews hold, "
    "classes are product categories.",
}
_COAUTHOR: dict[str, Any] = _PITFALLS | {
    "family": "coauthor",
    "about": "Nodes are authors, edges joint papers, features say which keywords the papers hold, classes are fields.",
}
_GRAPHSAINT: dict[str, Any] = {
    "family": "graphsaint",
    "loader": "graphsaint",
    "citation": "Zeng, Zhou, Srivastava, Kannan, Prasanna: GraphSAINT, Graph Sampling Based Inductive Learning Method, "
    "ICLR 2020",
    "license": "no terms stated for the data; the repository that distributes it is under the MIT licence",
    "source": "GraphSAINT (github.com/GraphSAINT/GraphSAINT)",
    "content_hash": None,
}
_OGB: dict[str, Any] = {
    "family": "ogb",
    "loader": "ogb",
    "source": "Open Graph Benchmark (ogb.stanford.edu)",
    "citation": "Hu, Fey, Zitnik, Dong, Ren, Liu, Catasta, Leskovec: Open Graph Benchmark, Datasets for Machine "
    "Learning on Graphs, NeurIPS 2020",
    "content_hash": None,
}
_FEDGTA: dict[str, Any] = {
    "family": "fedgta",
    "loader": "fedgta_clients",
    "source": "FedGTA (github.com/xkLi-Allen/FedGTA)",
    "citation": "Li, Wu, Zhang, Zhu, Li, Wang: FedGTA: Topology-aware Averaging for Federated Graph Learning, "
    "PVLDB 2023",
    "license": "no terms stated",
    "url": "https://github.com/xkLi-Allen/FedGTA/raw/f8f68284f0c76287ee858500b49dc0fa3303f945/data",
    "native_clients": 10,
}
_EMBEDDED: dict[str, Any] = {"family": "embedded", "loader": "embedded"}
_NEIGHBOURS = "edges join each node to its 10 nearest others on standardised features (either direction counts)."


def _drive(**ids: str) -> dict[str, str]:
    """Map the file names of GraphSAINT to addresses, from the ids that torch_geometric's loaders use."""
    names = {"adj": "adj_full.npz", "feats": "feats.npy", "classes": "class_map.json", "roles": "role.json"}
    return {
        names[key]: f"https://drive.usercontent.google.com/download?id={number}&confirm=t"
        for key, number in ids.items()
    }


def _unpinned(folder: str, *names: str) -> dict[str, None]:
    return {f"{folder}/{name}": None for name in names}


_SAINT_FILES = ("raw/adj_full.npz", "raw/class_map.json", "raw/feats.npy", "raw/role.json")
_OGB_TABLES = ("raw/edge.csv.gz", "raw/node-feat.csv.gz", "raw/node-label.csv.gz")
_OGB_ARRAYS = ("raw/data.npz", "raw/node-label.npz")


def _ogb_files(folder: str, kind: str, raw: tuple[str, ...]) -> dict[str, None]:
    return _unpinned(folder, *raw, *(f"split/{kind}/{role}.csv.gz" for role in ("train", "valid", "test")))


_SPECS = (
    DatasetSpec(
        name="cora",
        title="Cora",
        counts=Counts(nodes=2_708, edges=5_278, features=1_433, classes=7),
        content_hash="a1758b45f6b8f30f5920350cdbb907b0cda759b72fcac4d804e23dbf1d73ea2a",
        raw_files=_files("Planetoid/Cora/"),
        pyg=("Planetoid", "Cora"),
        **_PLANETOID,
    ),
    DatasetSpec(
        name="citeseer",
        title="CiteSeer",
        counts=Counts(nodes=3_327, edges=4_552, features=3_703, classes=6),
        content_hash="142bcf6ca3dcd53bc8ddac1ac43c790d18fee999e6dac7abd5441a463e9a0505",
        raw_files=_files("Planetoid/CiteSeer/"),
        pyg=("Planetoid", "CiteSeer"),
        **_PLANETOID,
    ),
    DatasetSpec(
        name="cora-fedgta",
        title="Cora (FedGTA's clients)",
        counts=Counts(nodes=2_708, edges=5_278, features=1_433, classes=7),
        about="Cora with the ten clients (Louvain) and the roles that FedGTA's authors publish.",
        content_hash="f263ae67937de5e482737d3f75a003dc6096fd9da6e6149cdf1993d4fc1f64d0",
        raw_files=_files("FedGTA/Cora.zip"),
        **_FEDGTA,
    ),
    DatasetSpec(
        name="citeseer-fedgta",
        title="CiteSeer (FedGTA's clients)",
        counts=Counts(nodes=3_327, edges=4_552, features=3_703, classes=6),
        about="CiteSeer with the ten clients (Louvain) and the roles that FedGTA's authors publish.",
        content_hash="65d1c946f341710e95ef35be304394216034668edc3abda2d4b4dd65d0560847",
        raw_files=_files("FedGTA/CiteSeer.zip"),
        **_FEDGTA,
    ),
    DatasetSpec(
        name="pubmed",
        title="PubMed",
        counts=Counts(nodes=19_717, edges=44_324, features=500, classes=3),
        content_hash="8f4e083f5607fa66a0af70663c4bdfe5e0a76be78c0bd1e53c9f67a6dba76463",
        raw_files=_files("Planetoid/PubMed/"),
        pyg=("Planetoid", "PubMed"),
        **_PLANETOID,
    ),
    DatasetSpec(
        name="computers",
        title="Computers",
        counts=Counts(nodes=13_752, edges=245_861, features=767, classes=10),
        content_hash="ae07c4536ab2782e337d4a8bae58891a44ba226efba609b958c0dd6b5c12105a",
        raw_files=_files("Amazon/Computers/"),
        pyg=("Amazon", "Computers"),
        **_AMAZON,
    ),
    DatasetSpec(
        name="computers-lcc",
        title="Computers (LCC)",
        counts=Counts(nodes=13_381, edges=245_778, features=767, classes=10),
        content_hash="4bd281b370c20a82d68babf456b3bef0a9f5b7b7b9eeaf41d52c74bc89c25bb2",
        raw_files=_files("Amazon/Computers/"),
        pyg=("Amazon", "Computers"),
        largest_component=True,
        **_AMAZON,
    ),
    DatasetSpec(
        name="photo",
        title="Photo",
        counts=Counts(nodes=7_650, edges=119_081, features=745, classes=8),
        content_hash="d86bf949243200179c28004348597edfe54d8486a53ed1c6b3de32f95f8b38b5",
        raw_files=_files("Amazon/Photo/"),
        pyg=("Amazon", "Photo"),
        **_AMAZON,
    ),
    DatasetSpec(
        name="photo-lcc",
        title="Photo (LCC)",
        counts=Counts(nodes=7_487, edges=119_043, features=745, classes=8),
        content_hash="b98ee2ff1a6095e048753245e34d8858a38b67662491786d9db39bfaaa2081cb",
        raw_files=_files("Amazon/Photo/"),
        pyg=("Amazon", "Photo"),
        largest_component=True,
        **_AMAZON,
    ),
    DatasetSpec(
        name="cs",
        title="CS",
        counts=Counts(nodes=18_333, edges=81_894, features=6_805, classes=15),
        content_hash="a2666e8a6cc4f6dd50be8cf0ca641e339417f41d0c9cb2140ddfbcb190399cef",
        raw_files=_files("Coauthor/CS/"),
        pyg=("Coauthor", "CS"),
        **_COAUTHOR,
    ),
    DatasetSpec(
        name="physics",
        title="Physics",
        counts=Counts(nodes=34_493, edges=247_962, features=8_415, classes=5),
        content_hash="da54046d6a0380ba886217e102454fbd56b8e044a8ec55991d55f0194c8accb0",
        raw_files=_files("Coauthor/Physics/"),
        pyg=("Coauthor", "Physics"),
        **_COAUTHOR,
    ),
    DatasetSpec(
        name="dblp",
        title="DBLP",
        family="citation-full",
        loader="geometric",
        counts=Counts(nodes=17_716, edges=52_867, features=1_639, classes=4),
        about="Nodes are papers, edges citations, features say which words the title holds, classes are topics.",
        source="graph2gauss (github.com/abojchevski/graph2gauss)",
        citation="Bojchevski, Günnemann: Deep Gaussian Embedding of Graphs, ICLR 2018",
        license="no terms stated for the data; the repository that distributes it is under the MIT licence",
        content_hash="d0033abca81c8736e2192cd96cd948404d0cd3eeb243695cea8f186eb8c248b9",
        raw_files=_files("CitationFull/dblp/"),
        url="https://github.com/abojchevski/graph2gauss/raw/master/data",
        pyg=("CitationFull", "DBLP"),
    ),
    DatasetSpec(
        name="polblogs",
        title="PolBlogs",
        family="polblogs",
        loader="geometric",
        counts=Counts(nodes=1_490, edges=16_715, features=1_490, classes=2),
        about="Nodes are weblogs, edges links in either direction, classes liberal and conservative. It has no "
        "features: each node's feature is its own id, one-hot.",
        source="NetSet (netset.telecom-paris.fr)",
        citation="Adamic, Glance: The Political Blogosphere and the 2004 US Election, LinkKDD 2005",
        license="no terms stated",
        content_hash="a50e441f2f593942f2ea2f7250a448e88040fcfabe225d6ef16b4333c1af193d",
        raw_files=_files("PolBlogs/"),
        url="https://netset.telecom-paris.fr/datasets/polblogs.tar.gz",
        pyg=("PolBlogs", ""),
    ),
    DatasetSpec(
        name="flickr",
        title="Flickr",
        counts=Counts(nodes=89_250, edges=449_878, features=500, classes=7),
        about="Nodes are images, edges join those with a property in common (place, gallery, tags, user), features say "
        "which words the description holds, classes are groups of tags. Official split of 50, 25 and 25 %.",
        raw_files=_unpinned("Flickr", *_SAINT_FILES),
        url=_drive(
            adj="1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy",
            feats="1join-XdvX3anJU_MLVtick7MgeAQiWIZ",
            classes="1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9",
            roles="1htXCtuktuCW8TR8KiKfrFDAxUgekQoV7",
        ),
        announced=Announced(entries=899_756, raw_mb=370),
        **_GRAPHSAINT,
    ),
    DatasetSpec(
        name="reddit",
        title="Reddit",
        counts=Counts(nodes=232_965, edges=11_606_919, features=602, classes=41),
        about="Nodes are posts, edges join those that one user commented, features are averaged word vectors, classes "
        "communities. Official split of 66, 10 and 24 %. The thinned edges of GraphSAINT (Reddit2 in torch_geometric), "
        "whose number FedGTA prints, not the 57 million of GraphSAGE.",
        raw_files=_unpinned("Reddit2", *_SAINT_FILES),
        url=_drive(
            adj="1sncK996BM5lpuDf75lDFqCiDZyErc1c2",
            feats="1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3",
            classes="1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u",
            roles="1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A",
        ),
        announced=Announced(entries=23_213_838, raw_mb=1_500),
        **_GRAPHSAINT,
    ),
    DatasetSpec(
        name="arxiv",
        title="ogbn-arxiv",
        counts=Counts(nodes=169_343, edges=1_157_799, features=128, classes=40),
        about="Nodes are papers on computer science, edges citations, features averaged word vectors of title and "
        "abstract, classes subject areas. Official split by year.",
        license="ODC-BY",
        raw_files=_ogb_files("ogbn_arxiv", "time", _OGB_TABLES),
        url="https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip",
        announced=Announced(entries=1_166_243, raw_mb=90, archive_mb=90),
        **_OGB,
    ),
    DatasetSpec(
        name="products",
        title="ogbn-products",
        counts=Counts(nodes=2_449_029, edges=61_859_140, features=100, classes=47),
        about="Nodes are goods, edges join goods bought together, features are principal components of the words of "
        "descriptions, classes product categories. Official split by sales rank.",
        license="Amazon licence",
        raw_files=_ogb_files("ogbn_products", "sales_ranking", _OGB_TABLES),
        url="https://snap.stanford.edu/ogb/data/nodeproppred/products.zip",
        announced=Announced(entries=61_859_140, raw_mb=1_500, archive_mb=1_500),
        **_OGB,
    ),
    DatasetSpec(
        name="papers100m",
        title="ogbn-papers100M",
        counts=Counts(nodes=111_059_956, edges=1_615_685_872, features=128, classes=172),
        about="Nodes are papers, edges citations, features averaged word vectors, classes subject areas of the 1.5 "
        "million papers on arXiv; the others have none. Official split by year.",
        license="ODC-BY",
        raw_files=_ogb_files("ogbn_papers100M", "time", _OGB_ARRAYS),
        url="https://snap.stanford.edu/ogb/data/nodeproppred/papers100M-bin.zip",
        announced=Announced(entries=1_615_685_872, raw_mb=85_000, archive_mb=60_400),
        **_OGB,
    ),
    DatasetSpec(
        name="digits",
        title="Digits",
        counts=Counts(nodes=1_797, edges=12_618, features=64, classes=10),
        about=f"Nodes are 8 x 8 images of handwritten digits, classes the digits; {_NEIGHBOURS}",
        source="scikit-learn's load_digits, from the UCI repository",
        citation="Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998",
        license="CC BY 4.0 (UCI)",
        content_hash="e9efdf4b1f9593b1590bc59ca3414ff75beab063c91e7e80760e01aa00881fdc",
        **_EMBEDDED,
    ),
    DatasetSpec(
        name="breast-cancer",
        title="Breast Cancer",
        counts=Counts(nodes=569, edges=4_277, features=30, classes=2),
        about=f"Nodes are biopsies, features measures of cell nuclei, classes malignant and benign; {_NEIGHBOURS}",
        source="scikit-learn's load_breast_cancer, from the UCI repository",
        citation="Wolberg, Mangasarian, Street, Street: Breast Cancer Wisconsin (Diagnostic), UCI Machine Learning "
        "Repository, 1995",
        license="CC BY 4.0 (UCI)",
        content_hash="8490ff507851c3ddf2295cae8bb9e769642432df3dc4b246c9c6fce3f27c4301",
        **_EMBEDDED,
    ),
    DatasetSpec(
        name="karate",
        title="Karate Club",
        counts=Counts(nodes=34, edges=78, features=34, classes=4),
        about="Nodes are members of a club, edges friendships, classes four communities found by modularity, features "
        "one-hot ids. For tests.",
        source="networkx's karate_club_graph; communities as in torch_geometric's KarateClub",
        citation="Zachary: An Information Flow Model for Conflict and Fission in Small Groups, 1977",
        license="no terms stated",
        content_hash="2328b98403201e6ba01d324a484c99c1c309a143815510381c652491cb5439fc",
        **_EMBEDDED,
    ),
    DatasetSpec(
        name="sbm",
        title="SBM (synthetic)",
        family="synthetic",
        loader="sbm",
        counts=Counts(nodes=10_000, edges=50_000, features=100, classes=5),
        about="Synthetic: a stochastic block model, one block per class, with Gaussian features around class centres.",
        source="generated by fglbench",
        citation="Holland, Laskey, Leinhardt: Stochastic Blockmodels: First Steps, Social Networks 5, 1983",
        license="none needed",
        content_hash=None,
        settings=SbmSettings,
    ),
)
CATALOGUE: dict[str, DatasetSpec] = {spec.name: spec for spec in _SPECS}


def names() -> list[str]:
    """Return the names of all datasets.

    Returns:
        Sorted names of the shipped datasets and of users' own.
    """
    return sorted({*CATALOGUE, *registry.names("dataset")})


def get(name: str) -> DatasetSpec:
    """Return the row of a dataset.

    Args:
        name: of the dataset.

    Returns:
        The row of the table, or one that is made from a user's file.

    Raises:
        DataError: no dataset has this name.
        ComponentError: the file of a user's own dataset is not valid, or its name is that of a shipped dataset.
    """
    if name in registry.names("dataset"):
        declared = registry.declaration("dataset", name)
        if name in CATALOGUE:
            raise ComponentError(f"{declared.path}: the dataset '{name}' comes with fglbench. Rename the file.")
        return own_spec(declared)
    if name not in CATALOGUE:
        raise DataError(f"'{name}' is not a dataset. {suggest(name, names())} See 'fglbench list datasets'.")
    return CATALOGUE[name]


def free() -> str:
    """Return the names of the shipped datasets that need no files.

    Returns:
        Sorted names, separated by commas.
    """
    return ", ".join(name for name in sorted(CATALOGUE) if not CATALOGUE[name].needs_files)
