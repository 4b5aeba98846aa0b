"""Safe reader of raw files as plain arrays, to check each file before a loader reads it.

The Planetoid files are pickles. The unpickler here supports numpy arrays, scipy CSR matrices, lists and dictionaries
only. It refuses a pickle that contains anything else, and runs none of its code.
"""

import collections
import json
import pickle
import warnings
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, ClassVar

import numpy as np
import scipy.sparse as sp

from fglbench.datasets.torch_file import read_tensors
from fglbench.errors import DataError
from fglbench.storage import hash_arrays


def read_raw(path: Path) -> dict[str, np.ndarray]:
    """Read the content of a raw file in a canonical form.

    The result does not depend on compression, pickle protocol and storage order.

    Args:
        path: a gnn-benchmark `.npz`, a Planetoid `ind.<name>.*` file or a `.tsv` of integers; of GraphSAINT its
            `adj_full.npz`, `feats.npy`, `class_map.json` or `role.json`; of OGB a `.csv.gz` or an `.npz` of arrays;
            a `.zip` of FedGTA's authors.

    Returns:
        Arrays by name. Files with edges have `pairs` [2, num_entries] int64 in stored direction, including duplicates
        and self-loops; other matrices are `values`. A `.zip` of FedGTA's authors has `pairs`, `x` and `labels` of the
        whole graph. With the prefix `client<k>.` it has those of each client, and the client's masks (`train_idx`,
        `global_train_idx`, ...).

    Raises:
        DataError: the file is truncated or damaged, or is a pickle that contains more than arrays.
    """
    reader = {
        ".npz": _read_archive,
        ".tsv": _read_table,
        ".index": _read_table,
        ".graph": _read_adjacency_lists,
        ".npy": _read_array,
        ".json": _read_json,
        ".gz": _read_csv,
        ".zip": _read_clients,
    }
    try:
        with warnings.catch_warnings():
            # Pickles of old numpy and scipy versions refer to modules that have been renamed; the content is the same.
            warnings.simplefilter("ignore")
            return reader.get(path.suffix, _read_matrix)(path)
    except MemoryError:
        raise
    except Exception as error:  # a damaged pickle or archive can raise almost any exception
        raise DataError(f"{path.name} cannot be read: {error or type(error).__name__}") from error


def raw_content_hash(path: Path) -> str:
    """Compute the checksum of the content of a raw file.

    Args:
        path: a file that `read_raw` supports.

    Returns:
        64 hexadecimal digits (SHA-256).

    Raises:
        DataError: `read_raw` cannot read the file.
    """
    return hash_arrays(read_raw(path))


