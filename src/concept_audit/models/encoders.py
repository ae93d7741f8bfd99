"""Encoders: from an input to concept logits (CBM) or to the features of concept vectors (CEM).

An encoder is described by a small frozen dataclass of plain values, which a config can name and a
key can hash, with one method `build(input_shape, n_outputs)`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import nn

__all__ = ["LEAKY_SLOPE", "EncoderSpec", "MLPSpec"]

LEAKY_SLOPE = 0.01


@runtime_checkable
class EncoderSpec(Protocol):
    """What a model needs from an encoder's description."""

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Network from ``(n, *input_shape)`` to ``(n, n_outputs)``."""
        ...


@dataclass(frozen=True)
class MLPSpec:
    """Multi-layer perceptron with LeakyReLU between layers and a linear last layer.

    Parameters
    ----------
    widths : tuple of int
        Hidden widths. (64, 64) is the {7, 64, 64, 3} network of the leakage paper, appendix.
    layer_norm : bool
        LayerNorm before each activation. The authors' code has three hidden layers with it:
        ``widths=(64, 64, 64), layer_norm=True``.

    Raises
    ------
    ValueError
        On widths below 1.
    """

    widths: tuple[int, ...] = (64, 64)
    layer_norm: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(int(width) for width in self.widths))
        if min(self.widths, default=1) < 1:
            raise ValueError(f"widths must be positive, got {self.widths}.")

    @property
    def label(self) -> str:
        """Name in tables, with the widths: ``mlp_64_64``."""
        return "_".join(["mlp", *map(str, self.widths), *(["norm"] if self.layer_norm else [])])

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Network from ``(n, *input_shape)``, flattened if needed, to ``(n, n_outputs)``."""
        widths = (math.prod(input_shape), *self.widths)
        layers: list[nn.Module] = [] if len(input_shape) == 1 else [nn.Flatten()]
        for narrow, wide in itertools.pairwise(widths):
            layers.append(nn.Linear(narrow, wide))
            if self.layer_norm:
                layers.append(nn.LayerNorm(wide))
            layers.append(nn.LeakyReLU(LEAKY_SLOPE))
        return nn.Sequential(*layers, nn.Linear(widths[-1], n_outputs))
