"""Task and concept accuracy, F1 and AUC over the whole split."""

from __future__ import annotations

from concept_audit.pipeline.evaluations.rows import EvaluatedRun, Row, needs, row, score_rows

__all__ = ["accuracy"]


@needs("y_logits", "y")
def accuracy(run: EvaluatedRun, *, split: str = "test") -> list[Row]:
    """Task and concept accuracy, F1 and AUC over the whole split."""
    from concept_audit.metrics.accuracy import concept_accuracy, task_accuracy

    arrays = run.arrays(split)
    n = len(arrays["y"])
    task = task_accuracy(arrays["y_logits"], arrays["y"])
    rows = [
        row("task_accuracy", task.accuracy, split=split, n=n),
        row("task_f1", task.f1, split=split, n=n),
        row("task_auc", task.auc, split=split, n=n),
    ]
    if "c_logits" not in arrays:  # a head on annotated concepts predicts none
        return rows
    concepts = concept_accuracy(arrays["c_logits"], arrays["c"], threshold=0.0)
    for metric, mean, values in (
        ("concept_accuracy", concepts.accuracy, concepts.accuracy_per_concept),
        ("concept_f1", concepts.f1, concepts.f1_per_concept),
        ("concept_auc", concepts.auc, concepts.auc_per_concept),
        (
            "concept_balanced_accuracy",
            concepts.balanced_accuracy,
            concepts.balanced_accuracy_per_concept,
        ),
    ):
        rows += score_rows(metric, run.concept_names, mean, values, split=split, n=n)
    return rows
