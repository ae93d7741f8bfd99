"""Each torchmetrics class gives the number of its function, in batches and over processes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchmetrics")

from concept_audit import metrics  # noqa: E402
from concept_audit.metrics import modules  # noqa: E402
from concept_audit.metrics.modules import ArrayMetric  # noqa: E402


def data():
    rng = np.random.default_rng(0)
    n, k = 120, 3
    c = rng.integers(0, 2, (n, k))
    y = (c.sum(1) >= 2).astype(int)
    logits = 2.0 * (2 * c - 1) + 1.5 * y[:, None] + rng.normal(size=(n, k))
    codes = np.concatenate([c + 0.3 * rng.normal(size=(n, k)), rng.normal(size=(n, 1))], axis=1)
    return {
        "c": c, "y": y, "c_hat": 1 / (1 + np.exp(-logits)), "bottleneck": logits,
        "vectors": rng.normal(size=(n, k, 2)) + c[..., None],
        "c_pos": rng.normal(size=(n, k, 2)) + y[:, None, None],
        "c_neg": rng.normal(size=(n, k, 2)),
        "y_logits": np.stack([1.5 - logits.sum(1), logits.sum(1)], 1),
        "codes": codes, "factors": c, "x": logits[:, 0], "sx": np.full(n, 0.1),
        "sy": np.full(n, 0.1), "values": logits[:, 1], "a": logits[:, 0], "b": logits[:, 1] + 3,
    }  # fmt: skip


def head(b):
    return b.sum(axis=1)


LOGIT = {"kind": "logit", "percentiles": [[-3.0] * 3, [3.0] * 3]}
CASES = [
    (modules.MutualInformation, {}),
    (modules.ConceptsTaskLeakage, {"n_neighbors": 2}),
    (modules.InterconceptLeakage, {"entropy": "binary"}),
    (modules.ConceptsTaskInformation, {}),
    (modules.InterconceptInformation, {}),
    (modules.SelfInformation, {}),
    (modules.AlignmentLeakage, {}),
    (modules.TaskAccuracy, {}),
    (modules.ConceptAccuracy, {}),
    (modules.NicheImpurityScore, {"seed": 1}),
    (modules.OracleImpurityScore, {"epochs": 3}),
    (modules.MIG, {}),
    (modules.SAP, {}),
    (modules.FactorVAEScore, {"n_votes": 50}),
    (modules.MCC, {}),
]


@pytest.mark.parametrize(("cls", "options"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_batches_give_the_number_of_the_function(cls, options):
    arrays = [data()[name] for name in cls.arrays]
    function = getattr(metrics, cls.function)
    expected = function(*arrays, **options)
    expected = getattr(expected, cls.value) if cls.value else expected
    metric = cls(**options)
    for part in np.array_split(np.arange(120), 3):
        metric.update(*(torch.as_tensor(a[part]) for a in arrays))
    assert metric.compute().item() == pytest.approx(float(expected), abs=1e-9)
    metric.reset()
    with pytest.raises(ValueError, match=f"{cls.__name__} has seen no batch: call update first"):
        metric.result()
    metric.update(*arrays)  # numpy, all at once
    assert metric.compute().item() == pytest.approx(float(expected), abs=1e-9)


def test_interventions():
    d = data()
    curve = metrics.intervention_curve(head, d["bottleneck"], d["c"], d["y"], **LOGIT)
    metric = modules.InterventionAccuracy(head, **LOGIT)
    score = modules.InterventionScore(head, reference_task_accuracy=1.0, **LOGIT)
    for part in (slice(0, 50), slice(50, 120)):
        batch = {name: torch.as_tensor(d[name][part]) for name in ("bottleneck", "c", "y")}
        metric.update(**batch)
        score.update(**batch)
    np.testing.assert_array_equal(metric.compute().numpy(), curve.task_accuracy)
    assert score.compute().item() == 1.0 - curve.task_accuracy[-1]
    both = modules.InterventionAccuracy(lambda b: b.sum(axis=(1, 2)), embedding=True)
    both.update(d["vectors"], d["c"], d["y"], d["c_pos"], d["c_neg"])
    assert both.compute().shape == (4,)


def test_scores_across_runs():
    d = data()
    interval = modules.MeanInterval()
    for value in d["values"][:5]:
        interval.update(value)  # one run at a time
    expected = metrics.mean_interval(d["values"][:5])
    np.testing.assert_allclose(interval.compute(), [expected.mean, expected.low, expected.high])
    criterion = modules.LeakageCriterion()
    criterion.update(d["a"], d["b"])
    assert criterion.compute().item() == -1.0
    pooled = modules.PooledPearson(n_draws=50)
    pooled.update(d["x"], d["sx"], d["values"], d["sy"])
    expected = metrics.pooled_pearson(d["x"], d["sx"], d["values"], d["sy"], n_draws=50)
    np.testing.assert_allclose(pooled.compute(), [expected.r, expected.p_value])


def test_codes_and_factors():
    d = data()
    forest = {"kinds": "categorical", "probe": "random_forest"}
    expected = metrics.dci_es(d["codes"], d["factors"], **forest)
    whole = modules.DCIES(**forest)
    whole.update(d["codes"], d["factors"])
    np.testing.assert_allclose(whole.compute(), [getattr(expected, s) for s in "DCIES"])
    one = modules.Explicitness(**forest)
    one.update(d["codes"], d["factors"])
    assert one.compute().item() == pytest.approx(expected.E)
    size = modules.RepresentationSize()
    size.update(d["codes"], d["factors"])
    assert size.compute().item() == metrics.representation_size(4, 3)


def test_every_class_is_listed_and_says_what_it_calls():
    classes = [getattr(modules, name) for name in modules.__all__]
    found = {
        c for c in vars(modules).values()
        if isinstance(c, type) and issubclass(c, ArrayMetric)
    }  # fmt: skip
    assert set(classes) == found
    for cls in found - {ArrayMetric}:
        assert callable(getattr(metrics, cls.function))


def test_update_error_text():
    with pytest.raises(TypeError, match=r"ConceptsTaskLeakage.update takes c_hat, c, y, got 2"):
        modules.ConceptsTaskLeakage().update([[0.1]], [[1]])
    with pytest.raises(TypeError, match=r"got 1 by position and \['x'\] by name"):
        modules.MeanInterval().update([1.0], x=1)


def test_half_precision_and_gradients_are_accepted():
    d = data()
    metric = modules.ConceptAccuracy()
    metric.update(torch.tensor(d["c_hat"], requires_grad=True).bfloat16(), torch.tensor(d["c"]))
    assert 0.5 < metric.compute().item() <= 1.0


WORKER = """
import sys
import numpy as np, torch
import torch.distributed as dist
from concept_audit.metrics.modules import ConceptsTaskLeakage

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
arrays = np.load(f"{folder}/data.npz")
metric = ConceptsTaskLeakage()
rows = np.arange(70) if rank == 0 else np.arange(70, 120)  # unequal shards
for part in np.array_split(rows, 2):
    metric.update(*(torch.as_tensor(arrays[name][part]) for name in metric.arrays))
print(float(metric.compute()), len(metric.c_hat_rows))  # afterwards only its own rows are left
dist.destroy_process_group()
"""


def test_two_processes_give_the_number_of_one(tmp_path):
    d = data()
    np.savez(tmp_path / "data.npz", c_hat=d["c_hat"], c=d["c"], y=d["y"])
    command = [sys.executable, "-c", WORKER]
    processes = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    expected = metrics.concepts_task_leakage(d["c_hat"], d["c"], d["y"]).mean
    for process in processes:
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0
        value, batches = output.split()
        assert float(value) == pytest.approx(expected, abs=1e-9)
        assert batches == "2"
