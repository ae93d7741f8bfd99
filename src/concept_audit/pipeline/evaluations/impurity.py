"""Oracle and niche impurity, as defined and with the settings behind the published numbers."""

from __future__ import annotations

from typing import Any, Literal

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
    published = (
        1.0 / (1.0 + np.exp(-arrays["c_logits"]))
        if run.encoding == "hard" and "c_logits" in arrays
        else c_hat
    )
    variants: tuple[tuple[str, Literal["reference"] | None, Any], ...] = (
        ("", None, c_hat),
        ("_reference", "reference", published),
    )
    rows: list[Row] = []
    for repeat in range(repeats):
        more: dict[str, Any] = {"split": split, "n": n, "repeat": repeat}
        for suffix, compat, values in variants:
            key = f"oracle{suffix}/{split}/{seed + repeat}"
            if key not in run.shared:
                run.shared[key] = oracle_matrix(c, compat=compat, seed=seed + repeat)
            ois = oracle_impurity_score(
                values, c, compat=compat, oracle=run.shared[key], seed=seed + repeat
            )
            nis = niche_impurity_score(values, c, compat=compat, seed=seed + repeat)
            rows.append(row(f"ois{suffix}", ois.mean, **more))
            rows.append(row(f"nis{suffix}", nis.mean, **more))
    return repeated(rows)
