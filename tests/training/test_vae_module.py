"""VAEs and untrained representations: training, resuming, and the arrays they leave behind."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from concept_audit.data.base import ConceptDataset
from concept_audit.models.image_encoders import ResNet18Spec
from concept_audit.models.representation_specs import (
    FrozenEncoderSpec,
    LabelsSpec,
    RawPixelsSpec,
)
from concept_audit.models.vae import VAESpec
from concept_audit.models.vae_losses import OBJECTIVES
from concept_audit.training.batches import EpochLoader, Shard, to_inputs
from concept_audit.training.datamodule import ConceptDataModule
from concept_audit.training.families import arrays_of, fit_one
from concept_audit.training.recipe import Member, Recipe, initial_model, phases_of
from concept_audit.training.rules import EpochRules
from concept_audit.training.vae_module import VAEModule, fit_vae

SHORT = Recipe(epochs=4, batch_size=8, lr=2e-3, lr_decay=0.5, checkpoint="last")


class Killed(BaseException):
    """Stands for a kill: no handler in the package catches it."""


def module_of(member, dataset, *, devices=1, pieces=1) -> VAEModule:
    """A module as Lightning would hold it, on its own."""
    (phase,) = phases_of(member.spec, SHORT)
    module = VAEModule(initial_model(member, dataset), member, phase, EpochRules(1, phase, SHORT))
    module._trainer = SimpleNamespace(
        world_size=devices,
        accumulate_grad_batches=pieces,
        datamodule=ConceptDataModule(dataset, batch_size=8),
    )
    return module


@pytest.fixture(scope="module")
def squares() -> ConceptDataset:
    """Twenty-four grey images with a bright square whose row and column are the factors."""
    factors = np.stack(np.unravel_index(np.arange(24), (4, 6)), axis=1)
    x = np.full((24, 64, 64, 1), 20, dtype=np.uint8)
    for image, (row, column) in zip(x, factors, strict=True):
        image[16 * row : 16 * row + 12, 10 * column : 10 * column + 8] = 230
    return ConceptDataset(
        name="squares",
        x=x,
        c=np.zeros((24, 0), dtype=np.int64),
        y=np.arange(24) % 2,
        concept_names=(),
        class_names=("even", "odd"),
        splits={"train": np.arange(16), "val": np.arange(16, 20), "test": np.arange(20, 24)},
        factors=factors,
        factor_names=("row", "column"),
        factor_sizes=(4, 6),
        factor_kinds=("continuous", "continuous"),
        mean=(0.5,),
        std=(0.5,),
    )


@pytest.mark.parametrize("objective", ["beta", "tc", "factor", "autoencoder"])
def test_a_killed_vae_goes_on_to_the_same_digits(squares, tmp_path, objective):
    member = Member(VAESpec(network="small", n_latents=3, objective=objective), seed=1)
    path = tmp_path / "resume.ckpt"
    whole = fit_vae(member, squares, recipe=SHORT)

    def kill(done, total, losses):
        if done == 3:
            raise Killed

    with pytest.raises(Killed):
        fit_vae(member, squares, recipe=SHORT, resume_path=path, save_every=2, progress=kill)
    epochs = []
    resumed = fit_vae(
        member, squares, recipe=SHORT, resume_path=path,
        progress=lambda done, total, losses: epochs.append(done),
    )  # fmt: skip
    assert epochs == [3, 4]
    assert resumed.history == whole.history
    for name, value in whole.state_dict.items():
        assert torch.equal(resumed.state_dict[name], value), name


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_weight_that_is_trained_gets_a_gradient(squares, objective):
    """DDP waits for each of them."""
    member = Member(VAESpec(network="small", n_latents=3, objective=objective))
    module = module_of(member, squares)
    batch = next(iter(EpochLoader(squares, "train", batch_size=8)))
    x = to_inputs(squares, squares.rows("train")[:8]).clamp(0, 1)
    module.losses(batch._replace(x=x))[0].backward()
    assert [
        n for n, p in module.model.named_parameters() if p.requires_grad and p.grad is None
    ] == []


@pytest.mark.parametrize("objective", ["tc", "factor", "dip_i", "dip_ii"])
def test_a_penalty_of_a_whole_batch_is_not_shared(squares, objective):
    module = module_of(Member(VAESpec(network="small", objective=objective)), squares, devices=2)
    with pytest.raises(ValueError, match=rf"'{objective}' estimates .* 2 devices would share"):
        module.on_fit_start()


def test_the_critics_memory_follows_the_critic(squares):
    member = Member(VAESpec(network="small", n_latents=3, objective="factor"))
    one, other = module_of(member, squares), module_of(member, squares)
    batch = next(iter(EpochLoader(squares, "train", batch_size=8)))
    one.losses(batch._replace(x=to_inputs(squares, squares.rows("train")[:8]).clamp(0, 1)))
    one.on_train_batch_end(None, batch, 0)
    other.load_extra_state(one.extra_state())
    assert not other._critic_optimiser.state  # not before the critic is on its device
    other.on_fit_start()
    assert len(other._critic_optimiser.state) == len(list(other.critic.parameters()))


def test_the_critic_learns_once_a_batch_however_many_pieces(squares):
    member = Member(VAESpec(network="small", n_latents=3, objective="factor"))
    module = module_of(member, squares, pieces=2)
    before = [p.clone() for p in module.critic.parameters()]
    loader = EpochLoader(squares, "train", batch_size=8, shard=Shard(micro_batches=2))
    for step, batch in enumerate(loader):
        module.losses(batch._replace(x=batch.x.permute(0, 3, 1, 2) / 255))
        module.on_train_batch_end(None, batch, step)
        after = list(module.critic.parameters())
        moved = any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
        assert moved == (step >= 1)
        if step == 1:
            assert module._codes == []
            break


def test_the_history_holds_the_parts_of_the_loss_per_image(squares):
    member = Member(VAESpec(network="small", n_latents=3, beta=2.0))
    result = fit_vae(member, squares, recipe=SHORT)
    assert [row["lr"] for row in result.history] == pytest.approx([2e-3, 1e-3, 5e-4, 2.5e-4])
    assert result.best_epoch == 3  # the last one
    for row in result.history:
        for split in ("train", "val"):
            total = row[f"{split}_reconstruction"] + 2.0 * row[f"{split}_kl"]
            assert row[f"{split}_loss"] == pytest.approx(total, rel=1e-5)
    first, last = result.history[0], result.history[-1]
    assert last["train_reconstruction"] < first["train_reconstruction"]
    plain = fit_vae(member, replace(squares, mean=None, std=None), recipe=SHORT)
    assert plain.history == result.history  # read in [0, 1], whatever the set's normalisation


def test_the_best_epoch_can_be_kept_instead(squares):
    recipe = replace(SHORT, checkpoint="best")
    result = fit_vae(Member(VAESpec(network="small")), squares, recipe=recipe)
    losses = [row["val_loss"] for row in result.history]
    assert result.best_epoch == int(np.argmin(losses))


def test_a_vae_gives_codes_and_factors(squares):
    spec = VAESpec(network="small", n_latents=3)
    result = fit_one(Member(spec), squares, recipe=replace(SHORT, epochs=1))
    arrays = arrays_of(result, squares)("test")
    assert sorted(arrays) == ["codes", "factors", "index", "y"]
    assert arrays["codes"].shape == (4, 3)
    np.testing.assert_array_equal(arrays["index"], squares.rows("test"))
    np.testing.assert_array_equal(arrays["factors"], squares.factors[20:])
    np.testing.assert_array_equal(arrays_of(result, squares)("test")["codes"], arrays["codes"])
    sampled = replace(result, member=Member(replace(spec, code="sample")))
    drawn = arrays_of(sampled, squares)("test")["codes"]
    assert not np.allclose(drawn, arrays["codes"], atol=1e-3)
    np.testing.assert_array_equal(arrays_of(sampled, squares)("test")["codes"], drawn)


@pytest.mark.parametrize(
    ("spec", "n_codes"),
    [
        (LabelsSpec(), 2),
        (LabelsSpec(name="labels", noise_std=0.0), 2),
        (LabelsSpec(name="mixed_labels", noise_std=0.0, mixture="linear"), 2),
        (RawPixelsSpec(), 4096),
        (FrozenEncoderSpec(encoder=ResNet18Spec(weights="random")), 512),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_representations_need_no_training_and_follow_the_seed(squares, spec, n_codes):
    result = fit_one(Member(spec, seed=3), squares, recipe=SHORT)
    assert not result.history
    first, second = (arrays_of(result, squares)("val")["codes"] for _ in range(2))
    assert first.shape == (4, n_codes)
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, second)
    other = arrays_of(fit_one(Member(spec, seed=4), squares, recipe=SHORT), squares)("val")
    seedless = spec.name in ("labels", "raw_pixels")
    assert np.array_equal(other["codes"], first) == seedless


def test_what_cannot_be_represented_is_refused(squares, toy):
    labels, pixels = (
        fit_one(Member(s), toy, recipe=SHORT) for s in (LabelsSpec(), RawPixelsSpec())
    )
    with pytest.raises(ValueError, match="noisy_labels is made of generating factors, and tabular"):
        arrays_of(labels, toy)
    with pytest.raises(ValueError, match=r"raw_pixels reads images.*shapes3d_standin"):
        arrays_of(pixels, toy)
    with pytest.raises(ValueError, match=r"\(channels, 64, 64\), got \(7,\)"):
        fit_one(Member(VAESpec()), toy, recipe=SHORT)


def test_options_out_of_range_are_named():
    with pytest.raises(ValueError, match="code must be 'mean' or 'sample', got 'mode'"):
        VAESpec(code="mode")
    with pytest.raises(ValueError, match=r"mixture must be one of .* got 'cubic'"):
        LabelsSpec(mixture="cubic", noise_std=0.0)
    with pytest.raises(ValueError, match=r"takes no noise, got noise_std=0\.1"):
        LabelsSpec(mixture="linear")
    with pytest.raises(ValueError, match="lr_decay must be above 0, got 0"):
        Recipe(lr_decay=0)
    with pytest.raises(TypeError, match="raw_pixels is a representation without training"):
        RawPixelsSpec().build(input_shape=(1, 64, 64), n_concepts=0, n_classes=2)
