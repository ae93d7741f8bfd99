"""Representations as a config names them: each gives codes of images or of factors, untrained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import torch
from numpy.typing import NDArray
from torch import nn

from concept_audit.models.image_encoders import (
    EfficientNetLite0Spec,
    ResNet18Spec,
    ViTB16Spec,
)
from concept_audit.models.representations import (
    NOISE_STD,
    label_codes,
    mixed_label_codes,
    module_codes,
    noisy_label_codes,
    pixel_codes,
)
from concept_audit.store.array_blocks import ArrayBlocks

__all__ = ["FrozenEncoderSpec", "LabelsSpec", "RawPixelsSpec", "RepresentationSpec"]

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_HALVES = ((0.5,) * 3, (0.5,) * 3)  # EfficientNet-Lite was trained with these
_MIXTURES = ("none", "linear")


@dataclass(frozen=True)
class RepresentationSpec:
    """What all of them share: they are never trained and know no concepts.

    Parameters
    ----------
    name : str
        Name in tables.
    """

    name: str

    family: ClassVar[str] = "representation"
    encoding: ClassVar[str | None] = None
    training: ClassVar[str | None] = None
    reads: ClassVar[str] = "images"

    def build(self, *, input_shape: tuple[int, ...], n_concepts: int, n_classes: int) -> NoReturn:
        """Refuse: there is no network to train."""
        raise TypeError(
            f"{self.name} is a representation without training. Use its codes in the bundle."
        )


@dataclass(frozen=True)
class LabelsSpec(RepresentationSpec):
    """Ground-truth labels, noisy or linearly mixed (DCI-ES paper, section 6).

    Parameters
    ----------
    noise_std : float
        Of the Gaussian noise, drawn once for the whole set.
    mixture : {"none", "linear"}
        ``linear`` gives W z with as many codes as factors, and no noise.

    Raises
    ------
    ValueError
        On an unknown mixture, or a mixture together with noise.
    """

    name: str = "noisy_labels"
    noise_std: float = NOISE_STD
    mixture: str = "none"

    reads: ClassVar[str] = "factors"

    def __post_init__(self) -> None:
        if self.mixture not in _MIXTURES:
            raise ValueError(f"mixture must be one of {_MIXTURES}, got {self.mixture!r}.")
        if self.mixture == "linear" and self.noise_std:
            raise ValueError(
                f"mixture='linear' takes no noise, got noise_std={self.noise_std}. Set it to 0."
            )

    def codes(
        self, factors: NDArray[Any], factor_sizes: tuple[int, ...], *, seed: int
    ) -> NDArray[Any]:
        """Codes (n, K) of class indices (n, K) of a whole dataset."""
        if self.mixture == "linear":
            return mixed_label_codes(factors, factor_sizes, seed=seed)
        if self.noise_std:
            return noisy_label_codes(factors, factor_sizes, std=self.noise_std, seed=seed)
        return label_codes(factors, factor_sizes)


@dataclass(frozen=True)
class RawPixelsSpec(RepresentationSpec):
    """Pixels in [0, 1], flattened: 12,288 codes for colour images of 64 pixels.

    The bundles of a run take 49 kB an image of that size: 51 GB for all of MPI3D, which is written
    by blocks.
    """

    name: str = "raw_pixels"

    def codes(self, images: Any, *, seed: int, device: str = "cpu") -> ArrayBlocks:
        """Codes (n, L) of images (n, H, W, C), made when they are written."""
        return pixel_codes(images)


@dataclass(frozen=True)
class FrozenEncoderSpec(RepresentationSpec):
    """Features of a pretrained encoder before its last layer (DCI-ES paper: ResNet-18, L = 512).

    Parameters
    ----------
    encoder : ResNet18Spec, ViTB16Spec or EfficientNetLite0Spec
        With `weights` resolved; ``random`` ones are a function of the seed.
    """

    name: str = "resnet18_imagenet"
    encoder: ResNet18Spec | ViTB16Spec | EfficientNetLite0Spec = field(default_factory=ResNet18Spec)

    def network(self, input_shape: tuple[int, ...], *, seed: int) -> nn.Module:
        """Encoder from images (C, H, W) to features, in evaluation mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self.encoder.build(input_shape, 1)
        for last in ("fc", "heads", "classifier"):
            if hasattr(network, last):
                setattr(network, last, nn.Identity())
                return network.eval()
        raise TypeError(f"{type(network).__name__} has no last layer by a name that is known.")

    def codes(self, images: Any, *, seed: int, device: str = "cpu") -> NDArray[Any]:
        """Codes (n, L) of images (n, H, W, C), normalised as the encoder was trained."""
        _, height, width, channels = images.shape
        network = self.network((channels, height, width), seed=seed)
        mean: tuple[float, ...]
        std: tuple[float, ...]
        mean, std = _HALVES if isinstance(self.encoder, EfficientNetLite0Spec) else _IMAGENET
        if channels == 1:  # the first layer is averaged over the colours, so are the constants
            mean, std = (sum(mean) / 3,), (sum(std) / 3,)
        return module_codes(images, network, mean=mean, std=std, device=device)
