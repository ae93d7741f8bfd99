"""Files of pretrained weights: known by their content, and not needed once a run is trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.models import resnet18

from concept_audit.pipeline.execute import execute
from concept_audit.pipeline.plan import expand
from concept_audit.pipeline.resume import cell_key
from concept_audit.pipeline.runs import StoredRun
from concept_audit.store.layout import OutputLayout

TINY = ["profile=smoke", "trainer.jobs=1", "data=dsprites_standin", "data.max_samples=60"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Outputs and drawn images of all tests of this file."""
    return tmp_path_factory.mktemp("weights")


def _cells(folder, *overrides):
    return expand(
        [*TINY, f"paths.output_dir={folder}/outputs", f"paths.data_dir={folder}/data", *overrides]
    )


@pytest.fixture
def weight_files(tmp_path):
    """The same content at two places, and other content."""
    files = [tmp_path / name for name in ("a.pth", "b.pth", "c.pth")]
    for file, content in zip(files, (b"one", b"one", b"other"), strict=True):
        file.write_bytes(content)
    return files


@pytest.mark.parametrize(
    ("choice", "key"),
    [
        ("encoder=resnet18", "encoder.weights"),
        ("encoder=resnet18_frozen", "encoder.backbone.weights"),
        ("model=resnet18_imagenet", "model.spec.encoder.weights"),
    ],
)
def test_weights_enter_the_key_by_content_and_not_by_path(folder, weight_files, choice, key):
    cells = [_cells(folder, choice, f"{key}={file}")[0] for file in weight_files]
    one, copy, other = (cell_key(cell) for cell in cells)
    assert one.key == copy.key
    assert one.key != other.key
    assert str(weight_files[0]) not in str(one.parts)
    assert "sha256:" in str(one.parts["config"]["model"])
    weight_files[1].write_bytes(b"edited in place")
    assert cell_key(cells[1]).key not in (one.key, other.key)


def test_a_run_is_restored_without_its_file_of_weights(folder, tmp_path):
    path = tmp_path / "mine.pth"
    torch.save(resnet18(weights=None).state_dict(), path)
    overrides = ["encoder=resnet18", f"encoder.weights={path}", "recipe.epochs=1"]
    (result,) = execute(_cells(folder, *overrides, "evaluation=[accuracy]"))
    assert result.error is None
    path.unlink()
    run = StoredRun(OutputLayout(folder / "outputs"), result.key)
    assert run.metadata["weights"].startswith("sha256:")
    arrays = run.arrays("test")
    np.testing.assert_allclose(run.head()(arrays["c_hat"]), arrays["y_logits"], atol=1e-5)
