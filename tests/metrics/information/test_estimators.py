"""Estimators of mutual information: closed forms, reference values, scikit-learn, fallbacks."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.special import digamma
from sklearn.feature_selection._mutual_info import _compute_mi_cc, _compute_mi_cd
from sklearn.metrics import mutual_info_score
from sklearn.neighbors import KDTree, NearestNeighbors

from concept_audit.metrics import mutual_information
from concept_audit.metrics.information import _strips, ksg, plugin
from concept_audit.metrics.information.ksg import (
    ksg_information,
    ksg_pairs,
    ksg_vector_pairs,
    reach_counts,
    self_information_closed_form,
    sort_columns,
)
from concept_audit.metrics.information.ross import ross_scalars, ross_vector
from reference import inputs

PAIR = np.array([[0, 1]])


def columns_of(kind: str, n: int, seed: int = 0) -> np.ndarray:
    """Pairs of columns with the ties that concept outputs have."""
    z = np.random.default_rng(seed).standard_normal((n, 2))
    z[:, 1] = 0.5 * z[:, 0] + 0.8 * z[:, 1]
    return {
        "logit": lambda: 4 * z,
        "soft": lambda: 1 / (1 + np.exp(-4 * z)),
        "saturated": lambda: 1 / (1 + np.exp(-40 * z)),
        "saturated_float32": lambda: (1 / (1 + np.exp(-10 * z))).astype(np.float32).astype(float),
        "rounded": lambda: np.round(z, 1),
        "near_equal": lambda: np.column_stack([z[:, 0], z[:, 0] + 1e-7 * z[:, 1]]),
        "equal": lambda: np.column_stack([z[:, 0], z[:, 0]]),
    }[kind]()


KINDS = ["logit", "soft", "saturated", "saturated_float32", "rounded", "near_equal", "equal"]


@pytest.mark.parametrize("numba", ["1", "0"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [7, 100, 1500])
def test_ksg_equals_scikit_learn_without_jitter(kind, n, numba, monkeypatch):
    monkeypatch.setenv("CONCEPT_AUDIT_NUMBA", numba)
    x, y = columns_of(kind, n).T
    for k in (1, 3, 5):
        ours = max(0.0, ksg_information(x, y, n_neighbors=k))
        assert ours == pytest.approx(_compute_mi_cc(x, y, k), abs=1e-12)


@pytest.mark.parametrize("numba", ["1", "0"])
@pytest.mark.parametrize("kind", KINDS)
def test_ross_equals_scikit_learn_without_jitter(kind, numba, monkeypatch):
    monkeypatch.setenv("CONCEPT_AUDIT_NUMBA", numba)
    x, other = columns_of(kind, 1200, seed=3).T
    y = (other > 0).astype(int) + (other > 2.0)
    y[0] = 77  # a label seen once is dropped, a label seen twice has one neighbour
    y[1] = y[2] = 78
    for k in (1, 3, 5):
        ours = max(0.0, ross_scalars(sort_columns(x[:, None]), y, n_neighbors=k)[0])
        assert ours == pytest.approx(_compute_mi_cd(x, y, k), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_counts_equal_the_trees_to_the_integer(kind):
    x = columns_of(kind, 900, seed=5)[:, 0]
    values = np.sort(x)
    radius = NearestNeighbors(n_neighbors=3).fit(values[:, None]).kneighbors()[0][:, -1]
    radius = np.nextafter(radius, 0.0)
    trees = KDTree(values[:, None]).query_radius(values[:, None], radius, count_only=True)
    np.testing.assert_array_equal(reach_counts(values, radius), trees)
    weights = np.random.default_rng(0).random(values.size + 1)  # tell every count from every other
    found = _strips._digamma_sum(values, radius, weights)
    assert found == pytest.approx(weights[trees].sum(), rel=1e-12)


@pytest.mark.parametrize("n", [2, 63, 64, 65, 700])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 2.0])
def test_compiled_counts_reach_both_ends_of_a_column(n, share):
    """Blocks that end early, radii of all sizes in one block, and radii past either end."""
    rng = np.random.default_rng(n)
    values = np.sort(np.round(rng.random(n), 3))
    radius = share * rng.random(n) ** 4
    weights = rng.random(n + 1)
    counts = (np.abs(values[:, None] - values) <= radius[:, None]).sum(axis=1)
    found = _strips._digamma_sum(values, radius, weights)
    assert found == pytest.approx(weights[counts].sum(), rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_strips_of_any_width_find_the_same_neighbours(kind, monkeypatch):
    columns = sort_columns(columns_of(kind, 333, seed=7))
    found = []
    for shift in (1, 3, 6, 9):
        monkeypatch.setattr(ksg, "_strip_shift", lambda n, shift=shift: shift)
        found.append(ksg_pairs(columns, PAIR, n_neighbors=6)[0])
    assert len(set(found)) == 1
    monkeypatch.setenv("CONCEPT_AUDIT_NUMBA", "0")
    assert found[0] == pytest.approx(ksg_pairs(columns, PAIR, n_neighbors=6)[0], abs=1e-12)


def test_a_radius_steps_to_the_next_float_toward_zero():
    radius = np.array([0.0, 5e-324, 1e-310, 1.0, 1 + 2**-52, 1e300, np.inf])
    expected = np.nextafter(radius, 0.0)
    _strips._step_toward_zero(radius)
    np.testing.assert_array_equal(radius, expected)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.float64])
def test_labels_are_names_not_numbers(dtype):
    rng = np.random.default_rng(0)
    columns = sort_columns(rng.standard_normal((100, 2)))
    y = rng.integers(0, 3, 100)
    y[0] = 3  # seen once: dropped
    expected = ross_scalars(columns, y)
    with_gaps = np.array([7, 0, 90, 5])[y]
    np.testing.assert_array_equal(ross_scalars(columns, y.astype(dtype)), expected)
    np.testing.assert_allclose(ross_scalars(columns, with_gaps.astype(dtype)), expected, atol=1e-13)
    if np.dtype(dtype).kind != "u":
        negative = (y - 2).astype(dtype)
        np.testing.assert_array_equal(ross_scalars(columns, negative), expected)


def test_the_table_shared_by_all_scores_cannot_be_changed():
    table = ksg.digamma_table(40)
    np.testing.assert_array_equal(table[1:], digamma(np.arange(1, 41)))
    with pytest.raises(ValueError, match="read-only"):
        table[3] = 0.0


def sklearn_vectors(x: np.ndarray, y: np.ndarray, k: int = 3) -> float:
    joint = NearestNeighbors(metric="chebyshev", n_neighbors=k).fit(np.hstack([x, y]))
    radius = np.nextafter(joint.kneighbors()[0][:, -1], 0.0)
    a, b = (
        KDTree(side, metric="chebyshev").query_radius(side, radius, count_only=True)
        for side in (x, y)
    )
    return digamma(len(x)) + digamma(k) - digamma(a).mean() - digamma(b).mean()


@pytest.mark.parametrize(("n", "d"), [(300, 2), (400, 5), (500, 16), (300, 20)])
@pytest.mark.parametrize("way", ["numba", "numpy", "torch"])
def test_vectors_equal_scikit_learn_with_exact_trees(n, d, way, monkeypatch):
    monkeypatch.setenv("CONCEPT_AUDIT_NUMBA", "1" if way == "numba" else "0")
    device = "cpu" if way == "torch" else None
    rng = np.random.default_rng(d)
    z = rng.standard_normal((n, 1))
    x, y = (z + rng.standard_normal((n, d)) for _ in range(2))
    if d == 5:
        x = np.round(x, 1)
    ours = ksg_vector_pairs([x, y], PAIR, device=device)[0]
    assert ours == pytest.approx(sklearn_vectors(x, y), abs=1e-12)

    labels = (z[:, 0] > 0).astype(int)
    labels[0] = 5
    kept = labels != 5
    radius = np.empty(n)
    for label in (0, 1):
        own = NearestNeighbors(n_neighbors=3, algorithm="kd_tree").fit(x[labels == label])
        radius[labels == label] = np.nextafter(own.kneighbors()[0][:, -1], 0.0)
    counts = KDTree(x[kept]).query_radius(x[kept], radius[kept], count_only=True)
    members = np.bincount(labels[kept])
    expected = (
        digamma(kept.sum())
        + digamma(3)
        - digamma(members[labels[kept]]).mean()
        - digamma(counts).mean()
    )
    both = np.column_stack([labels, rng.integers(0, 3, n)])
    ours = ross_vector(x, both, device=device)
    assert ours[0] == pytest.approx(expected, abs=1e-12)
    assert ours[1] == pytest.approx(ross_vector(x, both[:, 1:], device=device)[0], abs=1e-13)


def test_many_pairs_share_threads_without_changing_a_digit(monkeypatch):
    matrix = np.random.default_rng(0).standard_normal((200, 12))
    pairs = np.column_stack(np.triu_indices(12, 1))
    values = {}
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        values[threads] = ksg_pairs(sort_columns(matrix), pairs)
    np.testing.assert_array_equal(values["1"], values["2"])
    alone = [ksg_information(matrix[:, i], matrix[:, j]) for i, j in pairs]
    np.testing.assert_allclose(values["1"], alone, atol=1e-13)


def test_gauss_reference(reference):
    for row in reference("leakage")["cases"]["gauss_1d"]["rows"]:
        x, y = inputs.gauss_1d(row)
        inputs.verify(x, row["check_x"])
        for k in (3, 5):
            ours = max(0.0, ksg_information(x, y, n_neighbors=k))
            assert ours == pytest.approx(row[f"compute_mi_cc_k{k}"], abs=1e-6)
        assert ksg_information(x, x) == pytest.approx(row["self_mi_no_noise_k3"], abs=1e-9)
        closed = self_information_closed_form(row["n"], 3)
        assert closed == pytest.approx(row["psi_n_minus_psi_4"], abs=1e-12)
        rng = np.random.default_rng(0)  # two independent jitters: the estimator agrees
        noisy = [x + 1e-10 * rng.standard_normal(x.size) for _ in range(2)]
        assert ksg_information(*noisy) == pytest.approx(closed, abs=1e-9)


def test_mixture_reference(reference):
    for row in reference("leakage")["cases"]["mixture_discrete_continuous"]["rows"]:
        values, labels = inputs.mixture(row)
        if "check_c" in row:
            inputs.verify(values, row["check_c"])
        for k in (3, 5):
            ours = max(0.0, ross_scalars(sort_columns(values[:, None]), labels, n_neighbors=k)[0])
            assert ours == pytest.approx(row[f"compute_mi_cd_k{k}"], abs=1e-6)


def test_mutual_information_matches_the_bivariate_normal():
    rho = 0.8
    xy = np.random.default_rng(0).multivariate_normal([0, 0], [[1, rho], [rho, 1]], size=4000)
    exact = -0.5 * np.log(1 - rho**2)
    assert abs(mutual_information(xy[:, 0], xy[:, 1], n_neighbors=3) - exact) < 0.05


@pytest.mark.parametrize("d", [1, 2, 4, 16])
def test_independent_vectors_share_nothing(d):
    """The published code counts rows times dimensions as samples and scores about ln d."""
    values = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal((2000, d)), rng.standard_normal((2000, d))
        values.append(ksg_vector_pairs([x, y], PAIR)[0])
    assert abs(np.mean(values)) < 0.05


def test_perfectly_separable_classes_carry_the_whole_entropy_in_many_dimensions():
    """Rounded distances above 15 dimensions give 0.58 instead of ln 2."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 300)
    x = rng.standard_normal((600, 16)) + 50 * y[:, None]
    exact = digamma(600) - digamma(300)  # ln 2 and the estimator's own 1 / n term
    assert mutual_information(x, y) == pytest.approx(exact, abs=1e-9)


