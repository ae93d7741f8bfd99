"""Mutual information of two variables, each by its own kind, and its normalised form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import check_same_rows, to_numpy
from concept_audit.metrics.information import plugin
from concept_audit.metrics.information.ksg import ksg_pairs, ksg_vector_pairs, sort_columns
from concept_audit.metrics.information.on_torch import device_of
from concept_audit.metrics.information.ross import ross_scalars, ross_vector
from concept_audit.metrics.information.variables import (
    check_options,
    is_integer_valued,
    jitter,
    rounded,
)

__all__ = ["check_enough_rows", "mutual_information", "ratio"]


def check_enough_rows(n: int, n_neighbors: int, *, spare: int = 2) -> None:
    """Neighbour estimators need `spare` samples more than neighbours."""
    if n < n_neighbors + spare:
        raise ValueError(
            f"n_neighbors={n_neighbors} needs at least {n_neighbors + spare} samples, got {n}. "
            "Pass more samples or a smaller n_neighbors."
        )


def ratio(information: NDArray, normaliser: NDArray | float) -> Float[NDArray, " ..."]:
    """Normalised information, clipped to [0, 1]; NaN where the normaliser is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.asarray(information, dtype=np.float64) / normaliser
    return np.where(np.asarray(normaliser) > 0, np.clip(value, 0.0, 1.0), np.nan)


@dataclass(frozen=True)
class _Variable:
    """One side: symbols when discrete, a float64 column or vector when continuous."""

    name: str
    symbols: NDArray | None
    values: NDArray

    @property
    def is_constant(self) -> bool:
        return bool(np.all(self.values == self.values[:1]))


def _variable(name: str, value: ArrayLike, discrete: bool | None) -> _Variable:
    array = to_numpy(name, value)
    if array.ndim not in (1, 2) or 0 in array.shape:
        raise ValueError(
            f"{name} must have shape (n,) or (n, d) and not be empty, got {array.shape}. "
            "One call takes one variable a side; for all concepts at once use "
            "concepts_task_leakage or interconcept_leakage."
        )
    if array.dtype.kind == "f":
        bad = int(array.size - np.count_nonzero(np.isfinite(array)))
        if bad:
            raise ValueError(
                f"{name} must be finite, got {bad} NaN or infinite of {array.size} values. "
                "Drop or impute those rows first."
            )
    values = np.array(array, dtype=np.float64, order="C")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if discrete is None:
        discrete = is_integer_valued(values)
    elif not isinstance(discrete, bool | np.bool_):
        raise TypeError(
            f"{name}_discrete must be True, False or None, got {discrete!r}. "
            "None looks at the values: integers are discrete."
        )
    elif discrete and not is_integer_valued(values):
        return _Variable(name, plugin.as_symbols(values), values)
    if discrete:
        values = rounded(name, values)
        return _Variable(name, plugin.as_symbols(values), values)
    return _Variable(name, None, values)


def mutual_information(
    x: ArrayLike,
    y: ArrayLike,
    *,
    x_discrete: bool | None = None,
    y_discrete: bool | None = None,
    n_neighbors: int = 3,
    seed: int = 0,
    device: str | None = None,
) -> float:
    """Mutual information of two variables in nats.

    Parameters
    ----------
    x, y : array (n,) or (n, d)
        One scalar or vector variable each; n must agree.
    x_discrete, y_discrete : bool, optional
        Whether a side is discrete. Left out, it is discrete when every value lies within 1e-8 of
        an integer. The kind is that of the variable, never of both sides together. Declared
        discrete, distinct values (of a vector: distinct rows) are distinct symbols.
    n_neighbors : int
        Neighbours of the estimators for continuous sides; the papers use 3.
    seed : int
        Seed of the noise of 1e-10 max(1, mean abs) that breaks ties in continuous sides.
    device : str, optional
        Torch device for vectors, for example ``"cuda"``; a tensor on a GPU is handled there.

    Returns
    -------
    float
        Nats, at least 0. Both discrete: plug-in. Both continuous: Kraskov et al. 2004,
        algorithm 1. One of each: Ross 2014. A constant side gives 0.

    Raises
    ------
    ValueError
        On unequal n, NaN or infinite values, fewer than ``n_neighbors + 2`` samples for the
        neighbour estimators, or a discrete side in which every label occurs once beside a
        continuous one.
    TypeError
        On values that are not numbers.

    Examples
    --------
    >>> import numpy as np
    >>> coin = np.arange(1000) % 2
    >>> round(mutual_information(coin, coin), 3)  # a fair coin with itself: ln 2
    0.693
    """
    check_options(n_neighbors=n_neighbors, seed=seed)
    where = device_of(device, x, y)
    one, other = _variable("x", x, x_discrete), _variable("y", y, y_discrete)
    n = check_same_rows(x=one.values, y=other.values)
    if one.symbols is not None and other.symbols is not None:
        return plugin.information(one.symbols, other.symbols)
    check_enough_rows(n, n_neighbors)
    if one.is_constant or other.is_constant:
        return 0.0
    rng = np.random.default_rng(seed)
    if one.symbols is None and other.symbols is None:
        a, b = jitter(one.values, rng), jitter(other.values, rng)
        value = _continuous(a, b, n_neighbors, where)
    else:
        labels = one.symbols if one.symbols is not None else other.symbols
        values = jitter(other.values if one.symbols is not None else one.values, rng)
        value = _mixed(values, labels, n_neighbors, where)
    return max(0.0, value)


def _continuous(a: NDArray, b: NDArray, n_neighbors: int, device: str | None) -> float:
    pair = np.array([[0, 1]])
    if a.ndim == 1 and b.ndim == 1:
        columns = sort_columns(np.column_stack([a, b]))
        return float(ksg_pairs(columns, pair, n_neighbors=n_neighbors)[0])
    vectors = [side.reshape(side.shape[0], -1) for side in (a, b)]
    return float(ksg_vector_pairs(vectors, pair, n_neighbors=n_neighbors, device=device)[0])


def _mixed(values: NDArray, labels: Any, n_neighbors: int, device: str | None) -> float:
    if values.ndim == 1:
        return float(
            ross_scalars(sort_columns(values[:, None]), labels, n_neighbors=n_neighbors)[0]
        )
    return float(ross_vector(values, labels[:, None], n_neighbors=n_neighbors, device=device)[0])
