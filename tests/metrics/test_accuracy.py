"""Accuracies against scikit-learn and hand-counted cases."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from concept_audit.metrics.accuracy import column_auc, concept_accuracy, task_accuracy


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.fixture
def multiclass():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 400)
    logits = rng.normal(size=(400, 5)) + 2.0 * np.eye(5)[y]
    return logits, y


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
def test_task_scores_equal_scikit_learn(multiclass, multi_class):
    logits, y = multiclass
    ours = task_accuracy(logits, y, multi_class=multi_class)
    assert ours.accuracy == np.mean(logits.argmax(1) == y)
    assert ours.f1 == pytest.approx(f1_score(y, logits.argmax(1), average="macro"), abs=1e-12)
    expected = roc_auc_score(y, softmax(logits), multi_class=multi_class, average="macro")
    assert ours.auc == pytest.approx(expected, abs=1e-12)
    assert ours.n_undefined_auc == 0
    assert (ours.n_samples, ours.n_classes) == (400, 5)


def test_one_logit_and_two_logits_give_the_same_scores():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 100)
    z = rng.normal(size=100) + y
    one = task_accuracy(z, y)
    assert one == task_accuracy(z[:, None], y)
    assert one == task_accuracy(np.stack([-z / 2, z / 2], axis=1), y)
    assert one.auc == pytest.approx(roc_auc_score(y, z), abs=1e-12)


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
def test_a_class_without_rows_is_left_out_and_counted(multiclass, multi_class):
    logits, y = multiclass
    keep = y != 3
    ours = task_accuracy(logits[keep], y[keep], multi_class=multi_class)
    assert ours.n_undefined_auc == (8 if multi_class == "ovo" else 1)
    assert 0.5 < ours.auc <= 1.0


def test_a_single_class_has_an_accuracy_but_no_auc():
    ours = task_accuracy([[1.0, 0.0], [0.0, 1.0]], [0, 0])
    assert ours.accuracy == 0.5
    assert np.isnan(ours.auc)
    assert ours.n_undefined_auc == 1


def test_concept_scores_equal_scikit_learn():
    rng = np.random.default_rng(2)
    c = rng.integers(0, 2, (300, 4))
    p = np.clip(np.round(0.3 * c + 0.7 * rng.random((300, 4)), 2), 0, 1)  # with ties
    ours = concept_accuracy(p, c)
    for i in range(4):
        assert ours.accuracy_per_concept[i] == np.mean((p[:, i] > 0.5) == c[:, i])
        assert ours.auc_per_concept[i] == pytest.approx(roc_auc_score(c[:, i], p[:, i]), abs=1e-12)
        assert ours.f1_per_concept[i] == pytest.approx(
            f1_score(c[:, i], p[:, i] > 0.5, average="macro"), abs=1e-12
        )
        assert ours.balanced_accuracy_per_concept[i] == pytest.approx(
            balanced_accuracy_score(c[:, i], p[:, i] > 0.5), abs=1e-12
        )
    assert ours.auc == pytest.approx(ours.auc_per_concept.mean())


def test_the_balanced_accuracy_is_the_auc_of_thresholded_predictions():
    rng = np.random.default_rng(3)
    c = rng.integers(0, 2, (200, 3))
    p = np.clip(0.4 * c + 0.6 * rng.random((200, 3)), 0, 1)
    ours = concept_accuracy(p, c)
    np.testing.assert_allclose(
        ours.balanced_accuracy_per_concept, column_auc((p > 0.5).astype(float), c), atol=1e-12
    )


def test_logits_with_threshold_zero_score_as_their_probabilities():
    rng = np.random.default_rng(4)
    c = rng.integers(0, 2, (200, 3))
    z = rng.normal(size=(200, 3)) + c
    a, b = concept_accuracy(z, c, threshold=0.0), concept_accuracy(1 / (1 + np.exp(-z)), c)
    assert a.accuracy == b.accuracy
    np.testing.assert_allclose(a.auc_per_concept, b.auc_per_concept)


def test_constant_concepts_are_named_and_left_out_of_the_means():
    c = np.array([[0, 1, 0], [0, 0, 0], [0, 1, 0]])
    p = np.array([[0.1, 0.9, 0.9], [0.2, 0.1, 0.1], [0.1, 0.8, 0.2]])
    ours = concept_accuracy(p, c)
    assert ours.undefined_concepts == (0, 2)
    assert ours.n_undefined_auc == 2
    assert ours.auc == 1.0
    assert ours.balanced_accuracy == 1.0
    assert ours.f1_per_concept[0] == 1.0  # predicted absent throughout, and it is
    all_constant = concept_accuracy(p[:, :1], c[:, :1])
    assert np.isnan(all_constant.auc)
    assert all_constant.accuracy == 1.0


def test_column_auc_by_hand():
    scores = np.array([[0.1, 5.0], [0.4, 5.0], [0.35, 5.0], [0.8, 5.0]])
    np.testing.assert_allclose(column_auc(scores, np.array([0, 0, 1, 1])), [0.75, 0.5])


def test_error_texts():
    with pytest.raises(ValueError, match=r"y must hold class indices 0\.\.1 .* from 0 to 2"):
        task_accuracy([[0.0, 1.0]] * 3, [0, 1, 2])
    with pytest.raises(ValueError, match=r"multi_class must be 'ovo' or 'ovr', got 'all'"):
        task_accuracy([[0.0, 1.0]], [0], multi_class="all")
    with pytest.raises(ValueError, match=r"y_logits must have shape \(n, l\) with n = 2 rows"):
        task_accuracy([[0.0, 1.0]], [0, 1])
    with pytest.raises(ValueError, match=r"y_logits must be finite, got 1 NaN .* training loss"):
        task_accuracy([[0.0, np.nan]], [0])
    with pytest.raises(ValueError, match=r"c_hat must hold probabilities.*pass threshold=0"):
        concept_accuracy([[3.0]], [[1]])
    with pytest.raises(ValueError, match=r"c must hold 0 or 1"):
        concept_accuracy([[0.3]], [[2]])
    with pytest.raises(ValueError, match=r"must agree on \(n, k\)"):
        concept_accuracy([[0.3, 0.2]], [[1]])
