"""Checks and draws that every image dataset's factory begins with."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["check_choice", "check_gamma", "subset_rows"]


def check_choice(argument: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value outside `choices`, with the nearest match."""
    if value not in choices:
        close = difflib.get_close_matches(str(value), choices, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{argument} must be one of {list(choices)}, got {value!r}.{hint}")


def check_gamma(gamma: int | None, largest: int) -> None:
    """Refuse a gamma that is neither None nor 0..largest."""
    if gamma is not None and (isinstance(gamma, bool) or gamma not in range(largest + 1)):
        raise ValueError(
            f"gamma must be 0..{largest}, or null for the whole factor grid, got {gamma!r}."
        )


def subset_rows(
    rows: NDArray[np.int64], max_samples: int | None, *, seed: int
) -> NDArray[np.int64]:
    """At most `max_samples` of the rows, drawn without replacement and kept in order."""
    if max_samples is None or max_samples >= len(rows):
        return rows
    if max_samples < 10:
        raise ValueError(
            f"max_samples must be at least 10 to be split in three, got {max_samples}."
        )
    chosen = np.random.default_rng(seed).choice(len(rows), size=max_samples, replace=False)
    return rows[np.sort(chosen)]
