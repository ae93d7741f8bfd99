from __future__ import annotations

import numpy as np
import pytest

from concept_audit.data.splits import every_eighth_split, three_way_split


def test_three_way_split_is_two_random_splits():
    from sklearn.model_selection import train_test_split

    train, rest = train_test_split(np.arange(10_000), test_size=0.3, random_state=42)
    val, test = train_test_split(rest, test_size=1 / 3, random_state=42)
    splits = three_way_split(10_000)
    for name, rows in {"train": train, "val": val, "test": test}.items():
        np.testing.assert_array_equal(splits[name], rows)


def test_every_eighth_split_has_the_sizes_of_dsprites():
    splits = every_eighth_split(23_040)
    assert {k: len(v) for k, v in splits.items()} == {"train": 16128, "val": 2304, "test": 4608}
    assert len(np.unique(np.concatenate(list(splits.values())))) == 23_040


@pytest.mark.parametrize("split", [three_way_split, every_eighth_split])
def test_the_seed_moves_the_rows(split):
    np.testing.assert_array_equal(split(100)["test"], split(100)["test"])
    assert not np.array_equal(split(100)["test"], split(100, split_seed=1)["test"])


def test_impossible_shares_are_refused():
    with pytest.raises(ValueError, match="val and test must be shares above 0"):
        three_way_split(100, val=0.9, test=0.1)
    with pytest.raises(ValueError, match=r"test must be a share between 0 and 1, got 1.5"):
        every_eighth_split(100, test=1.5)
    with pytest.raises(ValueError, match="n_samples must be at least 10"):
        every_eighth_split(4)
