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

_BLOCK = 64  # points whose counts are searched together; more of them differ more in their reach


# Inlined by name: as calls with three arrays they cost a quarter of the neighbour search.
@njit(cache=True, nogil=True, inline="always")
def _offer(best: Any, distance: float) -> float:
    """Keep the smallest distances in the ascending list `best`; returns the largest kept.

    No jump depends on the data, so nothing is mispredicted.
    """
    for at in range(best.size):
        held = best[at]
        best[at] = min(held, distance)
        distance = max(held, distance)
    return best[best.size - 1]


@njit(cache=True, nogil=True, inline="always")
def _search(
    strip_x: Any, strip_y: Any, low: int, up: int, down: int, high: int, x: float, y: float,
    best: Any, kth: float,
) -> float:  # fmt: skip
    """Offer one strip's points, upwards from `up` and downwards from `down`, nearer ones first."""
    gap_up = strip_y[up] - y if up < high else np.inf
    gap_down = y - strip_y[down] if down >= low else np.inf
    while min(gap_up, gap_down) < kth:
        if gap_up < gap_down:
            kth = _offer(best, max(gap_up, abs(strip_x[up] - x)))
            up += 1
            gap_up = strip_y[up] - y if up < high else np.inf
        else:
            kth = _offer(best, max(gap_down, abs(strip_x[down] - x)))
            down -= 1
            gap_down = y - strip_y[down] if down >= low else np.inf
    return kth


@njit(cache=True, nogil=True)
def _joint_radii(
    x: Any, rank_x: Any, y: Any, order_y: Any, k: int, shift: int,
    strip_x: Any, strip_y: Any, ranks: Any, radius_x: Any, radius_y: Any,
) -> None:  # fmt: skip
    """Distance to the k-th neighbour in the joint maximum norm, by x rank and by y rank.

    Strips hold `2**shift` consecutive x ranks each. Filling them in y order sorts every strip by y
    without a sort, and visiting the points in y order makes the point's place inside every strip a
    running counter. The y values on either side of that place are kept beside each other for all
    strips, so that a strip without a candidate is passed over without touching its points.
    """
    n = x.size
    width = 1 << shift
    n_strips = ((n - 1) >> shift) + 1
    place = np.zeros(n_strips, np.int64)
    for p in range(n):
        rank = rank_x[order_y[p]]
        ranks[p] = rank
        strip = rank >> shift
        at = (strip << shift) + place[strip]
        place[strip] += 1
        strip_x[at] = x[rank]
        strip_y[at] = y[p]
    lowest = np.empty(n_strips)
    highest = np.empty(n_strips)
    above = np.empty(n_strips)
    below = np.full(n_strips, -np.inf)
    for strip in range(n_strips):
        low = strip << shift
        lowest[strip] = x[low]
        highest[strip] = x[min(low + width, n) - 1]
        above[strip] = strip_y[low]
    place[:] = 0
    best = np.empty(k)
    for p in range(n):
        rank = ranks[p]
        home = rank >> shift
        here_x = x[rank]
        here_y = y[p]
        best[:] = np.inf
        low = home << shift
        high = min(low + width, n)
        at = low + place[home]
        kth = _search(strip_x, strip_y, low, at + 1, at - 1, high, here_x, here_y, best, np.inf)
        place[home] += 1
        below[home] = here_y
        above[home] = strip_y[at + 1] if at + 1 < high else np.inf
        strip = home - 1
        while strip >= 0 and here_x - highest[strip] < kth:
            if min(above[strip] - here_y, here_y - below[strip]) < kth:
                low = strip << shift
                at = low + place[strip]
                kth = _search(
                    strip_x, strip_y, low, at, at - 1, low + width, here_x, here_y, best, kth
                )
            strip -= 1
        strip = home + 1
        while strip < n_strips and lowest[strip] - here_x < kth:
            if min(above[strip] - here_y, here_y - below[strip]) < kth:
                low = strip << shift
                at = low + place[strip]
                high = min(low + width, n)
                kth = _search(strip_x, strip_y, low, at, at - 1, high, here_x, here_y, best, kth)
            strip += 1
        radius_x[rank] = kth
        radius_y[p] = kth
    _step_toward_zero(radius_x)
    _step_toward_zero(radius_y)


