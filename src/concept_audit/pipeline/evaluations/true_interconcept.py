"""Normalised mutual information between annotated concepts (leakage paper, Figure 15)."""

from __future__ import annotations

from concept_audit.pipeline.evaluations.rows import EvaluatedRun, Row, row

__all__ = ["true_interconcept"]


def true_interconcept(run: EvaluatedRun, *, split: str = "train") -> list[Row]:
    """Normalised mutual information between annotated concepts (leakage paper, Figure 15)."""
    from concept_audit.metrics.information.normalised import normalised_mutual_information

    c = run.arrays(split)["c"]
    names = run.concept_names
    return [
        row(
            "interconcept_information_true",
            normalised_mutual_information(c[:, i], c[:, j], x_discrete=True, y_discrete=True),
            target=f"{names[i]}|{names[j]}",
            split=split,
            n=len(c),
        )
        for i in range(len(names))
        for j in range(len(names))
        if i < j
    ]
