"""Features in the place of images: the dataset they make, and models trained on it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from concept_audit.data.base import ConceptDataset
from concept_audit.models import frozen
from concept_audit.models.cbm import CBMSpec
from concept_audit.models.cem import CEMSpec
from concept_audit.models.frozen import FrozenSpec, feature_network
from concept_audit.models.image_encoders import Conv4Spec, EfficientNetLite0Spec, ViTB16Spec
from concept_audit.models.representation_specs import FrozenEncoderSpec
from concept_audit.training.bank import train_bank
from concept_audit.training.families import arrays_of, fit_one
from concept_audit.training.features import features_of, with_features
from concept_audit.training.fitting import fit_single
from concept_audit.training.recipe import Member, Recipe, group_key

ENCODER = FrozenSpec(Conv4Spec(channels=(4, 4, 4, 4), grid=2))


@pytest.fixture(scope="module")
def pictures() -> ConceptDataset:
    """90 images of noise under a bright half; ten belong to no split."""
    rng = np.random.default_rng(0)
    c = rng.integers(0, 2, size=(90, 2))
    x = rng.integers(0, 100, size=(90, 32, 32, 3)).astype(np.uint8)
    x[:, :16] += (120 * c[:, 0, None, None, None]).astype(np.uint8)
    x[:, :, :16, 0] += (120 * c[:, 1, None, None]).astype(np.uint8)
    rows = rng.permutation(90)
    return ConceptDataset(
        name="pictures", x=x, c=c, y=c.sum(axis=1), concept_names=("top", "red"),
        class_names=("0", "1", "2"),
        splits={"train": rows[:50], "val": rows[50:65], "test": rows[65:80]},
        mean=(0.5,) * 3, std=(2.0,) * 3, standin=True, notes=("Drawn.",),
    )  # fmt: skip


def test_the_dataset_keeps_all_but_its_inputs(pictures):
    data = with_features(pictures, ENCODER)
    changed = {"x", "mean", "std", "notes", "content_digest"}
    for field in dataclasses.fields(ConceptDataset):
        if field.name not in changed:
            kept, before = getattr(data, field.name), getattr(pictures, field.name)
            np.testing.assert_equal(kept, before, err_msg=field.name)
    assert data.input_shape == (16,)
    assert (data.mean, data.std) == (None, None)
    assert data.notes == (
        "Drawn.",
        "Inputs are features of a frozen conv4 with random weights (seed 0), of images without "
        "augmentation, standardised over the training split.",
    )
    train = data.x[data.rows("train")]
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-5)
    used = np.concatenate(list(data.splits.values()))
    assert not np.delete(data.x, used, axis=0).any()


def test_inputs_are_the_backbones_outputs_standardised(pictures):
    data = with_features(pictures, ENCODER)
    rows = pictures.rows("test")
    network = feature_network(ENCODER.backbone, (3, 32, 32), seed=0)
    x = torch.from_numpy(pictures.x[rows]).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        raw = network((x - 0.5) / 0.5).numpy()
    np.testing.assert_allclose(data.x[rows], (raw - data.shift) / data.scale, rtol=1e-3, atol=1e-4)


def test_fingerprints_follow_images_and_backbone(pictures):
    def prints(dataset, encoder=ENCODER):
        return with_features(dataset, encoder).fingerprint()

    assert prints(pictures) == prints(pictures)
    assert prints(pictures) != pictures.fingerprint()
    assert prints(pictures) != prints(pictures, dataclasses.replace(ENCODER, backbone_seed=1))
    # The MLP is the model's, not the data's.
    assert prints(pictures) == prints(pictures, dataclasses.replace(ENCODER, widths=(8,)))
    darker = dataclasses.replace(pictures, x=pictures.x // 2)
    assert prints(darker) != prints(pictures)


def test_sets_of_the_same_images_share_features(pictures, tmp_path, monkeypatch):
    calls = []
    real = frozen.module_codes
    monkeypatch.setattr(frozen, "module_codes", lambda *a, **o: calls.append(1) or real(*a, **o))
    with_features(pictures, ENCODER, folder=tmp_path)
    fewer = dataclasses.replace(
        pictures, name="fewer", c=pictures.c[:, :1], concept_names=("top",), concept_groups={}
    )
    with_features(fewer, ENCODER, folder=tmp_path)
    # A representation of the same backbone reads the same file.
    spec = FrozenEncoderSpec(encoder=ENCODER.backbone)
    result = fit_one(Member(spec), pictures, recipe=Recipe())
    codes = arrays_of(result, pictures, folder=tmp_path)("val")["codes"]
    assert len(calls) == 1
    features, rows = features_of(pictures, ENCODER.backbone, folder=tmp_path)
    np.testing.assert_array_equal(codes, features[np.searchsorted(rows, pictures.rows("val"))])
    # Lazy images are known by the digest of their files.
    lazy = dataclasses.replace(pictures, content_digest="files")
    with_features(lazy, ENCODER, folder=tmp_path)
    with_features(dataclasses.replace(lazy, c=1 - lazy.c), ENCODER, folder=tmp_path)
    assert len(calls) == 2
    darker = dataclasses.replace(pictures, x=pictures.x // 2)
    with_features(darker, ENCODER, folder=tmp_path)
    with_features(dataclasses.replace(lazy, content_digest="others"), ENCODER, folder=tmp_path)
    assert len(calls) == 4


@pytest.mark.parametrize(
    "spec",
    [
        CBMSpec(encoder=ENCODER),
        CBMSpec(encoder=dataclasses.replace(ENCODER, widths=(8,)), encoding="logit"),
        CBMSpec(encoder=ENCODER, encoding="hard"),
        CBMSpec(encoder=ENCODER, training="sequential"),
        CEMSpec(encoder=ENCODER, hidden_size=8, embedding_size=4),
    ],
    ids=["soft", "logit", "hard", "sequential", "cem"],
)
def test_a_bank_and_single_training_agree(pictures, spec):
    data = with_features(pictures, ENCODER)
    recipe = Recipe(epochs=3, batch_size=16, lr=5e-3, head_epochs=2)
    members = [Member(spec, seed=s, lambda_concept=w) for s in (0, 1) for w in (0.1, 5.0)]
    results = train_bank(members, data, recipe=recipe)
    alone = fit_single(members[3], data, recipe=recipe)
    assert results[3].state_dict.keys() == alone.state_dict.keys()
    assert not any("conv" in name or "running" in name for name in alone.state_dict)
    for name, value in alone.state_dict.items():
        torch.testing.assert_close(
            results[3].state_dict[name], value, rtol=0, atol=1e-3, equal_nan=True
        )
    for one, other in zip(results[3].history, alone.history, strict=True):
        assert one["val_loss"] == pytest.approx(other["val_loss"], abs=2e-5)


def test_models_share_a_bank_only_on_the_same_features():
    soft = {
        name: group_key(Member(CBMSpec(encoder=encoder), seed=seed))
        for name, encoder, seed in (
            ("one", ENCODER, 0),
            ("other fold", ENCODER, 1),
            ("other seed of the backbone", dataclasses.replace(ENCODER, backbone_seed=1), 0),
            # Described by the same values, {"weights": "random"}:
            ("efficientnet", FrozenSpec(EfficientNetLite0Spec("random")), 0),
            ("vit", FrozenSpec(ViTB16Spec("random")), 0),
        )
    }
    assert soft.pop("other fold") == soft["one"]
    assert None not in soft.values()
    assert len(set(soft.values())) == len(soft)
    assert group_key(Member(CBMSpec(encoder=ENCODER.backbone))) is None


def test_a_table_has_no_features(toy):
    with pytest.raises(
        ValueError,
        match=r"a frozen conv4 with random .* reads images, and tabulartoy\w* has rows of shape "
        r"\(7,\)\. Use encoder=mlp",
    ):
        with_features(toy, ENCODER)
