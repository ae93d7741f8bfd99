"""Intervals, the Leakage Criterion and pooled correlations against known values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from concept_audit.metrics.comparison import leakage_criterion, mean_interval, pooled_pearson


def test_mean_interval_by_hand():
    ours = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.7764451051977987 * np.sqrt(2.5 / 5)  # t of 4 degrees of freedom, table value
    assert ours.mean == 3.0
    assert ours.low == pytest.approx(3.0 - half)
    assert ours.high == pytest.approx(3.0 + half)
    assert ours.n_runs == 5


def test_mean_interval_of_one_run_is_unknown_and_of_equal_runs_has_no_width():
    one = mean_interval([0.3])
    assert one.mean == 0.3
    assert np.isnan([one.low, one.high, one.sd]).all()
    equal = mean_interval([0.3] * 7)
    assert equal.low == equal.high == equal.mean
    assert equal.sd == 0.0


def test_mean_interval_covers_at_its_level():
    draws = np.random.default_rng(0).normal(1.0, 2.0, (2000, 5))
    hits = [(i.low <= 1.0 <= i.high) for i in map(mean_interval, draws)]
    assert abs(np.mean(hits) - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000)


def test_criterion_uses_welchs_test():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.3, 0.05, 5), rng.normal(0.25, 0.1, 7)
    (test,) = leakage_criterion(a, b).scores
    expected = stats.ttest_ind(a, b, equal_var=False)
    assert test.t_statistic == pytest.approx(expected.statistic)
    assert test.p_value == pytest.approx(expected.pvalue)
    assert test.dof == pytest.approx(expected.df)


HIGH, LOW = [0.50, 0.52, 0.51, 0.49, 0.50], [0.10, 0.12, 0.11, 0.09, 0.10]


@pytest.mark.parametrize(
    ("a", "b", "verdict", "word"),
    [
        ({"CTL": HIGH, "ICL": HIGH}, {"CTL": LOW, "ICL": LOW}, "a_leaks_more", "a leaks more"),
        ({"CTL": HIGH, "ICL": LOW}, {"CTL": LOW, "ICL": LOW}, "a_leaks_more", "a leaks more"),
        ({"CTL": LOW, "ICL": LOW}, {"CTL": LOW, "ICL": HIGH}, "b_leaks_more", "b leaks more"),
        ({"CTL": HIGH, "ICL": LOW}, {"CTL": LOW, "ICL": HIGH}, "undecided", "opposite"),
        ({"CTL": LOW, "ICL": LOW}, {"CTL": LOW, "ICL": LOW}, "compatible", "No difference"),
    ],
)
def test_verdicts(a, b, verdict, word):
    ours = leakage_criterion(a, b)
    assert ours.verdict == verdict
    assert word in ours.text
    assert "CTL" in ours.text
    assert "p = " in ours.text
    columns = np.stack([a["CTL"], a["ICL"]], 1), np.stack([b["CTL"], b["ICL"]], 1)
    assert leakage_criterion(*columns).verdict == verdict


def test_criterion_shows_overlap_beside_the_test():
    (apart,) = leakage_criterion(HIGH, LOW).scores
    assert not apart.intervals_overlap
    (same,) = leakage_criterion(HIGH, HIGH).scores
    assert same.intervals_overlap
    assert same.decision == "compatible"


def test_criterion_without_any_spread():
    assert leakage_criterion([0.2, 0.2], [0.1, 0.1]).verdict == "a_leaks_more"
    assert leakage_criterion([0.2, 0.2], [0.2, 0.2, 0.2]).verdict == "compatible"


def test_swapping_the_models_swaps_the_verdict():
    assert leakage_criterion(LOW, HIGH).verdict == "b_leaks_more"


def test_pooled_pearson_reference_values(reference):
    for row in reference("leakage")["cases"]["rubin_pearson"]["rows"]:
        ours = pooled_pearson(row["x"], row["se_x"], row["y"], row["se_y"])
        assert ours.r == pytest.approx(row["r_mean"], abs=1e-9)
        assert ours.z_mean == pytest.approx(row["z_bar"], abs=1e-9)
        assert ours.p_value == pytest.approx(row["p_value"], rel=1e-7)
        assert ours.t_statistic == pytest.approx(row["t_stat"], rel=1e-9)
        assert ours.dof == pytest.approx(row["dof"], rel=1e-7)
        assert (ours.n_models, ours.n_draws, ours.n_undefined) == (row["n"], 10_000, 0)
        same = pooled_pearson(row["x"], row["se_x"], row["y"], row["se_y"], compat="reference")
        assert same == ours


def test_barnard_rubin_never_exceeds_the_complete_data_dof(reference):
    row = reference("leakage")["cases"]["rubin_pearson"]["rows"][1]
    args = (row["x"], row["se_x"], row["y"], row["se_y"])
    ours = pooled_pearson(*args, dof="barnard_rubin")
    assert ours.dof < row["n"] - 2
    assert ours.p_value > pooled_pearson(*args).p_value
    assert ours.r == pooled_pearson(*args).r


def test_no_between_variance_uses_the_normal():
    x, y = np.array([0.1, 0.2, 0.3, 0.5, 0.4]), np.array([0.2, 0.1, 0.4, 0.6, 0.3])
    ours = pooled_pearson(x, 0.0, y, 0.0, n_draws=50)
    r = np.corrcoef(x, y)[0, 1]
    assert ours.r == pytest.approx(r, abs=1e-12)
    assert ours.dof == np.inf
    assert ours.p_value == pytest.approx(2 * stats.norm.sf(np.arctanh(r) * np.sqrt(2)), rel=1e-9)


def test_undefined_draws_are_dropped_and_counted():
    x = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    zeros = np.full(5, -3.0)  # truncated at zero: constant in nearly every draw
    ours = pooled_pearson(x, 0.01, zeros, 1.2, n_draws=400)
    assert 0 < ours.n_undefined < 400
    assert np.isfinite([ours.r, ours.p_value]).all()
    reference = pooled_pearson(x, 0.01, zeros, 1.2, n_draws=400, compat="reference")
    assert np.isnan([reference.r, reference.p_value]).all()
    nothing = pooled_pearson(x, 0.01, zeros, 0.0, n_draws=100)
    assert nothing.n_undefined == 100
    assert np.isnan(nothing.r)


def test_truncation_is_an_option():
    x = np.array([0.0, 0.01, 0.02, 0.03, 0.3])
    y = np.array([0.0, 0.02, 0.01, 0.05, 0.2])
    assert pooled_pearson(x, 0.1, y, 0.1).r != pooled_pearson(x, 0.1, y, 0.1, truncate=False).r


def test_error_texts():
    four = [0.1, 0.2, 0.3, 0.4]
    with pytest.raises(
        ValueError, match=r"values must be finite, got 1 NaN .* whose score is undef"
    ):
        mean_interval([0.1, np.nan])
    with pytest.raises(ValueError, match=r"values must hold one score per run, shape \(n,\)"):
        mean_interval([])
    with pytest.raises(ValueError, match=r"confidence must lie between 0 and 1, got 95"):
        mean_interval(four, confidence=95)
    with pytest.raises(ValueError, match=r"a needs at least 2 runs .* got 1 of CTL"):
        leakage_criterion({"CTL": [0.1]}, {"CTL": four})
    with pytest.raises(ValueError, match=r"a and b must hold the same scores, got \['CTL'\]"):
        leakage_criterion({"CTL": four}, {"ICL": four})
    with pytest.raises(
        ValueError, match=r"a must have shape \(n_runs,\) for one score or \(n_runs, 2"
    ):
        leakage_criterion(np.zeros((4, 3)), np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"at least one score, got an empty mapping"):
        leakage_criterion({}, {})
    with pytest.raises(ValueError, match=r"alpha must lie between 0 and 1, got 5"):
        leakage_criterion(four, four, alpha=5)
    with pytest.raises(ValueError, match=r"number of models: got 4 and 3"):
        pooled_pearson(four, 0.1, four[:3], 0.1)
    with pytest.raises(ValueError, match=r"need at least 4 models, got 3"):
        pooled_pearson(four[:3], 0.1, four[:3], 0.1)
    with pytest.raises(ValueError, match=r"sx must not be negative, got -0.1"):
        pooled_pearson(four, -0.1, four, 0.1)
    with pytest.raises(ValueError, match=r"sy must hold one standard error or 4, got 2"):
        pooled_pearson(four, 0.1, four, [0.1, 0.2])
    with pytest.raises(ValueError, match=r"dof must be 'rubin' or 'barnard_rubin', got 'welch'"):
        pooled_pearson(four, 0.1, four, 0.1, dof="welch")
    with pytest.raises(ValueError, match=r"compat must be None or 'reference', got 'old'"):
        pooled_pearson(four, 0.1, four, 0.1, compat="old")
    with pytest.raises(ValueError, match=r"n_draws must be at least 2, got 1"):
        pooled_pearson(four, 0.1, four, 0.1, n_draws=1)
