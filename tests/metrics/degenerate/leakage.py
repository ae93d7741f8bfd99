"""Degenerate inputs of the leakage scores, by the names used in the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from concept_audit import metrics

RNG = np.random.default_rng(0)
N = 60
C = RNG.integers(0, 2, (N, 3))
Y = (C.sum(axis=1) >= 2).astype(int)
SOFT = 0.2 + 0.6 * C + 0.05 * RNG.standard_normal((N, 3))
VECTORS = C[:, :, None] + RNG.standard_normal((N, 3, 4))


def case(**changes: Any) -> dict[str, Any]:
    base = {"c_hat": SOFT, "c": C, "y": Y, "vectors": VECTORS, "x": SOFT[:, 0]}
    return base | changes


def with_value(array: np.ndarray, value: float, where: Any) -> np.ndarray:
    changed = array.copy()
    changed[where] = value
    return changed


column = np.s_[:, 1]
saturated = (1 / (1 + np.exp(-30.0 * (2 * C - 1) - RNG.standard_normal((N, 3))))).astype("f4")
twice = np.r_[0 : N // 2, 0 : N // 2]

INPUTS: dict[str, dict[str, Any]] = {
    "single-class y": case(y=np.zeros(N, int)),
    "all-unique y": case(y=np.arange(N)),
    "constant annotated concept": case(c=with_value(C, 1, column)),
    "constant learnt concept": case(c_hat=with_value(SOFT, 0.5, column), x=np.full(N, 0.5)),
    "all concepts constant": case(c=np.ones_like(C)),
    "duplicated rows": case(c_hat=SOFT[twice], c=C[twice], y=Y[twice]),
    "n < n_neighbors + 2, soft": case(
        c_hat=SOFT[:3], c=C[:3], y=np.array([0, 0, 1]), x=SOFT[:3, 0]
    ),
    "n < n_neighbors + 2, vectors": case(vectors=VECTORS[:4], y=np.array([0, 0, 1, 1])),
    "n < n_neighbors + 2, hard": case(c_hat=C[:3], c=C[:3], y=np.array([0, 0, 1])),
    "saturated float32 probabilities": case(c_hat=saturated),
    "one concept": case(c_hat=SOFT[:, :1], c=C[:, :1], vectors=VECTORS[:, :1]),
    "NaN in c_hat": case(c_hat=with_value(SOFT, np.nan, (0, 0))),
    "infinity in c_hat": case(c_hat=with_value(SOFT, np.inf, (0, 0))),
}

CALLS = {
    "mutual_information": lambda a, compat: metrics.mutual_information(a["x"], a["y"]),
    "concepts_task_leakage": lambda a, compat: metrics.concepts_task_leakage(
        a["c_hat"], a["c"], a["y"], compat=compat
    ),
    "interconcept_leakage": lambda a, compat: metrics.interconcept_leakage(
        a["c_hat"], a["c"], compat=compat
    ),
    "concepts_task_information": lambda a, compat: metrics.concepts_task_information(
        a["vectors"], a["y"], compat=compat
    ),
    "interconcept_information": lambda a, compat: metrics.interconcept_information(
        a["vectors"], a["c"], compat=compat
    ),
    "self_information": lambda a, compat: metrics.self_information(
        a["vectors"], a["c"], compat=compat
    ),
    "alignment_leakage": lambda a, compat: metrics.alignment_leakage(
        a["vectors"], a["vectors"][::-1], a["c"], a["y"], compat=compat
    ),
}
