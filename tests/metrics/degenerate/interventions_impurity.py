"""Degenerate inputs of interventions, impurity, accuracies and comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np

from concept_audit import metrics

_rng = np.random.default_rng(0)
_c = _rng.integers(0, 2, (60, 3))
_p = np.clip(0.6 * _c + 0.4 * _rng.random((60, 3)), 0, 1)
_y = (_c.sum(axis=1) >= 2).astype(int)


def _constant(array: np.ndarray, columns: Any) -> np.ndarray:
    changed = array.copy()
    changed[:, columns] = 0
    return changed


INPUTS: dict[str, dict[str, Any]] = {
    "single-class y, head": {"c_hat": _p, "c": _c, "y": np.zeros(60, int)},
    "one annotated class": {"c_hat": _p, "c": _constant(_c, 1), "y": _y},
    "no concept varies": {"c_hat": _p, "c": _constant(_c, slice(None)), "y": _y},
    "a single concept": {"c_hat": _p[:, :1], "c": _c[:, :1], "y": _y},
    "fewer than 10 rows": {"c_hat": _p[:8], "c": _c[:8], "y": _y[:8]},
    "one run": {"values": [0.3]},
    "runs without spread": {"values": [0.3, 0.3, 0.3]},
    "three models": {"values": [0.1, 0.2, 0.3]},
    "constant scores of models": {"values": [0.2, 0.2, 0.2, 0.2, 0.2]},
}


def _head(bottleneck: np.ndarray) -> np.ndarray:
    return bottleneck.sum(axis=1) - 1.5


def _task_auc(inputs: dict[str, Any], compat: str | None) -> float:
    return metrics.task_accuracy(_head(inputs["c_hat"]), inputs["y"]).auc


def _concept_auc(inputs: dict[str, Any], compat: str | None) -> float:
    return metrics.concept_accuracy(inputs["c_hat"], inputs["c"]).auc


def _curve(inputs: dict[str, Any], compat: str | None) -> float:
    curve = metrics.intervention_curve(_head, inputs["c_hat"], inputs["c"], inputs["y"])
    return curve.intervened_task_accuracy


def _ois(inputs: dict[str, Any], compat: str | None) -> Any:
    return metrics.oracle_impurity_score(inputs["c_hat"], inputs["c"], epochs=2, compat=compat)


def _nis(inputs: dict[str, Any], compat: str | None) -> Any:
    return metrics.niche_impurity_score(inputs["c_hat"], inputs["c"], compat=compat)


def _interval(inputs: dict[str, Any], compat: str | None) -> float:
    return metrics.mean_interval(inputs["values"]).low


def _criterion(inputs: dict[str, Any], compat: str | None) -> float:
    return metrics.leakage_criterion(inputs["values"], inputs["values"]).scores[0].p_value


def _pearson(inputs: dict[str, Any], compat: str | None) -> float:
    x = inputs["values"]
    return metrics.pooled_pearson(x, 0.0, x, 0.0, n_draws=10, compat=compat).r


CALLS = {
    "task_accuracy (AUC)": _task_auc,
    "concept_accuracy (AUC)": _concept_auc,
    "intervention_curve": _curve,
    "oracle_impurity_score": _ois,
    "niche_impurity_score": _nis,
    "mean_interval (low)": _interval,
    "leakage_criterion (p)": _criterion,
    "pooled_pearson": _pearson,
}
