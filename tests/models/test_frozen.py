"""Frozen encoders: features by hand, names by content, standardisation, one computation."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from concept_audit.models import frozen, pretrained
from concept_audit.models.encoders import EncoderSpec, MLPSpec
from concept_audit.models.frozen import (
    FrozenSpec,
    backbone_identity,
    backbone_in_words,
    feature_network,
    frozen_features,
    standardised,
)
from concept_audit.models.image_encoders import (
    Conv4Spec,
    EfficientNetLite0Spec,
    ResNet18Spec,
    ViTB16Spec,
)
from concept_audit.models.pretrained import weights_content
from concept_audit.models.representation_specs import FrozenEncoderSpec

SMALL = Conv4Spec(channels=(4, 4, 4, 4), grid=2)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, size=(5, 32, 32, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def resnet_file(tmp_path_factory) -> tuple[Path, nn.Module]:
    """A file of ResNet-18 weights, and the network they are of."""
    torch.manual_seed(5)
    network = resnet18(weights=None).eval()
    path = tmp_path_factory.mktemp("weights") / "mine.pth"
    torch.save(network.state_dict(), path)
    return path, network


def test_features_are_what_the_network_gives_before_its_last_layer(images, resnet_file):
    path, network = resnet_file
    features = frozen_features(images, ResNet18Spec(str(path)), seed=0)
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    std = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    x = (torch.from_numpy(images).permute(0, 3, 1, 2) / 255 - mean) / std
    with torch.no_grad():  # layer by layer, as torchvision's own forward does
        x = network.maxpool(network.relu(network.bn1(network.conv1(x))))
        for stage in (network.layer1, network.layer2, network.layer3, network.layer4):
            x = stage(x)
    np.testing.assert_allclose(features, x.mean(dim=(2, 3)).numpy(), rtol=1e-4, atol=1e-5)
    assert features.dtype == np.float32
    np.testing.assert_array_equal(
        FrozenEncoderSpec(encoder=ResNet18Spec(str(path))).codes(images, seed=9), features
    )


@pytest.mark.parametrize(
    ("backbone", "shape", "width"),
    [
        (SMALL, (1, 32, 32), 16),
        (Conv4Spec(), (3, 32, 32), 2048),
        (ResNet18Spec("random"), (1, 32, 32), 512),
        (EfficientNetLite0Spec("random"), (3, 32, 32), 1280),
        (ViTB16Spec("random"), (3, 32, 32), 768),
    ],
)
def test_every_backbone_loses_its_last_layer_and_is_not_in_training(backbone, shape, width):
    network = feature_network(backbone, shape, seed=0)
    assert not network.training
    with torch.no_grad():
        assert network(torch.rand(2, *shape)).shape == (2, width)


def test_random_weights_are_a_function_of_the_seed_and_leave_the_generator_alone(images):
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = frozen_features(images, SMALL, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(first, frozen_features(images, SMALL, seed=3))
    assert np.abs(first - frozen_features(images, SMALL, seed=4)).max() > 1e-3


def test_what_is_trained_is_an_mlp_on_features():
    spec = FrozenSpec(SMALL, widths=[8])
    assert isinstance(spec, EncoderSpec)
    assert spec.widths == (8,)
    assert spec.weights == "random"
    layers = [type(layer).__name__ for layer in spec.build((16,), 5)]
    assert layers == ["Linear", "LeakyReLU", "Linear"]
    (linear,) = FrozenSpec(SMALL).build((16,), 5)
    assert (linear.in_features, linear.out_features) == (16, 5)


def test_wrong_uses_are_named():
    with pytest.raises(ValueError, match=r"built on features \(d,\), got input_shape \(3, 32, 32"):
        FrozenSpec(SMALL).build((3, 32, 32), 5)
    with pytest.raises(TypeError, match=r"backbone must be one of Conv4Spec, .*, got MLPSpec"):
        FrozenSpec(MLPSpec())
    with pytest.raises(ValueError, match="widths must be positive"):
        FrozenSpec(SMALL, widths=(0,))
    with pytest.raises(ValueError, match="backbone_seed must not be negative, got -1"):
        FrozenSpec(SMALL, backbone_seed=-1)


def test_weights_are_named_by_content_and_not_by_place(tmp_path, resnet_file, monkeypatch):
    path, _ = resnet_file
    copy, other = tmp_path / "copy.pth", tmp_path / "other.pth"
    copy.write_bytes(path.read_bytes())
    other.write_bytes(path.read_bytes() + b"!")
    here, there, changed = (
        backbone_identity(ResNet18Spec(str(file)), seed=0) for file in (path, copy, other)
    )
    assert here == there
    assert here["weights"].startswith("sha256:")
    assert here["weights"] != changed["weights"]
    # The same file with other content is another set of weights, also within a second.
    copy.write_bytes(b"shorter")
    assert weights_content(str(copy)) != here["weights"]
    # Pretrained weights do not depend on a seed; random ones do.
    assert backbone_identity(ResNet18Spec(str(path)), seed=1) == here
    assert backbone_identity(SMALL, seed=1) != backbone_identity(SMALL, seed=0)
    # Kinds that are described by the same values stay apart.
    assert backbone_identity(ViTB16Spec("random"), seed=0) != backbone_identity(
        EfficientNetLite0Spec("random"), seed=0
    )
    monkeypatch.setattr(pretrained, "_folders", lambda encoder: [tmp_path])
    (tmp_path / "resnet18-f37072fd.pth").touch()
    known = ResNet18Spec("imagenet")
    assert backbone_identity(known, seed=0)["weights"] == "f37072fd"
    assert backbone_in_words(known, seed=0) == "resnet18 with ImageNet weights"
    assert backbone_in_words(SMALL, seed=2) == "conv4 with random weights (seed 2)"
    assert "the weights of a file (sha256:" in backbone_in_words(ResNet18Spec(str(path)), seed=0)
    assert weights_content("random") == "random"


class Counter:
    """`module_codes` that counts, and takes its time if asked."""

    def __init__(self, monkeypatch):
        self.calls = 0
        self.started, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        real = frozen.module_codes

        def counted(*args, **options):
            self.calls += 1
            self.started.set()
            assert self.go_on.wait(timeout=30)
            return real(*args, **options)

        monkeypatch.setattr(frozen, "module_codes", counted)


def test_features_are_computed_once_for_the_same_images_and_weights(images, tmp_path, monkeypatch):
    counter, said = Counter(monkeypatch), []
    options = {"folder": tmp_path, "announce": said.append}
    first = frozen_features(images, SMALL, seed=0, content="a", **options)
    assert counter.calls == 1
    assert said[0] == "features of 5 images by conv4 with random weights (seed 0), on cpu"
    assert said[1].startswith("features computed in ")
    np.testing.assert_array_equal(
        first, frozen_features(images, SMALL, seed=0, content="a", **options)
    )
    assert (counter.calls, len(said)) == (1, 2)
    frozen_features(images, SMALL, seed=0, content="b", **options)
    frozen_features(images, SMALL, seed=1, content="a", **options)
    assert counter.calls == 3
    with pytest.raises(ValueError, match="content must name the images"):
        frozen_features(images, SMALL, seed=0, folder=tmp_path)


def test_a_damaged_file_is_replaced(images, tmp_path):
    first = frozen_features(images, SMALL, seed=0, content="a", folder=tmp_path)
    (kept,) = tmp_path.glob("*.npy")
    kept.write_bytes(kept.read_bytes()[:-8])
    again = frozen_features(images, SMALL, seed=0, content="a", folder=tmp_path)
    np.testing.assert_array_equal(again, first)
    assert not list(tmp_path.glob("*.lock"))


def test_two_at_once_compute_once_and_the_other_waits(images, tmp_path, monkeypatch):
    counter = Counter(monkeypatch)
    counter.go_on.clear()
    said, found = [], []

    def work(announce=None):
        found.append(
            frozen_features(images, SMALL, seed=0, content="a", folder=tmp_path, announce=announce)
        )

    first = threading.Thread(target=work)
    first.start()
    assert counter.started.wait(timeout=30)

    def announce(line):
        said.append(line)
        counter.go_on.set()  # the first one ends only after the second has begun to wait

    second = threading.Thread(target=work, args=(announce,))
    second.start()
    for thread in (first, second):
        thread.join(timeout=60)
    assert counter.calls == 1
    assert len(found) == 2
    np.testing.assert_array_equal(*found)
    assert len(said) == 1
    assert "being computed by process" in said[0]


def test_standardised_over_the_training_rows_by_hand():
    features = np.array([[1, 10], [3, 10], [5, 13]], dtype=np.float32)
    x, shift, scale = standardised(features, [0, 1])
    # Variances of the training rows are 1 and 0, their mean 0.5.
    assert shift.tolist() == [2, 10]
    np.testing.assert_allclose(scale, np.sqrt([1 + 0.5e-3, 0.5e-3]), rtol=1e-6)
    np.testing.assert_allclose(x, (features - shift) / scale, rtol=1e-6)
    assert x.dtype == np.float32


def test_standardised_features_have_no_unit_and_constant_ones_are_zero():
    features = np.random.default_rng(0).gamma(0.5, size=(400, 6)).astype(np.float32)
    rows = np.arange(300)
    x, _, _ = standardised(features, rows)
    np.testing.assert_allclose(x[rows].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(x[rows].std(axis=0), 1, atol=1e-2)
    other, _, _ = standardised(features * np.float32(1e-4), rows)
    np.testing.assert_allclose(other, x, rtol=1e-3, atol=1e-4)
    constant, _, scale = standardised(np.full((4, 2), 7, dtype=np.float32), [0, 1])
    assert not constant.any()
    assert scale.tolist() == [1, 1]
