"""The explanation that people and judges see: the five concepts that carried a prediction.

CBX-Bench, section 3.1: a concept's contribution is its activation times the weight of the predicted
class; the five largest are kept, divided by the sum of their absolute values, and those below 0.01
are left out, without a second normalisation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import to_numpy

__all__ = ["Explanation", "ExplanationMode", "ShownConcept", "explain", "explain_contributions"]

ExplanationMode = Literal["literal", "positive", "abs"]


@dataclass(frozen=True)
class ShownConcept:
    """One line of an explanation."""

    name: str
    weight: float  # share of the kept contributions, signed
    negated: bool  # the concept counts by its absence: negative activation, negative weight
    contribution: float  # activation times class weight, as it entered the logit

    def label(self, *, render_negation: bool = True) -> str:
        """Name as displayed, `NOT name` for a negated concept."""
        return f"NOT {self.name}" if self.negated and render_negation else self.name


@dataclass(frozen=True)
class Explanation:
    """Shown concepts in rank order, with what the choice was made from."""

    concepts: tuple[ShownConcept, ...]
    mode: ExplanationMode
    n_concepts: int  # concepts of the model
    n_negative_kept: int  # negative contributions among the kept ones, shown or not

    @property
    def displayed_sum(self) -> float:
        """Sum of the displayed weights; below 1 where concepts fell under the threshold."""
        return float(sum(concept.weight for concept in self.concepts))


def explain(
    activations: ArrayLike,
    class_weights: ArrayLike,
    concept_names: Sequence[str],
    *,
    mode: ExplanationMode = "literal",
    n_shown: int = 5,
    min_weight: float = 0.01,
) -> Explanation:
    """Explain one prediction by its largest concept contributions.

    Parameters
    ----------
    activations : Float[ndarray, "k"]
        what enters the final linear layer for this image
    class_weights : Float[ndarray, "k"]
        row of the final layer for the class that the model predicts (not the annotated class)
    concept_names : k different names
    mode : `literal` follows the paper's steps; `positive` discards contributions of 0 or less
        first; `abs` ranks by absolute value and keeps the sign
    n_shown : concepts kept before the threshold; the paper keeps 5
    min_weight : smaller normalised weights are left out; the paper's is 0.01, which itself stays

    Returns
    -------
    Explanation with `concepts` in rank order; empty when nothing reaches the threshold.

    Raises
    ------
    ValueError  on unequal lengths, values that are not finite, repeated names or an unknown mode.

    Notes
    -----
    CBX-Bench, section 3.1. The bias takes no part. Multiplying all contributions by a positive
    number changes nothing.
    """
    a = _vector("activations", activations)
    w = _vector("class_weights", class_weights)
    if a.shape != w.shape:
        raise ValueError(
            f"activations and class_weights must agree on k: got {a.shape} and {w.shape}. "
            "class_weights is the row of the final layer for the predicted class."
        )
    return explain_contributions(
        a * w,
        concept_names,
        negated=(a < 0) & (w < 0),
        mode=mode,
        n_shown=n_shown,
        min_weight=min_weight,
    )


def explain_contributions(
    contributions: ArrayLike,
    concept_names: Sequence[str],
    *,
    negated: ArrayLike | None = None,
    mode: ExplanationMode = "literal",
    n_shown: int = 5,
    min_weight: float = 0.01,
) -> Explanation:
    """Explain from ready-made contributions `(k,)`, as submissions bring them; see `explain`."""
    c = _vector("contributions", contributions)
    names = list(concept_names)
    if len(names) != c.size:
        raise ValueError(
            f"concept_names must have one name per contribution: got {len(names)} for {c.size}."
        )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(
            f"concept_names must differ, got {repeated[0]!r} {names.count(repeated[0])} times. "
            "Merge the columns of equal names or rename them."
        )
    if mode not in get_args(ExplanationMode):
        raise ValueError(
            f"mode must be one of {', '.join(get_args(ExplanationMode))}, got {mode!r}."
        )
    if n_shown < 1:
        raise ValueError(f"n_shown must be at least 1, got {n_shown}.")
    flags = np.zeros(c.size, dtype=bool) if negated is None else np.asarray(negated, dtype=bool)
    if flags.shape != c.shape:
        raise ValueError(
            f"negated must have one flag per contribution: got {flags.shape} for {c.shape}."
        )

    order = np.argsort(
        -np.abs(c) if mode == "abs" else -c, kind="stable"
    )  # ties keep concept order
    if mode == "positive":
        order = order[c[order] > 0]
    kept = order[:n_shown]
    # Dividing by the largest first keeps subnormal and huge contributions in range.
    peak = float(np.max(np.abs(c[kept]), initial=0.0))
    scaled = c[kept] / peak if peak > 0 else np.zeros(kept.size)
    total = float(np.abs(scaled).sum())
    weights = scaled / total if total > 0 else scaled
    # Rounding of the division must not move a weight of exactly 0.01 under the threshold.
    size = np.abs(weights) if mode == "abs" else weights
    shown = (size >= min_weight * (1 - 1e-9)) & (weights != 0)
    return Explanation(
        concepts=tuple(
            ShownConcept(names[j], float(weight), bool(flags[j]), float(c[j]))
            for j, weight, show in zip(kept, weights, shown, strict=True)
            if show
        ),
        mode=mode,
        n_concepts=int(c.size),
        n_negative_kept=int(np.count_nonzero(c[kept] < 0)),
    )


def _vector(name: str, value: ArrayLike) -> NDArray[np.float64]:
    array = to_numpy(name, value)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} must have shape (k,) with k >= 1, got {array.shape}: one image at a time."
        )
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite, got {array[bad]} at concept {bad}.")
    return np.asarray(array, dtype=np.float64)