def test_plugin_matches_a_table_counted_by_hand_and_scikit_learn():
    x, y = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    by_hand = 0.25 * np.log(2) + 0.25 * np.log(2 / 3) + 0.5 * np.log(4 / 3)
    assert mutual_information(x, y) == pytest.approx(by_hand, abs=1e-12)
    symbols = np.random.default_rng(0).integers(0, 4, (300, 3))
    matrix = plugin.information_matrix(symbols)
    for i in range(3):
        for j in range(3):
            expected = mutual_info_score(symbols[:, i], symbols[:, j])
            assert matrix[i, j] == pytest.approx(expected, abs=1e-12)
            assert plugin.information(symbols[:, i], symbols[:, j]) == pytest.approx(
                expected, abs=1e-12
            )
    wide = plugin.as_symbols(np.random.default_rng(1).random(1500))
    many = np.column_stack([wide, wide[::-1]])  # too wide for one joint table
    assert plugin.information_matrix(many)[0, 1] == pytest.approx(np.log(1500), abs=1e-9)


def test_the_kind_is_that_of_each_variable():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 800)
    soft = y + 0.3 * rng.standard_normal(800)
    assert mutual_information(soft, y) == pytest.approx(mutual_information(y, soft), abs=1e-12)
    as_float = mutual_information(y.astype(np.float32), y > 0)
    assert as_float == pytest.approx(plugin.entropy(y), abs=1e-12)
    declared = mutual_information(y.astype(float), soft, x_discrete=False, y_discrete=False)
    assert declared == pytest.approx(mutual_information(y, soft), abs=0.06)
    symbols = mutual_information(np.round(soft, 1), y, x_discrete=True)
    assert symbols == pytest.approx(mutual_info_score(np.round(soft, 1).astype(str), y), abs=1e-12)
    rows = np.column_stack([y, 1 - y])
    assert mutual_information(rows, y) == pytest.approx(plugin.entropy(y), abs=1e-12)