def _canonical(matrix: sp.csr_matrix) -> dict[str, np.ndarray]:
    matrix = sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape, dtype=np.float32)
    matrix.check_format(full_check=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return {
        "indptr": matrix.indptr.astype(np.int64),
        "indices": matrix.indices.astype(np.int64),
        "data": matrix.data,
        "shape": np.asarray(matrix.shape, dtype=np.int64),
    }


def _read_archive(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        if "indptr" in archive.files:
            return _stored_csr(archive)
        renamed = {new: name for name, new in _OGB.items() if name in archive.files}
        if renamed:
            return {new: archive[name] for new, name in renamed.items()}
        parts = {
            name: sp.csr_matrix(
                tuple(archive[f"{name}_{part}"] for part in ("data", "indices", "indptr")),
                shape=tuple(archive[f"{name}_shape"]),
            )
            for name in ("adj", "attr")
        }
        labels = archive["labels"].astype(np.int64)
    adjacency = parts["adj"]
    adjacency.check_format(full_check=True)
    adjacency.sort_indices()
    entries = adjacency.tocoo()
    return {
        "pairs": np.stack([entries.row, entries.col]).astype(np.int64),
        "weights": entries.data.astype(np.float32),
        "labels": labels,
        **_canonical(parts["attr"]),
    }


_OGB = {"edge_index": "pairs", "node_feat": "values", "node_label": "values"}


def _stored_csr(archive: Any) -> dict[str, np.ndarray]:
    """Read an adjacency matrix as `scipy.sparse.save_npz` writes it; its values are all equal and are dropped."""
    indices, indptr = archive["indices"], archive["indptr"]
    adjacency = sp.csr_matrix((np.ones(len(indices), dtype=np.int8), indices, indptr), shape=tuple(archive["shape"]))
    adjacency.check_format(full_check=True)
    adjacency.sort_indices()
    entries = adjacency.tocoo()
    return {"pairs": np.stack([entries.row, entries.col]).astype(np.int64)}


def _read_array(path: Path) -> dict[str, np.ndarray]:
    return {"values": np.load(path, allow_pickle=False)}


def _read_json(path: Path) -> dict[str, np.ndarray]:
    """Read lists of node ids by name, or one number for every node id."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if any(isinstance(value, list) for value in content.values()):
        return {name: np.asarray(nodes, dtype=np.int64) for name, nodes in content.items()}
    nodes = np.asarray(list(content), dtype=np.int64)
    return {"nodes": nodes, "values": np.asarray(list(content.values()), dtype=np.int64)}


def _read_csv(path: Path) -> dict[str, np.ndarray]:
    """Read a table without a header row.

    The name of the file says whether it holds edges, or features, which are read as float32.
    """
    import pandas as pd

    kind = np.float32 if path.name.startswith("node-feat") else None
    values = pd.read_csv(path, header=None, dtype=kind).to_numpy()
    return {"pairs": values.T.astype(np.int64)} if path.name.startswith("edge") else {"values": values}


def _read_clients(path: Path) -> dict[str, np.ndarray]:
    names = {"edge_index": "pairs", "y": "labels"}
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(path) as archive:
        for entry in map(PurePosixPath, archive.namelist()):
            of_client = entry.match("Client*/*/data*.pt")
            if not of_client and not entry.match("processed/data.pt"):
                continue
            prefix = f"client{int(entry.stem.removeprefix('data'))}." if of_client else ""
            with archive.open(str(entry)) as stream:
                tensors = read_tensors(stream)
            arrays |= {f"{prefix}{names.get(name, name)}": tensor for name, tensor in tensors.items()}
    if "labels" not in arrays:
        raise ValueError("it contains no processed/data.pt")
    return arrays


def _read_table(path: Path) -> dict[str, np.ndarray]:
    values = np.loadtxt(path, dtype=np.int64, ndmin=2)
    if values.shape[1] > 1:
        return {"pairs": np.ascontiguousarray(values[:, :2].T)}
    return {"values": values[:, 0]}


def _read_adjacency_lists(path: Path) -> dict[str, np.ndarray]:
    graph = _unpickle(path)
    rows = np.repeat(list(graph), [len(neighbours) for neighbours in graph.values()])
    columns = [neighbour for neighbours in graph.values() for neighbour in neighbours]
    pairs = np.stack([rows, columns]).astype(np.int64)
    return {"pairs": pairs[:, np.lexsort((pairs[1], pairs[0]))]}


def _read_matrix(path: Path) -> dict[str, np.ndarray]:
    matrix = _unpickle(path)
    if sp.issparse(matrix):
        return _canonical(matrix)
    if not isinstance(matrix, np.ndarray) or matrix.dtype.hasobject:
        raise ValueError(f"it contains a {type(matrix).__name__}, not a numeric matrix")
    return {"values": np.ascontiguousarray(matrix, dtype=np.float32)}


def _unpickle(path: Path) -> Any:
    with path.open("rb") as stream:
        return _ArrayUnpickler(stream).load()


def _encode_latin1(text: str, encoding: str) -> bytes:
    """Encode text as latin-1, the only codec that protocol 2 uses for bytes; any other codec is an error."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it requests the codec {encoding!r}; only latin1 is allowed")
    return text.encode(encoding)


_RECONSTRUCT = np.empty(0).__reduce__()[0]  # numpy's own function; its module depends on the version


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickler of arrays, CSR matrices, lists and dictionaries; every other name is an error."""

    _ALLOWED: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("scipy.sparse.csr", "csr_matrix"): sp.csr_matrix,
        ("scipy.sparse._csr", "csr_matrix"): sp.csr_matrix,
        ("collections", "defaultdict"): collections.defaultdict,
        ("__builtin__", "list"): list,
        ("builtins", "list"): list,
        ("_codecs", "encode"): _encode_latin1,
    }

    def __init__(self, stream: BinaryIO):
        super().__init__(stream, encoding="latin1")

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(
                f"it requests {module}.{name}, which no data file needs; none of its code was run"
            )
        return self._ALLOWED[module, name]
