"""Rows of feature matrices (dense, sparse or partly dense) in a form that multiplies stacked weights."""

from itertools import pairwise
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglbench.federation.operators import SparseOperator, stacked_linear
from fglbench.federation.partly_dense import PartlyDense, PartlyDenseRows
from fglbench.federation.propagation import Features

FeatureRows: TypeAlias = Tensor | SparseOperator | PartlyDenseRows


def times(features: FeatureRows, weight: Tensor, ptr: list[int]) -> Tensor:
    """Multiply each client's feature rows by that client's weights.

    Args:
        features: [rows, num_features] float32, from `feature_rows`.
        weight: [S, num_features, out] float32.
        ptr: [S + 1] row boundaries by client.

    Returns:
        [rows, out] float32.
    """
    if isinstance(features, SparseOperator):
        return features @ weight.reshape(-1, weight.shape[2])
    if isinstance(features, PartlyDenseRows):
        return features.times(weight)
    return stacked_linear(features, weight, ptr)


def feature_rows(features: Features, rows: np.ndarray, ptr: list[int], device: torch.device | str) -> FeatureRows:
    """Select rows of a feature matrix in a form that multiplies stacked weights.

    Args:
        features: [N, num_features] float32, dense, CSR or partly dense.
        rows: [rows] int64 ascending row numbers, grouped by client.
        ptr: [S + 1] boundaries of `rows` by client.
        device: device of the result.

    Returns:
        A tensor [rows, num_features] for dense features; for CSR features a sparse operator [rows, S * num_features]
        whose columns are offset by client; for partly dense features a `PartlyDenseRows`.
    """
    if isinstance(features, np.ndarray):
        contiguous = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
        selected = features[rows[0] : rows[-1] + 1] if contiguous else features[rows]  # a slice makes no copy
        return torch.from_numpy(selected).to(device)
    selected = features if len(rows) == features.shape[0] else features[rows]
    if isinstance(selected, PartlyDense):
        dense = torch.from_numpy(selected.dense).to(device)
        return PartlyDenseRows.of(_offset_by_client(selected.sparse, ptr, device), dense, selected.dense_index, ptr)
    return _offset_by_client(selected, ptr, device)


def dense_rows(rows: np.ndarray | sp.csr_matrix, device: torch.device | str) -> Tensor:
    """Return rows of a feature matrix as a dense tensor.

    Args:
        rows: [rows, num_features] float32, dense, CSR or partly dense.
        device: device of the result.

    Returns:
        [rows, num_features] float32.
    """
    return torch.from_numpy(rows if isinstance(rows, np.ndarray) else rows.toarray()).to(device)


def _offset_by_client(rows: sp.csr_matrix, ptr: list[int], device: torch.device | str) -> SparseOperator:
    width = rows.shape[1]
    entries = [int(rows.indptr[stop] - rows.indptr[start]) for start, stop in pairwise(ptr)]
    offset = np.repeat(np.arange(len(entries)) * width, entries)
    parts = (rows.data, rows.indices + offset, rows.indptr)
    return SparseOperator(sp.csr_matrix(parts, shape=(rows.shape[0], len(entries) * width)), device)
