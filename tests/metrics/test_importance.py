"""SAGE values: exact references, the sage package with the same draws, and sampling error."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from concept_audit.metrics import importance_matrix, sage_values
from concept_audit.metrics.importance import normalise
from concept_audit.metrics.probes.networks import NetworkWeights


def _softmax(logits):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def _case(case):
    """Rebuild a reference case from its recipe: codes, target, background, model, kind."""
    scope = {"np": np}
    for line in case["recipe"].split(" model ")[0].split(";"):
        if "=" in line:
            exec(line.strip(), scope)  # the recipe is part of the reference file
    if "softmax" in case["name"]:
        W = scope["W"]
        return scope["X"], scope["y"], scope["background"], lambda x: _softmax(x @ W), "categorical"
    w = scope["w"]
    return scope["X"], scope["y"], scope["background"], lambda x: x @ w, "continuous"


def test_exact_values_equal_the_reference(reference):
    cases = reference("dci_es")["sage"]["cases"]
    assert len(cases) == 5
    for case in cases:
        X, y, background, model, kind = _case(case)
        result = sage_values(model, X, y, kind=kind, background=background)
        assert result.method == "exact"
        np.testing.assert_allclose(result.values, case["exact"], atol=1e-9, err_msg=case["name"])
        np.testing.assert_allclose(
            normalise(result.values[:, None])[:, 0], case["R_column"], atol=1e-9
        )
        total = result.loss_empty - result.loss_full
        assert result.values.sum() == pytest.approx(total, abs=1e-10)
        if "loss_full" in case:
            assert result.loss_full == pytest.approx(case["loss_full"], abs=1e-9)
            assert result.loss_empty == pytest.approx(case["loss_empty"], abs=1e-9)


def test_sampled_values_lie_within_four_standard_errors(reference):
    for case in reference("dci_es")["sage"]["cases"]:
        X, y, background, model, kind = _case(case)
        result = sage_values(
            model, X, y, kind=kind, background=background, method="permutation", threshold=0.05
        )
        exact = np.array(case["exact"])
        assert result.converged
        assert (np.abs(result.values - exact) <= 4 * result.standard_error + 1e-12).all()
        stored = np.array(case["package_values"])
        assert (np.abs(stored - exact) <= 4 * np.array(case["package_std"]) + 1e-12).all()


def test_linear_closed_form_equals_enumeration():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 5))
    y = X @ rng.normal(size=5) + rng.normal(size=200)
    model = LinearRegression().fit(X, y)
    closed = sage_values(model, X, y)
    assert closed.method == "linear"
    exact = sage_values(model, X, y, method="exact")
    np.testing.assert_allclose(closed.values, exact.values, atol=1e-10)


@pytest.fixture
def network():
    rng = np.random.default_rng(1)

    def layer(n_in, n_out):
        return (
            rng.normal(size=(n_in, n_out)).astype(np.float32) / np.sqrt(n_in),
            rng.normal(size=n_out).astype(np.float32),
        )

    def build(kind, n_outputs, n_inputs=5):
        return NetworkWeights(kind, (layer(n_inputs, 16), layer(16, 16), layer(16, n_outputs)))

    return build


@pytest.mark.parametrize(("kind", "n_outputs"), [("categorical", 4), ("continuous", 1)])
def test_networks_take_the_fast_way_to_the_same_values(network, kind, n_outputs):
    rng = np.random.default_rng(0)
    net = network(kind, n_outputs)
    X = rng.normal(size=(60, 5))
    y = rng.integers(0, 4, 60) if kind == "categorical" else rng.normal(size=60)
    for method in ("exact", "permutation"):
        fast = sage_values(net, X, y, kind=kind, method=method, max_permutations=512)
        slow = sage_values(lambda x: net(x), X, y, kind=kind, method=method, max_permutations=512)
        np.testing.assert_allclose(fast.values, slow.values, atol=1e-5)


def test_equal_to_the_sage_package_with_the_same_draws(network):
    sage = pytest.importorskip("sage")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 5))
    for kind, loss, y in (
        ("continuous", "mse", rng.normal(size=100)),
        ("categorical", "cross entropy", rng.integers(0, 4, 100)),
    ):
        net = network(kind, 1 if kind == "continuous" else 4)
        model = (lambda x, net=net: net(x)[:, 0]) if kind == "continuous" else net
        estimator = sage.PermutationEstimator(
            sage.MarginalImputer(lambda x, model=model: model(x), X[:32]), loss, random_state=3
        )
        theirs = estimator(X, y, batch_size=64, thresh=0.1, bar=False)
        ours = sage_values(
            model,
            X,
            y,
            kind=kind,
            method="permutation",
            antithetic=False,
            adjust=False,
            batch_size=64,
            threshold=0.1,
            seed=3,
        )
        np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(ours.standard_error, theirs.std, rtol=1e-4, atol=1e-6)


def test_more_than_twelve_codes_are_sampled():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 15))
    y = X[:, 0] + 0.5 * X[:, 1]
    result = sage_values(lambda x: x[:, 0] + 0.5 * x[:, 1], X, y)
    assert result.method == "permutation"
    assert result.n_permutations > 0
    assert (np.abs(result.values[2:]) < 1e-12).all()
    assert result.values[0] > result.values[1] > 0
    limited = sage_values(lambda x: x[:, 0], X, y, threshold=1e-9, max_permutations=256)
    assert not limited.converged
    assert limited.n_permutations == 256


def test_antithetic_pairs_remove_the_noise_of_the_order():
    # Rows are alike, so all the noise comes from the order; a product gives all of its value to the
    # code that comes last, and a pair of opposite orders splits it evenly.
    X, background = np.ones((50, 4)), np.zeros((1, 4))
    options = {
        "background": background,
        "method": "permutation",
        "threshold": 1e-9,
        "max_permutations": 512,
    }

    def product(x):
        return x[:, 0] * x[:, 1]

    plain = sage_values(product, X, np.ones(50), antithetic=False, adjust=False, **options)
    paired = sage_values(product, X, np.ones(50), adjust=False, **options)
    assert plain.n_permutations == 512
    assert plain.standard_error[0] > 0.01
    assert paired.standard_error.max() < 1e-12
    assert paired.values == pytest.approx([0.5, 0.5, 0, 0])


def test_adjustment_lowers_the_error_and_keeps_the_value():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    w = rng.normal(size=6)
    y = X @ w + 0.3 * rng.normal(size=300)

    def model(x):
        return np.tanh(x @ w) + 0.2 * x[:, 0] * x[:, 1]

    exact = sage_values(model, X, y, method="exact").values
    options = {"method": "permutation", "threshold": 1e-9, "max_permutations": 2048}
    plain = sage_values(model, X, y, adjust=False, **options)
    ours = sage_values(model, X, y, **options)
    assert ours.standard_error.mean() < 0.5 * plain.standard_error.mean()
    runs = [sage_values(model, X, y, **options | {"seed": s}) for s in range(20)]
    # Over 20 seeds and 6 codes the standardised errors have mean square 1 (sd 0.13).
    z = np.array([(r.values - exact) / r.standard_error for r in runs])
    assert 0.5 < np.mean(z**2) < 1.6


def test_groups_are_players_of_their_own():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4))
    w = np.array([1.0, 2.0, 0.0, 0.5])
    result = sage_values(lambda x: x @ w, X, X @ w, groups=[0, 0, 1, 2])
    assert result.values.shape == (3,)
    assert result.values[1] == pytest.approx(0, abs=1e-12)
    assert result.values.sum() == pytest.approx(result.loss_empty - result.loss_full, abs=1e-10)


def test_rows_can_be_limited_and_the_error_says_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    y = X @ [1.0, 1.0, 0.0]
    everything = sage_values(lambda x: x[:, 0] + x[:, 1], X, y, background=X[:32])
    some = sage_values(lambda x: x[:, 0] + x[:, 1], X, y, background=X[:32], max_rows=200)
    assert some.n_samples == 200
    assert everything.standard_error.max() == 0
    assert (np.abs(some.values - everything.values) <= 4 * some.standard_error + 1e-12).all()


def test_column_order_only_permutes_the_values():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    base = sage_values(lambda x: np.sin(x[:, 0]) + x[:, 1] * x[:, 2], X, y).values
    for order in itertools.islice(itertools.permutations(range(4)), 5, 24, 6):
        back = np.argsort(order)
        moved = sage_values(
            lambda x, back=back: np.sin(x[:, back[0]]) + x[:, back[1]] * x[:, back[2]],
            X[:, order],
            y,
        )
        np.testing.assert_allclose(moved.values, base[list(order)], atol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"background": 0}, "background must be at least one row, got 0"),
        ({"background": np.ones((3, 2))}, r"background must have L = 4 columns .* got \(3, 2\)"),
        ({"max_rows": 1}, "max_rows must be at least 2, got 1"),
        ({"method": "linear"}, "method='linear' needs a linear probe of a continuous factor"),
        ({"method": "kernel"}, "method must be 'auto', 'exact', 'permutation' or 'linear'"),
        (
            {"groups": [0, 2, 2, 2]},
            r"groups must give each of the 4 codes a group 0, 1, .. without",
        ),
        ({"kind": "class"}, "kinds must be 'categorical' or 'continuous', got 'class'"),
    ],
)
def test_errors(options, message):
    X = np.random.default_rng(0).normal(size=(20, 4))
    with pytest.raises(ValueError, match=message):
        sage_values(lambda x: x[:, 0], X, X[:, 0], **options)


def test_errors_of_shape_and_kind():
    X = np.random.default_rng(0).normal(size=(20, 25))
    with pytest.raises(
        ValueError, match=r"method='exact' enumerates 2\^L coalitions, too many for 25"
    ):
        sage_values(lambda x: x[:, 0], X, X[:, 0], method="exact")
    with pytest.raises(ValueError, match="codes and target must agree on the number of rows"):
        sage_values(lambda x: x[:, 0], X, X[:19, 0])
    with pytest.raises(ValueError, match=r"must return \(n,\) or \(n, outputs\) for n = "):
        sage_values(lambda x: x[:3, 0], X, X[:, 0])
    with pytest.raises(TypeError, match="probe must be callable or have predict, got int"):
        sage_values(3, X, X[:, 0])


def test_matrix_by_weights_gini_and_sage():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    z = np.stack([X[:, 0] + 2 * X[:, 1], X[:, 2]], axis=1)
    probes = [LinearRegression().fit(X, z[:, j]) for j in range(2)]
    weights = importance_matrix(probes, method="weights")
    np.testing.assert_allclose(weights.R, [[1 / 3, 0], [2 / 3, 0], [0, 1]], atol=1e-10)
    by_sage = importance_matrix(probes, X, z)
    assert by_sage.R.sum(axis=0) == pytest.approx([1, 1])
    assert by_sage.R[2, 1] == pytest.approx(1, abs=1e-6)
    from sklearn.ensemble import RandomForestRegressor

    forests = [RandomForestRegressor(10, random_state=0).fit(X, z[:, j]) for j in range(2)]
    gini = importance_matrix(forests, method="gini")
    assert gini.R[2, 1] > 0.9
    assert gini.method == "gini"
    classifier = LogisticRegression().fit(X, X[:, 0] > 0)
    mixed = importance_matrix(
        [classifier, probes[1]],
        X,
        np.stack([X[:, 0] > 0, z[:, 1]], axis=1),
        ["categorical", "continuous"],
    )
    assert mixed.R[0, 0] > 0.8


def test_matrix_errors():
    X = np.random.default_rng(0).normal(size=(20, 2))
    probe = LinearRegression().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="probes must hold one probe per factor, got none"):
        importance_matrix([])
    with pytest.raises(ValueError, match="method='sage' needs codes and factors"):
        importance_matrix([probe])
    with pytest.raises(ValueError, match=r"factors must have one column per probe \(1\), got"):
        importance_matrix([probe], X, X)
    with pytest.raises(ValueError, match="method must be 'sage', 'gini' or 'weights', got 'shap'"):
        importance_matrix([probe], X, X[:, :1], method="shap")
    with pytest.raises(TypeError, match="feature_importances_, which LinearRegression lacks"):
        importance_matrix([probe], method="gini")
    with pytest.raises(TypeError, match="method='weights' needs a linear probe, got function"):
        importance_matrix([lambda x: x], method="weights")
