"""MLP probes: parameter counts, capacities, and what they learn."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from concept_audit.metrics.probes.base import ProbeData
from concept_audit.metrics.probes.mlp import MlpProbes, mlp_capacity, mlp_parameters

OUTPUTS = {"mpi3d": (6, 6, 1, 1, 3, 1, 1), "cars3d": (1, 1, 183)}


def test_parameter_counts_equal_the_reference(reference):
    cases = reference("dci_es")["mlp_parameter_counts"]
    assert len(cases) == 42
    for case in cases:
        outputs = OUTPUTS[case["dataset"]]
        total = sum(mlp_parameters(case["L"], case["hidden"], o) for o in outputs)
        linear = sum(mlp_parameters(case["L"], 0, o) for o in outputs)
        assert total == case["total"]
        assert total // len(outputs) == case["per_factor_floor"]
        assert total - linear == case["excess_total"]


def test_capacities_of_the_paper_ladder():
    probes = MlpProbes()
    ladder = probes.ladder(7)
    assert ladder == (0, 14, 28, 56, 112, 224, 448, 896, 1792, 3584)
    capacities = probes.capacities(7, OUTPUTS["mpi3d"], ladder)
    assert capacities[0] == 0
    assert capacities[[1, -1]] == pytest.approx([5.83, 16.37], abs=0.01)
    # On Cars3D a narrow MLP has fewer parameters than the linear probe: no negative capacity.
    assert mlp_capacity(10, 6, OUTPUTS["cars3d"], "excess") == 0
    assert mlp_capacity(10, 6, OUTPUTS["cars3d"], "hidden_only") == 11 * 6 + 7 * 6
    assert mlp_capacity(10, 0, OUTPUTS["cars3d"], "hidden_only") == 0
    with pytest.raises(ValueError, match="capacity must be 'excess', 'hidden_only' or 'total'"):
        mlp_capacity(10, 6, (1,), "log")


def test_epochs_follow_the_reference_number_of_samples():
    assert MlpProbes(reference_samples=295_488).n_epochs(295_488) == 10
    assert MlpProbes(reference_samples=295_488).n_epochs(12_648) == 233
    assert MlpProbes(min_steps=3000).n_epochs(1280) == 300
    with pytest.raises(ValueError, match="widths must hold hidden widths of at least 0"):
        MlpProbes(widths=(-1,)).ladder(2)


def test_hidden_layers_read_what_a_linear_probe_cannot():
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    codes = rng.uniform(-1, 1, size=(1500, 2))
    factors = np.stack(
        [(codes[:, 0] * codes[:, 1] > 0).astype(int), np.digitize(codes[:, 0], [0])], 1
    )
    data = ProbeData.checked(codes, factors, "categorical")
    probes = MlpProbes(widths=(0, 16), learning_rate=3e-2, epochs=20)
    fit = probes.fit(data, [0, 1])
    assert fit.test_scores.shape == (2, 2, 2)
    assert fit.test_scores[:, 0, 0].max() < 0.7  # linear on exclusive or
    assert fit.test_scores[:, 1, 0].min() > 0.9
    assert fit.test_scores[:, :, 1].min() > 0.9
    again = probes.fit(data, [0, 1])
    assert (again.test_scores == fit.test_scores).all()
    net = fit.probe(1, 1, 0)
    accuracy = (net(data.test.codes).argmax(axis=1) == data.test.factors[:, 0]).mean()
    assert accuracy == fit.test_scores[1, 1, 0]


def test_total_capacity_sorts_the_curve():
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    codes = rng.normal(size=(300, 4))
    factors = rng.integers(0, 40, size=(300, 1))
    data = ProbeData.checked(codes, factors, "categorical", factor_sizes=[40])
    fit = MlpProbes(widths=(0, 2, 16), epochs=1, capacity="total").fit(data, [0])
    assert fit.sizes == (2, 0, 16)
    assert (np.diff(fit.capacities) > 0).all()
    assert len(fit.probe(0, 1, 0).layers) == 1


def test_missing_torch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    data = ProbeData.checked(np.arange(20.0)[:, None], np.arange(20)[:, None] % 2, "categorical")
    with pytest.raises(ImportError, match=r"The MLP probe needs torch.*concept-audit\[torch\]"):
        MlpProbes().fit(data, [0])
