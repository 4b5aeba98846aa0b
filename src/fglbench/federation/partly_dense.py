"""Feature matrices of which some rows are dense and the others sparse, as where nodes were generated (FedSage+)."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from fglbench.federation.operators import SparseOperator, stacked_linear


@dataclass(frozen=True)
class PartlyDense:
    """A [rows, num_features] float32 matrix.

    Attributes:
        sparse: [rows, num_features] CSR, without entries in the dense rows.
        dense: [D, num_features], the dense rows.
        places: [D] which rows those are, ascending.
    """

    sparse: sp.csr_matrix
    dense: np.ndarray
    places: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return self.sparse.shape

    def __getitem__(self, rows: np.ndarray) -> "PartlyDense":
        """Some rows, given by their ascending numbers."""
        kept = np.isin(self.places, rows)
        return PartlyDense(self.sparse[rows], self.dense[kept], np.searchsorted(rows, self.places[kept]))

    def propagated(self, operator: sp.csr_matrix) -> "PartlyDense":
        """operator [rows, rows] @ self: its rows that read a dense one are dense."""
        from_dense = operator[:, self.places]
        places = np.flatnonzero(np.diff(from_dense.indptr))
        product = (operator @ self.sparse).tocsr()
        dense = product[places].toarray() + from_dense[places] @ self.dense
        kept = np.ones(product.shape[0], dtype=np.float32)
        kept[places] = 0
        rest = (sp.diags(kept) @ product).tocsr()
        rest.eliminate_zeros()
        return PartlyDense(rest, dense, places)

    def toarray(self) -> np.ndarray:
        """The same, with zeros."""
        filled = self.sparse.toarray()
        filled[self.places] = self.dense
        return filled


@dataclass(frozen=True)
class PartlyDenseRows:
    """Such rows, grouped by client, ready to multiply stacked weights.

    Attributes:
        sparse: [rows, S * num_features], columns offset by client, without entries in the dense rows.
        dense: [D, num_features], the dense rows; they receive a gradient where they ask for one.
        ptr: [S + 1] boundaries of the dense rows by client.
        place: [rows, D] puts the dense rows where they belong.
    """

    sparse: SparseOperator
    dense: Tensor
    ptr: list[int]
    place: SparseOperator

    @classmethod
    def of(cls, sparse: SparseOperator, dense: Tensor, places: np.ndarray, ptr: list[int]) -> "PartlyDenseRows":
        """From the ascending numbers [D] of the dense rows, and the boundaries [S + 1] of all rows by client."""
        parts = (np.ones(len(places), dtype=np.float32), (places, np.arange(len(places))))
        place = sp.csr_matrix(parts, shape=(sparse.shape[0], len(places)))
        return cls(sparse, dense, np.searchsorted(places, ptr).tolist(), SparseOperator(place, dense.device))

    def times(self, weight: Tensor) -> Tensor:
        """[S, num_features, out] -> [rows, out]."""
        return self.sparse @ weight.flatten(0, 1) + self.place @ stacked_linear(self.dense, weight, self.ptr)


def feature_product(features: Tensor | SparseOperator | PartlyDenseRows, weight: Tensor, ptr: list[int]) -> Tensor:
    """Each client's rows of a feature matrix times its weights.

    Args:
        features: [rows, num_features] float32 grouped by client, or a sparse operator [rows, S * num_features] whose
            columns are offset by client, or some rows of one and some of the other kind.
        weight: [S, num_features, out] float32.
        ptr: [S + 1] row boundaries.

    Returns:
        [rows, out] float32.
    """
    if isinstance(features, SparseOperator):
        return features @ weight.reshape(-1, weight.shape[2])
    if isinstance(features, PartlyDenseRows):
        return features.times(weight)
    return stacked_linear(features, weight, ptr)
