"""Normalised mutual information between annotated concepts (leakage paper, Figure 15)."""

from __future__ import annotations

from concept_audit.pipeline.evaluations.rows import EvaluatedRun, Row, matrix_rows, needs

__all__ = ["true_interconcept"]


@needs("c")
def true_interconcept(run: EvaluatedRun, *, split: str = "train") -> list[Row]:
    """The ground-truth term of ICL (eq. 8): I(c_i, c_j) / sqrt(H(c_i) H(c_j))."""
    from concept_audit.metrics import interconcept_leakage

    c = run.arrays(split)["c"]
    information = interconcept_leakage(c, c, kind="discrete").annotated_information
    return matrix_rows(
        "interconcept_information_true",
        run.concept_names,
        information,
        ordered=False,
        split=split,
        n=len(c),
    )