@njit(cache=True, nogil=True)
def _step_toward_zero(radius: Any) -> None:
    """Move every radius to the next float toward zero; zero stays.

    The bits of a float above zero, read as an integer, are one more than those of the float below.
    """
    bits = radius.view(np.int64)
    for at in range(bits.size):
        bits[at] -= bits[at] > 0


@njit(cache=True, nogil=True)
def _any_within(values: Any, radius: Any, first: int, stop: int, step: int) -> bool:
    """Whether any of the points `first..stop-1` reaches `step` places up or down its column."""
    n = values.size
    for p in range(first, stop):
        if p + step < n and values[p + step] - values[p] <= radius[p]:
            return True
        if p - step >= 0 and values[p] - values[p - step] <= radius[p]:
            return True
    return False


@njit(cache=True, nogil=True)
def _digamma_sum(values: Any, radius: Any, digamma: Any) -> float:
    """Sum of digamma of the neighbour counts (the point included) of one sorted column.

    A block of neighbouring points is bisected level by level: the points of a level do not wait for
    each other and no jump depends on the data, which a search of one point after the other cannot
    have.
    """
    n = values.size
    histogram = np.zeros(n + 1, np.int64)
    up = np.empty(_BLOCK, np.int64)
    down = np.empty(_BLOCK, np.int64)
    for first in range(0, n, _BLOCK):
        members = min(_BLOCK, n - first)
        centre = values[first : first + members]
        reach = radius[first : first + members]
        step = 16
        while step < n and _any_within(values, radius, first, first + members, step):
            step *= 4
        for i in range(members):
            up[i] = first + i
            down[i] = first + i
        while step > 1:
            step >>= 1
            for i in range(members):
                at = min(up[i] + step, n - 1)
                up[i] = at if values[at] - centre[i] <= reach[i] else up[i]
            for i in range(members):
                at = max(down[i] - step, 0)
                down[i] = at if centre[i] - values[at] <= reach[i] else down[i]
        for i in range(members):
            histogram[up[i] - down[i] + 1] += 1
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
    for at in range(pairs.shape[0]):
        i = pairs[at, 0]
        j = pairs[at, 1]
        _joint_radii(
            values[i], rank[i], values[j], order[j], k, shift,
            strip_x, strip_y, ranks, radius_x, radius_y,
        )  # fmt: skip
        out[at] = _digamma_sum(values[i], radius_x, digamma) + _digamma_sum(
            values[j], radius_y, digamma
        )


@njit(cache=True, nogil=True)
def _narrow(own: Any, left: int, k: int, radius: Any) -> None:
    """Lower `radius` to the reach of windows of k + 1 values, the point the `left`-th of them."""
    span = own.size - k
    lowest = own[:span]
    centre = own[left : left + span]
    highest = own[k:]
    kept = radius[left : left + span]
    for at in range(span):  # compare and select, so that it is vectorised
        down = centre[at] - lowest[at]
        up = highest[at] - centre[at]
        reach = down if down > up else up
        kept[at] = reach if reach < kept[at] else kept[at]


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
    radius = np.full(n, np.inf)  # in the order of `grouped`
    for c in range(class_counts.size):
        own = grouped[starts[c] : starts[c + 1]]
        k = min(n_neighbors, own.size - 1)
        for left in range(k + 1):  # windows with `left` of their k neighbours below the point
            _narrow(own, left, k, radius[starts[c] : starts[c + 1]])
    _step_toward_zero(radius)
    by_place = np.empty(n)
    for at in range(n):
        by_place[where[at]] = radius[at]
    return _digamma_sum(values, by_place, digamma)
