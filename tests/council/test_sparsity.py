from __future__ import annotations

import numpy as np
import pytest

from concept_audit.council import (
    accuracy_at_effective_concepts,
    number_of_contributing_concepts,
    number_of_effective_concepts,
)
from concept_audit.council.sparsity import truncate_head


def test_nec_counts_weights_above_the_tolerance():
    assert number_of_effective_concepts([[0.5, 0, 1e-6], [1, -1, 0]]) == 1.5


def test_ncc_by_hand():
    # class 0: 6 3 1 -> 90 % needs two; class 1: 5 5 0 -> 90 % needs two, 50 % one
    weights = [[6.0, 3, 1], [5, 5, 0]]
    assert number_of_contributing_concepts([[1.0, 1, 1]], weights, tau=0.9) == 2
    assert number_of_contributing_concepts([[1.0, 1, 1]], weights, tau=0.5) == 1
    assert (
        number_of_contributing_concepts([[1.0, 1, 1]], weights, tau=1, predicted_classes=[0]) == 3
    )


def test_ncc_at_full_share_is_nec():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(5, 20)) * (rng.random((5, 20)) < 0.3)
    activations = rng.normal(size=(50, 20))
    assert number_of_contributing_concepts(
        activations, weights, tau=1
    ) == number_of_effective_concepts(weights, tolerance=0)


def test_ncc_against_a_loop():
    rng = np.random.default_rng(1)
    a, w = rng.normal(size=(7, 9)), rng.normal(size=(3, 9))
    counts = []
    for row in a:
        for head in w:
            sizes = sorted(np.abs(row * head), reverse=True)
            counts.append(next(m for m in range(1, 10) if sum(sizes[:m]) >= 0.95 * sum(sizes)))
    assert number_of_contributing_concepts(a, w) == pytest.approx(np.mean(counts))


def test_a_class_without_weights_needs_no_concept():
    assert number_of_contributing_concepts([[1.0, 2]], [[0.0, 0]]) == 0


def test_truncation_keeps_the_largest():
    cut = truncate_head([[3.0, 1, 2], [0.5, 4, 0.1]], 1)
    assert cut.tolist() == [[3, 0, 0], [0, 4, 0]]


def test_anec_of_an_identity_head_is_perfect():
    y = np.arange(6) % 3
    activations = np.eye(3)[y]
    result = accuracy_at_effective_concepts(
        [(np.eye(3), np.zeros(3))], activations, y, levels=(1, 2)
    )
    assert result.accuracy == (1.0, 1.0)
    assert result.mean == 1.0


def test_anec_takes_the_first_head_that_is_dense_enough():
    y = np.arange(6) % 3
    activations = np.eye(3)[y]
    wrong = np.roll(np.eye(3), 1, axis=0)
    path = [(wrong, np.zeros(3)), (np.eye(3) + 0.01, np.zeros(3))]
    result = accuracy_at_effective_concepts(path, activations, y, levels=(1, 2))
    assert result.accuracy == (0.0, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: number_of_contributing_concepts([[1.0]], [[1.0, 2]]), "must agree on k"),
        (
            lambda: number_of_contributing_concepts([[1.0]], [[1.0]], tau=0),
            r"tau must lie in \(0, 1\]",
        ),
        (lambda: truncate_head([[1.0]], 0), "level must be at least 1"),
        (lambda: accuracy_at_effective_concepts([], [[1.0]], [0]), "at least one head"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
