"""Intervention curves, S_int and misclassified configurations on heads worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from concept_audit.metrics.interventions import (
    coop_weights,
    intervention_curve,
    intervention_score,
    misclassified_configurations,
)


def majority(bottleneck):
    """At least two of three concepts."""
    return bottleneck.sum(axis=1) - 1.5


def any_of(bottleneck):
    """At least one concept: wrong on exactly the rows with a single active concept."""
    return bottleneck.sum(axis=1) - 0.5


@pytest.fixture
def toy():
    rng = np.random.default_rng(0)
    c = rng.integers(0, 2, (500, 3))
    y = (c.sum(1) >= 2).astype(int)
    soft = np.clip(c + rng.normal(0, 0.45, c.shape), 0.0, 1.0)
    return soft, c, y


def test_a_perfect_head_reaches_one_when_all_concepts_are_set(toy):
    soft, c, y = toy
    curve = intervention_curve(majority, soft, c, y)
    assert curve.task_accuracy.shape == (4,)
    assert curve.task_accuracy[0] == np.mean((soft.sum(1) > 1.5) == y)
    assert curve.task_accuracy[-1] == 1.0
    assert curve.intervened_task_accuracy == 1.0
    assert sorted(curve.order[0]) == [0, 1, 2]


def test_perfect_concepts_are_unchanged_by_interventions(toy):
    _, c, y = toy
    curve = intervention_curve(any_of, c, c, y, kind="hard")
    assert np.ptp(curve.task_accuracy) == 0.0
    assert intervention_score(curve.task_accuracy[0], curve) == 0.0


def test_curve_equals_a_loop_over_samples(toy):
    soft, c, y = toy
    curve = intervention_curve(majority, soft, c, y, seed=3)
    for step in range(4):
        hits = 0
        for row in range(len(y)):
            b = soft[row].copy()
            for j in curve.order[row, :step]:
                b[j] = c[row, j]
            hits += int((b.sum() > 1.5) == y[row])
        assert curve.task_accuracy[step] == hits / len(y)


def test_random_order_is_uniform_and_seeded(toy):
    soft, c, y = toy
    a, b = (intervention_curve(majority, soft, c, y, seed=5) for _ in range(2))
    np.testing.assert_array_equal(a.order, b.order)
    assert (a.order != intervention_curve(majority, soft, c, y, seed=6).order).any()
    share = np.bincount(a.order[:, 0], minlength=3) / len(y)
    assert np.abs(share - 1 / 3).max() < 4 * np.sqrt(2 / 9 / len(y))


def test_every_policy_ends_at_the_same_accuracy(toy):
    soft, c, y = toy
    ends = {
        intervention_curve(any_of, soft, c, y, policy=p).task_accuracy[-1]
        for p in ("random", "uncertainty", "coop", (2, 0, 1))
    }
    assert len(ends) == 1


def test_uncertainty_takes_the_concept_nearest_one_half_first():
    p = np.array([[0.9, 0.55, 0.2], [0.5, 0.99, 0.7]])
    curve = intervention_curve(majority, p, [[1, 1, 0], [0, 1, 1]], [1, 1], policy="uncertainty")
    np.testing.assert_array_equal(curve.order, [[1, 2, 0], [0, 2, 1]])


def test_coop_score_by_hand():
    """One sample, a head that reads only the last concept: CooP without entropy asks for that."""

    def head(b):
        return np.stack([np.zeros(len(b)), 4.0 * b[:, 2] - 1.0], axis=1)

    p = np.array([[0.5, 0.5, 0.7]])
    c, y = np.array([[1, 0, 0]]), np.array([0])
    by_change = intervention_curve(head, p, c, y, policy="coop", coop_alpha=0.0)
    assert by_change.order[0, 0] == 2
    by_entropy = intervention_curve(head, p, c, y, policy="coop", coop_beta=0.0)
    np.testing.assert_array_equal(by_entropy.order[0], [0, 1, 2])
    # expected change: |0.7 P(v=1) + 0.3 P(v=0) - P(v=0.7)| of the predicted class
    prob = lambda v: 1 / (1 + np.exp(-(4.0 * v - 1.0)))  # noqa: E731
    change = abs(0.7 * prob(1.0) + 0.3 * prob(0.0) - prob(0.7))
    entropy = -(0.7 * np.log(0.7) + 0.3 * np.log(0.3)) / np.log(2)
    swap = (1.0 - entropy) / change  # weight at which the two tie
    for beta, first in ((0.99 * swap, 0), (1.01 * swap, 2)):
        curve = intervention_curve(head, p, c, y, policy="coop", coop_beta=beta)
        assert curve.order[0, 0] == first


def test_one_logit_and_two_logits_agree_under_coop(toy):
    soft, c, y = toy
    two = lambda b: np.stack([-majority(b) / 2, majority(b) / 2], axis=1)  # noqa: E731
    a = intervention_curve(majority, soft, c, y, policy="coop")
    b = intervention_curve(two, soft, c, y, policy="coop")
    np.testing.assert_array_equal(a.order, b.order)


def test_coop_weights_come_from_the_grid_and_keep_one_pair_per_ratio(toy):
    soft, c, y = toy
    calls = []

    def head(b):
        calls.append(len(b))
        return majority(b)

    alpha, beta = coop_weights(head, soft[:50], c[:50], y[:50])
    assert {alpha, beta} <= {0.1, 1.0, 10.0, 100.0}
    per_curve = 3 * (1 + 3) + 4  # CooP: head and three trials a step; then the four accuracies
    assert len(calls) <= 7 * per_curve  # seven ratios, not sixteen pairs


def test_groups_are_set_together(toy):
    soft, c, y = toy
    groups = {"first two": [0, 1], "last": [2]}
    curve = intervention_curve(majority, soft, c, y, groups=groups, policy=["last", "first two"])
    assert curve.n_groups == 2
    assert curve.group_names == ("first two", "last")
    b = soft.copy()
    b[:, 2] = c[:, 2]
    assert curve.task_accuracy[1] == np.mean((b.sum(1) > 1.5) == y)


def test_logit_interventions_write_the_training_percentiles(toy):
    _, c, y = toy
    rng = np.random.default_rng(1)
    logits = 6.0 * c - 3.0 + rng.normal(size=c.shape)
    values = np.array([[-4.0, -5.0, -6.0], [3.0, 4.0, 9.0]])
    head = lambda b: b.sum(axis=1)  # noqa: E731
    curve = intervention_curve(head, logits, c, y, kind="logit", percentiles=values)
    written = np.where(c == 1, values[1], values[0])
    assert curve.task_accuracy[-1] == np.mean((written.sum(1) > 0) == y)


@pytest.mark.parametrize("flat", [False, True])
def test_embedding_interventions_swap_in_the_aligned_vector(toy, flat):
    soft, c, y = toy
    rng = np.random.default_rng(2)
    c_pos, c_neg = rng.normal(1, 1, (500, 3, 4)), rng.normal(-1, 1, (500, 3, 4))
    mix = soft[..., None] * c_pos + (1 - soft[..., None]) * c_neg
    seen = []

    def head(b):
        seen.append(b.shape)
        return b.reshape(len(b), -1).sum(axis=1)

    bottleneck = mix.reshape(500, 12) if flat else mix
    curve = intervention_curve(
        head,
        bottleneck,
        c,
        y,
        kind="embedding",
        c_pos=c_pos,
        c_neg=c_neg,
        c_hat=soft,
        policy="coop",
    )
    aligned = np.where(c[..., None] == 1, c_pos, c_neg).reshape(500, -1).sum(1)
    assert curve.task_accuracy[-1] == np.mean((aligned > 0) == y)
    assert {len(shape) for shape in seen} == {2 if flat else 3}


def test_competence_zero_writes_the_opposite(toy):
    soft, c, y = toy
    wrong = intervention_curve(majority, soft, c, y, competence=0.0)
    assert wrong.task_accuracy[-1] == np.mean((3 - c.sum(1) >= 2) == y) == 0.0
    half = intervention_curve(majority, soft, c, y, competence=0.5)
    assert 0.3 < half.task_accuracy[-1] < 0.7


def test_the_head_sees_each_configuration_once_at_the_end(toy):
    soft, c, y = toy
    rows = []

    def head(b):
        rows.append(len(b))
        return majority(b)

    intervention_curve(head, soft, c, y)
    assert rows == [500, 500, 500, 8]


def test_precomputed_logits(toy):
    soft, c, y = toy
    steps = np.stack([majority(soft)[:, None]] * 3 + [majority(c)[:, None]])
    curve = intervention_curve(steps, None, c, y)
    assert curve.policy == "precomputed"
    assert curve.order is None
    assert curve.task_accuracy[-1] == 1.0


def test_relabelling_the_concepts_relabels_a_fixed_order(toy):
    soft, c, y = toy
    weights = np.array([3.0, 1.0, 0.5])
    a = intervention_curve(lambda b: b @ weights - 1.4, soft, c, y, policy=(0, 1, 2))
    move = [2, 0, 1]
    b = intervention_curve(
        lambda b: b @ weights[move] - 1.4, soft[:, move], c[:, move], y, policy=(1, 2, 0)
    )
    np.testing.assert_allclose(a.task_accuracy, b.task_accuracy)


def test_intervention_score_is_not_clipped():
    assert intervention_score(0.9, 0.95) == pytest.approx(-0.05)
    assert intervention_score(1.0, 0.699) == pytest.approx(0.301)


def test_misclassified_configurations_explain_the_score(toy):
    soft, c, y = toy
    errors = misclassified_configurations(any_of, None, c, y)
    assert list(errors.misclassified) == ["001", "010", "100"]
    single = np.mean(c.sum(1) == 1)
    assert sum(errors.misclassified.values()) == pytest.approx(single)
    assert errors.share.sum() == pytest.approx(1.0)
    curve = intervention_curve(any_of, soft, c, y)
    assert errors.intervened_task_accuracy == pytest.approx(curve.intervened_task_accuracy)
    assert intervention_score(1.0, curve) == pytest.approx(single)


def test_misclassified_configurations_of_a_logit_head_and_noisy_labels():
    c = np.array([[0, 0], [0, 1], [0, 1], [0, 1], [1, 1]])
    y = np.array([0, 1, 1, 0, 1])  # 01 is no function of the concepts: one row stays wrong
    errors = misclassified_configurations(
        lambda b: b.sum(1) + 1.0, [[-1.0, -1.0], [2.0, 2.0]], c, y
    )
    assert errors.bits == ("00", "01", "11")
    assert errors.misclassified == {}
    np.testing.assert_allclose(errors.wrong_share, [0.0, 0.2, 0.0])


def test_torch_heads_and_tensors_are_accepted(toy):
    torch = pytest.importorskip("torch")
    soft, c, y = toy

    def head(b):
        return torch.as_tensor(b).sum(dim=1, keepdim=True).requires_grad_() - 1.5

    ours = intervention_curve(head, torch.tensor(soft), torch.tensor(c), torch.tensor(y))
    np.testing.assert_array_equal(
        ours.task_accuracy, intervention_curve(majority, soft, c, y).task_accuracy
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kind": "logit"}, r"percentiles are needed for kind='logit'.*training set"),
        ({"kind": "logit", "percentiles": [[1.0, 2.0]]}, r"percentiles must have shape \(2, 3\)"),
        (
            {"kind": "logit", "percentiles": [[9.0] * 3, [1.0] * 3]},
            r"must hold the low value first",
        ),
        ({"percentiles": [[0.0] * 3, [1.0] * 3]}, r"percentiles belong to kind='logit'"),
        ({"kind": "embedding"}, r"c_pos and c_neg are needed for kind='embedding'"),
        ({"c_pos": np.zeros((500, 3, 2))}, r"c_pos and c_neg belong to kind='embedding'"),
        ({"kind": "fuzzy"}, r"kind must be one of hard, soft, logit, embedding, got 'fuzzy'"),
        ({"policy": "best"}, r"policy must be one of random, uncertainty, coop or a fixed order"),
        ({"policy": (0, 1)}, r"policy as a fixed order must list each of the 3 groups once"),
        ({"policy": ("c1", "c2", "x")}, r"policy names unknown groups \['x'\]; there are"),
        ({"groups": [[0, 1]]}, r"groups must put each of the 3 concepts.*missing: \[2\]"),
        ({"groups": [[0, 1], [1, 2]]}, r"groups must put each of the 3 concepts"),
        ({"competence": 2.0}, r"competence must lie between 0 and 1, got 2.0"),
        ({"kind": "hard", "policy": "uncertainty"}, r"c_hat is needed for policy='uncertainty'"),
        ({"policy": "coop", "c_hat": np.full((500, 3), 2.0)}, r"c_hat must hold probabilities"),
    ],
)
def test_error_texts(toy, options, text):
    soft, c, y = toy
    with pytest.raises(ValueError, match=text):
        intervention_curve(majority, soft, c, y, **options)


def test_more_error_texts(toy):
    soft, c, y = toy
    with pytest.raises(ValueError, match=r"bottleneck and c must agree on \(n, k\)"):
        intervention_curve(majority, soft[:, :2], c, y)
    with pytest.raises(ValueError, match=r"bottleneck is needed when head is a callable"):
        intervention_curve(majority, None, c, y)
    with pytest.raises(ValueError, match=r"head must be callable when a bottleneck is given"):
        intervention_curve(np.zeros((4, 500, 2)), soft, c, y)
    with pytest.raises(ValueError, match=r"precomputed logits must have shape .* = \(4, 500, l\)"):
        intervention_curve(np.zeros((3, 500, 2)), None, c, y)
    with pytest.raises(ValueError, match=r"head\(bottleneck\) must have shape \(n, l\)"):
        intervention_curve(lambda b: b[:3], soft, c, y)
    with pytest.raises(ValueError, match=r"reference_task_accuracy must be a share.*by 100"):
        intervention_score(99.0, 0.5)
    with pytest.raises(ValueError, match=r"intervened_task_accuracy must be a share"):
        intervention_score(0.9, -0.5)
    with pytest.raises(ValueError, match=r"at most 12 concepts to list configurations, got 13"):
        misclassified_configurations(any_of, None, np.zeros((2, 13), int), [0, 1])
    with pytest.raises(ValueError, match=r"values must have shape \(2, 3\), got \(1, 3\)"):
        misclassified_configurations(any_of, [[1.0] * 3], c, y)
    v = np.zeros((500, 2, 4))
    with pytest.raises(ValueError, match=r"c_pos and c must agree on the number of concepts"):
        intervention_curve(majority, v, c, y, kind="embedding", c_pos=v, c_neg=v)
