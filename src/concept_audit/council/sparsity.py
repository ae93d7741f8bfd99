"""How many concepts a prediction rests on: NEC, ANEC and NCC, read beside the council's score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from concept_audit.arrays import as_labels, as_matrix, check_same_rows, to_numpy

__all__ = [
    "ANEC_LEVELS",
    "EffectiveConceptAccuracy",
    "accuracy_at_effective_concepts",
    "number_of_contributing_concepts",
    "number_of_effective_concepts",
    "truncate_head",
]

ANEC_LEVELS = (5, 10, 15, 20, 25, 30)  # VLG-CBM averages over these


def number_of_effective_concepts(class_weights: ArrayLike, *, tolerance: float = 1e-5) -> float:
    """Mean number of non-zero weights per class (NEC).

    Parameters
    ----------
    class_weights : Float[ndarray, "l k"]   final linear layer
    tolerance : weights of this absolute size or less count as zero (VLG-CBM's value)

    Returns
    -------
    Mean over classes, in [0, k].
    """
    w = as_matrix("class_weights", class_weights)
    return float(np.count_nonzero(np.abs(w) > tolerance) / w.shape[0])


def number_of_contributing_concepts(
    activations: ArrayLike,
    class_weights: ArrayLike,
    *,
    tau: float = 0.95,
    predicted_classes: ArrayLike | None = None,
) -> float:
    """Least number of concepts that carry a share `tau` of a class logit (NCC).

    Parameters
    ----------
    activations : Float[ndarray, "n k"]
    class_weights : Float[ndarray, "l k"]
    tau : share in (0, 1]; M-CBM uses 0.95
    predicted_classes : class index `(n,)`; then only that class counts, as shown.
        Without it the mean runs over all classes, as M-CBM defines the measure.

    Returns
    -------
    Mean over samples and classes, in [0, k]. A class without any contribution needs 0 concepts.

    Raises
    ------
    ValueError  on unequal k or n, or a tau outside (0, 1].
    """
    a = as_matrix("activations", activations)
    w = as_matrix("class_weights", class_weights)
    if a.shape[1] != w.shape[1]:
        raise ValueError(
            f"activations and class_weights must agree on k: got {a.shape} and {w.shape}."
        )
    if not 0 < tau <= 1:
        raise ValueError(f"tau must lie in (0, 1], got {tau}.")
    if predicted_classes is not None:
        p = as_labels("predicted_classes", predicted_classes)
        check_same_rows(activations=a, predicted_classes=p)
        return float(_concepts_needed(np.abs(a * w[p]), tau).mean())
    return float(np.mean([_concepts_needed(np.abs(a * row), tau).mean() for row in w]))


def _concepts_needed(sizes: np.ndarray, tau: float) -> np.ndarray:
    """Concepts needed per row to reach the share; exact at tau = 1 whatever the rounding."""
    ordered = -np.sort(-sizes, axis=1)
    running = np.cumsum(ordered, axis=1)
    total = running[:, -1:]
    reached = running >= tau * total * (1 - 1e-12)
    needed = np.where(total[:, 0] > 0, reached.argmax(axis=1) + 1, 0)
    return np.asarray(needed if tau < 1 else np.count_nonzero(sizes > 0, axis=1))


@dataclass(frozen=True)
class EffectiveConceptAccuracy:
    """Accuracy of a head cut to given numbers of effective concepts."""

    levels: tuple[int, ...]
    accuracy: tuple[float, ...]  # ANEC-n per level, in [0, 1]
    mean: float  # ANEC-avg
    n_samples: int


def truncate_head(class_weights: ArrayLike, level: int) -> np.ndarray:
    """Zero the smallest weights until `level` remain per class on average; ties go by position."""
    w = as_matrix("class_weights", class_weights)
    keep = level * w.shape[0]
    if level < 1:
        raise ValueError(f"level must be at least 1 concept per class, got {level}.")
    flat = w.ravel()
    order = np.argsort(-np.abs(flat), kind="stable")
    cut = flat.copy()
    cut[order[keep:]] = 0.0
    return cut.reshape(w.shape)


def accuracy_at_effective_concepts(
    path: Sequence[tuple[ArrayLike, ArrayLike]],
    activations: ArrayLike,
    y: ArrayLike,
    *,
    levels: Sequence[int] = ANEC_LEVELS,
) -> EffectiveConceptAccuracy:
    """Test accuracy with the head cut to n concepts per class (ANEC-n) and its mean (ANEC-avg).

    Parameters
    ----------
    path : heads `(weights (l, k), bias (l,))` from sparse to dense, as a regularisation path gives
        them; a single dense head is a path of one
    activations : Float[ndarray, "n k"]   test set
    y : Int[ndarray, "n"]
    levels : VLG-CBM uses 5, 10, 15, 20, 25, 30

    Returns
    -------
    EffectiveConceptAccuracy

    Notes
    -----
    VLG-CBM: for each level the first head of the path that is dense enough is taken, its smallest
    weights are set to zero until the level is met exactly, its own bias stays, nothing is refitted.
    """
    a = as_matrix("activations", activations)
    labels = as_labels("y", y)
    check_same_rows(activations=a, y=labels)
    if not path:
        raise ValueError("path must hold at least one head (weights, bias), got none.")
    heads = [(as_matrix("weights", w), to_numpy("bias", b).reshape(-1)) for w, b in path]
    accuracy = []
    for level in levels:
        dense_enough = [head for head in heads if number_of_effective_concepts(head[0]) >= level]
        w, b = dense_enough[0] if dense_enough else heads[-1]
        predicted = (a @ truncate_head(w, level).T + b).argmax(axis=1)
        accuracy.append(float(np.mean(predicted == labels)))
    return EffectiveConceptAccuracy(
        tuple(int(level) for level in levels),
        tuple(accuracy),
        float(np.mean(accuracy)),
        int(labels.size),
    )
