"""CTL and ICL (leakage paper, eq. 6 to 9), with the two readings that help to interpret ICL."""

from __future__ import annotations

from typing import Any, Literal

from concept_audit.pipeline.evaluations.rows import (
    EvaluatedRun,
    Row,
    matrix_rows,
    needs,
    repeated,
    row,
    score_rows,
)

__all__ = ["leakage"]


@needs("c_hat", "c", "y")
def leakage(
    run: EvaluatedRun,
    *,
    split: str = "test",
    compat: Literal["reference"] | None = None,
    n_neighbors: int = 3,
    repeats: int = 5,
    seed: int = 0,
) -> list[Row]:
    """CTL and ICL (leakage paper, eq. 6 to 9), with the two readings that help to interpret ICL."""
    from concept_audit.metrics import concepts_task_leakage, interconcept_leakage

    arrays = run.arrays(split)
    c_hat, c, y = arrays["c_hat"], arrays["c"], arrays["y"]
    names, n = run.concept_names, len(y)
    kind = "discrete" if run.encoding == "hard" else "continuous"
    rows: list[Row] = []
    for repeat in range(repeats):
        more: dict[str, Any] = {"split": split, "n": n, "repeat": repeat}
        options: dict[str, Any] = {
            "n_neighbors": n_neighbors,
            "seed": seed + repeat,
            "compat": compat,
        }
        ctl = concepts_task_leakage(c_hat, c, y, kind=kind, **options)
        rows += score_rows("ctl", names, ctl.mean, ctl.per_concept, **more)
        if len(names) > 1:
            icl = interconcept_leakage(c_hat, c, kind=kind, **options)
            rows += score_rows("icl", names, icl.mean, icl.per_concept, **more)
            rows += matrix_rows("icl", names, icl.matrix, ordered=False, **more)
            if kind == "continuous":
                binary = interconcept_leakage(c_hat, c, kind=kind, entropy="binary", **options)
                rows.append(row("icl_binary", binary.mean, **more))
        if run.encoding in ("soft", "embedding"):
            # The estimators do not change under a monotone map, and logits do not saturate.
            logits = concepts_task_leakage(arrays["c_logits"], c, y, kind=kind, **options)
            rows.append(row("ctl_on_logits", logits.mean, **more))
    return repeated(rows)
