"""Information estimators against scikit-learn, in the same run, on one thread.

Both sides are read by the clock of processor time, which other programs move far less than the one
on the wall; only two threads against one are read by the latter.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

RUNS = 5


def medians(
    *calls: Callable[[], Any], runs: int = RUNS, clock: Callable[[], float] = time.process_time
) -> tuple[list[float], list[Any]]:
    """Median milliseconds of each call, taken in turn, and what each returned; one warm-up."""
    results = [call() for call in calls]
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(runs):
        for at, call in enumerate(calls):
            start = clock()
            call()
            taken[at].append(1e3 * (clock() - start))
    return [statistics.median(times) for times in taken], results


def row(
    work: str,
    peer: str,
    must: float,
    aim: float,
    sizes: str,
    ours: float,
    theirs: float,
    equal: Any,
) -> dict[str, Any]:
    """One line of the table."""
    return {
        "work": work, "peer": peer, "must": must, "aim": aim, "ratio": theirs / ours,
        "ours_ms": ours, "peer_ms": theirs, "sizes": sizes, "equal": equal,
    }  # fmt: skip


def concepts(n: int, k: int, *, gain: float = 4.0, seed: int = 0) -> np.ndarray:
    """Correlated soft concepts, as a model gives them."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 1)) + rng.standard_normal((n, k))
    return 1 / (1 + np.exp(-gain * z))


def ksg_pair(n: int, name: str, c: np.ndarray) -> dict[str, Any]:
    from sklearn.feature_selection._mutual_info import _compute_mi_cc

    from concept_audit.metrics.information.ksg import ksg_pairs, sort_columns

    columns, pair = sort_columns(c), np.array([[0, 1]])
    (ours, theirs), (a, b) = medians(
        lambda: max(0.0, ksg_pairs(columns, pair)[0]), lambda: _compute_mi_cc(c[:, 0], c[:, 1], 3)
    )
    return row(
        f"KSG, one pair of {name} concepts, columns sorted before",
        "scikit-learn mutual_info_regression, its estimator without jitter",
        10, 25, f"n={n}, k=3", ours, theirs, abs(a - b) < 1e-12,
    )  # fmt: skip