def test_a_constant_side_shares_nothing():
    x = np.random.default_rng(0).standard_normal(50)
    assert mutual_information(x, np.full(50, 0.3)) == 0.0
    assert mutual_information(x, np.zeros(50)) == 0.0
    assert mutual_information(np.full((50, 3), 0.5), x > 0) == 0.0


def test_float32_saturation_is_survived_by_the_jitter():
    """Without noise the ties of float32 sigmoids push the score to 0."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal(2000)
    y = (z + rng.standard_normal(2000) > 0).astype(int)
    soft = (1 / (1 + np.exp(-10 * z))).astype(np.float32)
    assert mutual_information(soft, y) == pytest.approx(mutual_information(z, y), abs=0.02)


def test_same_seed_same_digits_and_inputs_unchanged():
    rng = np.random.default_rng(0)
    x = np.round(rng.standard_normal(400), 1) + 0.05
    y = x + np.round(rng.standard_normal(400), 1)
    kept = x.copy(), y.copy()
    assert mutual_information(x, y, seed=3) == mutual_information(x, y, seed=3)
    assert mutual_information(x, y, seed=3) != mutual_information(x, y, seed=4)
    np.testing.assert_array_equal(kept, (x, y))
    x.flags.writeable = False
    assert mutual_information(x, y, seed=3) == mutual_information(list(x), y.copy(), seed=3)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (([0.1, np.nan], [0, 1]), {}, ValueError, r"x must be finite, got 1 NaN or infinite of 2"),
        (([0.1] * 9, [0] * 8), {}, ValueError, "x and y must agree on the number of rows"),
        ((np.zeros((2, 2, 2)), [0, 1]), {}, ValueError, r"x must have shape \(n,\) or \(n, d\)"),
        (([0.1, 0.2, 0.3], [0, 1, 1]), {}, ValueError, "needs at least 5 samples, got 3"),
        ((np.arange(9) / 7, np.arange(9)), {}, ValueError, "9 distinct labels in 9 rows"),
        (([0, 1], [0, 1]), {"n_neighbors": 0}, ValueError, "n_neighbors must be at least 1, got 0"),
        (([0, 1], [0, 1]), {"n_neighbors": 2.5}, TypeError, "n_neighbors must be an int"),
        (([0, 1], [0, 1]), {"seed": -1}, ValueError, "seed must not be negative, got -1"),
        (([0, 1], [0, 1]), {"seed": "a"}, TypeError, "seed must be an int, got str"),
        (([0, 1], [0, 1]), {"x_discrete": 3}, TypeError, "x_discrete must be True, False or None"),
        ((["a", "b"], [0, 1]), {}, TypeError, "x must hold numbers"),
    ],
)
def test_messages(arguments, options, error, words):
    with pytest.raises(error, match=words):
        mutual_information(*arguments, **options)


def test_device_without_torch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    x = np.random.default_rng(0).standard_normal((20, 2))
    with pytest.raises(ImportError, match=r"concept-audit\[torch\]"):
        mutual_information(x, x[::-1], device="cpu")


def test_without_numba_the_numbers_stay(monkeypatch):
    x, y = columns_of("soft", 300).T
    with_numba = mutual_information(x, y), mutual_information(x, y > 0.5)
    monkeypatch.setattr("concept_audit.metrics.information._compiled.find_spec", lambda name: None)
    without = mutual_information(x, y), mutual_information(x, y > 0.5)
    np.testing.assert_allclose(with_numba, without, atol=1e-12)


def test_the_first_call_says_that_it_compiles(caplog, tmp_path):
    from concept_audit.metrics.information import _compiled

    class Kernel:
        class stats:
            cache_path = str(tmp_path)

    module = type(_strips)("concept_audit.metrics.information._strips")
    module.__all__ = ["kernel"]
    module.kernel = Kernel
    _compiled._say_when_compiling(module)
    assert "once" in caplog.text
    caplog.clear()
    (tmp_path / "_strips.kernel-1.py311.nbi").touch()
    _compiled._say_when_compiling(module)
    assert not caplog.text
