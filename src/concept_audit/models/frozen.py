"""Frozen encoders: features of a network that is not trained, and the small network on top of them.

The features of an image do not depend on concepts, loss weight or training seed, so they are
computed once and every model of a grid is trained on them. What is trained is an MLP, which many
models can share one batched program for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from concept_audit.models.encoders import MLPSpec
from concept_audit.models.image_encoders import (
    Conv4Spec,
    EfficientNetLite0Spec,
    ResNet18Spec,
    ViTB16Spec,
)
from concept_audit.models.pretrained import WEIGHT_FILES, weights_content
from concept_audit.models.representations import kept_codes, module_codes

__all__ = [
    "Backbone",
    "FrozenSpec",
    "backbone_identity",
    "backbone_in_words",
    "feature_network",
    "frozen_features",
    "standardised",
]

Backbone = Conv4Spec | ResNet18Spec | ViTB16Spec | EfficientNetLite0Spec

# Raised when the same images and weights begin to give other features.
FEATURES_VERSION = 1

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_HALVES = ((0.5,) * 3, (0.5,) * 3)  # EfficientNet-Lite was trained with these
# Name in messages and in `WEIGHT_FILES`; mean and deviation of the inputs that it was trained on.
_KNOWN: dict[type, tuple[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    Conv4Spec: ("conv4", _HALVES),
    ResNet18Spec: ("resnet18", _IMAGENET),
    ViTB16Spec: ("vit_b_16", _IMAGENET),
    EfficientNetLite0Spec: ("efficientnet_lite0", _HALVES),
}
_RIDGE = 1e-3


@dataclass(frozen=True)
class FrozenSpec:
    """Encoder whose image network stays as it is; an MLP on its features is trained.

    For a CBM or CEM, in the place of an MLP. The model itself is built on features (d,): a dataset
    of images is turned into one of features first. Images are not augmented, whatever the recipe
    says: their features would change in every epoch.

    Parameters
    ----------
    backbone : Conv4Spec, ResNet18Spec, ViTB16Spec or EfficientNetLite0Spec
        The network, without its last layer; `weights` resolved.
    widths : tuple of int
        Hidden widths of the MLP; () is one linear layer.
    backbone_seed : int
        Of random weights. It is not the training seed: features are the same in every fold.

    Raises
    ------
    TypeError
        On a backbone of another kind.
    ValueError
        On a negative seed or widths below 1.
    """

    backbone: Backbone
    widths: tuple[int, ...] = ()
    backbone_seed: int = 0

    def __post_init__(self) -> None:
        _known(self.backbone)
        if self.backbone_seed < 0:
            raise ValueError(f"backbone_seed must not be negative, got {self.backbone_seed}.")
        object.__setattr__(self, "widths", MLPSpec(self.widths).widths)

    @property
    def weights(self) -> str:
        """``imagenet``, ``random`` or the path of a file, as in the backbone's description."""
        return _weights(self.backbone)

    @property
    def label(self) -> str:
        """Name in tables: ``resnet18_frozen``, with the widths of an MLP on top."""
        return "_".join([self.backbone.label, "frozen", *map(str, self.widths)])

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """The trained part: from features ``(n, d)`` to ``(n, n_outputs)``.

        Raises
        ------
        ValueError
            On the shape of an image.
        """
        if len(input_shape) != 1:
            raise ValueError(
                "a frozen encoder's model is built on features (d,), got input_shape "
                f"{input_shape}. Turn the images into features first: "
                "concept_audit.training.features.with_features(dataset, encoder)."
            )
        return MLPSpec(self.widths).build(input_shape, n_outputs)


def _known(backbone: Any) -> tuple[str, tuple[tuple[float, ...], tuple[float, ...]]]:
    """Name and input constants of a backbone."""
    if type(backbone) not in _KNOWN:
        raise TypeError(
            f"backbone must be one of {', '.join(kind.__name__ for kind in _KNOWN)}, got "
            f"{type(backbone).__name__}. An encoder that reads tables needs no features: use it "
            "as the encoder itself."
        )
    return _KNOWN[type(backbone)]


def _weights(backbone: Backbone) -> str:
    return getattr(backbone, "weights", "random")


def backbone_identity(backbone: Backbone, *, seed: int) -> dict[str, Any]:
    """Everything about a backbone that decides its features, in plain values.

    Weights stand by their content: the hash of the file, or the seed they are drawn from. Where
    the file lies plays no part.
    """
    name, _ = _known(backbone)
    weights = _weights(backbone)
    if weights == "imagenet":
        content = WEIGHT_FILES[name][1]
    elif weights == "random":
        content = f"random, seed {seed}"
    else:
        content = weights_content(weights)
    described = {key: value for key, value in asdict(backbone).items() if key != "weights"}
    return {"backbone": name, **described, "weights": content, "version": FEATURES_VERSION}


