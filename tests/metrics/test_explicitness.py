"""Explicitness: reference values, closed forms, and what the capacity range does to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concept_audit.metrics import explicitness, loss_capacity_curve
from concept_audit.metrics.explicitness import (
    area_above_minimum,
    probe_family,
    shared_capacity_range,
)
from concept_audit.metrics.probes.mlp import MlpProbes
from concept_audit.metrics.probes.random_forest import RandomForestProbes
from concept_audit.metrics.probes.rff import RffProbes


@st.composite
def curves(draw):
    steps = draw(st.integers(2, 8))
    gaps = draw(st.lists(st.floats(0.01, 3), min_size=steps, max_size=steps))
    losses = draw(st.lists(st.floats(0, 1), min_size=steps, max_size=steps))
    return np.cumsum(gaps), np.array(losses)


def _own(x):
    return float(np.min(x)), float(np.max(x))


def test_reference_areas(reference):
    cases = reference("dci_es")["explicitness"]["compute"]
    assert len(cases) == 14
    for case in cases:
        x, y = (np.array(case[name], dtype=float) for name in "xy")
        area = area_above_minimum(x, y[:, None])[0]
        assert 1 - 2 * area / case["max_area"] == pytest.approx(case["E"], abs=1e-12), case["name"]


def test_reference_curves_held_together(reference):
    cases = reference("dci_es")["explicitness"]["multi_curve"]
    assert len(cases) == 12
    for case in cases:
        if not case["curves"]:
            assert case["E"] == {}
            continue
        shared = shared_capacity_range([(c["x"], c["y"]) for c in case["curves"]])
        for curve in case["curves"]:
            result = explicitness(
                (curve["x"], curve["y"]),
                capacity_range=shared,
                baseline=curve["baseline"],
                compat="reference",
            )
            assert result.mean == pytest.approx(case["E"][curve["name"]], abs=1e-12), case["name"]


def test_straight_line_instant_fit_and_flat_curve():
    x = np.arange(5)
    straight = explicitness((x, 1 - x / 4), capacity_range=(0, 4), baseline=1)
    assert straight.mean == pytest.approx(0, abs=1e-12)
    instant = explicitness((x, np.zeros(5)), capacity_range=(0, 4), baseline=1)
    assert instant.mean == 1
    assert instant.note == ""
    flat = explicitness((x, np.ones(5)), capacity_range=(0, 4), baseline=1)
    assert flat.mean == 1
    assert flat.note.startswith("E = 1.00, but the best probe removes only 0 % of the baseline")
    assert "Read E together with I" in flat.note


def test_declared_range_makes_a_curve_independent_of_others():
    curve = ((0, 1, 2), (1.0, 0.5, 0.2))
    alone = explicitness(curve, capacity_range=(0, 2), baseline=1).mean
    beside = explicitness(curve, capacity_range=(0, 8), baseline=1)
    assert alone == pytest.approx(0.30)
    assert beside.mean == pytest.approx(0.825)
    assert beside.capacity_range == (0, 8)
    long = ((0, 8), (1.0, 0.1))
    assert shared_capacity_range([curve, long]) == (0, 8)


@settings(max_examples=200, deadline=None)
@given(curves(), st.floats(0.1, 10), st.floats(-5, 5))
def test_affine_change_of_capacity_changes_nothing(curve, scale, shift):
    x, y = curve
    e = explicitness((x, y), capacity_range=_own(x), baseline=1).mean
    moved = scale * x + shift
    assert explicitness((moved, y), capacity_range=_own(moved), baseline=1).mean == pytest.approx(
        e, abs=1e-9
    )


def test_base_of_the_logarithm_is_irrelevant():
    parameters = np.array([10.0, 100, 1000, 5000])
    y = [0.9, 0.5, 0.3, 0.1]
    scores = [
        explicitness((x, y), capacity_range=_own(x), baseline=1).mean
        for x in (np.log(parameters), np.log2(parameters), np.log10(parameters))
    ]
    assert np.ptp(scores) < 1e-12


@settings(max_examples=200, deadline=None)
@given(curves())
def test_bounds(curve):
    x, y = curve
    y = np.minimum(y, 0.95)
    result = explicitness((x, y), capacity_range=_own(x), baseline=0.95)
    low = 1 - 2 * (0.95 - y.min()) / 0.95
    assert low - 1e-9 <= result.mean <= 1 + 1e-9


@settings(max_examples=100, deadline=None)
@given(curves())
def test_flat_extension_inside_the_range_changes_nothing(curve):
    x, y = curve
    wide = (float(x.min()), float(x.max()) + 2)
    e = explicitness((x, y), capacity_range=wide, baseline=1).mean
    longer = (np.append(x, x.max() + 1), np.append(y, y.min()))
    assert explicitness(longer, capacity_range=wide, baseline=1).mean == pytest.approx(e, abs=1e-9)


def test_several_factors_and_lstar():
    x = [0, 1, 2]
    y = np.array([[1.0, 0.8], [0.5, 0.4], [0.2, 0.4]])
    both = explicitness((x, y), capacity_range=(0, 2), baseline=[1.0, 0.8])
    singles = [
        explicitness((x, y[:, j]), capacity_range=(0, 2), baseline=b).mean
        for j, b in enumerate([1.0, 0.8])
    ]
    assert both.per_factor == pytest.approx(singles)
    assert both.mean == pytest.approx(np.mean(singles))
    own = explicitness((x, y), capacity_range=(0, 2), baseline=[1.0, 0.8], lstar="own")
    assert own.floor == pytest.approx([0.2, 0.4])
    assert (own.per_factor < both.per_factor).all()
    shared = explicitness((x, y), capacity_range=(0, 2), baseline=[1.0, 0.8], lstar=0.1)
    assert shared.floor == pytest.approx([0.1, 0.1])


def test_unsorted_points_are_sorted():
    sorted_ = explicitness(((0, 1, 2), (1, 0.4, 0.2)), capacity_range=(0, 2), baseline=1)
    mixed = explicitness(((2, 0, 1), (0.2, 1, 0.4)), capacity_range=(0, 2), baseline=1)
    assert mixed.mean == sorted_.mean


@pytest.mark.parametrize(
    ("curve", "options", "message"),
    [
        (((1,), (0.4,)), {}, "curve has one point, which is no curve"),
        (((1, 1), (0.4, 0.2)), {"capacity_range": (1, 1)}, "capacity_range must have high > low"),
        (((0, 3), (1, 0)), {}, r"must hold the whole curve, got \(0.0, 2.0\).*from 0.0 to 3.0"),
        (((0, 1), (1, 0)), {"baseline": None}, "baseline must be given for a bare curve"),
        (
            ((0, 1), (1, 0)),
            {"baseline": [1, 1]},
            r"one number or one per factor \(1,\), got \(2,\)",
        ),
        (((0, 1), (1, 0)), {"baseline": 0.0}, "baseline must lie above lstar"),
        (((0, 1), (1, 0)), {"lstar": "global"}, "lstar must be 'zero', 'own' or a finite number"),
        (((0, 1), (1, 0)), {"compat": "paper"}, "compat must be None or 'reference'"),
        (((0, 1), (1, np.nan)), {}, "losses must be finite, got 1 NaN or infinite of 2"),
        (((0, 1), (1, 0, 0)), {}, r"curve must be capacities \(T,\) and losses"),
    ],
)
def test_errors(curve, options, message):
    options = {"capacity_range": (0, 2), "baseline": 1.0, **options}
    with pytest.raises(ValueError, match=message):
        explicitness(curve, **options)


def test_shared_range_needs_a_curve():
    with pytest.raises(ValueError, match="curves must hold at least one curve"):
        shared_capacity_range([])


def test_families_by_name():
    assert probe_family("random_forest", preset="paper") == RandomForestProbes()
    assert probe_family("random_forest").max_features is None  # the paper's sqrt(L) dilutes D
    assert probe_family("rff", preset="paper") == RffProbes()
    assert probe_family("mlp", preset="paper") == MlpProbes(reference_samples=295_488)
    assert probe_family("mlp", n_factors=7).ladder(7) == (0, 14, 56, 224)
    own = RandomForestProbes(n_trees=3)
    assert probe_family(own) is own
    with pytest.raises(ValueError, match="probe must be 'mlp', 'random_forest' or 'rff', got 'gp'"):
        probe_family("gp")
    with pytest.raises(ValueError, match="preset must be 'small' or 'paper', got 'big'"):
        probe_family("mlp", preset="big")


def test_curve_carries_its_baseline_and_identity():
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 3, size=(200, 2))
    codes = factors + 0.1 * rng.normal(size=factors.shape)
    probe = RandomForestProbes(n_trees=5, depths=(1, 2, 4))
    curve = loss_capacity_curve(codes, factors, probe, kinds="categorical", n_seeds=2)
    assert curve.losses.shape == (3, 2)
    assert curve.per_seed.shape == (2, 3, 2)
    assert curve.baseline == pytest.approx([2 / 3, 2 / 3])
    assert "capacity depth, linear scale" in curve.description
    assert curve.mean == pytest.approx(curve.losses.mean(axis=1))
    e = explicitness(curve, capacity_range=(1, 4))
    assert 0.5 < e.mean <= 1
    again = loss_capacity_curve(codes, factors, probe, kinds="categorical", n_seeds=2)
    assert (again.per_seed == curve.per_seed).all()
    with pytest.raises(ValueError, match="n_seeds must be at least 1, got 0"):
        loss_capacity_curve(codes, factors, probe, kinds="categorical", n_seeds=0)
