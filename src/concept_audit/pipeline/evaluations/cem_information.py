"""Information scores of CEM embeddings (leakage paper, eq. 10 to 13)."""

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

__all__ = ["cem_information"]


@needs("c_mix")
def cem_information(
    run: EvaluatedRun,
    *,
    split: str = "test",
    compat: Literal["reference"] | None = None,
    n_neighbors: int = 3,
    repeats: int = 5,
    seed: int = 0,
) -> list[Row]:
    """Information scores of CEM embeddings (leakage paper, eq. 10 to 13)."""
    from concept_audit.metrics import (
        alignment_leakage,
        concepts_task_information,
        interconcept_information,
        self_information,
    )

    arrays = run.arrays(split)
    c, y, mix = arrays["c"], arrays["y"], arrays["c_mix"]
    names, n = run.concept_names, len(y)
    rows: list[Row] = []
    for repeat in range(repeats):
        more: dict[str, Any] = {"split": split, "n": n, "repeat": repeat}
        options: dict[str, Any] = {
            "n_neighbors": n_neighbors,
            "seed": seed + repeat,
            "compat": compat,
        }
        task = concepts_task_information(mix, y, **options)
        own = self_information(mix, c, **options)
        others = interconcept_information(mix, c, **options)
        aligned = alignment_leakage(arrays["c_pos"], arrays["c_neg"], c, y, **options)
        rows += score_rows("concepts_task_information", names, task.mean, task.per_concept, **more)
        rows += score_rows("self_information", names, own.mean, own.per_concept, **more)
        rows.append(row("interconcept_information", others.mean, **more))
        rows += matrix_rows("interconcept_information", names, others.matrix, ordered=True, **more)
        rows += score_rows("alignment_leakage", names, aligned.mean, aligned.per_concept, **more)
    return repeated(rows)
