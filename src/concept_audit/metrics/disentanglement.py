"""Disentanglement, completeness, informativeness and size of a representation (DCI-ES).

Paper: "DCI-ES: An Extended Disentanglement Framework with Connections to Identifiability",
section 2. `R` is the importance matrix (L codes, K factors): R[i, j] says how much the probe of
factor j relies on code i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import as_matrix, check_finite, to_numpy
from concept_audit.metrics.probes.base import as_kinds

__all__ = [
    "Completeness",
    "Disentanglement",
    "Informativeness",
    "completeness",
    "disentanglement",
    "informativeness",
    "representation_size",
]


@dataclass(frozen=True)
class Disentanglement:
    """D: `mean` in [0, 1], `per_code` (L,) and the weight of each code in the mean.

    `reason` is empty, or says why the score is NaN.
    """

    mean: float
    per_code: Float[np.ndarray, " L"]
    weights: Float[np.ndarray, " L"]
    n_codes: int
    n_factors: int
    eps: float
    reason: str = ""


@dataclass(frozen=True)
class Completeness:
    """C: `mean` in [0, 1], `per_factor` (K,) and the weight of each factor in the mean.

    `reason` is empty, or says why the score is NaN.
    """

    mean: float
    per_factor: Float[np.ndarray, " K"]
    weights: Float[np.ndarray, " K"]
    n_codes: int
    n_factors: int
    eps: float
    reason: str = ""


@dataclass(frozen=True)
class Informativeness:
    """I: `mean` and `per_factor` (K,), 1 = perfect prediction.

    `chance_corrected` (K,) rescales each factor so that the best constant prediction is 0; it is
    NaN where no baseline was given.
    """

    mean: float
    per_factor: Float[np.ndarray, " K"]
    chance_corrected: Float[np.ndarray, " K"]
    kinds: tuple[str, ...] = field(default=())


def _concentration(matrix: NDArray[np.float64], eps: float) -> NDArray[np.float64]:
    """One minus the normalised entropy of each row; NaN when a row has one entry."""
    if matrix.shape[1] == 1:
        return np.full(matrix.shape[0], np.nan)
    shifted = matrix + eps
    share = shifted / shifted.sum(axis=1, keepdims=True)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return 1 + (share * logs).sum(axis=1) / np.log(matrix.shape[1])


def _checked(importance: ArrayLike, eps: float) -> NDArray[np.float64]:
    matrix = as_matrix("R", importance, rows="L", columns="K")
    if (matrix < 0).any():
        raise ValueError(
            f"R must not be negative, got {int((matrix < 0).sum())} negative of {matrix.size} "
            "entries. Signed importances: use importance_matrix(..., negative='abs' or 'clip')."
        )
    if not eps > 0:
        raise ValueError(f"eps must be positive, got {eps}. The reference code uses 1e-11.")
    return matrix


def _weighted(
    matrix: NDArray[np.float64], eps: float
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Mean concentration of the rows, each weighted by its share of all importance."""
    scores = _concentration(matrix, eps)
    mass = matrix.sum(axis=1)
    if mass.sum() == 0:  # nothing is used: every row counts the same, and scores 0
        mass = np.ones_like(mass)
    weights = mass / mass.sum()
    return float(scores @ weights), scores, weights


def disentanglement(R: ArrayLike, *, eps: float = 1e-11) -> Disentanglement:
    """Degree to which each code captures at most one factor (D).

    Parameters
    ----------
    R : Float[ndarray, "L K"]   importances, non-negative; columns need not sum to 1
    eps : added to every entry before the entropy, as in the authors' code; a perfect R then scores
        0.9999999995 rather than 1

    Returns
    -------
    Disentanglement, unitless in [0, 1]. A row of zeros scores 0 with weight 0. With one factor D
    has no meaning (the base of its logarithm is 1): NaN, with the reason.

    Raises
    ------
    ValueError  on negative or non-finite entries or a wrong shape.

    Notes
    -----
    DCI-ES paper, section 2: D_i = 1 + sum_k P_ik log_K P_ik, weighted by row sums.
    """
    matrix = _checked(R, eps)
    mean, scores, weights = _weighted(matrix, eps)
    reason = "" if matrix.shape[1] > 1 else "D needs at least two factors, got one"
    n_codes, n_factors = matrix.shape
    return Disentanglement(mean, scores, weights, n_codes, n_factors, eps, reason)


