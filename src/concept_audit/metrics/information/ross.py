"""Mutual information of a continuous and a discrete variable: Ross 2014.

The radius around a sample reaches its k-th neighbour of the same label; the count takes all labels.
Scalars use windows of the sorted column, vectors exact Euclidean distances in any dimension: the
published code leaves the search to scikit-learn, which above 15 features rounds distances and so
scores 0.06 to 0.13 nats too low.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from concept_audit.metrics.information._compiled import in_threads, kernels, n_threads
from concept_audit.metrics.information.ksg import SortedColumns, digamma_table, reach_counts

__all__ = ["ross_scalars", "ross_vector", "ross_vector_by_trees"]

_ROWS_PER_PIECE = 256
_CHUNK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class _Labels:
    """Labels of the kept samples: those whose label occurs at least twice."""

    index: NDArray  # (n,) class index among the kept, -1 when dropped
    counts: NDArray  # (l,) members of each kept class

    @classmethod
    def of(cls, y: NDArray) -> _Labels:
        if y.dtype.kind == "i" and y.min(initial=0) >= 0 and y.max(initial=0) < 2 * y.size:
            inverse, counts = y, np.bincount(y)  # class indices need no sort
        else:
            _, inverse, counts = np.unique(y, return_inverse=True, return_counts=True)
        kept = counts > 1
        if not kept.any():
            raise ValueError(
                f"the discrete variable has {y.size} distinct labels in {y.size} rows: no sample "
                "has a neighbour of its own label, so its information with a continuous variable "
                "is not defined. Pass class indices, not row numbers or a continuous target."
            )
        renumbered = np.where(kept, np.cumsum(kept) - 1, -1)
        return cls(renumbered[inverse], counts[kept])

    @property
    def n_kept(self) -> int:
        """Number of kept samples."""
        return int(self.counts.sum())

    def constant(self, n_neighbors: int, table: NDArray) -> float:
        """The estimate without the neighbour counts: psi(n) + mean psi(k_l) - mean psi(m_l)."""
        n = self.n_kept
        k = np.minimum(n_neighbors, self.counts - 1)
        return float(table[n] + (self.counts * (table[k] - table[self.counts])).sum() / n)


def _window_radius(values: NDArray, labels: NDArray, counts: NDArray, n_neighbors: int) -> NDArray:
    """Distance to the k-th neighbour of the same label in a sorted column (numpy form)."""
    grouped = np.argsort(labels, kind="stable")
    ordered = values[grouped]
    radius = np.empty(values.size)
    start = 0
    for members in counts:
        own = ordered[start : start + members]
        k = min(n_neighbors, members - 1)
        kth = np.full(members, np.inf)
        span = members - k
        for left in range(k + 1):  # windows with `left` of their k neighbours below the point
            at = slice(left, left + span)
            reach = np.maximum(own[at] - own[:span], own[k:] - own[at])
            kth[at] = np.minimum(kth[at], reach)
        radius[grouped[start : start + members]] = kth
        start += members
    return np.nextafter(radius, 0.0)


def ross_scalars(
    columns: SortedColumns, y: Int[NDArray, " n"], *, n_neighbors: int = 3
) -> Float[NDArray, " k"]:
    """Information of each scalar column with the labels in nats, before clipping at 0.

    Samples whose label occurs once are dropped; a class smaller than `n_neighbors + 1` uses all
    its members.
    """
    labels = _Labels.of(y)
    n = labels.n_kept
    all_kept = n == y.size
    table = digamma_table(n)
    constant = labels.constant(n_neighbors, table)
    strips = kernels("_strips")
    result = np.empty(len(columns.values))
    for at, (values, order) in enumerate(zip(columns.values, columns.order, strict=True)):
        index = labels.index[order]
        if not all_kept:
            kept = index >= 0
            values, index = values[kept], index[kept]
        if strips is None:
            radius = _window_radius(values, index, labels.counts, n_neighbors)
            total = table[reach_counts(values, radius)].sum()
        else:
            total = strips.ross_digamma_sum(values, index, labels.counts, int(n_neighbors), table)
        result[at] = constant - total / n
    return result


def _rows_in_numpy(
    vector: NDArray, index: NDArray, neighbours: NDArray, table: NDArray, sums: NDArray
) -> None:
    n = vector.shape[0]
    rows = max(1, _CHUNK_BYTES // (8 * n * 3))
    sums[:] = 0.0
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        squared = np.zeros((stop - start, n))
        for column in vector.T:
            squared += (column[None, :] - column[start:stop, None]) ** 2
        for t, labels in enumerate(index):
            mine = labels[start:stop]
            own = np.where(labels[None, :] == mine[:, None], squared, np.inf)
            own[np.arange(stop - start), np.arange(start, stop)] = np.inf
            own.sort(axis=1)
            at = np.flatnonzero(mine >= 0)
            kth = own[at, neighbours[t, mine[at]] - 1]
            radius = np.nextafter(np.sqrt(kth), 0.0) ** 2
            inside = (squared[at] <= radius[:, None]) & (labels >= 0)[None, :]
            sums[t] += table[np.count_nonzero(inside, axis=1)].sum()


def ross_vector(
    vector: Float[NDArray, "n m"],
    labels: Int[NDArray, "n t"],
    *,
    n_neighbors: int = 3,
    device: str | None = None,
) -> Float[NDArray, " t"]:
    """Information of one vector with each column of labels in nats, before clipping at 0.

    Distances are computed once and shared by all label columns.
    """
    n = vector.shape[0]
    targets = [_Labels.of(column) for column in labels.T]
    table = digamma_table(n)
    index = np.ascontiguousarray([target.index for target in targets])
    widest = max(target.counts.size for target in targets)
    neighbours = np.ones((len(targets), widest), dtype=np.int64)
    for t, target in enumerate(targets):
        neighbours[t, : target.counts.size] = np.minimum(n_neighbors, target.counts - 1)
    sums = np.empty(len(targets))
    rows = kernels("_rows")
    if device is not None:
        from concept_audit.metrics.information.on_torch import ross_sums

        sums[:] = ross_sums(vector, index, neighbours, table, device)
    elif rows is None:
        _rows_in_numpy(vector, index, neighbours, table, sums)
    else:
        kernel = rows.ross_rows
        columns = np.ascontiguousarray(vector.T)
        dropped = np.array([target.n_kept < n for target in targets])
        starts = range(0, n, _ROWS_PER_PIECE)
        pieces = np.empty((len(starts), len(targets)))

        def piece(at: int) -> None:
            start = at * _ROWS_PER_PIECE
            stop = min(start + _ROWS_PER_PIECE, n)
            kernel(
                columns, index, neighbours, int(n_neighbors), dropped, table, start, stop,
                pieces[at],
            )  # fmt: skip

        in_threads(piece, range(len(starts)), n_threads(len(starts) // 4))
        sums[:] = pieces.sum(axis=0)
    constants = np.array([target.constant(n_neighbors, table) for target in targets])
    kept = np.array([target.n_kept for target in targets])
    return constants - sums / kept


def ross_vector_by_trees(
    vector: Float[NDArray, "n m"], labels: Int[NDArray, "n t"], *, n_neighbors: int = 3
) -> Float[NDArray, " t"]:
    """Information of one vector with labels as the published code has it, before clipping at 0.

    scikit-learn picks the search: above 15 dimensions brute force with rounded distances, whose
    k-th neighbour is then counted or not by chance. For comparison with printed numbers only.
    """
    from sklearn.neighbors import KDTree, NearestNeighbors

    result = np.empty(labels.shape[1])
    for t, column in enumerate(labels.T):
        target = _Labels.of(column)
        kept = target.index >= 0
        points, index = vector[kept], target.index[kept]
        table = digamma_table(index.size)
        radius = np.empty(index.size)
        for label, members in enumerate(target.counts):
            own = points[index == label]
            search = NearestNeighbors(n_neighbors=min(n_neighbors, int(members) - 1)).fit(own)
            radius[index == label] = np.nextafter(search.kneighbors()[0][:, -1], 0.0)
        counts = KDTree(points).query_radius(points, radius, count_only=True)
        result[t] = target.constant(n_neighbors, table) - table[counts].mean()
    return result
