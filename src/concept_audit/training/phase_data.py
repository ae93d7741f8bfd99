"""What a phase is trained on beside the dataset itself: inputs of a lone head, concept weights."""

from __future__ import annotations

import warnings

import torch

from concept_audit.data.base import ConceptDataset
from concept_audit.models.losses import constant_concepts, positive_weights
from concept_audit.training.batches import rows_per_pass, to_inputs
from concept_audit.training.recipe import Member, Recipe

__all__ = ["concept_weights", "head_inputs"]


def head_inputs(
    model: torch.nn.Module,
    member: Member,
    dataset: ConceptDataset,
    *,
    device: str | torch.device = "cpu",
) -> dict[str, torch.Tensor]:
    """What a head by itself is trained on: true concepts, or those of the trained encoder."""
    inputs = {}
    for split in ("train", "val"):
        rows = dataset.rows(split)
        if member.spec.training == "sequential":
            model.to(device).eval()
            blocks = []
            size = rows_per_pass(dataset)
            with torch.no_grad():
                for start in range(0, len(rows), size):
                    x = to_inputs(dataset, rows[start : start + size], device)
                    blocks.append(model.concepts(x)[1].cpu())  # type: ignore[operator]
            model.cpu()
            inputs[split] = torch.cat(blocks)
        else:
            inputs[split] = torch.from_numpy(dataset.c[rows]).to(torch.float32)
    return inputs


def concept_weights(dataset: ConceptDataset, recipe: Recipe) -> torch.Tensor | None:
    """Positive-class weights if the recipe asks for them; constant concepts are named."""
    if not recipe.balanced_concepts:
        return None
    c = dataset.c[dataset.rows("train")]
    constant = constant_concepts(c, dataset.concept_names)
    if constant:
        warnings.warn(
            f"concepts {', '.join(constant)} take one value only in the training split of "
            f"{dataset.name}: their loss weights are bounded and their AUC is undefined.",
            stacklevel=2,
        )
    return torch.from_numpy(positive_weights(c))
