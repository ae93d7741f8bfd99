"""Compiled kernels for scalar columns: neighbour search in strips, counts in sorted columns.

Every test compares the *rounded* difference `fl(a - b)` with the radius, as a k-d tree does: a
boundary neighbour lies exactly at the radius, so testing `a - r` by a plain sorted search would
count it by chance. A radius is moved to the next float toward zero and compared with `<=`; a
radius of zero therefore counts equal values.

This module imports numba at its head and is itself imported on use only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["pair_digamma_sums", "ross_digamma_sum"]


@njit(cache=True, nogil=True)
def _reach_up(values: Any, place: int, radius: float) -> int:
    """Number of later entries of a sorted column within `radius` of entry `place`."""
    n = values.size
    centre = values[place]
    low = place  # the last entry known to be within
    step = 32
    high = place + step
    while high < n and values[high] - centre <= radius:
        low = high
        step *= 4
        high = low + step
    high = min(high, n)
    length = high - low
    while length > 1:  # no data-dependent jump: the compiler makes this a conditional move
        half = length >> 1
        low = low + half if values[low + half] - centre <= radius else low
        length -= half
    return low - place


@njit(cache=True, nogil=True)
def _reach_down(values: Any, place: int, radius: float) -> int:
    """Number of earlier entries of a sorted column within `radius` of entry `place`."""
    centre = values[place]
    high = place
    step = 32
    low = place - step
    while low >= 0 and centre - values[low] <= radius:
        high = low
        step *= 4
        low = high - step
    low = max(low, -1)
    length = high - low
    while length > 1:
        half = length >> 1
        high = high - half if centre - values[high - half] <= radius else high
        length -= half
    return place - high


@njit(cache=True, nogil=True)
def _insert(best: Any, distance: float) -> float:
    """Put `distance` into the ascending list `best`; returns the new largest entry."""
    last = best.size - 1
    while last > 0 and best[last - 1] > distance:
        best[last] = best[last - 1]
        last -= 1
    best[last] = distance
    return best[best.size - 1]


@njit(cache=True, nogil=True)
def _search(
    strip_x: Any, strip_y: Any, low: int, up: int, down: int, high: int, x: float, y: float,
    best: Any, kth: float,
) -> float:  # fmt: skip
    """Offer one strip's points, upwards from `up` and downwards from `down`, to `best`."""
    while up < high:
        gap = strip_y[up] - y
        if gap >= kth:
            break
        distance = max(gap, abs(strip_x[up] - x))
        if distance < kth:
            kth = _insert(best, distance)
        up += 1
    while down >= low:
        gap = y - strip_y[down]
        if gap >= kth:
            break
        distance = max(gap, abs(strip_x[down] - x))
        if distance < kth:
            kth = _insert(best, distance)
        down -= 1
    return kth


@njit(cache=True, nogil=True)
def _joint_radii(
    x: Any, rank_x: Any, y: Any, order_y: Any, k: int, shift: int,
    strip_x: Any, strip_y: Any, place: Any, ranks: Any, radius_x: Any, radius_y: Any,
) -> None:  # fmt: skip
    """Distance to the k-th neighbour in the joint maximum norm, by x rank and by y rank.

    Strips hold `2**shift` consecutive x ranks each. Filling them in y order sorts every strip by y
    without a sort, and visiting the points in y order makes the point's place inside every strip a
    running counter.
    """
    n = x.size
    width = 1 << shift
    place[:] = 0
    for p in range(n):
        rank = rank_x[order_y[p]]
        ranks[p] = rank
        strip = rank >> shift
        at = (strip << shift) + place[strip]
        place[strip] += 1
        strip_x[at] = x[rank]
        strip_y[at] = y[p]
    n_strips = (n + width - 1) >> shift
    place[:] = 0
    best = np.empty(k)
    for p in range(n):
        rank = ranks[p]
        home = rank >> shift
        here_x = x[rank]
        here_y = y[p]
        best[:] = np.inf
        low = home << shift
        at = low + place[home]
        kth = _search(
            strip_x, strip_y, low, at + 1, at - 1, min(low + width, n), here_x, here_y, best, np.inf
        )
        strip = home - 1
        while strip >= 0:
            low = strip << shift
            if here_x - x[low + width - 1] >= kth:
                break
            at = low + place[strip]
            kth = _search(strip_x, strip_y, low, at, at - 1, low + width, here_x, here_y, best, kth)
            strip -= 1
        strip = home + 1
        while strip < n_strips:
            low = strip << shift
            if x[low] - here_x >= kth:
                break
            at = low + place[strip]
            kth = _search(
                strip_x, strip_y, low, at, at - 1, min(low + width, n), here_x, here_y, best, kth
            )
            strip += 1
        place[home] += 1
        kth = np.nextafter(kth, 0.0)
        radius_x[rank] = kth
        radius_y[p] = kth


@njit(cache=True, nogil=True)
def _digamma_sum(values: Any, radius: Any, digamma: Any) -> float:
    """Sum of digamma of the neighbour counts (the point included) of one sorted column."""
    n = values.size
    histogram = np.zeros(n + 1, np.int64)
    for p in range(n):
        histogram[1 + _reach_up(values, p, radius[p]) + _reach_down(values, p, radius[p])] += 1
    total = 0.0
    for count in range(1, n + 1):
        if histogram[count]:
            total += histogram[count] * digamma[count]
    return total


@njit(cache=True, nogil=True)
def pair_digamma_sums(
    values: Any, order: Any, rank: Any, pairs: Any, k: int, shift: int, digamma: Any, out: Any
) -> None:
    """For each pair of columns, write the digamma sum over both marginals' counts to `out`."""
    n = values.shape[1]
    strip_x = np.empty(n)
    strip_y = np.empty(n)
    radius_x = np.empty(n)
    radius_y = np.empty(n)
    ranks = np.empty(n, np.int32)
    place = np.empty(((n - 1) >> shift) + 1, np.int64)
    for at in range(pairs.shape[0]):
        i = pairs[at, 0]
        j = pairs[at, 1]
        _joint_radii(
            values[i], rank[i], values[j], order[j], k, shift,
            strip_x, strip_y, place, ranks, radius_x, radius_y,
        )  # fmt: skip
        out[at] = _digamma_sum(values[i], radius_x, digamma) + _digamma_sum(
            values[j], radius_y, digamma
        )


@njit(cache=True, nogil=True)
def ross_digamma_sum(
    values: Any, labels: Any, class_counts: Any, n_neighbors: int, digamma: Any
) -> float:
    """Sum of digamma of the counts around each point of a sorted column (Ross estimator).

    `labels` are class indices in the column's order, every class with at least two members.
    """
    n = values.size
    starts = np.zeros(class_counts.size + 1, np.int64)
    for c in range(class_counts.size):
        starts[c + 1] = starts[c] + class_counts[c]
    place = starts[:-1].copy()
    grouped = np.empty(n)
    where = np.empty(n, np.int64)
    for p in range(n):
        at = place[labels[p]]
        place[labels[p]] += 1
        grouped[at] = values[p]
        where[at] = p
    radius = np.empty(n)
    for c in range(class_counts.size):
        low = starts[c]
        high = starts[c + 1]
        k = min(n_neighbors, high - low - 1)
        for at in range(low, high):
            centre = grouped[at]
            kth = np.inf  # smallest of the k + 1 windows of k + 1 values around the point
            for first in range(max(low, at - k), min(at, high - 1 - k) + 1):
                kth = min(kth, max(centre - grouped[first], grouped[first + k] - centre))
            radius[where[at]] = np.nextafter(kth, 0.0)
    return _digamma_sum(values, radius, digamma)
