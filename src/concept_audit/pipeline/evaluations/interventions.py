"""Accuracy after 0..k interventions, and what the intervened head gets wrong."""

from __future__ import annotations

from typing import Any

from concept_audit.pipeline.evaluations.rows import EvaluatedRun, Row, needs, repeated, row

__all__ = ["interventions"]


@needs("c_hat", "c", "y")
def interventions(
    run: EvaluatedRun,
    *,
    split: str = "test",
    policy: str = "random",
    competence: float = 1.0,
    repeats: int = 5,
    seed: int = 0,
) -> list[Row]:
    """Accuracy after 0..k interventions, and what the intervened head gets wrong."""
    from concept_audit.metrics import intervention_curve
    from concept_audit.metrics.interventions import (
        MAX_CONFIGURATION_CONCEPTS,
        misclassified_configurations,
    )

    arrays = run.arrays(split)
    c, y, n = arrays["c"], arrays["y"], len(arrays["y"])
    head = run.head()
    embedding = run.encoding == "embedding"
    percentiles = run.percentiles() if run.encoding == "logit" else None
    options: dict[str, Any] = {"kind": run.encoding, "percentiles": percentiles}
    bottleneck = arrays["c_hat"]
    if embedding:
        options.update(c_pos=arrays["c_pos"], c_neg=arrays["c_neg"], c_hat=arrays["c_hat"])
        bottleneck = arrays["c_mix"].reshape(n, -1)
    rows: list[Row] = []
    for repeat in range(repeats):
        curve = intervention_curve(
            head,
            bottleneck,
            c,
            y,
            policy=policy,
            competence=competence,
            seed=seed + repeat,
            **options,
        )
        more: dict[str, Any] = {"split": split, "n": n, "repeat": repeat}
        rows += [
            row("intervention_accuracy", value, target=policy, step=step, **more)
            for step, value in enumerate(curve.task_accuracy)
        ]
        rows.append(row("intervened_task_accuracy", curve.intervened_task_accuracy, **more))
    rows = repeated(rows)
    if not embedding and competence == 1.0 and c.shape[1] <= MAX_CONFIGURATION_CONCEPTS:
        wrong = misclassified_configurations(head, percentiles, c, y).misclassified
        rows += [
            row("misclassified_configuration", share, target=bits, split=split, n=n)
            for bits, share in wrong.items()
        ]
    return rows