def completeness(R: ArrayLike, *, eps: float = 1e-11) -> Completeness:
    """Degree to which each factor is captured by a single code (C).

    Parameters
    ----------
    R : Float[ndarray, "L K"]   importances, non-negative; columns need not sum to 1
    eps : see `disentanglement`

    Returns
    -------
    Completeness, unitless in [0, 1]. A column of zeros scores 0 with weight 0. With one code C has
    no meaning: NaN, with the reason.

    Raises
    ------
    ValueError  on negative or non-finite entries or a wrong shape.

    Notes
    -----
    DCI-ES paper, section 2, with log base L and weights by column sums (1/K when normalised).
    """
    matrix = _checked(R, eps)
    mean, scores, weights = _weighted(np.ascontiguousarray(matrix.T), eps)
    reason = "" if matrix.shape[0] > 1 else "C needs at least two codes, got one"
    n_codes, n_factors = matrix.shape
    return Completeness(mean, scores, weights, n_codes, n_factors, eps, reason)


def informativeness(
    loss: ArrayLike, kinds: Sequence[str] | str, *, baseline: ArrayLike | None = None
) -> Informativeness:
    """Share of each factor that the probe predicts (I): one minus its normalised loss.

    Parameters
    ----------
    loss : Float[ndarray, "K"]   per factor: 1 - accuracy (categorical) or 1 - R2 (continuous)
    kinds : "categorical" or "continuous" for each factor, or one word for all
    baseline : loss of the best constant prediction per factor; gives `chance_corrected`

    Returns
    -------
    Informativeness. As in the paper accuracies are not corrected for chance; the corrected values
    stand beside. R2 below zero stays below zero.

    Raises
    ------
    ValueError  on shapes that disagree, or a categorical loss outside [0, 1].
    """
    losses = np.array(to_numpy("loss", loss), dtype=np.float64)
    if losses.ndim != 1 or not losses.size:
        raise ValueError(f"loss must be one per factor (K,), got {losses.shape}.")
    check_finite("loss", losses)
    names = as_kinds(kinds, losses.size)
    categorical = np.array([kind == "categorical" for kind in names])
    if ((losses < 0) | (losses > 1))[categorical].any() or (losses < 0).any():
        raise ValueError(
            f"loss must be 1 - accuracy in [0, 1] or 1 - R2 of at least 0, got {losses}. "
            "Cross entropy and squared error must be normalised first."
        )
    corrected = np.full(losses.size, np.nan)
    if baseline is not None:
        chance = np.array(to_numpy("baseline", baseline), dtype=np.float64)
        check_finite("baseline", chance)
        if chance.shape != losses.shape or not (chance > 0).all():
            raise ValueError(
                f"baseline must hold a positive loss per factor, shape {losses.shape}, "
                f"got {chance.shape}: {chance}."
            )
        corrected = (chance - losses) / chance
    return Informativeness(float(np.mean(1 - losses)), 1 - losses, corrected, names)


def representation_size(L: int, K: int) -> float:
    """Size score S = K / L: factors per code dimension.

    Parameters
    ----------
    L : dimensions of the code
    K : number of factors

    Returns
    -------
    float in (0, 1] for L >= K, above 1 for a code smaller than the number of factors.

    Raises
    ------
    ValueError  unless both are at least 1.

    Notes
    -----
    DCI-ES paper, its size score S.
    """
    for name, value in (("L", L), ("K", K)):
        if int(value) != value or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value}.")
    return K / L
