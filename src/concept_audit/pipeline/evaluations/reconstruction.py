"""Reconstruction and KL of a VAE on the validation split, in the epoch that was kept."""

from __future__ import annotations

from concept_audit.pipeline.evaluations.rows import EvaluatedRun, Row, needs, row

__all__ = ["reconstruction"]


@needs("codes")
def reconstruction(run: EvaluatedRun) -> list[Row]:
    """Cross-entropy and KL per validation image, in nats; nothing for what was never trained."""
    kept = run.kept_epoch
    n = len(run.arrays("val")["index"])
    return [
        row(metric, kept[f"val_{metric}"], split="val", n=n, unit="nat")
        for metric in ("reconstruction", "kl")
        if f"val_{metric}" in kept
    ]
