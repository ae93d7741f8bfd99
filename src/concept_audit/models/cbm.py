"""Concept bottleneck models: hard, soft or logit by one switch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from concept_audit.models.encoders import LEAKY_SLOPE, EncoderSpec, MLPSpec
from concept_audit.models.heads import HEADS, build_head
from concept_audit.models.outputs import ConceptOutput
from concept_audit.models.randomness import SeededDropout

__all__ = ["CBM", "ENCODINGS", "TRAININGS", "CBMSpec"]

ENCODINGS = ("hard", "soft", "logit")
TRAININGS = ("joint", "sequential", "independent")


class CBM(nn.Module):
    """Encoder, concepts, head (Leakage paper, section 3 and appendix).

    Parameters
    ----------
    encoder : nn.Module
        From inputs to ``(n, k)``.
    head : nn.Module
        From ``(n, k)`` to ``(n, l)``.
    n_concepts : int
        Number of concepts, k.
    encoding : {"hard", "soft", "logit"}
        What the head reads: ``1[sigmoid > 0.5]``, ``sigmoid``, or the logits.
    concept_output : {"linear", "leaky_relu"}
        ``leaky_relu`` passes the logits through a LeakyReLU as the authors' code does on
        TabularToy; the paper does not mention it, yet its S_int of 0.301 needs it.
    concept_dropout : float
        Dropout on the logits, after that activation (the code: 0.2).

    Raises
    ------
    ValueError
        On an unknown encoding or concept output.
    """

    concept_percentiles: torch.Tensor

    def __init__(
        self,
        encoder: nn.Module,
        head: nn.Module,
        *,
        n_concepts: int,
        encoding: str = "soft",
        concept_output: str = "linear",
        concept_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        _check_choice("encoding", encoding, ENCODINGS)
        _check_choice("concept_output", concept_output, ("linear", "leaky_relu"))
        self.encoder = encoder
        self.head = head
        self.encoding = encoding
        self.concept_output = concept_output
        self.concept_activation: nn.Module = (
            nn.LeakyReLU(LEAKY_SLOPE) if concept_output == "leaky_relu" else nn.Identity()
        )
        self.concept_dropout = SeededDropout(concept_dropout)
        # Rows: 5th and 95th percentile of the training logits, set once training has ended.
        self.register_buffer("concept_percentiles", torch.full((2, n_concepts), float("nan")))

    def concepts(
        self,
        x: torch.Tensor,
        c: torch.Tensor | None = None,
        intervene: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and what the head reads, both ``(n, k)``, with interventions where asked.

        An intervened concept is set to 0 or 1; of a logit model, to the 5th or 95th percentile of
        its training logits.
        """
        c_logits = self.concept_dropout(self.concept_activation(self.encoder(x)))
        c_hat = self.encode(c_logits)
        if intervene is not None:
            if c is None:
                raise ValueError("intervene needs the true concepts: pass c of shape (n, k).")
            c_hat = torch.where(intervene, self.intervention_values(c).to(c_hat), c_hat)
        return c_logits, c_hat

    def encode(self, c_logits: torch.Tensor) -> torch.Tensor:
        """What the head reads of each concept."""
        if self.encoding == "logit":
            return c_logits
        if self.encoding == "soft":
            return torch.sigmoid(c_logits)
        return (c_logits > 0).to(c_logits.dtype)

    def intervention_values(self, c: torch.Tensor) -> torch.Tensor:
        """Values that stand for true concepts `c` in this encoding."""
        if self.encoding != "logit":
            return c
        low, high = self.concept_percentiles
        if not torch.isfinite(self.concept_percentiles).all():
            raise ValueError(
                "concept_percentiles are not set: interventions on a logit model need the 5th and "
                "95th percentile of its training logits. Load a trained state, or fill the buffer."
            )
        return torch.where(c > 0.5, high, low)

    def forward(
        self,
        x: torch.Tensor,
        c: torch.Tensor | None = None,
        intervene: torch.Tensor | None = None,
    ) -> ConceptOutput:
        """All outputs; `intervene` is a mask broadcastable to ``(n, k)`` and needs `c`."""
        c_logits, c_hat = self.concepts(x, c, intervene)
        return ConceptOutput(c_logits, c_hat, c_hat, self.head(c_hat))


@dataclass(frozen=True)
class CBMSpec:
    """Description of a CBM in plain values; see `CBM` for their meaning.

    Parameters
    ----------
    encoding, concept_output, concept_dropout
        As in `CBM`.
    encoder : EncoderSpec
        Description of the encoder.
    head : {"linear", "mlp"}
        Kind of head.
    training : {"joint", "sequential", "independent"}, optional
        Joint by default, independent for hard models: no gradient passes a threshold.
    """

    encoding: str = "soft"
    encoder: EncoderSpec = field(default_factory=MLPSpec)
    head: str = "linear"
    concept_output: str = "linear"
    concept_dropout: float = 0.0
    training: str | None = None

    def __post_init__(self) -> None:
        _check_choice("encoding", self.encoding, ENCODINGS)
        _check_choice("head", self.head, HEADS)
        _check_choice("concept_output", self.concept_output, ("linear", "leaky_relu"))
        if not 0 <= self.concept_dropout < 1:
            raise ValueError(f"concept_dropout must lie in [0, 1), got {self.concept_dropout}.")
        if self.training is None:
            default = "independent" if self.encoding == "hard" else "joint"
            object.__setattr__(self, "training", default)
        _check_choice("training", str(self.training), TRAININGS)
        if self.encoding == "hard" and self.training == "joint":
            raise ValueError(
                "training='joint' cannot train a hard model: no gradient passes the threshold. "
                "Use training='independent' or 'sequential'."
            )

    @property
    def family(self) -> str:
        """``cbm``."""
        return "cbm"

    def build(self, *, input_shape: tuple[int, ...], n_concepts: int, n_classes: int) -> CBM:
        """CBM with fresh weights drawn from torch's global generator."""
        return CBM(
            self.encoder.build(input_shape, n_concepts),
            build_head(self.head, n_concepts, n_classes),
            n_concepts=n_concepts,
            encoding=self.encoding,
            concept_output=self.concept_output,
            concept_dropout=self.concept_dropout,
        )


def _check_choice(label: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{label} must be one of {choices}, got {value!r}.")
