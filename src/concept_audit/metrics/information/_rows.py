"""Compiled kernels for vectors: one row of exact distances per concept, shared by all uses of it.

Distances are built coordinate by coordinate in the order in which a k-d tree adds them up, without
the dot-product expansion, whose rounding is far larger than the one-float step on the radius.

This module imports numba at its head and is itself imported on use only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["ksg_rows", "ross_rows"]

# Inputs are finite, so comparisons need not honour NaN; without the flag nothing is vectorised.
_FINITE = {"nnan", "nsz"}
_BLOCK = 512  # entries of a row that stay in the first-level cache while all coordinates pass
_LANE = 32  # entries tested together against the current k-th distance


@njit(cache=True, nogil=True, fastmath=_FINITE)
def _chebyshev_row(columns: Any, first: int, last: int, i: int, out: Any) -> None:
    """Maximum-norm distances of row `i` to all rows over coordinates `first..last-1`."""
    n = columns.shape[1]
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        piece = out[start:stop]
        piece[:] = 0.0
        d = first
        while d + 4 <= last:  # four at a time: one load and store of the row for all of them
            line0 = columns[d, start:stop]
            line1 = columns[d + 1, start:stop]
            line2 = columns[d + 2, start:stop]
            line3 = columns[d + 3, start:stop]
            centre0 = columns[d, i]
            centre1 = columns[d + 1, i]
            centre2 = columns[d + 2, i]
            centre3 = columns[d + 3, i]
            for j in range(piece.size):
                gap0 = abs(line0[j] - centre0)
                gap1 = abs(line1[j] - centre1)
                gap2 = abs(line2[j] - centre2)
                gap3 = abs(line3[j] - centre3)
                gap0 = gap0 if gap0 > gap1 else gap1
                gap2 = gap2 if gap2 > gap3 else gap3
                gap0 = gap0 if gap0 > gap2 else gap2
                piece[j] = gap0 if gap0 > piece[j] else piece[j]
            d += 4
        while d < last:
            line0 = columns[d, start:stop]
            centre0 = columns[d, i]
            for j in range(piece.size):
                gap0 = abs(line0[j] - centre0)
                piece[j] = gap0 if gap0 > piece[j] else piece[j]
            d += 1


@njit(cache=True, nogil=True)
def _squared_row(columns: Any, i: int, out: Any) -> None:
    """Squared Euclidean distances of row `i` to all rows."""
    n = columns.shape[1]
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        piece = out[start:stop]
        piece[:] = 0.0
        d = 0
        while d + 4 <= columns.shape[0]:
            line0 = columns[d, start:stop]
            line1 = columns[d + 1, start:stop]
            line2 = columns[d + 2, start:stop]
            line3 = columns[d + 3, start:stop]
            centre0 = columns[d, i]
            centre1 = columns[d + 1, i]
            centre2 = columns[d + 2, i]
            centre3 = columns[d + 3, i]
            for j in range(piece.size):
                gap0 = line0[j] - centre0
                gap1 = line1[j] - centre1
                gap2 = line2[j] - centre2
                gap3 = line3[j] - centre3
                # the parentheses keep the order of a sum taken one coordinate at a time
                piece[j] = (((piece[j] + gap0 * gap0) + gap1 * gap1) + gap2 * gap2) + gap3 * gap3
            d += 4
        while d < columns.shape[0]:
            line0 = columns[d, start:stop]
            centre0 = columns[d, i]
            for j in range(piece.size):
                gap0 = line0[j] - centre0
                piece[j] += gap0 * gap0
            d += 1


@njit(cache=True, nogil=True, fastmath=_FINITE)
def _kth_smallest(row: Any, best: Any) -> float:
    """The `best.size`-th smallest entry of a row; `best` is scratch."""
    k = best.size
    best[:] = np.inf
    kth = np.inf
    n = row.size
    for start in range(0, n, _LANE):
        stop = min(start + _LANE, n)
        piece = row[start:stop]
        lowest = piece[0]
        for j in range(piece.size):
            lowest = piece[j] if piece[j] < lowest else lowest
        if lowest < kth:
            for j in range(piece.size):
                if piece[j] < kth:
                    at = k - 1
                    while at > 0 and best[at - 1] > piece[j]:
                        best[at] = best[at - 1]
                        at -= 1
                    best[at] = piece[j]
                    kth = best[k - 1]
    return kth


@njit(cache=True, nogil=True)
def _count(row: Any, radius: float) -> int:
    """Number of entries of a row that are at most `radius`."""
    total = 0
    for j in range(row.size):
        total += row[j] <= radius
    return total


@njit(cache=True, nogil=True, fastmath=_FINITE)
def _larger(one: Any, other: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = one[j] if one[j] > other[j] else other[j]


@njit(cache=True, nogil=True)
def ksg_rows(
    columns: Any, offsets: Any, pairs: Any, k: int, digamma: Any, start: int, stop: int, out: Any
) -> None:
    """Digamma sums over both marginals' counts of rows `start..stop-1`, for each pair of vectors.

    `columns` holds all coordinates as rows; vector `v` owns `offsets[v]..offsets[v+1]-1`.
    """
    n = columns.shape[1]
    n_vectors = offsets.size - 1
    distance = np.empty((n_vectors, n))
    joint = np.empty(n)
    best = np.empty(k)
    out[:] = 0.0
    for i in range(start, stop):
        for v in range(n_vectors):
            _chebyshev_row(columns, offsets[v], offsets[v + 1], i, distance[v])
        for at in range(pairs.shape[0]):
            one = distance[pairs[at, 0]]
            other = distance[pairs[at, 1]]
            _larger(one, other, joint)
            joint[i] = np.inf
            radius = np.nextafter(_kth_smallest(joint, best), 0.0)
            out[at] += digamma[_count(one, radius)] + digamma[_count(other, radius)]


@njit(cache=True, nogil=True)
def _of_class(row: Any, labels: Any, label: int, out: Any) -> None:
    for j in range(row.size):
        out[j] = row[j] if labels[j] == label else np.inf


@njit(cache=True, nogil=True)
def _count_kept(row: Any, labels: Any, radius: float) -> int:
    total = 0
    for j in range(row.size):
        total += (row[j] <= radius) & (labels[j] >= 0)
    return total


@njit(cache=True, nogil=True)
def ross_rows(
    columns: Any, labels: Any, neighbours: Any, n_neighbors: int, dropped: Any,
    digamma: Any, start: int, stop: int, out: Any,
) -> None:  # fmt: skip
    """Digamma sums of the counts of rows `start..stop-1`, for each row of `labels`.

    `labels[t]` are class indices, -1 for a sample whose label occurs once; `neighbours[t, c]` is
    min(n_neighbors, members of class c - 1); `dropped[t]` says whether any label is -1.
    """
    n = columns.shape[1]
    distance = np.empty(n)
    own = np.empty(n)
    scratch = np.empty(n_neighbors)
    out[:] = 0.0
    for i in range(start, stop):
        _squared_row(columns, i, distance)
        for t in range(labels.shape[0]):
            label = labels[t, i]
            if label < 0:
                continue
            _of_class(distance, labels[t], label, own)
            own[i] = np.inf
            kth = _kth_smallest(own, scratch[: neighbours[t, label]])
            radius = np.nextafter(np.sqrt(kth), 0.0)
            radius *= radius
            if dropped[t]:
                out[t] += digamma[_count_kept(distance, labels[t], radius)]
            else:
                out[t] += digamma[_count(distance, radius)]
