"""Every model of the papers trains on every dataset, by naming both."""

from __future__ import annotations

import numpy as np
import pytest

from concept_audit.pipeline.execute import execute
from concept_audit.pipeline.plan import expand
from concept_audit.pipeline.resume import cell_key
from concept_audit.store.bundle import read_bundle
from concept_audit.store.layout import OutputLayout
from concept_audit.store.results import collect

DATASETS = ["dsprites", "shapes3d", "cub", "ham10k", "mpi3d", "cars3d"]
CONCEPT_MODELS = ["cbm_hard", "cbm_soft", "cbm_logit", "cem"]
FACTOR_SETS = ["mpi3d", "cars3d", "shapes3d", "dsprites"]
REPRESENTATIONS = [
    "vae", "beta_vae", "autoencoder", "resnet18_imagenet", "noisy_labels", "mixed_labels",
    "raw_pixels",
]  # fmt: skip
TINY = ["profile=smoke", "trainer.jobs=1"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Outputs and drawn images of all tests of this file."""
    return tmp_path_factory.mktemp("every")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _run(folder, *overrides):
    cells = expand(
        [*TINY, f"paths.output_dir={folder}/outputs", f"paths.data_dir={folder}/data", *overrides]
    )
    return OutputLayout(folder / "outputs"), cells, execute(cells)


@pytest.mark.parametrize("data", ["tabulartoy_d025", *(f"{name}_standin" for name in DATASETS)])
def test_concept_models(folder, data):
    size = ["data.n_samples=300"] if data.startswith("tabular") else ["data.max_samples=60"]
    small = [] if data.startswith("tabular") else ["encoder=conv4", "recipe.head_epochs=1"]
    layout, cells, results = _run(
        folder, f"data={data}", f"model={','.join(CONCEPT_MODELS)}", "evaluation=[accuracy]",
        "recipe.epochs=1", *size, *small,
    )  # fmt: skip
    assert [result.error for result in results] == [None] * len(CONCEPT_MODELS)
    for cell, result in zip(cells, results, strict=True):
        bundle = read_bundle(layout.bundle_path(result.key, "test"))
        assert bundle.metadata["identity"]["standin"] == data.endswith("standin")
        assert bundle["c_hat"].shape == bundle["c"].shape
        assert ("c_mix" in bundle) == (cell.config["model"]["spec"]["_target_"].endswith("CEMSpec"))
        rows = collect(layout, [result.key])
        assert {"task_accuracy", "concept_accuracy"} <= set(rows["metric"])


@pytest.mark.parametrize("data", FACTOR_SETS)
def test_representations(folder, data, capsys):
    layout, _, results = _run(
        folder, f"data={data}_standin", f"model={','.join(REPRESENTATIONS)}",
        "data.max_samples=60", "recipe.epochs=1",
    )  # fmt: skip
    assert [result.error for result in results] == [None] * len(REPRESENTATIONS)
    said = capsys.readouterr().err
    for name, result in zip(REPRESENTATIONS, results, strict=True):
        bundle = read_bundle(layout.bundle_path(result.key, "train"))
        sizes = bundle.metadata["factor_sizes"]
        label = "autoencoder_10" if name == "autoencoder" else name
        assert bundle.metadata["identity"]["model"] == label
        assert len(bundle.metadata["factor_names"]) == len(bundle.metadata["factor_kinds"])
        assert bundle["factors"].shape == (bundle.n_samples, len(sizes))
        assert (bundle["factors"] < np.array(sizes)).all()
        assert np.isfinite(bundle["codes"]).all()
        width = bundle["codes"].shape[1]
        if name.endswith("labels"):
            assert width == len(sizes)
        elif name == "raw_pixels":
            assert width in (4096, 12288)
        else:
            assert width == (512 if name == "resnet18_imagenet" else 10)
        if name == "resnet18_imagenet":
            assert bundle.metadata["weights"] in ("random", "imagenet")
        assert f"run {result.key} ({label}): skipped accuracy, leakage, interventions" in said
        rows = collect(layout, [result.key])
        trained = name in ("vae", "beta_vae", "autoencoder")
        assert set(rows["metric"]) == ({"reconstruction", "kl"} if trained else set())


def test_weights_that_were_fetched_since_name_another_run(folder, tmp_path, monkeypatch):
    cells = expand(
        [*TINY, f"paths.data_dir={folder}/data", "data=dsprites_standin", "data.max_samples=60",
         "model=resnet18_imagenet"]
    )  # fmt: skip
    monkeypatch.setenv("CONCEPT_AUDIT_DATA", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    before = cell_key(cells[0])
    assert before.parts["config"]["model"]["spec"]["encoder"]["weights"] == "random"
    weights = tmp_path / "raw" / "weights" / "resnet18-f37072fd.pth"
    weights.parent.mkdir(parents=True)
    weights.touch()
    after = cell_key(cells[0])
    assert after.parts["config"]["model"]["spec"]["encoder"]["weights"] == "imagenet"
    assert after.key != before.key
