"""Random forest probes: capacity is the largest depth (DCI-ES, section 6).

One forest is grown to the largest depth and read at every depth of the ladder: inner nodes hold
the value they would predict as leaves, so a tree cut at depth d is a tree grown with that limit.
It is the same in distribution, not tree by tree, because scikit-learn draws the features of a
split depth-first; `mode="refit"` grows each depth anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from concept_audit.metrics.probes.base import CapacityScale, LadderFit, ProbeData, on_scale

__all__ = ["DepthReading", "RandomForestProbes", "read_at_depths"]


@dataclass(frozen=True)
class DepthReading:
    """One forest read at T depths: predictions (T, n, outputs) and Gini importances (T, L)."""

    predictions: NDArray[np.float64]
    importances: NDArray[np.float64]


def _depth_of_nodes(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.int64]:
    """Depth of each node of a tree; children always come after their parent."""
    depth = np.zeros(len(left), dtype=np.int64)
    level = np.array([0])
    while True:
        inner = level[left[level] >= 0]
        if not len(inner):
            return depth
        level = np.concatenate([left[inner], right[inner]])
        depth[level] = depth[inner[0]] + 1


def _importances_at(tree: Any, depths: NDArray[np.int64], n_codes: int) -> NDArray[np.float64]:
    """Impurity decreases of the splits above each depth, each row summing to 1 (or 0)."""
    left, right, weight = tree.children_left, tree.children_right, tree.weighted_n_node_samples
    weighted = weight * tree.impurity
    inner = np.flatnonzero(left >= 0)
    gain = weighted[inner] - weighted[left[inner]] - weighted[right[inner]]
    gain = np.maximum(gain, 0.0)  # a split of no gain can come out as -1e-17
    depth = _depth_of_nodes(left, right)[inner]
    result = np.zeros((len(depths), n_codes))
    for t, limit in enumerate(depths):
        kept = depth < limit
        result[t] = np.bincount(tree.feature[inner][kept], gain[kept], minlength=n_codes)
    total = result.sum(axis=1, keepdims=True)
    return np.divide(result, total, out=np.zeros_like(result), where=total > 0)


def _walk(
    x: NDArray[np.float32],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    feature: NDArray[np.int64],
    threshold: NDArray[np.float64],
    value: NDArray[np.float64],
    depths: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    """Add the value of the node reached at each depth to `out` (T, n, outputs): plain loops."""
    n, n_outputs = out.shape[1], out.shape[2]
    for i in range(n):
        node = 0
        depth = 0
        for t in range(len(depths)):
            while depth < depths[t] and left[node] >= 0:
                if x[i, feature[node]] <= threshold[node]:
                    node = left[node]
                else:
                    node = right[node]
                depth += 1
            for k in range(n_outputs):
                out[t, i, k] += value[node, k]


def _walk_by_level(
    x: NDArray[np.float32],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    feature: NDArray[np.int64],
    threshold: NDArray[np.float64],
    value: NDArray[np.float64],
    depths: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    """The same walk with all rows stepping down together, for want of numba."""
    rows = np.arange(len(x))
    node = np.zeros(len(x), dtype=np.int64)
    depth = 0
    for t, limit in enumerate(depths):
        while depth < limit and len(rows):
            rows = rows[left[node[rows]] >= 0]
            here = node[rows]
            goes_left = x[rows, feature[here]] <= threshold[here]
            node[rows] = np.where(goes_left, left[here], right[here])
            depth += 1
        out[t] += value[node]


_compiled: list[Callable[..., None]] = []


def _walker() -> Callable[..., None]:
    """The walk, compiled where numba is installed."""
    if not _compiled:
        try:
            from numba import njit
        except ImportError:
            _compiled.append(_walk_by_level)
        else:
            _compiled.append(njit(cache=True, nogil=True)(_walk))
    return _compiled[0]


def read_at_depths(
    forest: Any, x: NDArray[Any], depths: Sequence[int], n_outputs: int
) -> DepthReading:
    """Predictions and importances of a fitted scikit-learn forest as if cut at each depth.

    Parameters
    ----------
    forest : RandomForestClassifier on classes 0 .. n_outputs - 1, or RandomForestRegressor
    x : codes (n, L)
    depths : growing depths; one beyond the forest's own reads its leaves
    n_outputs : classes, or 1 for a regressor
    """
    limits = np.asarray(depths, dtype=np.int64)
    rows = np.ascontiguousarray(x, dtype=np.float32)  # as scikit-learn compares them
    classes = getattr(forest, "classes_", None)
    width = 1 if classes is None else len(classes)
    out = np.zeros((len(limits), len(rows), width))
    importances = np.zeros((len(limits), rows.shape[1]))
    walk = _walker()
    for estimator in forest.estimators_:
        tree = estimator.tree_
        walk(
            rows,
            np.asarray(tree.children_left, dtype=np.int64),
            np.asarray(tree.children_right, dtype=np.int64),
            np.asarray(tree.feature, dtype=np.int64),
            tree.threshold,
            np.ascontiguousarray(tree.value[:, 0, :]),
            limits,
            out,
        )
        importances += _importances_at(tree, limits, rows.shape[1])
    out /= len(forest.estimators_)
    total = importances.sum(axis=1, keepdims=True)
    importances = np.divide(importances, total, out=np.zeros_like(importances), where=total > 0)
    if classes is not None and width != n_outputs:  # a class that no training row has
        full = np.zeros((len(limits), len(rows), n_outputs))
        full[:, :, classes] = out
        out = full
    return DepthReading(out, importances)


@dataclass(frozen=True)
class RandomForestProbes:
    """Ladder of forests by depth; importances are the forests' own (Gini or variance).

    `max_features="sqrt"` offers each split of a classifier sqrt(L) codes, as scikit-learn and the
    authors do: splits that are offered irrelevant codes only then give them importance, so a
    perfect representation of 7 codes scores D = C of about 0.87 to 0.98, one of 3 codes 0.4. None
    offers all codes and gives 1.
    Regressors always see all codes, unless `regression_max_features` says otherwise (wide codes:
    "sqrt" is sixty times faster on raw images).
    """

    n_trees: int = 100
    depths: tuple[int, ...] = (1, 2, 3, 4, 8, 10, 12, 14, 16, 18, 20, 32)  # authors' configuration
    max_features: Literal["sqrt"] | float | None = "sqrt"
    regression_max_features: Literal["sqrt"] | float | None = None
    mode: Literal["truncate", "refit"] = "truncate"
    scale: CapacityScale = "linear"
    n_jobs: int | None = None
    name: str = "random_forest"

    def __post_init__(self) -> None:
        if self.mode not in ("truncate", "refit"):
            raise ValueError(f"mode must be 'truncate' or 'refit', got {self.mode!r}.")
        if not self.depths or min(self.depths) < 1:
            raise ValueError(f"depths must hold depths of at least 1, got {self.depths}.")
        if self.n_trees < 1:
            raise ValueError(f"n_trees must be at least 1, got {self.n_trees}.")

    def grow(self, data: ProbeData, factor: int, depth: int, seed: int) -> Any:
        """Fitted forest of one factor."""
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        categorical = data.kinds[factor] == "categorical"
        features = self.max_features if categorical else self.regression_max_features
        forest = (RandomForestClassifier if categorical else RandomForestRegressor)(
            n_estimators=self.n_trees,
            max_depth=depth,
            max_features=1.0 if features is None else features,
            random_state=seed,
            n_jobs=self.n_jobs,
        )
        return forest.fit(data.train.codes, data.target(data.train, factor))

    def read(self, data: ProbeData, factor: int, x: NDArray[Any], seed: int) -> DepthReading:
        """Predictions and importances of one factor at all depths of the ladder."""
        depths = sorted(set(self.depths))
        n_outputs = data.n_outputs[factor]
        if self.mode == "truncate":
            return read_at_depths(self.grow(data, factor, depths[-1], seed), x, depths, n_outputs)
        parts = [
            read_at_depths(self.grow(data, factor, depth, seed), x, [depth], n_outputs)
            for depth in depths
        ]
        return DepthReading(
            np.concatenate([part.predictions for part in parts]),
            np.concatenate([part.importances for part in parts]),
        )

    def fit(self, data: ProbeData, seeds: Sequence[int], *, device: str | None = None) -> LadderFit:
        """Grow and read the forests; R2 is scikit-learn's, by the variance of the sample."""
        depths = sorted(set(self.depths))
        shape = (len(seeds), len(depths), data.n_factors)
        validation, test = np.empty(shape), np.empty(shape)
        importances = np.empty((len(seeds), len(depths), data.n_codes, data.n_factors))
        n_validation = len(data.validation.codes)
        held = np.concatenate([data.validation.codes, data.test.codes])
        for s, seed in enumerate(seeds):
            readings = [self.read(data, j, held, seed) for j in range(data.n_factors)]
            for t in range(len(depths)):
                predictions = [reading.predictions[t] for reading in readings]
                validation[s, t] = data.scores(
                    data.validation, [p[:n_validation] for p in predictions], "sample"
                )
                test[s, t] = data.scores(
                    data.test, [p[n_validation:] for p in predictions], "sample"
                )
                importances[s, t] = np.stack([r.importances[t] for r in readings], axis=1)
        return LadderFit(
            capacities=on_scale(depths, self.scale),
            sizes=tuple(depths),
            validation_scores=validation,
            test_scores=test,
            importances=lambda s, t: importances[s, t],
        )

    def describe(self) -> str:
        """Capacity axis in words."""
        return (
            f"random forests of {self.n_trees} trees, capacity depth, {self.scale} scale, "
            f"{self.mode}, max_features={self.max_features}"
        )
