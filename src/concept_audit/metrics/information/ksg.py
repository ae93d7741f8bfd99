"""Mutual information of continuous variables: Kraskov, Stögbauer and Grassberger 2004, algorithm 1.

Neighbour counts are exact: they equal those of scikit-learn's k-d trees to the integer. Scalar
columns go through sorted strips (one sort per column, shared by all its pairs), vectors through
shared rows of distances. Without numba, scipy and numpy give the same counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import digamma

from concept_audit.metrics.information._compiled import in_threads, kernels, n_threads

__all__ = [
    "SortedColumns",
    "digamma_table",
    "ksg_information",
    "ksg_pairs",
    "ksg_vector_pairs",
    "reach_counts",
    "self_information_closed_form",
    "sort_columns",
]

_PAIRS_FOR_THREADS = 16
_ROWS_PER_PIECE = 256
_CHUNK_BYTES = 64 * 2**20


@lru_cache(maxsize=4)  # the scores of one run share n; computing it takes a third of a Ross score
def digamma_table(n: int) -> Float[NDArray, " n+1"]:
    """Digamma of 0..n, read-only; entry 0 is never used and holds 0."""
    table = np.zeros(n + 1)
    table[1:] = digamma(np.arange(1, n + 1, dtype=np.float64))
    table.flags.writeable = False
    return table


def self_information_closed_form(n: int, n_neighbors: int) -> float:
    """KSG information of a tie-free variable with itself under two independent jitters.

    psi(n) - psi(k) - 1/k = psi(n) - psi(k + 1), whatever the distribution: no search is needed.
    """
    return float(digamma(n) - digamma(n_neighbors + 1))


@dataclass(frozen=True)
class SortedColumns:
    """Columns sorted once: ascending values, the order that sorts them and each sample's rank."""

    values: Float[NDArray, "k n"]
    order: Int[NDArray, "k n"]
    rank: Int[NDArray, "k n"]

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.values.shape[1]

    @property
    def smallest_gap(self) -> Float[NDArray, " k"]:
        """Smallest difference between neighbours in each column."""
        return np.diff(self.values, axis=1).min(axis=1)


def sort_columns(matrix: Float[NDArray, "n k"]) -> SortedColumns:
    """Sort every column of a matrix."""
    columns = np.ascontiguousarray(matrix.T, dtype=np.float64)
    order = np.argsort(columns, axis=1, kind="stable").astype(np.int32)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(order.shape[1], dtype=np.int32)[None, :], axis=1)
    return SortedColumns(np.take_along_axis(columns, order, axis=1), order, rank)


def _strip_shift(n: int) -> int:
    """Binary logarithm of the strip width: the power of two nearest to sqrt(n).

    Strips of half or twice that width cost up to a fifth more, by kind of data.
    """
    return max(1, round(math.log2(max(n, 2)) / 2))


def reach_counts(values: Float[NDArray, " n"], radius: Float[NDArray, " n"]) -> Int[NDArray, " n"]:
    """Points within `radius` of each entry of a sorted column, itself included (numpy form).

    The bisection tests the rounded difference, as the k-d tree and the compiled form do.
    """
    n = values.size
    place = np.arange(n)
    up, fails = place.copy(), np.full(n, n)
    down, below = place.copy(), np.full(n, -1)
    for _ in range(max(1, math.ceil(math.log2(n + 1)))):
        middle = (up + fails) >> 1
        within = values[np.minimum(middle, n - 1)] - values <= radius
        within &= middle < n
        up, fails = np.where(within, middle, up), np.where(within, fails, middle)
        middle = (down + below + 1) >> 1
        within = values - values[middle] <= radius
        down, below = np.where(within, middle, down), np.where(within, below, middle)
    return up - down + 1


def _pairs_in_numpy(
    columns: SortedColumns, pairs: NDArray, n_neighbors: int, table: NDArray, out: NDArray
) -> None:
    from scipy.spatial import cKDTree

    original = np.empty_like(columns.values)
    np.put_along_axis(original, columns.order, columns.values, axis=1)
    for at, (i, j) in enumerate(pairs):
        points = np.column_stack([original[i], original[j]])
        distance, _ = cKDTree(points).query(points, k=[n_neighbors + 1], p=np.inf)
        radius = np.nextafter(distance[:, 0], 0.0)
        out[at] = sum(
            table[reach_counts(columns.values[v], radius[columns.order[v]])].sum() for v in (i, j)
        )


