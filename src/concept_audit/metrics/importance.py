"""How much a probe relies on each code: Gini importances, SAGE values and the matrix R.

SAGE: Covert, Lundberg and Lee, "Understanding Global Feature Contributions With Additive Importance
Measures". Held-out codes are replaced by background rows, predictions are averaged over the
background before the loss is taken (marginal imputation, as in the DCI-ES paper's experiments).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import as_labels, as_matrix, check_same_rows, to_numpy
from concept_audit.metrics.coalitions import (
    MaskedProbe,
    Predict,
    by_closed_form,
    by_enumeration,
    by_permutations,
)
from concept_audit.metrics.probes.base import as_kinds
from concept_audit.metrics.probes.networks import NetworkWeights

__all__ = ["ImportanceMatrix", "SageValues", "importance_matrix", "normalise", "sage_values"]

SageMethod = Literal["auto", "exact", "permutation", "linear"]
_EXACT_CODES = 12


@dataclass(frozen=True)
class SageValues:
    """SAGE values (L,), in units of the loss; negative where a code hurts the probe.

    `standard_error` (L,) is the sampling error: of the drawn permutations and rows, or 0 when all
    coalitions of all rows were enumerated. `converged` is False when the permutation estimator
    stopped at its limit.
    """

    values: Float[np.ndarray, " L"]
    standard_error: Float[np.ndarray, " L"]
    method: str
    n_permutations: int
    n_samples: int
    n_background: int
    loss_empty: float
    loss_full: float
    converged: bool = True


@dataclass(frozen=True)
class ImportanceMatrix:
    """R (L, K), columns summing to 1 (or 0), with the signed values behind it."""

    R: Float[np.ndarray, "L K"]
    values: Float[np.ndarray, "L K"]
    standard_error: Float[np.ndarray, "L K"]
    method: str
    negative: str


def normalise(
    values: ArrayLike, *, negative: Literal["abs", "clip"] = "abs"
) -> NDArray[np.float64]:
    """Importances with columns summing to 1; a column of zeros stays zero.

    `negative="abs"` takes absolute values, as the authors' code does with SAGE values and the paper
    with linear weights; `"clip"` sets negative ones to zero.
    """
    signed = as_matrix("values", values, columns="K")
    if negative == "abs":
        positive = np.abs(signed)
    elif negative == "clip":
        positive = np.maximum(signed, 0)
    else:
        raise ValueError(f"negative must be 'abs' or 'clip', got {negative!r}.")
    total = positive.sum(axis=0)
    return np.divide(positive, total, out=np.zeros_like(positive), where=total > 0)


def _linear_form(predict: Predict) -> tuple[NDArray[np.float64], float] | None:
    """Weight and bias of a linear continuous probe, if it is one."""
    if isinstance(predict, NetworkWeights):
        if predict.kind == "continuous" and len(predict.layers) == 1:
            weight, bias = predict.layers[0]
            if weight.shape[1] == 1:
                return weight[:, 0].astype(np.float64), float(bias[0])
        return None
    coef, intercept = getattr(predict, "coef_", None), getattr(predict, "intercept_", None)
    if coef is None or intercept is None or hasattr(predict, "classes_"):
        return None
    return np.ravel(coef).astype(np.float64), float(np.ravel(intercept)[0])


def _as_predict(probe: Any, categorical: bool) -> Predict:
    """Probe as a callable: scikit-learn estimators by their predict methods."""
    for name in ("predict_proba",) if categorical else ("predict",):
        method = getattr(probe, name, None)
        if callable(method):
            return method
    if callable(probe):
        return probe
    raise TypeError(
        f"probe must be callable or have {'predict_proba' if categorical else 'predict'}, "
        f"got {type(probe).__name__}."
    )


def sage_values(
    probe: Any,
    codes: ArrayLike,
    target: ArrayLike,
    *,
    kind: Literal["categorical", "continuous"] = "continuous",
    background: int | ArrayLike = 32,
    groups: ArrayLike | None = None,
    method: SageMethod = "auto",
    max_rows: int | None = None,
    threshold: float = 0.1,
    batch_size: int = 128,
    max_permutations: int = 1 << 17,
    antithetic: bool = True,
    adjust: bool = True,
    seed: int = 0,
) -> SageValues:
    """SAGE value of each code: the loss that knowing it removes, averaged over what else is known.

    Parameters
    ----------
    probe : callable (n, L) -> probabilities (n, q) or values (n,), a scikit-learn estimator, or
        trained `NetworkWeights`
    codes : Float[ndarray, "n L"]
    target : Int[ndarray, "n"] classes, or Float[ndarray, "n"] values
    kind : "categorical" (cross entropy) or "continuous" (squared error)
    background : rows that stand in for unknown codes: the first `background` of `codes` (the
        authors' rule), or rows of one's own
    groups : Int[ndarray, "L"], group of each code, 0 .. g-1 (for example superpixels); values are
        then per group
    method : "exact" enumerates all coalitions, "permutation" samples orders, "linear" is the
        closed form of a linear probe with squared error; "auto" takes the closed form if it
        applies, exact for at most 12 codes, sampling above
    max_rows : use at most this many rows, drawn by `seed`; exact methods then report the standard
        error of that draw. The permutation estimator draws rows by itself.
    threshold : sampling stops when the largest standard error is below this share of the range of
        the values (authors: 0.1; the sage package: 0.025)
    antithetic : pair each order with its reverse
    adjust : regress the draws on what is known of every row (losses, codes, target), which removes
        most of the noise of which rows were drawn. With both False the draws and the values are
        those of the sage package.

    Returns
    -------
    SageValues. Exact values sum to `loss_empty - loss_full`.

    Raises
    ------
    ValueError  on shapes that disagree, a method that does not apply, or non-finite input.

    Notes
    -----
    Covert, Lundberg and Lee (2020), see the head of this module; the permutation estimator is their
    algorithm 1, exact values are Shapley values of the same game.
    """
    x = as_matrix("codes", codes, columns="L", min_rows=2)
    (name,) = as_kinds(kind, 1)
    categorical = name == "categorical"
    y: NDArray[Any]
    if categorical:
        y = as_labels("target", target)
    else:
        values_of_target = to_numpy("target", target)
        if values_of_target.ndim != 1 and values_of_target.shape[1:] != (1,):
            raise ValueError(
                f"target must hold one value per row, shape (n,), got {values_of_target.shape}. "
                "Explain one factor at a time."
            )
        y = as_matrix("target", values_of_target.reshape(-1, 1))[:, 0]
    check_same_rows(codes=x, target=y)
    if isinstance(background, int | np.integer):
        if background < 1:
            raise ValueError(f"background must be at least one row, got {background}.")
        rows = x[: int(background)].copy()
    else:
        rows = as_matrix("background", background, columns="L")
        if rows.shape[1] != x.shape[1]:
            raise ValueError(
                f"background must have L = {x.shape[1]} columns like codes, got {rows.shape}."
            )
    members = _members(groups, x.shape[1])
    d = len(members)
    if max_rows is not None and max_rows < len(x):
        if max_rows < 2:
            raise ValueError(f"max_rows must be at least 2, got {max_rows}.")
        chosen = np.random.default_rng(seed).choice(len(x), max_rows, replace=False)
        x, y = x[chosen], y[chosen]
        sampled = True
    else:
        sampled = False
    n = len(x)
    linear = None if categorical else _linear_form(probe)
    chosen_method = method
    if method == "auto":
        applies = linear is not None and groups is None
        chosen_method = "linear" if applies else "exact" if d <= _EXACT_CODES else "permutation"
    if chosen_method == "linear" and (linear is None or groups is not None):
        raise ValueError(
            "method='linear' needs a linear probe of a continuous factor and no groups, got "
            f"{type(probe).__name__} on a {name} factor. Use method='exact' or 'permutation'."
        )
    if chosen_method == "exact" and d > 20:
        raise ValueError(
            f"method='exact' enumerates 2^L coalitions, too many for {d} codes or groups. "
            "Use method='permutation'."
        )
    game = MaskedProbe(_as_predict(probe, categorical), x, y, rows, categorical, members)
    everyone = np.arange(n)
    empty, full = float(game.empty(everyone).mean()), float(game.full(everyone).mean())
    used, converged = 0, True
    if chosen_method == "permutation":
        values, error, used, converged = by_permutations(
            game,
            batch=batch_size,
            threshold=threshold,
            limit=max_permutations,
            antithetic=antithetic,
            adjust=adjust,
            seed=seed,
        )
    elif chosen_method in ("linear", "exact"):
        if chosen_method == "linear" and linear is not None:
            per_row = by_closed_form(*linear, x, y.astype(np.float64), rows)
        else:
            per_row = by_enumeration(game)
        values = per_row.mean(axis=0)
        error = per_row.std(axis=0) / math.sqrt(n) if sampled else np.zeros(d)
    else:
        raise ValueError(
            f"method must be 'auto', 'exact', 'permutation' or 'linear', got {method!r}."
        )
    return SageValues(values, error, chosen_method, used, n, len(rows), empty, full, converged)


def _members(groups: ArrayLike | None, n_codes: int) -> NDArray[np.bool_]:
    """Codes of each group (groups, L)."""
    if groups is None:
        return np.eye(n_codes, dtype=bool)
    index = as_labels("groups", groups)
    if len(index) != n_codes or set(np.unique(index)) != set(range(index.max() + 1)):
        raise ValueError(
            f"groups must give each of the {n_codes} codes a group 0, 1, .. without gaps, "
            f"got {len(index)} entries with groups {np.unique(index).tolist()}."
        )
    return np.asarray(index[None, :] == np.arange(index.max() + 1)[:, None])


def importance_matrix(
    probes: Sequence[Any],
    codes: ArrayLike | None = None,
    factors: ArrayLike | None = None,
    kinds: Sequence[str] | str = "continuous",
    *,
    method: Literal["sage", "gini", "weights"] = "sage",
    negative: Literal["abs", "clip"] = "abs",
    sage_method: SageMethod = "auto",
    **sage_options: Any,
) -> ImportanceMatrix:
    """Importance matrix R (L, K) of one fitted probe per factor.

    Parameters
    ----------
    probes : K fitted probes
    codes, factors : rows on which SAGE values are taken, (n, L) and (n, K); a continuous factor is
        given as the value that its probe predicts
    kinds : "categorical" or "continuous" per factor, or one word for all
    method : "sage"; "gini" reads `feature_importances_` of forests; "weights" the absolute weights
        of linear probes (`coef_`, summed over classes, or `NetworkWeights`)
    negative : "abs" as the authors do, or "clip"
    sage_method, sage_options : `method` and other options of `sage_values`

    Returns
    -------
    ImportanceMatrix with columns summing to 1; a column without any importance is all zeros.

    Raises
    ------
    ValueError  if arrays are missing or disagree with the probes.
    TypeError  if a probe has not what the method reads.

    Notes
    -----
    DCI-ES paper, section 2: R_ij is the relative importance of code i for factor j; SAGE for
    probes other than forests as in its experiments.
    """
    if not probes:
        raise ValueError("probes must hold one probe per factor, got none.")
    names = as_kinds(kinds, len(probes))
    if method == "sage":
        if codes is None or factors is None:
            raise ValueError("method='sage' needs codes and factors to evaluate the probes on.")
        z = as_matrix("factors", factors, columns="K")
        if z.shape[1] != len(probes):
            raise ValueError(
                f"factors must have one column per probe ({len(probes)}), got {z.shape}."
            )
        results = [
            sage_values(probe, codes, z[:, j], kind=names[j], method=sage_method, **sage_options)
            for j, probe in enumerate(probes)
        ]
        values = np.stack([r.values for r in results], axis=1)
        errors = np.stack([r.standard_error for r in results], axis=1)
    elif method in ("gini", "weights"):
        values = np.stack([_own_importance(p, method) for p in probes], axis=1)
        errors = np.zeros_like(values)
    else:
        raise ValueError(f"method must be 'sage', 'gini' or 'weights', got {method!r}.")
    return ImportanceMatrix(normalise(values, negative=negative), values, errors, method, negative)


def _own_importance(probe: Any, method: str) -> NDArray[np.float64]:
    """Importances that a probe carries itself."""
    if method == "gini":
        found = getattr(probe, "feature_importances_", None)
        if found is None:
            raise TypeError(
                f"method='gini' reads feature_importances_, which {type(probe).__name__} lacks. "
                "Use method='sage'."
            )
        return np.asarray(found, dtype=np.float64)
    if isinstance(probe, NetworkWeights) and len(probe.layers) == 1:
        return np.abs(probe.layers[0][0].astype(np.float64)).sum(axis=1)
    coef = getattr(probe, "coef_", None)
    if coef is None:
        raise TypeError(
            f"method='weights' needs a linear probe, got {type(probe).__name__}. Use method='sage'."
        )
    return np.abs(np.atleast_2d(np.asarray(coef, dtype=np.float64))).sum(axis=0)
