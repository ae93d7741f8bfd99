"""Models on a frozen encoder: features once, one bank, all evaluations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from concept_audit.models import frozen
from concept_audit.pipeline import fit as fit_stage
from concept_audit.pipeline.execute import execute
from concept_audit.pipeline.plan import expand
from concept_audit.pipeline.predict import read_checkpoint, restore
from concept_audit.pipeline.resume import dataset_of
from concept_audit.pipeline.runs import StoredRun
from concept_audit.pipeline.schema import build
from concept_audit.store.bundle import read_bundle
from concept_audit.store.layout import OutputLayout
from concept_audit.store.results import collect

TINY = ["profile=smoke", "trainer.jobs=1", "data=dsprites_standin", "data.max_samples=60"]
FROZEN = ["encoder=resnet18_frozen", "encoder.backbone.weights=random"]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Outputs, drawn images and features of all tests of this file."""
    return tmp_path_factory.mktemp("frozen")


def _cells(folder, *overrides):
    return expand(
        [*TINY, f"paths.output_dir={folder}/outputs", f"paths.data_dir={folder}/data", *overrides]
    )


@pytest.fixture(scope="module")
def grid(folder):
    """Cells and results of 2 models x 2 weights x 2 folds, calls of the backbone, group sizes."""
    calls, sizes = [], []
    real_codes, real_train = frozen.module_codes, fit_stage._train
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            frozen, "module_codes", lambda *a, **o: calls.append(a[0].shape) or real_codes(*a, **o)
        )
        patch.setattr(
            fit_stage, "_train", lambda items, *a: sizes.append(len(items)) or real_train(items, *a)
        )
        cells = _cells(
            folder, *FROZEN, "model=cbm_soft,cem", "lambda_concept=0.1,1", "fold=0,1",
            "evaluation=[accuracy,leakage,interventions,cem_information]",
        )  # fmt: skip
        results = execute(cells)
        again = execute(_cells(folder, *FROZEN, "lambda_concept=10", "evaluation=[accuracy]"))
    assert [result.error for result in [*results, *again]] == [None] * 9
    return cells, results, calls, sizes


def test_features_are_computed_once_for_all_models_weights_and_folds(grid, folder):
    _, _, calls, sizes = grid
    assert calls == [(60, 64, 64, 1)]
    assert sizes == [4, 4, 1]  # a bank for each kind of model, then the added weight
    assert len(list((folder / "data/processed/codes").glob("*.npy"))) == 1


def test_all_evaluations_run(grid, folder):
    _, results, _, _ = grid
    rows = collect(OutputLayout(folder / "outputs"), [result.key for result in results])
    found = [set(of_run["metric"]) for _, of_run in rows.groupby("run_key")]
    everywhere = {"task_accuracy", "concept_accuracy", "ctl", "icl", "intervention_accuracy"}
    assert all(everywhere <= metrics for metrics in found)
    assert sum("alignment_leakage" in metrics for metrics in found) == 4
    assert rows["standin"].all()


def test_a_run_says_what_it_read(grid, folder):
    cells, results, _, _ = grid
    layout = OutputLayout(folder / "outputs")
    metadata = read_bundle(layout.bundle_path(results[0].key, "test")).metadata
    assert metadata["weights"] == "random"
    assert any("frozen resnet18 with random weights (seed 0)" in n for n in metadata["notes"])
    assert metadata["dataset_fingerprint"] == dataset_of(cells[0].config).fingerprint()


def test_a_run_can_be_applied_to_images_again(grid, folder):
    """Backbone, shift and scale, restored model: the stored logits come out, from pixels."""
    cells, results, _, _ = grid
    run = StoredRun(OutputLayout(folder / "outputs"), results[0].key)
    checkpoint = read_checkpoint(run.layout.checkpoint_path(run.key))
    spec = build(cells[0].config["model"]["spec"])
    arrays = run.arrays("test")
    images = dataset_of(cells[0].config).x[arrays["index"]]
    backbone = frozen.feature_network(spec.encoder.backbone, (1, 64, 64), seed=0)
    x = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
    mean, std = np.mean([0.485, 0.456, 0.406]), np.mean([0.229, 0.224, 0.225])
    with torch.no_grad():
        raw = backbone((x - mean) / std)
        output = restore(run)((raw - checkpoint["feature_shift"]) / checkpoint["feature_scale"])
    np.testing.assert_allclose(output.c_logits, arrays["c_logits"], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(output.y_logits, arrays["y_logits"], rtol=1e-3, atol=1e-3)


def test_a_table_cannot_be_read_by_a_frozen_encoder(folder, capsys):
    (cell,) = expand(
        ["profile=smoke", "trainer.jobs=1", "data.n_samples=60", *FROZEN,
         f"paths.output_dir={folder}/outputs", f"paths.data_dir={folder}/data"]
    )  # fmt: skip
    (result,) = execute([cell])
    assert "reads images, and tabulartoy_d025 has rows of shape (7,)" in result.error
