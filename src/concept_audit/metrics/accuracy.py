"""Task and concept accuracy, F1 and AUC, each once over the whole split.

The authors' code averages per-batch values (a batch lacking a class counts an AUC of 0) and takes
the concept AUC of thresholded predictions, which is the balanced accuracy. Here the AUC is taken on
the scores themselves, once, and the balanced accuracy stands beside it under its own name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import (
    as_binary_concepts,
    as_labels,
    as_matrix,
    check_same_rows,
    check_same_shape,
    to_numpy,
)

__all__ = [
    "ConceptAccuracy",
    "TaskAccuracy",
    "as_logits",
    "class_log_probabilities",
    "column_auc",
    "concept_accuracy",
    "predicted_classes",
    "task_accuracy",
]


@dataclass(frozen=True)
class TaskAccuracy:
    """Task accuracy, macro F1 and AUC of one split.

    Attributes
    ----------
    accuracy, f1 : float
        In [0, 1]; F1 is the unweighted mean over classes that occur in `y` or in the predictions.
    auc : float
        Mean over classes (`ovr`) or ordered pairs of classes (`ovo`); NaN when undefined.
    n_undefined_auc : int
        Classes (`ovr`) or pairs (`ovo`) left out of `auc` because a class does not occur in `y`.
    multi_class : str
        `ovo` or `ovr`; with two classes both are the same number.
    n_samples, n_classes : int
        Rows, and classes the head can predict.
    """

    accuracy: float
    f1: float
    auc: float
    n_undefined_auc: int
    multi_class: str
    n_samples: int
    n_classes: int


@dataclass(frozen=True)
class ConceptAccuracy:
    """Concept accuracy, F1, AUC and balanced accuracy of one split.

    Attributes
    ----------
    accuracy, f1, auc, balanced_accuracy : float
        Means over concepts; `auc` and `balanced_accuracy` leave undefined concepts out.
    accuracy_per_concept, f1_per_concept, auc_per_concept, balanced_accuracy_per_concept : NDArray
        `(k,)` each; NaN where undefined.
    undefined_concepts : tuple of int
        Concepts with a single annotated class: their AUC and balanced accuracy are NaN.
    n_undefined_auc : int
        How many those are.
    threshold : float
        A concept counts as predicted when its value is above this.
    n_samples, n_concepts : int
        Rows and concepts.
    """

    accuracy: float
    f1: float
    auc: float
    balanced_accuracy: float
    accuracy_per_concept: Float[NDArray[np.float64], " k"]
    f1_per_concept: Float[NDArray[np.float64], " k"]
    auc_per_concept: Float[NDArray[np.float64], " k"]
    balanced_accuracy_per_concept: Float[NDArray[np.float64], " k"]
    undefined_concepts: tuple[int, ...]
    n_undefined_auc: int
    threshold: float
    n_samples: int
    n_concepts: int


def column_auc(
    scores: Float[NDArray[np.float64], "n q"], labels: NDArray[Any]
) -> Float[NDArray[np.float64], " q"]:
    """Area under the ROC curve of every column at once, from mid-ranks; NaN for one-class labels.

    Parameters
    ----------
    scores : Float[ndarray, "n q"]
        One column of scores per problem; higher speaks for label 1.
    labels : Int[ndarray, "n q"] or Int[ndarray, "n"]
        Labels {0, 1}; one column shared by all, or one per problem.

    Returns
    -------
    Float[ndarray, "q"]
        In [0, 1]; ties count one half.
    """
    from scipy.stats import rankdata

    positive = (labels > 0).astype(np.float64)
    if positive.ndim == 1:
        positive = np.broadcast_to(positive[:, None], scores.shape)
    n_positive = positive.sum(axis=0)
    n_negative = scores.shape[0] - n_positive
    ranks = rankdata(scores, axis=0)
    wins = (ranks * positive).sum(axis=0) - n_positive * (n_positive + 1) / 2
    pairs = n_positive * n_negative
    return np.where(pairs > 0, wins / np.where(pairs > 0, pairs, 1.0), np.nan)


def as_logits(name: str, value: Any, n_samples: int) -> NDArray[np.float64]:
    """Head outputs as `(n, l)`; a single logit `z` becomes the two columns `(0, z)`."""
    logits = np.asarray(to_numpy(name, value), dtype=np.float64)
    if logits.ndim == 1:
        logits = logits[:, None]
    if logits.ndim != 2 or logits.shape[0] != n_samples or logits.shape[1] == 0:
        raise ValueError(
            f"{name} must have shape (n, l) with n = {n_samples} rows, got {logits.shape}. "
            "Return one row of class logits per sample."
        )
    bad = int(logits.size - np.count_nonzero(np.isfinite(logits)))
    if bad:
        raise ValueError(
            f"{name} must be finite, got {bad} NaN or infinite of {logits.size} values. "
            "Look at the training loss of the head."
        )
    if logits.shape[1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
    return logits


def predicted_classes(logits: NDArray[np.float64]) -> NDArray[np.int64]:
    """Index of the largest logit; ties go to the lower class (a single logit counts from > 0)."""
    return logits.argmax(axis=1).astype(np.int64)


def class_log_probabilities(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log softmax over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _macro_f1(y: NDArray[np.int64], y_hat: NDArray[np.int64], n_classes: int) -> float:
    """Unweighted mean F1 over the classes that occur in `y` or `y_hat`."""
    hits = np.bincount(y[y == y_hat], minlength=n_classes)
    total = np.bincount(y, minlength=n_classes) + np.bincount(y_hat, minlength=n_classes)
    seen = total > 0
    return float(np.mean(2.0 * hits[seen] / total[seen]))


def _pairwise_class_auc(
    log_p: NDArray[np.float64], y: NDArray[np.int64]
) -> Float[NDArray[np.float64], "l l"]:
    """Entry (a, b): AUC of column a between the rows of class a and those of class b."""
    n_classes = log_p.shape[1]
    counts = np.bincount(y, minlength=n_classes).astype(np.float64)
    auc = np.full((n_classes, n_classes), np.nan)
    for a in range(n_classes):
        if not counts[a]:
            continue
        own = np.sort(log_p[y == a, a])
        left = np.searchsorted(own, log_p[:, a], side="left")
        below = (left + np.searchsorted(own, log_p[:, a], side="right")) / 2.0
        sums = np.bincount(y, weights=below, minlength=n_classes)
        present = counts > 0
        auc[a, present] = 1.0 - sums[present] / (counts[present] * counts[a])
    np.fill_diagonal(auc, np.nan)
    return auc


def task_accuracy(
    y_logits: ArrayLike, y: ArrayLike, *, multi_class: Literal["ovo", "ovr"] = "ovo"
) -> TaskAccuracy:
    """Accuracy, macro F1 and AUC of the task over a whole split.

    Parameters
    ----------
    y_logits : Float[ndarray, "n l"] or Float[ndarray, "n"]
        Task outputs before the softmax; a single column is the logit of class 1.
    y : Int[ndarray, "n"]
        Class index in 0..l-1.
    multi_class : str
        AUC of more than two classes: mean over ordered pairs of classes (`ovo`, as the authors'
        code) or over classes against the rest (`ovr`).

    Returns
    -------
    TaskAccuracy
        An AUC that lacks a class is left out of the mean and counted, never 0.

    Raises
    ------
    ValueError
        On unequal rows, labels outside 0..l-1, an unknown `multi_class`.
    """
    if multi_class not in ("ovo", "ovr"):
        raise ValueError(f"multi_class must be 'ovo' or 'ovr', got {multi_class!r}.")
    labels = as_labels("y", y)
    logits = as_logits("y_logits", y_logits, labels.shape[0])
    n_classes = logits.shape[1]
    if labels.min() < 0 or labels.max() >= n_classes:
        raise ValueError(
            f"y must hold class indices 0..{n_classes - 1} for y_logits with {n_classes} classes, "
            f"got values from {labels.min()} to {labels.max()}."
        )
    y_hat = predicted_classes(logits)
    if n_classes == 2:
        areas = column_auc(logits[:, 1:] - logits[:, :1], labels)
    elif multi_class == "ovr":
        one_hot = labels[:, None] == np.arange(n_classes)
        areas = column_auc(class_log_probabilities(logits), one_hot)
    else:
        areas = _pairwise_class_auc(class_log_probabilities(logits), labels)
        areas = areas[~np.eye(n_classes, dtype=bool)]
    defined = areas[~np.isnan(areas)]
    return TaskAccuracy(
        accuracy=float(np.mean(y_hat == labels)),
        f1=_macro_f1(labels, y_hat, n_classes),
        auc=float(defined.mean()) if defined.size else float("nan"),
        n_undefined_auc=int(areas.size - defined.size),
        multi_class=multi_class,
        n_samples=labels.shape[0],
        n_classes=n_classes,
    )


def concept_accuracy(c_hat: ArrayLike, c: ArrayLike, *, threshold: float = 0.5) -> ConceptAccuracy:
    """Accuracy, macro F1, AUC and balanced accuracy of binary concepts over a whole split.

    Parameters
    ----------
    c_hat : Float[ndarray, "n k"]
        Concept probabilities, or logits together with `threshold=0`.
    c : Int[ndarray, "n k"]
        Annotated concepts {0, 1}.
    threshold : float
        A concept is predicted present when its value is above this.

    Returns
    -------
    ConceptAccuracy
        Means and per-concept values. The balanced accuracy is what the authors' code prints as
        the concept AUC (it thresholds first).

    Raises
    ------
    ValueError
        On unequal shapes, concepts other than 0 and 1, or values outside [0, 1] with the default
        threshold (they are logits then).
    """
    values = as_matrix("c_hat", c_hat)
    concepts = as_binary_concepts("c", c, binary=True)
    check_same_rows(c_hat=values, c=concepts)
    check_same_shape("(n, k)", c_hat=values, c=concepts)
    if threshold == 0.5 and (values.min() < 0.0 or values.max() > 1.0):
        raise ValueError(
            "c_hat must hold probabilities in [0, 1] when threshold is 0.5, got values from "
            f"{values.min():.4g} to {values.max():.4g}. For logits pass threshold=0."
        )
    predicted = values > threshold
    positive = concepts == 1
    hit = np.count_nonzero(predicted & positive, axis=0)
    correct_absent = np.count_nonzero(~predicted & ~positive, axis=0)
    n_samples, n_concepts = values.shape
    n_positive = np.count_nonzero(positive, axis=0)
    n_predicted = np.count_nonzero(predicted, axis=0)
    f1 = np.stack(
        [
            _share(2 * correct_absent, 2 * n_samples - n_positive - n_predicted),
            _share(2 * hit, n_positive + n_predicted),
        ]
    )
    balanced = (_share(hit, n_positive) + _share(correct_absent, n_samples - n_positive)) / 2
    per_auc = column_auc(values, concepts)
    per_accuracy = (hit + correct_absent) / n_samples
    per_f1 = np.nanmean(f1, axis=0)  # a class that occurs nowhere is no class
    undefined = np.flatnonzero(np.isnan(per_auc))
    return ConceptAccuracy(
        accuracy=float(per_accuracy.mean()),
        f1=float(per_f1.mean()),
        auc=_defined_mean(per_auc),
        balanced_accuracy=_defined_mean(balanced),
        accuracy_per_concept=per_accuracy,
        f1_per_concept=per_f1,
        auc_per_concept=per_auc,
        balanced_accuracy_per_concept=balanced,
        undefined_concepts=tuple(int(i) for i in undefined),
        n_undefined_auc=int(undefined.size),
        threshold=float(threshold),
        n_samples=n_samples,
        n_concepts=n_concepts,
    )


def _share(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """`part / whole`, NaN where `whole` is zero."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)


def _defined_mean(values: NDArray[np.float64]) -> float:
    """Mean of the entries that are not NaN; NaN when there are none."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else float("nan")
