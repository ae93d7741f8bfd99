"""Plug-in entropy and mutual information of discrete variables, in nats."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

__all__ = ["as_symbols", "entropies", "entropy", "information", "information_matrix"]

_ONE_HOT_LEVELS = 2048  # joint tables of all column pairs come from one product up to this width


def as_symbols(values: NDArray) -> Int[NDArray, " n"]:
    """Class indices 0..l-1 of a column `(n,)`, or of the distinct rows of a matrix `(n, d)`."""
    axis = 0 if values.ndim == 2 else None
    return np.unique(values, axis=axis, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _entropy_of_counts(counts: NDArray, n: int) -> float:
    positive = counts[counts > 0] / n
    return float(max(0.0, -np.sum(positive * np.log(positive))))


def entropy(symbols: Int[NDArray, " n"]) -> float:
    """Entropy of one column of class indices; 0 for a constant."""
    return _entropy_of_counts(np.bincount(symbols), symbols.size)


def entropies(symbols: Int[NDArray, "n k"]) -> Float[NDArray, " k"]:
    """Entropy of each column of class indices."""
    return np.array([entropy(column) for column in symbols.T])


def _information_of_table(table: NDArray, n: int) -> float:
    rows = table.sum(axis=1)
    columns = table.sum(axis=0)
    i, j = np.nonzero(table)
    joint = table[i, j] / n
    value = np.sum(joint * (np.log(joint) - np.log(rows[i] / n) - np.log(columns[j] / n)))
    return float(max(0.0, value))


def information(a: Int[NDArray, " n"], b: Int[NDArray, " n"]) -> float:
    """Mutual information of two columns of class indices."""
    levels = int(b.max()) + 1
    cells, counts = np.unique(a * levels + b, return_counts=True)
    marginal_a = np.bincount(a)[cells // levels]
    marginal_b = np.bincount(b)[cells % levels]
    joint = counts / a.size
    value = np.sum(
        joint * (np.log(joint) - np.log(marginal_a / a.size) - np.log(marginal_b / a.size))
    )
    return float(max(0.0, value))


def information_matrix(symbols: Int[NDArray, "n k"]) -> Float[NDArray, "k k"]:
    """Mutual information of every pair of columns, entropies on the diagonal."""
    n, k = symbols.shape
    levels = symbols.max(axis=0) + 1
    result = np.zeros((k, k))
    np.fill_diagonal(result, entropies(symbols))
    offsets = np.concatenate([[0], np.cumsum(levels)])
    joint = None
    if offsets[-1] <= _ONE_HOT_LEVELS:
        one_hot = np.zeros((n, int(offsets[-1])), dtype=np.float64)
        np.put_along_axis(one_hot, symbols + offsets[:-1], 1.0, axis=1)
        joint = one_hot.T @ one_hot  # counts below 2**53: exact
    for i in range(k):
        for j in range(i + 1, k):
            if joint is None:
                value = information(symbols[:, i], symbols[:, j])
            else:
                table = joint[offsets[i] : offsets[i + 1], offsets[j] : offsets[j + 1]]
                value = _information_of_table(table, n)
            result[i, j] = result[j, i] = value
    return result
