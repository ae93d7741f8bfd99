"""What a variable is: its kind, its symbols when discrete, its jittered copies when continuous."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

__all__ = ["Compat", "check_options", "is_integer_valued", "jitter", "jitter_scale", "rounded"]

Compat = Literal["reference"]

INTEGER_TOLERANCE = 1e-8
JITTER = 1e-10


def check_options(*, n_neighbors: int, seed: int, compat: str | None = None) -> None:
    """Options shared by all estimators, checked once."""
    if isinstance(n_neighbors, bool) or not isinstance(n_neighbors, int | np.integer):
        raise TypeError(
            f"n_neighbors must be an int, got {type(n_neighbors).__name__}. The papers use 3."
        )
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors must be at least 1, got {n_neighbors}. The papers use 3.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed must be an int, got {type(seed).__name__}. Pass for example seed=0.")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}. Pass for example seed=0.")
    if compat not in (None, "reference"):
        raise ValueError(
            f"compat must be None or 'reference', got {compat!r}. "
            "'reference' repeats the published code, defects included."
        )


def is_integer_valued(values: NDArray, compat: Compat | None = None) -> bool:
    """Whether every entry lies within 1e-8 of an integer.

    `compat="reference"` looks at the remainder of a division by one, as the published code does,
    and so misses values just below an integer.
    """
    if compat == "reference":
        return bool(np.all(np.mod(values, 1) < INTEGER_TOLERANCE))
    return bool(np.all(np.abs(values - np.rint(values)) < INTEGER_TOLERANCE))


def rounded(name: str, values: Float[NDArray, " ..."]) -> Float[NDArray, " ..."]:
    """Values of a discrete variable on the integers; says when that changed any of them."""
    result = np.rint(values)
    off = np.count_nonzero(values != result)
    if off:
        warnings.warn(
            f"{name} is taken as discrete, but {off} of {values.size} values "
            f"({off / values.size:.1%}) are not integers and were rounded. "
            "Saturated probabilities look like this: score the logits instead, in float64, "
            "or pass the kind as continuous.",
            UserWarning,
            stacklevel=4,
        )
    return result


def jitter_scale(values: Float[NDArray, " ..."], compat: Compat | None = None) -> float:
    """Standard deviation of the noise that breaks ties in a variable."""
    if compat == "reference":
        return JITTER * float(np.mean(values))  # vanishes for centred logits
    return JITTER * max(1.0, float(np.mean(np.abs(values))))


def jitter(
    values: Float[NDArray, " ..."], rng: np.random.Generator, compat: Compat | None = None
) -> Float[NDArray, " ..."]:
    """Copy of a variable with its ties broken."""
    return values + jitter_scale(values, compat) * rng.standard_normal(values.shape)
