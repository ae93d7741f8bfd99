from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from concept_audit.data.base import ConceptDataset


def build(**changes: Any) -> ConceptDataset:
    values: dict[str, Any] = {
        "name": "tiny",
        "x": np.arange(24, dtype=np.float32).reshape(6, 4),
        "c": np.array([[0, 1], [1, 1], [0, 0], [1, 0], [0, 1], [1, 1]]),
        "y": np.array([0, 1, 2, 0, 1, 2]),
        "concept_names": ("red", "round"),
        "class_names": ("a", "b", "c"),
        "splits": {"train": np.array([0, 1, 2]), "val": np.array([3]), "test": np.array([4, 5])},
    }
    return ConceptDataset(**(values | changes))


def test_sizes_and_names_come_from_the_arrays():
    dataset = build()
    assert (dataset.n_samples, dataset.n_concepts, dataset.n_classes) == (6, 2, 3)
    assert dataset.input_shape == (4,)
    assert not dataset.is_image
    assert dataset.concept_groups == {"red": (0,), "round": (1,)}
    np.testing.assert_array_equal(dataset.rows("test"), [4, 5])


def test_images_are_seen_channels_first():
    images = np.zeros((6, 8, 10, 3), dtype=np.uint8)
    dataset = build(x=images, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    assert dataset.is_image
    assert dataset.input_shape == (3, 8, 10)


def test_a_set_of_factors_may_have_no_concepts():
    dataset = build(
        c=np.zeros((6, 0), dtype=np.int64),
        concept_names=(),
        factors=np.array([[0, 1], [1, 2], [0, 0], [1, 0], [0, 1], [1, 1]]),
        factor_names=("shape", "scale"),
        factor_sizes=(2, 3),
        factor_kinds=("categorical", "continuous"),
    )
    assert dataset.n_concepts == 0
    assert dataset.concept_groups == {}


class LazyRows:
    """A memory-mapped kind of input: rows are made when they are asked for."""

    shape = (6, 8, 8, 1)
    dtype = np.dtype(np.uint8)

    def __init__(self) -> None:
        self.reads = 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: Any) -> np.ndarray:
        self.reads += 1
        return np.zeros((len(index), 8, 8, 1), dtype=np.uint8)


def test_a_lazy_input_is_hashed_in_blocks_or_by_its_own_digest():
    plain = build(x=np.zeros((6, 8, 8, 1), dtype=np.uint8))
    assert build(x=LazyRows()).fingerprint() == plain.fingerprint()
    lazy = LazyRows()
    dataset = build(x=lazy, content_digest="abc")
    assert dataset.fingerprint() == dataset.fingerprint()
    assert lazy.reads == 0
    assert dataset.fingerprint() != build(x=LazyRows(), content_digest="abd").fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"concept_names": ("red", "square")},
        {"class_names": ("a", "b", "d")},
        {"concept_groups": {"both": (0, 1)}},
        {"standin": True},
        {"y": np.array([0, 1, 2, 0, 1, 1])},
        {"splits": {"train": np.array([0, 1]), "val": np.array([3]), "test": np.array([4, 5])}},
    ],
)
def test_every_part_moves_the_fingerprint(change):
    assert build(**change).fingerprint() != build().fingerprint()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"name": ""}, ValueError, "name must not be empty"),
        ({"x": [[1.0]] * 6}, TypeError, "x must offer shape"),
        ({"x": np.zeros(6)}, ValueError, "x must be a table"),
        ({"x": np.zeros((5, 4))}, ValueError, "x and c and y must agree on the number of rows"),
        ({"x": np.full((6, 4), np.nan)}, ValueError, "x must be finite, got 24 NaN"),
        ({"c": np.full((6, 2), 2)}, ValueError, "c must hold 0 or 1"),
        ({"concept_names": ("red",)}, ValueError, "concept_names must name all 2"),
        ({"concept_names": ("red", "red")}, ValueError, r"unique, got \['red'\]"),
        ({"class_names": ("a", "b")}, ValueError, "y must hold class indices 0..1"),
        ({"concept_groups": {"g": (0,)}}, ValueError, r"missing \[1\]"),
        ({"concept_groups": {"g": (0, 1), "h": (1,)}}, ValueError, r"repeated \[1\]"),
        ({"splits": {}}, ValueError, "at least one split"),
        ({"splits": {"train": np.array([0, 6])}}, ValueError, "rows 0..5, got 0 to 6"),
        ({"splits": {"train": np.array([True, False])}}, ValueError, "np.flatnonzero"),
        ({"splits": {"a": np.array([0, 1]), "b": np.array([1])}}, ValueError, "1 rows in more"),
        ({"factor_names": ("shape",)}, ValueError, "need factors"),
        (
            {"factors": np.full((6, 1), 3), "factor_names": ("s",), "factor_sizes": (3,),
             "factor_kinds": ("categorical",)},
            ValueError,
            r"factor 's' must hold indices 0..2",
        ),
        (
            {"factors": np.full((6, 1), 1), "factor_names": ("s",), "factor_sizes": (3,),
             "factor_kinds": ("ordinal",)},
            ValueError,
            r"got \['ordinal'\]",
        ),
        (
            {"factors": np.full((6, 1), 1), "factor_names": ("s",), "factor_sizes": (),
             "factor_kinds": ("categorical",)},
            ValueError,
            "factor_sizes must have one entry per factor",
        ),
        ({"mean": (0.5,)}, ValueError, "mean and std go together"),
        ({"mean": (0.5,), "std": (0.1,)}, ValueError, "one value per channel"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(change, error, message):
    with pytest.raises(error, match=message):
        build(**change)


def test_an_unknown_split_lists_those_that_exist():
    with pytest.raises(ValueError, match=r"got 'tets'. Did you mean 'test'"):
        build().rows("tets")
