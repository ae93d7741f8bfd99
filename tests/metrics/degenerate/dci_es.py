"""Degenerate inputs of D, C, E and of the scores beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from concept_audit import metrics
from concept_audit.metrics.probes.random_forest import RandomForestProbes

_rng = np.random.default_rng(0)
_factors = _rng.integers(0, 3, (80, 2))
_codes = _factors + 0.1 * _rng.standard_normal((80, 2))
_probe = RandomForestProbes(n_trees=2, depths=(1, 2))


def _with(array: np.ndarray, column: int, value: float) -> np.ndarray:
    changed = array.copy()
    changed[:, column] = value
    return changed


_missing = _codes.copy()
_missing[3, 1] = np.nan
_R = _rng.random((4, 3))

INPUTS: dict[str, dict[str, Any]] = {
    "one factor": {"R": _R[:, :1], "codes": _codes, "factors": _factors[:, :1]},
    "one code": {"R": _R[:1], "codes": _codes[:, :1], "factors": _factors},
    "zero row of R": {"R": _R * [[1], [0], [1], [1]]},
    "zero column of R": {"R": _R * [1, 0, 1]},
    "all-zero R": {"R": np.zeros((4, 3))},
    "negative entry of R": {"R": _R - _R.max()},
    "flat curve": {"curve": ([0, 1, 2], [1.0, 1.0, 1.0]), "capacity_range": (0, 2)},
    "one-point curve": {"curve": ([1], [0.4]), "capacity_range": (0, 2)},
    "zero capacity range": {"curve": ([1, 1], [0.4, 0.3]), "capacity_range": (1, 1)},
    "constant factor": {"codes": _codes, "factors": _with(_factors, 1, 0)},
    "constant code": {"codes": _with(_codes, 1, 0.5), "factors": _factors},
    "all codes constant": {"codes": np.ones((80, 2)), "factors": _factors},
    "NaN in codes": {"codes": _missing, "factors": _factors},
}


def _disentanglement(inputs: dict[str, Any], compat: str | None) -> Any:
    return metrics.disentanglement(inputs["R"])


def _completeness(inputs: dict[str, Any], compat: str | None) -> Any:
    return metrics.completeness(inputs["R"])


def _explicitness(inputs: dict[str, Any], compat: str | None) -> Any:
    return metrics.explicitness(**inputs, baseline=1.0, compat=compat)


def _dci_es(inputs: dict[str, Any], compat: str | None) -> float:
    return metrics.dci_es(inputs["codes"], inputs["factors"], "categorical", _probe).D


def _of_codes(score: Any) -> Any:
    return lambda inputs, compat: score(inputs["codes"], inputs["factors"])


CALLS = {
    "disentanglement": _disentanglement,
    "completeness": _completeness,
    "explicitness": _explicitness,
    "dci_es (D)": _dci_es,
    "mig": _of_codes(metrics.mig),
    "sap": _of_codes(metrics.sap),
    "mcc": _of_codes(metrics.mcc),
    "factor_vae_score": _of_codes(metrics.factor_vae_score),
}
