"""One deep forest read at every depth equals, or follows, forests grown to each depth."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from concept_audit.metrics import completeness, disentanglement, explicitness
from concept_audit.metrics.probes import random_forest
from concept_audit.metrics.probes.base import ProbeData, Split
from concept_audit.metrics.probes.random_forest import RandomForestProbes, read_at_depths


@pytest.fixture(scope="module")
def reference_data():
    """Synthetic set of the reference case `rf_end_to_end`."""
    rng = np.random.default_rng(20221101)
    n, L = 1500, 4
    z = np.stack([rng.integers(0, 3, n), rng.integers(0, 6, n), rng.integers(0, 40, n)], 1)
    M = rng.normal(size=(3, L))
    codes = np.float32(np.tanh(z / [2, 5, 39] @ M) + 0.02 * rng.normal(size=(n, L)))
    train, test = Split(codes[:1000], z[:1000]), Split(codes[1000:], z[1000:])
    return ProbeData(train, test, test, ("categorical", "categorical", "continuous"), (3, 6, 40))


@pytest.mark.parametrize("max_features", ["sqrt", None])
def test_equal_to_scikit_learn_at_depth_one_and_at_full_depth(reference_data, max_features):
    data = reference_data
    probes = RandomForestProbes(
        n_trees=10, depths=(1, 32), max_features=max_features, regression_max_features=max_features
    )
    for factor in range(3):
        cut = probes.read(data, factor, data.test.codes, seed=3)
        for t, depth in enumerate((1, 32)):
            fitted = probes.grow(data, factor, depth, seed=3)
            if data.kinds[factor] == "categorical":
                expected = fitted.predict_proba(data.test.codes)
            else:
                expected = fitted.predict(data.test.codes)[:, None]
            np.testing.assert_allclose(cut.predictions[t], expected, atol=1e-12)
            np.testing.assert_allclose(cut.importances[t], fitted.feature_importances_, atol=1e-12)


def test_cut_forests_follow_refitted_ones(reference_data):
    """Equal in distribution: means over seeds agree, single forests need not."""
    data = reference_data
    depths = (2, 4, 8)
    scores = {}
    for mode in ("truncate", "refit"):
        probes = RandomForestProbes(n_trees=10, depths=depths, mode=mode)
        scores[mode] = probes.fit(data, range(10)).test_scores.mean(axis=0)
    assert np.abs(scores["truncate"] - scores["refit"]).max() < 0.02


def test_end_to_end_against_the_reference(reference_data, reference):
    case = reference("dci_es")["rf_end_to_end"]
    given = np.array(case["test_scores"])
    assert given.mean(axis=1) == pytest.approx(case["I_per_depth"], abs=1e-9)
    assert int(given.mean(axis=1).argmax()) == case["best_index"]
    R = np.array(case["R_best"])
    assert disentanglement(R).mean == pytest.approx(case["D"], abs=1e-9)
    assert completeness(R).mean == pytest.approx(case["C"], abs=1e-9)
    e = explicitness((case["depths"], 1 - given), capacity_range=(1, 32), baseline=case["baseline"])
    assert e.per_factor == pytest.approx(case["E_per_factor"], abs=1e-9)
    assert e.mean == pytest.approx(case["E"], abs=1e-9)
    for mode in ("truncate", "refit"):
        depths = tuple(case["depths"]) if mode == "truncate" else (4, 16)
        fit = RandomForestProbes(depths=depths, mode=mode).fit(reference_data, [0])
        expected = given if mode == "truncate" else given[[3, 7]]
        assert np.abs(fit.test_scores[0].mean(axis=1) - expected.mean(axis=1)).max() < 0.02
        best = fit.importances(0, len(depths) - 2 if mode == "truncate" else 1)
        assert np.abs(best - R).max() < 0.02


def test_compiled_and_level_by_level_walks_agree(reference_data, monkeypatch):
    data = reference_data
    for model in (RandomForestClassifier(5, random_state=0), RandomForestRegressor(5)):
        model.fit(data.train.codes, data.train.factors[:, 1])
        q = 6 if hasattr(model, "classes_") else 1
        monkeypatch.setattr(random_forest, "_compiled", [])
        fast = read_at_depths(model, data.test.codes, (1, 3, 40), q)
        monkeypatch.setattr(random_forest, "_compiled", [random_forest._walk_by_level])
        slow = read_at_depths(model, data.test.codes, (1, 3, 40), q)
        np.testing.assert_allclose(fast.predictions, slow.predictions, atol=1e-14)


def test_importances_of_every_depth_sum_to_one(reference_data):
    fit = RandomForestProbes(n_trees=5, depths=(1, 2, 9)).fit(reference_data, [0, 1])
    for s in range(2):
        for t in range(3):
            assert fit.importances(s, t).sum(axis=0) == pytest.approx(np.ones(3))


def test_a_class_without_training_rows_gets_probability_zero():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = np.where(x[:, 0] > 0, 2, 0)
    forest = RandomForestClassifier(3, random_state=0).fit(x, y)
    reading = read_at_depths(forest, x, (2,), 4)
    assert reading.predictions.shape == (1, 60, 4)
    assert reading.predictions[0, :, [1, 3]].max() == 0
    assert (reading.predictions[0].argmax(axis=1) == y).mean() > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "cut"}, "mode must be 'truncate' or 'refit', got 'cut'"),
        ({"depths": (0, 1)}, r"depths must hold depths of at least 1, got \(0, 1\)"),
        ({"n_trees": 0}, "n_trees must be at least 1, got 0"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        RandomForestProbes(**options)


def test_a_split_without_gain_does_not_make_an_importance_negative():
    # Two splits: the root gains 1, its left child "gains" -1e-17 by rounding.
    tree = SimpleNamespace(
        children_left=np.array([1, 3, -1, -1, -1]),
        children_right=np.array([2, 4, -1, -1, -1]),
        feature=np.array([0, 1, -2, -2, -2]),
        weighted_n_node_samples=np.array([4.0, 2.0, 2.0, 1.0, 1.0]),
        impurity=np.array([0.25, 0.0, 0.0, 1e-17, 0.0]),
    )
    found = random_forest._importances_at(tree, np.array([1, 2]), 2)
    assert found.tolist() == [[1.0, 0.0], [1.0, 0.0]]
