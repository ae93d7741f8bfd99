from __future__ import annotations

import numpy as np
import pytest

from concept_audit.data.tabulartoy import tabulartoy


def test_the_features_follow_from_one_sample_of_coordinates():
    dataset = tabulartoy(n_samples=200, delta=0.75, seed=3)
    normal = np.random.default_rng(3).standard_normal((200, 3))
    z = normal @ np.linalg.cholesky(np.full((3, 3), 0.75) + 0.25 * np.eye(3)).T
    expected = np.stack(
        [
            np.sin(z[:, 0]) + z[:, 0],
            np.cos(z[:, 0]) + z[:, 0],
            np.sin(z[:, 1]) + z[:, 1],
            np.cos(z[:, 1]) + z[:, 1],
            np.sin(z[:, 2]) + z[:, 2],
            np.cos(z[:, 2]) + z[:, 2],
            (z**2).sum(1),
        ],
        axis=1,
    )
    np.testing.assert_allclose(dataset.x, expected, rtol=1e-5, atol=1e-6)
    assert dataset.x.dtype == np.float32
    np.testing.assert_array_equal(dataset.c, z > 0)
    np.testing.assert_array_equal(dataset.y, (z > 0).sum(1) >= 2)


def test_splits_have_the_sizes_of_the_paper():
    dataset = tabulartoy()
    assert {name: len(rows) for name, rows in dataset.splits.items()} == {
        "train": 7000,
        "val": 2000,
        "test": 1000,
    }
    assert sorted(np.concatenate(list(dataset.splits.values()))) == list(range(10_000))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "tabulartoy_d025"),
        ({"delta": 0.75}, "tabulartoy_d075"),
        ({"concepts": "two"}, "tabulartoy_two_concepts"),
        ({"removed_concept": 1}, "tabulartoy_incomplete"),
        ({"nonlinear": True}, "tabulartoy_nonlinear"),
        ({"delta": 0.75, "removed_concept": 0}, "tabulartoy_d075_incomplete"),
    ],
)
def test_each_variant_has_its_name(options, name):
    assert tabulartoy(n_samples=50, **options).name == name


@pytest.mark.parametrize(("delta", "pair_share"), [(0.25, 0.0188), (0.75, 0.222)])
def test_concept_dependence_matches_the_population(delta, pair_share):
    dataset = tabulartoy(n_samples=100_000, delta=delta)
    joint = np.zeros((2, 2))
    np.add.at(joint, (dataset.c[:, 0], dataset.c[:, 1]), 1 / 100_000)
    outer = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    information = (joint * np.log(joint / outer)).sum() / np.log(2)
    # standard error of the plug-in value: about sd(log ratio) / sqrt(n) = 0.5 / 316
    assert abs(information - pair_share) < 5 * 0.5 / np.sqrt(100_000)
    assert abs(dataset.y.mean() - 0.5) < 5 * 0.5 / np.sqrt(100_000)


def test_variants_keep_the_sample_and_change_the_task():
    full, two = tabulartoy(n_samples=300), tabulartoy(n_samples=300, concepts="two")
    incomplete = tabulartoy(n_samples=300, removed_concept=1)
    nonlinear = tabulartoy(n_samples=300, nonlinear=True)
    np.testing.assert_array_equal(full.x, two.x)
    np.testing.assert_array_equal(two.y, full.c[:, :2].max(1))
    np.testing.assert_array_equal(incomplete.y, full.y)
    np.testing.assert_array_equal(incomplete.c, full.c[:, [0, 2]])
    assert incomplete.concept_names == ("c1", "c3")
    c = full.c
    np.testing.assert_array_equal(nonlinear.y, c.sum(1) - 2 * c[:, 0] * c[:, 1] >= 2)


def test_the_fingerprint_follows_content_names_and_splits():
    first = tabulartoy(n_samples=100)
    assert first.fingerprint() == tabulartoy(n_samples=100).fingerprint()
    others = [
        tabulartoy(n_samples=100, seed=1),
        tabulartoy(n_samples=100, split_seed=1),
        tabulartoy(n_samples=100, nonlinear=True),
    ]
    assert len({first.fingerprint(), *(other.fingerprint() for other in others)}) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 1.0}, "delta must lie in"),
        ({"concepts": "four"}, "concepts must be 'three' or 'two', got 'four'"),
        ({"concepts": "two", "nonlinear": True}, "no incomplete or nonlinear variant"),
        ({"removed_concept": 3}, "different columns 0..2, got \\(3,\\)"),
        ({"n_samples": 5}, "n_samples must be at least 10"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        tabulartoy(**options)
