"""D, C, I, S: reference values, closed forms, properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from concept_audit.metrics import (
    completeness,
    disentanglement,
    informativeness,
    representation_size,
)
from concept_audit.metrics.importance import normalise
from concept_audit.metrics.probes.base import (
    ProbeData,
    baseline_loss,
    factor_score,
    grid_variance,
    on_scale,
)

matrices = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6),
    elements=st.floats(0, 1),
)


def _matrix(case):
    if "R" in case:
        return np.array(case["R"], dtype=float)
    scope = {"np": np}
    for line in case["recipe"].split(";"):
        exec(line.strip(), scope)  # the recipe is part of the reference file
    return scope["R"]


def test_reference_values(reference):
    cases = reference("dci_es")["dci"]["cases"]
    assert len(cases) == 22
    for case in cases:
        R = _matrix(case)
        D, C = disentanglement(R), completeness(R)
        for ours, theirs in (
            (D.mean, case["D"]),
            (C.mean, case["C"]),
            (D.per_code, case.get("D_per_code")),
            (C.per_factor, case.get("C_per_factor")),
        ):
            if theirs is None and np.ndim(ours):
                continue  # per-row values are stored for small matrices only
            theirs = np.array(theirs, dtype=float)
            np.testing.assert_allclose(ours, theirs, atol=1e-9, err_msg=case["name"])


def test_permutation_matrix_is_perfect_and_uniform_is_worst():
    R = np.eye(4)[[2, 0, 3, 1]]
    assert disentanglement(R).mean == pytest.approx(1, abs=1e-9)
    assert completeness(R).mean == pytest.approx(1, abs=1e-9)
    R = np.full((5, 3), 0.2)
    assert disentanglement(R).mean == pytest.approx(0, abs=1e-12)
    assert completeness(R).mean == pytest.approx(0, abs=1e-12)


def test_two_by_two_by_hand():
    R = np.array([[0.75, 0.0], [0.25, 1.0]])
    entropy = -(0.2 * np.log2(0.2) + 0.8 * np.log2(0.8))
    d = disentanglement(R)
    assert d.per_code == pytest.approx([1, 1 - entropy], abs=1e-8)
    assert d.weights == pytest.approx([0.75 / 2, 1.25 / 2])
    assert d.mean == pytest.approx(0.375 + 0.625 * (1 - entropy), abs=1e-8)
    entropy = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25))
    assert completeness(R).mean == pytest.approx((1 - entropy + 1) / 2, abs=1e-8)


@settings(max_examples=200, deadline=None)
@given(matrices, st.randoms(use_true_random=False))
def test_order_of_codes_and_factors_does_not_matter(R, random):
    rows, columns = list(range(R.shape[0])), list(range(R.shape[1]))
    random.shuffle(rows)
    random.shuffle(columns)
    other = R[np.ix_(rows, columns)]
    assert disentanglement(other).mean == pytest.approx(disentanglement(R).mean, abs=1e-9)
    assert completeness(other).mean == pytest.approx(completeness(R).mean, abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(matrices)
def test_range_and_transposition(R):
    D = disentanglement(R)
    assert -1e-9 <= D.mean <= 1
    assert D.weights.sum() == pytest.approx(1)
    assert completeness(R.T).mean == D.mean


def test_duplicated_code_leaves_D_and_lowers_C():
    R = np.random.default_rng(0).random((4, 3)) ** 3
    R /= R.sum(axis=0)
    doubled = np.concatenate([R / 2, R / 2])
    assert disentanglement(doubled).mean == pytest.approx(disentanglement(R).mean, abs=1e-8)
    assert completeness(doubled).mean < completeness(R).mean - 0.05


def test_undefined_scores_are_nan_with_a_reason():
    D = disentanglement(np.ones((4, 1)))
    assert np.isnan(D.mean)
    assert D.reason == "D needs at least two factors, got one"
    C = completeness(np.ones((1, 4)))
    assert np.isnan(C.mean)
    assert C.reason == "C needs at least two codes, got one"
    assert disentanglement(np.ones((1, 4))).reason == ""


@pytest.mark.parametrize("score", [disentanglement, completeness])
@pytest.mark.parametrize(
    ("R", "message"),
    [
        (-np.eye(2), "R must not be negative, got 2 negative of 4 entries.*negative='abs'"),
        (np.array([[np.nan, 1.0]]), "R must be finite, got 1 NaN or infinite of 2"),
        (np.ones(3), r"R must have shape \(L, K\), got \(3,\)"),
    ],
)
def test_bad_matrices_are_named(score, R, message):
    with pytest.raises(ValueError, match=message):
        score(R)
    with pytest.raises(ValueError, match="eps must be positive, got 0"):
        score(np.eye(2), eps=0)


def test_informativeness_reference(reference):
    for case in reference("dci_es")["informativeness"]["cases"]:
        seed = int(case["recipe"].split("default_rng(")[1].split(")")[0])
        rng = np.random.default_rng(seed)
        n, sizes = 400, case["factor_sizes"]
        z = np.stack([rng.integers(0, q, n) for q in sizes], 1)
        scores, kinds = [], []
        for j, (q, discrete) in enumerate(zip(sizes, case["discrete"], strict=True)):
            kinds.append("categorical" if discrete else "continuous")
            if discrete:
                out = rng.normal(size=(n, q))
                out[np.arange(n), z[:, j]] += 2
            else:
                out = z[:, j] / (q - 1) + 0.2 * rng.normal(size=n)
            scores.append(factor_score(out, z[:, j], kinds[-1], q))
        np.testing.assert_allclose(scores, case["per_factor"], atol=1e-9)
        result = informativeness(1 - np.array(scores), kinds)
        assert result.mean == pytest.approx(case["I"], abs=1e-9)


def test_chance_correction():
    result = informativeness([0.5, 0.25], ["categorical", "continuous"], baseline=[0.75, 1.0])
    assert result.per_factor == pytest.approx([0.5, 0.75])
    assert result.chance_corrected == pytest.approx([1 / 3, 0.75])
    assert np.isnan(informativeness([0.5], "categorical").chance_corrected).all()


@pytest.mark.parametrize(
    ("loss", "kinds", "options", "message"),
    [
        ([0.1, 0.2], ["categorical"], {}, "kinds must name one kind for each of 2 factors, got 1"),
        ([0.1], ["discrete"], {}, "kinds must be 'categorical' or 'continuous', got 'discrete'"),
        ([0.1], ["continous"], {}, "Did you mean 'continuous'"),
        ([1.5], "categorical", {}, r"loss must be 1 - accuracy in \[0, 1\]"),
        ([[0.1]], "categorical", {}, r"one per factor \(K,\), got \(1, 1\)"),
        ([np.nan], "categorical", {}, "loss must be finite"),
        ([0.1], "categorical", {"baseline": [0.0]}, "baseline must hold a positive loss"),
    ],
)
def test_informativeness_errors(loss, kinds, options, message):
    with pytest.raises(ValueError, match=message):
        informativeness(loss, kinds, **options)


@pytest.mark.parametrize(
    ("L", "K", "size"),
    [(5, 7, 1.4), (7, 7, 1), (10, 7, 0.7), (512, 7, 0.01367), (12288, 3, 0.000244)],
)
def test_representation_size(L, K, size):
    assert representation_size(L, K) == pytest.approx(size, rel=1e-3)


def test_representation_size_errors():
    with pytest.raises(ValueError, match="L must be a whole number of at least 1, got 0"):
        representation_size(0, 3)
    with pytest.raises(ValueError, match=r"K must be a whole number of at least 1, got 1\.5"):
        representation_size(3, 1.5)


def test_grid_variance():
    for q in (2, 3, 4, 24, 40):
        assert grid_variance(q) == pytest.approx(np.linspace(0, 1, q).var())


def test_baselines_come_from_kinds_and_sizes():
    rng = np.random.default_rng(0)
    factors = np.stack([rng.integers(0, 6, 5000), rng.integers(0, 40, 5000)], 1)
    kinds = ("categorical", "continuous")
    assert baseline_loss(factors, kinds, (6, 40)) == pytest.approx([5 / 6, 1])
    factors[:2500, 0] = 0
    assert baseline_loss(factors, kinds, (6, 40))[0] == pytest.approx(
        1 - (factors[:, 0] == 0).mean()
    )
    assert baseline_loss(factors, kinds, (6, 40), "sizes")[0] == pytest.approx(5 / 6)
    with pytest.raises(ValueError, match="baseline must be 'auto', 'sizes' or 'frequency'"):
        baseline_loss(factors, kinds, (6, 40), "chance")


def test_scales():
    assert on_scale([0, np.e - 1], "log1p") == pytest.approx([0, 1])
    assert on_scale([1, np.e], "log") == pytest.approx([0, 1])
    with pytest.raises(ValueError, match="scale='log' needs positive capacities"):
        on_scale([0, 1], "log")
    with pytest.raises(ValueError, match="scale must be 'log1p', 'log' or 'linear', got 'ln'"):
        on_scale([0, 1], "ln")


def test_normalise():
    signed = np.array([[-1.0, 0.0], [3.0, 0.0]])
    assert normalise(signed) == pytest.approx(np.array([[0.25, 0], [0.75, 0]]))
    assert normalise(signed, negative="clip") == pytest.approx(np.array([[0, 0], [1.0, 0]]))
    with pytest.raises(ValueError, match="negative must be 'abs' or 'clip', got 'zero'"):
        normalise(signed, negative="zero")


def test_splits_are_seeded_and_disjoint():
    codes = np.arange(100.0)[:, None]
    factors = np.arange(100)[:, None] % 3
    data = ProbeData.checked(codes, factors, "categorical")
    parts = [set(s.codes[:, 0]) for s in (data.train, data.validation, data.test)]
    assert [len(p) for p in parts] == [70, 10, 20]
    assert len(set.union(*parts)) == 100
    again = ProbeData.checked(codes, factors, "categorical")
    assert (again.test.codes == data.test.codes).all()
    assert data.standardised().train.codes.std() == pytest.approx(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"factors": np.zeros((100, 1), dtype=int)}, r"factors\[:, 0\] has a single value"),
        ({"factors": np.arange(100)[:, None] - 1}, "factors must hold class indices from 0 up"),
        ({"factors": np.zeros((99, 1), dtype=int)}, "codes and factors must agree on the number"),
        ({"factor_sizes": [2]}, r"factor_sizes must exceed the largest value .*\[2\], got \[2\]"),
        (
            {"test": (np.ones((5, 2)), np.ones((5, 1), dtype=int))},
            "test must have L = 1 codes and K = 1 factors .* got 2 and 1",
        ),
        (
            {"codes": np.ones((4, 1)), "factors": np.ones((4, 1), dtype=int)},
            "codes need at least 6 rows to be split .* got 4",
        ),
    ],
)
def test_data_errors(change, message):
    arguments = {
        "codes": np.arange(100.0)[:, None],
        "factors": np.arange(100)[:, None] % 3,
        "kinds": "categorical",
        **change,
    }
    with pytest.raises(ValueError, match=message):
        ProbeData.checked(
            arguments.pop("codes"), arguments.pop("factors"), arguments.pop("kinds"), **arguments
        )
