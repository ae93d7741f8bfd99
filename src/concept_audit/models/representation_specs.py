"""Representations as a config names them: each gives codes of images or of factors, untrained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from numpy.typing import NDArray

from concept_audit.models.frozen import Backbone, frozen_features
from concept_audit.models.image_encoders import ResNet18Spec
from concept_audit.models.representations import (
    NOISE_STD,
    label_codes,
    mixed_label_codes,
    noisy_label_codes,
    pixel_codes,
)
from concept_audit.store.array_blocks import ArrayBlocks

__all__ = ["FrozenEncoderSpec", "LabelsSpec", "RawPixelsSpec", "RepresentationSpec"]

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
    encoder : ResNet18Spec, ViTB16Spec, EfficientNetLite0Spec or Conv4Spec
        With `weights` resolved; ``random`` ones are a function of the training seed, so that a
        table of random encoders shows how much they differ.
    """

    name: str = "resnet18_imagenet"
    encoder: Backbone = field(default_factory=ResNet18Spec)

    def codes(self, images: Any, *, seed: int, device: str = "cpu") -> NDArray[Any]:
        """Codes (n, L) of images (n, H, W, C), normalised as the encoder was trained."""
        return frozen_features(images, self.encoder, seed=seed, device=device)
