"""Losses of concept-based models (Leakage paper, eq. 3)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.nn import functional

from concept_audit.arrays import as_binary_concepts

__all__ = ["concept_loss", "constant_concepts", "positive_weights", "task_loss"]

_LARGEST_WEIGHT = 100.0


def concept_loss(
    c_logits: torch.Tensor, c: torch.Tensor, pos_weight: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean binary cross-entropy over samples and concepts, from logits.

    Parameters
    ----------
    c_logits, c : Float[Tensor, "n k"]
        Learnt logits and annotated concepts.
    pos_weight : Float[Tensor, "k"], optional
        Weight of the positive class of each concept; see `positive_weights`.
    """
    return functional.binary_cross_entropy_with_logits(
        c_logits, c.to(c_logits.dtype), pos_weight=pos_weight
    )


def task_loss(y_logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy; binary tasks have two logits.

    Parameters
    ----------
    y_logits : Float[Tensor, "n l"]
        Class logits.
    y : Int[Tensor, "n"]
        Class index.
    """
    return functional.cross_entropy(y_logits, y)


def positive_weights(c: ArrayLike) -> NDArray[np.float32]:
    """Negatives over positives of each concept, kept within [1/100, 100].

    A concept that is never active would get an infinite weight and turn the loss into NaN, one
    that is always active a weight of 0; both end at the bounds, and `constant_concepts` names them.

    Parameters
    ----------
    c : Int[ndarray, "n k"]
        Annotated concepts of the training split.

    Returns
    -------
    Float[ndarray, "k"].
    """
    concepts = as_binary_concepts("c", c, binary=True)
    positive = concepts.sum(axis=0)
    ratio = (len(concepts) - positive) / np.maximum(positive, 1e-9)
    return np.clip(ratio, 1 / _LARGEST_WEIGHT, _LARGEST_WEIGHT).astype(np.float32)


def constant_concepts(c: ArrayLike, concept_names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of concepts that take one value only in `c`.

    Parameters
    ----------
    c : Int[ndarray, "n k"]
        Annotated concepts.
    concept_names : tuple of str
        One name per column.
    """
    concepts = as_binary_concepts("c", c, binary=True)
    constant = concepts.min(axis=0) == concepts.max(axis=0)
    return tuple(name for name, flat in zip(concept_names, constant, strict=True) if flat)
