from __future__ import annotations

import itertools

import numpy as np
import pytest

from concept_audit.data.tasks import (
    DSPRITES_CLASSES,
    SHAPES3D_CLASSES,
    dsprites_task,
    remove_concepts,
    shapes3d_task,
    tabulartoy_task,
    tabulartoy_two_concept_task,
)


def grid(k: int) -> np.ndarray:
    return np.array(list(itertools.product([0, 1], repeat=k)))


def test_majority_and_disjunction_by_hand():
    assert tabulartoy_task(grid(3)).tolist() == [0, 0, 0, 1, 0, 1, 1, 1]
    assert tabulartoy_task(grid(3), nonlinear=True).tolist() == [0, 0, 0, 1, 0, 1, 0, 0]
    assert tabulartoy_two_concept_task(grid(2)).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("nonlinear", [False, True])
@pytest.mark.parametrize(
    ("task", "k", "n_classes"),
    [(dsprites_task, 5, DSPRITES_CLASSES), (shapes3d_task, 6, SHAPES3D_CLASSES)],
)
def test_image_tasks_use_every_class(task, k, n_classes, nonlinear):
    assert set(task(grid(k), nonlinear=nonlinear)) == set(range(n_classes))


def test_image_tasks_at_single_points():
    assert dsprites_task([[1, 1, 0, 0, 0], [0, 0, 0, 1, 1]]).tolist() == [2, 7]
    assert dsprites_task([[1, 1, 1, 1, 1]], nonlinear=True).tolist() == [0]
    assert shapes3d_task([[1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0]]).tolist() == [2, 10]
    assert shapes3d_task([[0, 0, 0, 1, 1, 1]], nonlinear=True).tolist() == [6]


def test_dsprites_class_frequencies_of_the_full_grid():
    # shape < 2 in two thirds of the images, scale < 3 in two of the three scales 0, 2, 4
    shape, scale, rotation, x, y = np.meshgrid(
        np.arange(3), [0, 2, 4], np.arange(0, 40, 4), np.arange(0, 32, 2), np.arange(0, 32, 2),
        indexing="ij",
    )  # fmt: skip
    c = np.stack([shape < 2, scale < 3, rotation < 20, x >= 16, y >= 16], -1).reshape(-1, 5)
    share = np.bincount(dsprites_task(c)) / len(c)
    np.testing.assert_allclose(share, [1 / 9, 1 / 9, 2 / 9, 2 / 9, *[1 / 12] * 4])


def test_best_accuracy_without_one_concept_is_that_of_the_paper():
    z = np.random.default_rng(0).standard_normal((200_000, 3))
    z = z @ np.linalg.cholesky(np.full((3, 3), 0.25) + 0.75 * np.eye(3)).T
    c = (z > 0).astype(int)
    y = tabulartoy_task(c)
    kept, names = remove_concepts(c, ("c1", "c2", "c3"), (2,))
    assert names == ("c1", "c2")
    cell = kept @ [1, 2]
    best = sum(max(np.mean(y[cell == v]), 1 - np.mean(y[cell == v])) * np.mean(cell == v)
               for v in range(4))  # fmt: skip
    assert abs(best - 0.7906) < 5 * 0.41 / np.sqrt(200_000)  # standard error of a share


def test_wrong_columns_are_named():
    with pytest.raises(
        ValueError, match=r"c must have 5 columns for this task, got shape \(8, 3\)"
    ):
        dsprites_task(grid(3))
    with pytest.raises(ValueError, match=r"up to 1 different columns 0..1, got \(0, 1\)"):
        remove_concepts(grid(2), ("a", "b"), (0, 1))
