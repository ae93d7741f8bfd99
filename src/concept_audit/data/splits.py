"""Row indices of train, validation and test, from a split seed that training never touches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["every_eighth_split", "three_way_split"]


def three_way_split(
    n_samples: int, *, val: float = 0.2, test: float = 0.1, split_seed: int = 42
) -> dict[str, NDArray[np.int64]]:
    """Shuffled train, validation and test rows by two successive random splits.

    Parameters
    ----------
    n_samples : int
        Number of rows.
    val, test : float
        Shares of all rows, each above 0, together below 1. The defaults give the 7000 / 2000 /
        1000 rows of TabularToy (Leakage paper, appendix A): first ``val + test`` is set apart,
        then its part ``test / (val + test)``.
    split_seed : int
        Seed of both splits; independent of the training seed, so that folds do not move.

    Returns
    -------
    dict with Int[ndarray, "rows"] under ``train``, ``val`` and ``test``.

    Raises
    ------
    ValueError
        On shares outside (0, 1) or too few rows for three non-empty splits.
    """
    if not (0 < val < 1 and 0 < test < 1 and val + test < 1):
        raise ValueError(
            f"val and test must be shares above 0 with val + test below 1, got {val} and {test}."
        )
    if n_samples < 10:
        raise ValueError(f"n_samples must be at least 10 to be split in three, got {n_samples}.")
    from sklearn.model_selection import train_test_split

    # Counts, not shares: 0.2 + 0.1 is a little more than 0.3 and would move one row.
    n_test = max(1, round(n_samples * test))
    n_rest = n_test + max(1, round(n_samples * val))
    train, rest = train_test_split(np.arange(n_samples), test_size=n_rest, random_state=split_seed)
    val_rows, test_rows = train_test_split(rest, test_size=n_test, random_state=split_seed)
    return {"train": train, "val": val_rows, "test": test_rows}


def every_eighth_split(
    n_samples: int, *, test: float = 0.2, split_seed: int = 42
) -> dict[str, NDArray[np.int64]]:
    """Random test rows, then every eighth of the remaining rows for validation (dSprites).

    Parameters
    ----------
    n_samples : int
        Number of rows.
    test : float
        Share of test rows, above 0 and below 1.
    split_seed : int
        Seed of the random split.

    Returns
    -------
    dict with Int[ndarray, "rows"] under ``train``, ``val`` and ``test``. For the 23 040 images of
    dSprites(0) these are 16 128, 2 304 and 4 608 rows.

    Raises
    ------
    ValueError
        On a share outside (0, 1) or too few rows for three non-empty splits.
    """
    if not 0 < test < 1:
        raise ValueError(f"test must be a share between 0 and 1, got {test}.")
    if n_samples < 10:
        raise ValueError(f"n_samples must be at least 10 to be split in three, got {n_samples}.")
    from sklearn.model_selection import train_test_split

    rest, test_rows = train_test_split(
        np.arange(n_samples), test_size=test, random_state=split_seed
    )
    is_val = np.arange(len(rest)) % 8 == 0
    return {"train": rest[~is_val], "val": rest[is_val], "test": test_rows}
