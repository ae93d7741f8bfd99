"""What every concept-based model returns, and the description that builds it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import nn

__all__ = ["ConceptOutput", "ModelSpec"]


class ConceptOutput(NamedTuple):
    """Outputs under the names of the array bundle.

    `c_logits` (n, k) are the learnt logits, never changed by an intervention; `c_hat` (n, k) is
    what the head reads of each concept; `bottleneck` (n, k) or (n, k*m) is the head's input;
    `y_logits` (n, l). CEMs add `c_pos`, `c_neg` and `c_mix` (n, k, m).
    """

    c_logits: torch.Tensor
    c_hat: torch.Tensor
    bottleneck: torch.Tensor
    y_logits: torch.Tensor
    c_pos: torch.Tensor | None = None
    c_neg: torch.Tensor | None = None
    c_mix: torch.Tensor | None = None


class ModelSpec(Protocol):
    """Frozen description of a model: plain values that a config names and a key hashes."""

    @property
    def family(self) -> str:
        """Short name of the kind of model: ``cbm``, ``cem``, ``reference_head``."""
        ...

    @property
    def encoding(self) -> str | None:
        """What the head reads: ``hard``, ``soft``, ``logit``, ``embedding``, or None."""
        ...

    @property
    def training(self) -> str | None:
        """``joint``, ``sequential``, ``independent``; None for a head alone."""
        ...

    def build(self, *, input_shape: tuple[int, ...], n_concepts: int, n_classes: int) -> nn.Module:
        """Model with fresh weights drawn from torch's global generator."""
        ...