def backbone_in_words(backbone: Backbone, *, seed: int) -> str:
    """Name and weights as a note prints them, for example `resnet18 with ImageNet weights`."""
    name, _ = _known(backbone)
    weights = _weights(backbone)
    if weights == "imagenet":
        return f"{name} with ImageNet weights"
    if weights == "random":
        return f"{name} with random weights (seed {seed})"
    return f"{name} with the weights of a file ({weights_content(weights)[:15]})"


def feature_network(backbone: Backbone, input_shape: tuple[int, ...], *, seed: int) -> nn.Module:
    """Network from images (n, C, H, W) to features (n, d), in evaluation mode.

    Parameters
    ----------
    backbone : Backbone
        Its last layer is left out.
    input_shape : tuple of int
        (C, H, W).
    seed : int
        Of random weights; pretrained ones do not depend on it.
    """
    _known(backbone)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = backbone.build(input_shape, 1)
    if isinstance(network, nn.Sequential):
        return network[:-1].eval()
    last = next(name for name in ("fc", "heads", "classifier") if hasattr(network, name))
    setattr(network, last, nn.Identity())
    return network.eval()


def frozen_features(
    images: Any,
    backbone: Backbone,
    *,
    seed: int,
    folder: str | Path | None = None,
    content: str = "",
    device: str = "cpu",
    announce: Callable[[str], None] | None = None,
) -> NDArray[np.float32]:
    """Features of all images, kept in a folder.

    Images in [0, 1] are normalised as the backbone was trained, whatever constants the dataset
    has for a network of its own: the weights are what they are.

    Parameters
    ----------
    images : UInt8[ndarray, "n H W C"]
        Or anything that gives such a block for an index array.
    backbone : Backbone
        The network.
    seed : int
        Of random weights.
    folder : str or Path, optional
        Where to keep the features; without it they are computed anew.
    content : str
        Digest of `images`; together with the backbone it names the file.
    device : str
        Where to compute. It changes no feature beyond rounding, so it is not part of the name.
    announce : callable, optional
        Told in a line when computing starts and ends, or what is being waited for.

    Returns
    -------
    Float32[ndarray, "n d"], as the network gives them; see `standardised`.

    Raises
    ------
    ValueError
        On `folder` without `content`.
    """
    _, (mean, std) = _known(backbone)
    n, height, width, channels = images.shape
    if channels == 1:  # the first layer is averaged or summed over the colours: so are these
        mean, std = (sum(mean) / 3,), (sum(std) / 3,)
    what = f"{n} images by {backbone_in_words(backbone, seed=seed)}, on {device}"

    def compute() -> NDArray[np.float32]:
        network = feature_network(backbone, (channels, height, width), seed=seed)
        return module_codes(images, network, mean=mean, std=std, device=device)

    if folder is None:
        return compute()
    if not content:
        raise ValueError("content must name the images when features are kept: pass their digest.")
    key = {"images": content, **backbone_identity(backbone, seed=seed), "mean": mean, "std": std}
    return kept_codes(folder, key, compute, what=what, announce=announce)


def standardised(
    features: NDArray[np.float32], train_rows: ArrayLike
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Features with mean 0 and deviation about 1 over the training rows, per feature.

    A pooled feature of a deep network lies far from 0 and its scale differs by orders of
    magnitude from network to network (random ones above all), so that no one learning rate would
    suit them. Centred and scaled, a linear layer on them starts as it would on any other input.

    Parameters
    ----------
    features : Float32[ndarray, "n d"]
        As `frozen_features` gives them.
    train_rows : Int[ndarray, "rows"]
        Rows the statistics are taken over.

    Returns
    -------
    The standardised features (n, d), and the shift and the scale (d,) that made them:
    ``(features - shift) / scale``.

    Notes
    -----
    ``scale = sqrt(variance + 0.001 mean variance)``. The second term is for features that are dead
    in the training rows: without it a single test image that wakes one would get a value of any
    size. It is relative, so that the result does not depend on the features' unit.
    """
    block = np.asarray(features[np.asarray(train_rows)], dtype=np.float64)
    variance = block.var(axis=0)
    typical = float(variance.mean())
    shift = block.mean(axis=0).astype(np.float32)
    # Features that are all constant stay 0.
    scale = np.sqrt(variance + _RIDGE * typical) if typical > 0 else np.ones_like(variance)
    scale = scale.astype(np.float32)
    scaled = np.subtract(features, shift, dtype=np.float32)
    scaled /= scale
    return scaled, shift, scale
