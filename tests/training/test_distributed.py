"""A training shared by processes, or cut into pieces, gives what one device gives at once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from concept_audit.data.base import ConceptDataset
from concept_audit.data.tabulartoy import tabulartoy
from concept_audit.models.cbm import CBMSpec
from concept_audit.models.cem import CEMSpec
from concept_audit.models.encoders import MLPSpec
from concept_audit.models.image_encoders import EfficientNetLite0Spec
from concept_audit.models.vae import VAESpec
from concept_audit.training.distributed import fit_distributed
from concept_audit.training.fitting import fit_single
from concept_audit.training.recipe import FitResult, Member, Recipe
from concept_audit.training.shared_norms import SharedNorms
from concept_audit.training.vae_module import fit_vae

# Sums over a batch in another order: float32 rounding, enlarged by the steps of Adam. The networks
# have neither batch norm nor dropout, whose results depend on the part of a batch that they see.
TOLERANCE = 2e-5
DDP = {"accelerator": "cpu", "devices": 2}

# 207 training rows: 52 steps of 4, the last one of 3, which two processes cannot share evenly.
make_toy = partial(tabulartoy, n_samples=296)
SHORT = Recipe(epochs=2, batch_size=4, lr=1e-3, head_epochs=2)

MEMBERS = {
    "soft": Member(CBMSpec(), seed=1),
    "hard": Member(CBMSpec(encoding="hard"), seed=1),
    "sequential": Member(CBMSpec(training="sequential", encoder=MLPSpec(layer_norm=True)), seed=1),
    "cem": Member(CEMSpec(), seed=1, p_int=0.5),
}


def assert_same(ours: FitResult, alone: FitResult) -> None:
    assert ours.failed is None
    assert ours.best_epoch == alone.best_epoch
    assert len(ours.history) == len(alone.history)
    for a, b in zip(ours.history, alone.history, strict=True):
        for name in a.keys() - {"phase"}:
            assert abs(a[name] - b[name]) <= TOLERANCE * max(1.0, abs(b[name])), (name, a, b)
    assert ours.state_dict.keys() == alone.state_dict.keys()
    for name, value in alone.state_dict.items():
        error = (ours.state_dict[name] - value).abs().nan_to_num().max()
        assert error <= 50 * TOLERANCE, (name, error)


def test_two_processes_train_what_one_trains():
    alone = fit_single(MEMBERS["cem"], make_toy(), recipe=SHORT)
    epochs = []
    shared = fit_distributed(
        MEMBERS["cem"],
        make_toy,
        recipe=SHORT,
        trainer=DDP,
        progress=lambda done, total, losses: epochs.append((done, total)),
    )
    assert_same(shared, alone)
    assert epochs == [(1, 2), (2, 2)]


@pytest.mark.parametrize("name", list(MEMBERS))
def test_a_batch_in_pieces_is_the_batch(name):
    alone = fit_single(MEMBERS[name], make_toy(), recipe=SHORT)
    pieces = fit_single(MEMBERS[name], make_toy(), recipe=SHORT, trainer={"micro_batches": 3})
    assert_same(pieces, alone)


def squares() -> ConceptDataset:
    """Thirty grey images with a bright square; 21 for training."""
    x = np.full((30, 64, 64, 1), 20, dtype=np.uint8)
    for place, image in enumerate(x):
        image[16 * (place % 4) : 16 * (place % 4) + 12, 2 * place : 2 * place + 8] = 230
    return ConceptDataset(
        name="squares",
        x=x,
        c=np.zeros((30, 0), dtype=np.int64),
        y=np.arange(30) % 2,
        concept_names=(),
        class_names=("even", "odd"),
        splits={"train": np.arange(21), "val": np.arange(21, 26), "test": np.arange(26, 30)},
    )


def test_an_autoencoder_and_its_pieces():
    member = Member(VAESpec(network="small", n_latents=3, objective="autoencoder"))
    recipe = Recipe(epochs=2, batch_size=8, lr=1e-3, checkpoint="last")
    alone = fit_vae(member, squares(), recipe=recipe)
    pieces = fit_vae(member, squares(), recipe=recipe, trainer={"micro_batches": 2})
    for a, b in zip(pieces.history, alone.history, strict=True):
        assert a["train_reconstruction"] == pytest.approx(b["train_reconstruction"], rel=1e-4)
        assert a["val_loss"] == pytest.approx(b["val_loss"], rel=1e-4)


def test_a_diverging_training_ends_in_all_processes():
    member = Member(CBMSpec(), lambda_concept=1e39)
    result = fit_distributed(member, make_toy, recipe=SHORT, trainer=DDP)
    assert result.failed is not None
    assert "at step 0 (phase 'joint', epoch 0)" in result.failed
    assert not result.state_dict


def test_what_cannot_be_shared_is_refused(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(ValueError, match=r"devices must be 1 here, got 2.*fit_distributed"):
        fit_single(MEMBERS["soft"], make_toy(), recipe=SHORT, trainer=DDP)
    with pytest.raises(ValueError, match=r"must not exceed the GPUs of this machine, got 9999"):
        fit_distributed(
            MEMBERS["soft"],
            make_toy,
            recipe=SHORT,
            trainer={"accelerator": "gpu", "devices": 9999},
        )
    with pytest.raises(ValueError, match=r"sync_batchnorm needs GPUs.*got accelerator 'cpu'"):
        fit_distributed(
            MEMBERS["soft"], make_toy, recipe=SHORT, trainer={**DDP, "sync_batchnorm": True}
        )
    with pytest.raises(ValueError, match=r"micro_batches must be at least 1.*got 0 and 0"):
        fit_single(MEMBERS["soft"], make_toy(), recipe=SHORT, trainer={"micro_batches": 0})


def test_a_training_starts_its_own_processes_also_inside_slurm(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.setenv("SLURM_JOB_NAME", "sweep")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    seen = []
    real = pl.Trainer

    def watched(**options):
        seen.append(real(**options))
        return seen[-1]

    monkeypatch.setattr(pl, "Trainer", watched)
    recipe = replace(SHORT, epochs=1, batch_size=64)
    assert fit_single(MEMBERS["soft"], make_toy(), recipe=recipe).failed is None
    environment = seen[0]._accelerator_connector.cluster_environment
    assert type(environment).__name__ == "LightningEnvironment"


def test_a_table_is_not_augmented_whatever_the_recipe_says():
    recipe = replace(SHORT, epochs=1, batch_size=64)
    plain = fit_single(MEMBERS["soft"], make_toy(), recipe=recipe)
    augmenting = replace(recipe, augmentation="jitter_crop_flip")
    assert fit_single(MEMBERS["soft"], make_toy(), recipe=augmenting).history == plain.history


def test_batch_norms_are_shared_without_losing_timms_activations():
    torch.manual_seed(0)
    network = EfficientNetLite0Spec(weights="random").build((3, 64, 64), 5).eval()
    x = torch.randn(2, 3, 64, 64)
    expected = network(x)
    layers = SharedNorms()
    shared = layers.revert(layers.apply(layers.apply(network))).eval()
    assert any(isinstance(module, torch.nn.SyncBatchNorm) for module in shared.modules())
    torch.testing.assert_close(shared(x), expected)


def test_what_is_compiled_and_how_products_are_rounded(monkeypatch):
    seen = []

    def compiled(self, **options):
        seen.append((type(self).__name__, options, torch.get_float32_matmul_precision()))

    monkeypatch.setattr(torch.nn.Module, "compile", compiled)
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    result = fit_single(
        replace(MEMBERS["soft"], seed=0),
        make_toy(),
        recipe=replace(SHORT, epochs=1, batch_size=64),
        trainer={"compile": True, "tf32": True, "channels_last": True},
    )
    assert result.failed is None
    assert seen == [("Sequential", {"dynamic": False}, "high")]
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
