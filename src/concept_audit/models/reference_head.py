"""A head trained on the true concepts: the accuracy that S_int is measured from (eq. 5)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from concept_audit.models.heads import HEADS, build_head
from concept_audit.models.outputs import ConceptOutput

__all__ = ["ReferenceHead", "ReferenceHeadSpec"]


class ReferenceHead(nn.Module):
    """Head on annotated concepts; the input `x` is ignored.

    Parameters
    ----------
    head : nn.Module
        From ``(n, k)`` to ``(n, l)``.
    """

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(
        self,
        x: torch.Tensor | None,
        c: torch.Tensor | None = None,
        intervene: torch.Tensor | None = None,
    ) -> ConceptOutput:
        """All outputs for true concepts `c`; its logits are +1 and -1, of which only signs count.

        Interventions change nothing: the head reads the true concepts already.
        """
        if c is None:
            raise ValueError("a reference head reads the true concepts: pass c of shape (n, k).")
        c_hat = c.to(next(self.head.parameters()).dtype)
        return ConceptOutput(2 * c_hat - 1, c_hat, c_hat, self.head(c_hat))


@dataclass(frozen=True)
class ReferenceHeadSpec:
    """Description of a reference head.

    Parameters
    ----------
    head : {"linear", "mlp"}
        Kind of head; that of the model it is compared with.

    Raises
    ------
    ValueError
        On an unknown head.
    """

    head: str = "linear"

    def __post_init__(self) -> None:
        if self.head not in HEADS:
            raise ValueError(f"head must be one of {HEADS}, got {self.head!r}.")

    @property
    def family(self) -> str:
        """``reference_head``."""
        return "reference_head"

    @property
    def encoding(self) -> None:
        """None: nothing is learnt about the concepts."""
        return

    @property
    def training(self) -> None:
        """None: there is no encoder."""
        return

    def build(
        self, *, input_shape: tuple[int, ...], n_concepts: int, n_classes: int
    ) -> ReferenceHead:
        """Head with fresh weights drawn from torch's global generator."""
        return ReferenceHead(build_head(self.head, n_concepts, n_classes))