def ksg_pairs(
    columns: SortedColumns, pairs: Int[NDArray, "p 2"], *, n_neighbors: int = 3
) -> Float[NDArray, " p"]:
    """Information of pairs of scalar columns in nats, before clipping at 0."""
    n = columns.n_samples
    pairs = np.ascontiguousarray(pairs, dtype=np.int64)
    table = digamma_table(n)
    sums = np.empty(len(pairs))
    strips = kernels("_strips")
    if strips is None:
        _pairs_in_numpy(columns, pairs, n_neighbors, table, sums)
    else:
        kernel = strips.pair_digamma_sums
        threads = n_threads(len(pairs) // _PAIRS_FOR_THREADS)
        cuts = np.linspace(0, len(pairs), 4 * threads + 1 if threads > 1 else 2).astype(int)

        def piece(at: int) -> None:
            part = slice(cuts[at], cuts[at + 1])
            kernel(
                columns.values, columns.order, columns.rank, pairs[part], int(n_neighbors),
                _strip_shift(n), table, sums[part],
            )  # fmt: skip

        in_threads(piece, range(len(cuts) - 1), threads)
    return table[n] + table[n_neighbors] - sums / n


def ksg_information(
    x: Float[NDArray, " n"], y: Float[NDArray, " n"], *, n_neighbors: int = 3
) -> float:
    """Information of two scalar columns in nats, before clipping at 0; no jitter is added."""
    columns = sort_columns(np.column_stack([x, y]))
    return float(ksg_pairs(columns, np.array([[0, 1]]), n_neighbors=n_neighbors)[0])


def _vectors_in_numpy(
    vectors: Sequence[NDArray], pairs: NDArray, n_neighbors: int, table: NDArray, sums: NDArray
) -> None:
    n = vectors[0].shape[0]
    rows = max(1, _CHUNK_BYTES // (8 * n * (len(vectors) + 2)))
    sums[:] = 0.0
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        distance = []
        for vector in vectors:
            block = np.zeros((stop - start, n))
            for column in vector.T:
                np.maximum(block, np.abs(column[None, :] - column[start:stop, None]), out=block)
            distance.append(block)
        for at, (i, j) in enumerate(pairs):
            joint = np.maximum(distance[i], distance[j])
            joint[np.arange(stop - start), np.arange(start, stop)] = np.inf
            kth = np.partition(joint, n_neighbors - 1, axis=1)[:, n_neighbors - 1]
            radius = np.nextafter(kth, 0.0)[:, None]
            for v in (i, j):
                sums[at] += table[np.count_nonzero(distance[v] <= radius, axis=1)].sum()


def ksg_vector_pairs(
    vectors: Sequence[Float[NDArray, "n _"]],
    pairs: Int[NDArray, "p 2"],
    *,
    n_neighbors: int = 3,
    device: str | None = None,
) -> Float[NDArray, " p"]:
    """Information of pairs of vectors in nats, before clipping at 0.

    The number of samples is the number of rows. `device` names a torch device, on which blocks of
    rows are handled at once.
    """
    n = vectors[0].shape[0]
    pairs = np.ascontiguousarray(pairs, dtype=np.int64)
    table = digamma_table(n)
    sums = np.empty(len(pairs))
    rows = kernels("_rows")
    if device is not None:
        from concept_audit.metrics.information.on_torch import ksg_sums

        sums[:] = ksg_sums(vectors, pairs, n_neighbors, table, device)
    elif rows is None:
        _vectors_in_numpy(vectors, pairs, n_neighbors, table, sums)
    else:
        kernel = rows.ksg_rows
        columns = np.ascontiguousarray(np.concatenate([vector.T for vector in vectors]))
        offsets = np.concatenate([[0], np.cumsum([vector.shape[1] for vector in vectors])])
        starts = range(0, n, _ROWS_PER_PIECE)
        pieces = np.empty((len(starts), len(pairs)))

        def piece(at: int) -> None:
            start = at * _ROWS_PER_PIECE
            stop = min(start + _ROWS_PER_PIECE, n)
            kernel(columns, offsets, pairs, int(n_neighbors), table, start, stop, pieces[at])

        in_threads(piece, range(len(starts)), n_threads(len(starts) // 4))
        sums[:] = pieces.sum(axis=0)
    return table[n] + table[n_neighbors] - sums / n