def ksg_matrix(n: int, k: int) -> dict[str, Any]:
    from sklearn.feature_selection._mutual_info import _compute_mi_cc

    from concept_audit.metrics.information.ksg import ksg_pairs, sort_columns

    c = concepts(n, k)
    pairs = np.column_stack(np.triu_indices(k, 1))
    sample = pairs[:: max(1, len(pairs) // 3)][:3]
    found: dict[tuple[int, int], float] = {}

    def whole() -> None:
        values = ksg_pairs(sort_columns(c), pairs)
        found.update({(int(i), int(j)): float(v) for (i, j), v in zip(pairs, values, strict=True)})

    start = time.process_time()
    whole()
    ours = 1e3 * (time.process_time() - start)
    (theirs,), (peer,) = medians(
        lambda: [_compute_mi_cc(c[:, i], c[:, j], 3) for i, j in sample], runs=RUNS
    )
    equal = all(
        abs(max(0, found[int(i), int(j)]) - b) < 1e-12
        for (i, j), b in zip(sample, peer, strict=True)
    )
    return row(
        "KSG matrix, all pairs, sorts included (one pass)",
        "scikit-learn mutual_info_regression, from 3 pairs",
        8, 25, f"n={n}, {k} concepts, {len(pairs)} pairs", ours,
        theirs / len(sample) * len(pairs), equal,
    )  # fmt: skip


def ross_concept(n: int) -> dict[str, Any]:
    from sklearn.feature_selection._mutual_info import _compute_mi_cd

    from concept_audit.metrics.information.ksg import sort_columns
    from concept_audit.metrics.information.ross import ross_scalars

    c = concepts(n, 1)
    y = (c[:, 0] + 0.3 * np.random.default_rng(1).standard_normal(n) > 0.5).astype(int)
    columns = sort_columns(c)
    (ours, theirs), (a, b) = medians(
        lambda: max(0.0, ross_scalars(columns, y)[0]), lambda: _compute_mi_cd(c[:, 0], y, 3)
    )
    return row(
        "Ross, one concept, column sorted before",
        "scikit-learn mutual_info_classif, its estimator without jitter",
        40, 80, f"n={n}, 2 classes", ours, theirs, abs(a - b) < 1e-12,
    )  # fmt: skip


def vectors(n: int, k: int = 3, m: int = 16) -> list[dict[str, Any]]:
    from scipy.special import digamma
    from sklearn.neighbors import KDTree, NearestNeighbors

    from concept_audit.metrics.information.ksg import ksg_vector_pairs
    from concept_audit.metrics.information.ross import ross_vector

    rng = np.random.default_rng(0)
    z = rng.standard_normal((n, 1))
    x = [z + 2 * rng.standard_normal((n, m)) for _ in range(k)]
    y = (z[:, 0] > 0).astype(np.int64)
    pairs = np.column_stack(np.triu_indices(k, 1))

    def counts(points: np.ndarray, radius: np.ndarray, metric: str) -> np.ndarray:
        tree = KDTree(points, metric=metric)
        return tree.query_radius(points, radius, count_only=True)

    def peer_pair(a: np.ndarray, b: np.ndarray) -> float:
        joint = NearestNeighbors(metric="chebyshev", n_neighbors=3).fit(np.hstack([a, b]))
        radius = np.nextafter(joint.kneighbors()[0][:, -1], 0)
        both = sum(digamma(counts(side, radius, "chebyshev")).mean() for side in (a, b))
        return digamma(n) + digamma(3) - both

    def peer_ross(a: np.ndarray, algorithm: str) -> float:
        radius = np.empty(n)
        for label in (0, 1):
            own = NearestNeighbors(n_neighbors=3, algorithm=algorithm).fit(a[y == label])
            radius[y == label] = np.nextafter(own.kneighbors()[0][:, -1], 0)
        members = np.bincount(y)[y]
        terms = digamma(members).mean() + digamma(counts(a, radius, "euclidean")).mean()
        return digamma(n) + digamma(3) - terms

    (ours, theirs), (a, b) = medians(
        lambda: ksg_vector_pairs(x, pairs), lambda: [peer_pair(x[i], x[j]) for i, j in pairs]
    )
    ksg = row(
        f"KSG on {m}-wide vectors, {len(pairs)} pairs", "scikit-learn neighbours, brute force",
        6, 10, f"n={n}, {k} concepts", ours, theirs, bool(np.abs(a - b).max() < 1e-12),
    )  # fmt: skip
    (ours, theirs), (a, _) = medians(
        lambda: [ross_vector(v, y[:, None])[0] for v in x],
        lambda: [peer_ross(v, "brute") for v in x],
    )
    exact = [peer_ross(v, "kd_tree") for v in x]
    ross = row(
        f"Ross on {m}-wide vectors", "scikit-learn neighbours, brute force",
        6, 10, f"n={n}, {k} concepts", ours, theirs,
        bool(np.abs(np.subtract(a, exact)).max() < 1e-12),
    )  # fmt: skip
    ross["equal"] = f"{ross['equal']} (against exact trees)"
    return [ksg, ross]


def threads(n: int, k: int) -> dict[str, Any]:
    """Two threads against one on the same matrix."""
    from concept_audit.metrics.information.ksg import ksg_pairs, sort_columns

    columns = sort_columns(concepts(n, k))
    pairs = np.column_stack(np.triu_indices(k, 1))
    results, before = {}, os.environ.get("OMP_NUM_THREADS")
    computed: dict[str, list[float]] = {"1": [], "2": []}

    def on(count: str) -> Any:
        os.environ["OMP_NUM_THREADS"] = count
        start = time.process_time()
        results[count] = ksg_pairs(columns, pairs)
        computed[count].append(1e3 * (time.process_time() - start))

    (two, one), _ = medians(lambda: on("2"), lambda: on("1"), clock=time.perf_counter)
    os.environ["OMP_NUM_THREADS"] = before or "1"
    cpu_two, cpu_one = (statistics.median(computed[count]) for count in ("2", "1"))
    line = row(
        "KSG matrix on two cores", "ours on one core", 1.8, 2, f"n={n}, {k} concepts", two, one,
        bool(np.array_equal(results["1"], results["2"])),
    )  # fmt: skip
    if line["ratio"] < line["must"]:
        line["note"] = (
            f"processor time over wall time: two threads {cpu_two / two:.2f}, one thread "
            f"{cpu_one / one:.2f} (2 and 1 where no other program runs); processor time of the "
            f"two {cpu_two:.0f} ms, of the one {cpu_one:.0f} ms"
        )
    return line


def run(quick: bool) -> list[dict[str, Any]]:
    """All rows; `quick` takes smaller sizes, whose ratios are not held against the targets."""
    os.environ["OMP_NUM_THREADS"] = "1"
    n = 2000 if quick else 10_000
    pair, wide = concepts(n, 2, gain=1.0), concepts(n, 2, gain=10.0)
    return [
        ksg_pair(n, "soft", pair),
        ksg_pair(n, "saturated", wide),
        ksg_matrix(1000 if quick else 5794, 12 if quick else 112),
        threads(1000 if quick else 5794, 12 if quick else 24),
        ross_concept(n),
        *vectors(1000 if quick else 5000),
    ]
