"""MIG, SAP, FactorVAE score and MCC: closed cases and properties."""

from __future__ import annotations

import numpy as np
import pytest

from concept_audit.metrics import factor_vae_score, mcc, mig, sap


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    factors = np.stack([rng.integers(0, 4, 2000), rng.integers(0, 5, 2000)], 1)
    codes = np.concatenate([factors, rng.normal(size=(2000, 1))], axis=1)
    return codes, factors, rng


SCORES = [mig, sap, factor_vae_score, mcc]


def test_perfect_codes(data):
    codes, factors, _ = data
    assert mig(codes, factors).mean == pytest.approx(1, abs=0.02)  # plug-in bias of 20 bins
    assert mcc(codes, factors).mean == pytest.approx(1)
    assert factor_vae_score(codes, factors, n_votes=500).mean == 1
    assert sap(codes, factors, "continuous").mean == pytest.approx(1, abs=0.01)
    assert sap(codes, factors).mean > 0.6
    assert mcc(codes, factors).matched_code.tolist() == [0, 1]


def test_duplicated_codes_have_no_gap(data):
    codes, factors, _ = data
    doubled = np.concatenate([codes, codes], axis=1)
    assert mig(doubled, factors).mean == pytest.approx(0, abs=1e-12)
    assert sap(doubled, factors, "continuous").mean == pytest.approx(0, abs=1e-12)
    assert mcc(doubled, factors).mean == pytest.approx(1)


def test_noise_scores_near_the_bottom(data):
    _, factors, rng = data
    noise = rng.normal(size=(2000, 4))
    assert mig(noise, factors).mean < 0.02
    assert sap(noise, factors, "continuous").mean < 0.01
    assert mcc(noise, factors).mean < 0.1
    assert factor_vae_score(noise, factors, n_votes=2000).mean < 0.65


@pytest.mark.parametrize("score", SCORES)
def test_order_of_codes_does_not_matter(data, score):
    codes, factors, _ = data
    order = [2, 0, 1]
    assert score(codes[:, order], factors).mean == pytest.approx(
        score(codes, factors).mean, abs=1e-12
    )


@pytest.mark.parametrize("score", [mig, sap, mcc])
def test_order_of_rows_does_not_matter(data, score):
    codes, factors, rng = data
    rows = rng.permutation(len(codes))
    ours, moved = score(codes, factors).mean, score(codes[rows], factors[rows]).mean
    assert moved == pytest.approx(ours, abs=1e-12)


@pytest.mark.parametrize("score", SCORES)
def test_positive_rescaling_does_not_matter(data, score):
    codes, factors, _ = data
    assert score(4 * codes + 8, factors).mean == pytest.approx(score(codes, factors).mean, abs=1e-9)


def test_mig_by_hand():
    factors = np.tile([0, 1], 50)[:, None]
    codes = np.stack([factors[:, 0], np.repeat([0, 1], 50)], axis=1)
    result = mig(codes, factors, n_bins=2)
    assert result.matrix[:, 0] == pytest.approx([np.log(2), 0], abs=1e-12)
    assert result.mean == pytest.approx(1)


def test_mcc_with_fewer_codes_than_factors(data):
    codes, factors, _ = data
    result = mcc(codes[:, :1], factors)
    assert result.per_factor == pytest.approx([1, 0])
    assert result.matched_code.tolist() == [0, -1]
    assert mcc(np.exp(codes), factors, correlation="spearman").mean == pytest.approx(1)


def test_constant_code_never_wins(data):
    codes, factors, _ = data
    with_constant = np.concatenate([np.ones((2000, 1)), codes], axis=1)
    assert factor_vae_score(with_constant, factors, n_votes=500).mean == 1
    assert mcc(with_constant, factors).mean == pytest.approx(1)
    assert np.isfinite(mig(with_constant, factors).mean)
    assert np.isfinite(sap(with_constant, factors).mean)


def test_one_code_has_no_gap(data):
    codes, factors, _ = data
    for result, name in ((mig(codes[:, :1], factors), "MIG"), (sap(codes[:, :1], factors), "SAP")):
        assert np.isnan(result.mean)
        assert result.reason == f"{name} needs at least two codes, got one"


def test_same_seed_same_digits(data):
    codes, factors, _ = data
    runs = [factor_vae_score(codes + 0.5, factors, n_votes=200, seed=s).mean for s in (1, 1)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("score", SCORES)
def test_shared_errors(score):
    codes, factors = np.random.default_rng(0).normal(size=(10, 2)), np.arange(10)[:, None] % 2
    with pytest.raises(ValueError, match=r"factors\[:, 0\] has a single value"):
        score(codes, np.ones((10, 1), dtype=int))
    with pytest.raises(ValueError, match="codes and factors must agree on the number of rows"):
        score(codes, factors[:9])
    with pytest.raises(ValueError, match="codes must be finite, got 1 NaN"):
        score(np.where(np.arange(20).reshape(10, 2) == 3, np.nan, codes), factors)


def test_own_errors():
    codes, factors = np.random.default_rng(0).normal(size=(10, 2)), np.arange(10)[:, None] % 2
    with pytest.raises(ValueError, match="n_bins must be at least 2, got 1"):
        mig(codes, factors, n_bins=1)
    with pytest.raises(ValueError, match="correlation must be 'pearson' or 'spearman', got 'ken"):
        mcc(codes, factors, correlation="kendall")
    with pytest.raises(ValueError, match="batch_size must be at least 2 and n_votes at least 2"):
        factor_vae_score(codes, factors, batch_size=1)
    with pytest.raises(ValueError, match="codes must vary: all of them are constant"):
        factor_vae_score(np.ones((10, 2)), factors)
