"""Nested random Fourier features: one factorisation gives what separate solves give."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from concept_audit.metrics.probes.base import ProbeData
from concept_audit.metrics.probes.rff import RffProbes, fourier_features


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    factors = np.stack([rng.integers(0, 6, 1200), rng.integers(0, 20, 1200)], 1)
    codes = factors / [5, 19] @ rng.normal(size=(2, 3)) + 0.02 * rng.normal(size=(1200, 3))
    return ProbeData.checked(codes, factors, ["categorical", "continuous"]).standardised()


def test_prefixes_are_smaller_maps():
    rng = np.random.default_rng(0)
    codes, frequencies = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    full = fourier_features(codes, frequencies)
    np.testing.assert_array_equal(full[:, :4], fourier_features(codes, frequencies[:2]))
    assert full[:, 0::2] ** 2 + full[:, 1::2] ** 2 == pytest.approx(np.ones((5, 4)))


def test_nested_ridge_equals_separate_solves(data):
    probes = RffProbes(features=(4, 16, 64), ridge=1e-3, sigma=0.3)
    fit = probes.fit(data, [0])
    frequencies = probes.frequencies(data, 0)
    n = len(data.train.codes)
    for t, m in enumerate((4, 16, 64)):
        own = fourier_features(data.train.codes, frequencies[: m // 2])
        alone = Ridge(alpha=1e-3 * n).fit(own, data.target(data.train, 1))
        theirs = alone.predict(fourier_features(data.test.codes, frequencies[: m // 2]))
        ours = fit.probe(0, t, 1)(data.test.codes)[:, 0]
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9)


def test_softmax_equals_logistic_regression(data):
    probes = RffProbes(features=(8, 32), softmax_ridge=1e-3, sigma=0.3, max_iterations=2000)
    fit = probes.fit(data, [0])
    frequencies = probes.frequencies(data, 0)
    n = len(data.train.codes)
    for t, m in enumerate((8, 32)):
        own = fourier_features(data.train.codes, frequencies[: m // 2])
        alone = LogisticRegression(C=1 / (1e-3 * n), tol=1e-8, max_iter=5000)
        alone.fit(own, data.train.factors[:, 0])
        theirs = alone.predict_proba(fourier_features(data.test.codes, frequencies[: m // 2]))
        assert np.abs(fit.probe(0, t, 0)(data.test.codes) - theirs).max() < 2e-3


def test_more_features_read_more(data):
    fit = RffProbes(features=(4, 16, 64, 128)).fit(data, [0, 1])
    scores = fit.test_scores.mean(axis=(0, 2))
    assert (np.diff(scores) > -0.01).all()
    assert scores[-1] > 0.9
    assert fit.capacities == pytest.approx(np.log([4, 16, 64, 128]))
    assert not (fit.test_scores[0] == fit.test_scores[1]).all()  # each seed has its frequencies


def test_mini_batches_come_close_to_the_exact_solution(data):
    pytest.importorskip("torch")
    options = {"features": (8, 32), "sigma": 0.3}
    exact = RffProbes(**options).fit(data, [0]).test_scores
    adam = RffProbes(**options, solver="adam", learning_rate=1e-2, epochs=60)
    fitted = adam.fit(data, [0])
    assert np.abs(fitted.test_scores - exact).max() < 0.1
    assert fitted.probe(0, 1, 0)(data.test.codes).sum(axis=1) == pytest.approx(
        np.ones(len(data.test.codes))
    )


def test_median_scale_does_not_depend_on_the_units_of_the_codes(data):
    frequencies = RffProbes(features=(8,), sigma="median").frequencies(data, 0)
    assert 0.01 < frequencies.std() < 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": (3,)}, r"features must be even numbers of at least 2, got \(3,\)"),
        ({"sigma": 0.0}, "sigma must be positive or 'median', got 0.0"),
        ({"solver": "cg"}, "solver must be 'auto', 'exact' or 'adam', got 'cg'"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        RffProbes(**options)
