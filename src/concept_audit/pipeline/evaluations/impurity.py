"""Oracle and niche impurity, as defined and with the settings behind the published numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from concept_audit.pipeline.evaluations.rows import EvaluatedRun, Row, repeated, row

__all__ = ["impurity"]


def impurity(
    run: EvaluatedRun, *, split: str = "test", repeats: int = 5, seed: int = 0
) -> list[Row]:
    """Oracle and niche impurity, as defined and with the settings behind the published numbers."""
    from concept_audit.metrics import niche_impurity_score, oracle_impurity_score
    from concept_audit.metrics.impurity import oracle_matrix

    arrays = run.arrays(split)
    # The reference code scores hard models on their probabilities, the definition on the concepts.
    c_hat, c, n = arrays["c_hat"], arrays["c"], len(arrays["y"])
    published = 1.0 / (1.0 + np.exp(-arrays["c_logits"])) if run.encoding == "hard" else c_hat
    rows: list[Row] = []
    for repeat in range(repeats):
        more: dict[str, Any] = {"split": split, "n": n, "repeat": repeat}
        for metric, compat, values in (
            ("ois", None, c_hat),
            ("ois_reference", "reference", published),
        ):
            key = f"{metric}/{split}/{seed + repeat}"
            if key not in run.shared:
                run.shared[key] = oracle_matrix(c, compat=compat, seed=seed + repeat)
            score = oracle_impurity_score(
                values, c, compat=compat, oracle=run.shared[key], seed=seed + repeat
            )
            rows.append(row(metric, score.mean, **more))
        for metric, compat, values in (
            ("nis", None, c_hat),
            ("nis_reference", "reference", published),
        ):
            rows.append(
                row(
                    metric,
                    niche_impurity_score(values, c, compat=compat, seed=seed + repeat).mean,
                    **more,
                )
            )
    return repeated(rows)
