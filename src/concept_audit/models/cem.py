"""Concept embedding models: two vectors per concept, mixed by its probability."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from concept_audit.models.encoders import LEAKY_SLOPE, EncoderSpec, MLPSpec
from concept_audit.models.heads import HEADS, build_head
from concept_audit.models.outputs import ConceptOutput

__all__ = ["CEM", "CEMSpec"]


class CEM(nn.Module):
    """Concept embedding model (Espinosa Zarlenga et al. 2022; Leakage paper, section 6).

    Per concept a linear layer with LeakyReLU gives ``c_pos`` and ``c_neg``; one scorer shared by
    all concepts reads both and gives the probability; ``c_mix`` is their mixture, and the head
    reads the mixtures of all concepts, concept-major.

    Parameters
    ----------
    encoder : nn.Module
        From inputs to ``(n, hidden_size)``.
    head : nn.Module
        From ``(n, k * embedding_size)`` to ``(n, l)``.
    n_concepts, hidden_size, embedding_size : int
        k, the encoder's width, and the width m of a concept vector.
    """

    def __init__(
        self,
        encoder: nn.Module,
        head: nn.Module,
        *,
        n_concepts: int,
        hidden_size: int = 64,
        embedding_size: int = 16,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.n_concepts = n_concepts
        self.embedding_size = embedding_size
        # One wide layer holds the k layers of the concepts: same inputs, same initial law.
        self.context = nn.Linear(hidden_size, n_concepts * 2 * embedding_size)
        self.scorer = nn.Linear(2 * embedding_size, 1)
        self.head = head

    def concepts(
        self,
        x: torch.Tensor,
        c: torch.Tensor | None = None,
        intervene: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits and mixing weights ``(n, k)``, then ``c_pos``, ``c_neg``, ``c_mix`` (n, k, m)."""
        both = nn.functional.leaky_relu(self.context(self.encoder(x)), LEAKY_SLOPE)
        both = both.reshape(len(x), self.n_concepts, 2 * self.embedding_size)
        c_logits = self.scorer(both).squeeze(-1)
        c_hat = torch.sigmoid(c_logits)
        if intervene is not None:
            if c is None:
                raise ValueError("intervene needs the true concepts: pass c of shape (n, k).")
            c_hat = torch.where(intervene, c.to(c_hat), c_hat)
        c_pos, c_neg = both.split(self.embedding_size, dim=-1)
        weight = c_hat.unsqueeze(-1)
        return c_logits, c_hat, c_pos, c_neg, weight * c_pos + (1 - weight) * c_neg

    def forward(
        self,
        x: torch.Tensor,
        c: torch.Tensor | None = None,
        intervene: torch.Tensor | None = None,
    ) -> ConceptOutput:
        """All outputs; `intervene` is a mask broadcastable to ``(n, k)`` and needs `c`."""
        c_logits, c_hat, c_pos, c_neg, c_mix = self.concepts(x, c, intervene)
        bottleneck = c_mix.flatten(1)
        return ConceptOutput(
            c_logits, c_hat, bottleneck, self.head(bottleneck), c_pos, c_neg, c_mix
        )


@dataclass(frozen=True)
class CEMSpec:
    """Description of a CEM in plain values.

    Parameters
    ----------
    encoder : EncoderSpec
        Description of the encoder, built with `hidden_size` outputs.
    head : {"linear", "mlp"}
        Kind of head.
    hidden_size, embedding_size : int
        Width of the encoder's output and of a concept vector; the paper uses 64 and 16.

    Raises
    ------
    ValueError
        On an unknown head or a size below 1.
    """

    encoder: EncoderSpec = field(default_factory=MLPSpec)
    head: str = "linear"
    hidden_size: int = 64
    embedding_size: int = 16

    def __post_init__(self) -> None:
        if self.head not in HEADS:
            raise ValueError(f"head must be one of {HEADS}, got {self.head!r}.")
        for label in ("hidden_size", "embedding_size"):
            if getattr(self, label) < 1:
                raise ValueError(f"{label} must be at least 1, got {getattr(self, label)}.")

    @property
    def family(self) -> str:
        """``cem``."""
        return "cem"

    @property
    def encoding(self) -> str:
        """``embedding``."""
        return "embedding"

    @property
    def training(self) -> str:
        """``joint``: the only way a CEM is trained."""
        return "joint"

    def build(self, *, input_shape: tuple[int, ...], n_concepts: int, n_classes: int) -> CEM:
        """CEM with fresh weights drawn from torch's global generator."""
        return CEM(
            self.encoder.build(input_shape, self.hidden_size),
            build_head(self.head, n_concepts * self.embedding_size, n_classes),
            n_concepts=n_concepts,
            hidden_size=self.hidden_size,
            embedding_size=self.embedding_size,
        )
