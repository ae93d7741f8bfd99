"""Oracle and niche impurity, as defined and with the settings behind the published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from concept_audit.pipeline.evaluations.rows import EvaluatedRun, Row, needs, repeated, row

__all__ = ["SCORES", "impurity"]

SCORES = ("ois", "ois_reference", "nis", "nis_reference")


@needs("c_hat", "c")
def impurity(
    run: EvaluatedRun,
    *,
    scores: Sequence[str] = SCORES,
    split: str = "test",
    repeats: int = 5,
    seed: int = 0,
) -> list[Row]:
    """OIS (leakage paper, eq. 4) and NIS (appendix B); `_reference` with the authors' settings.

    `ois` trains its probes to convergence; `ois_reference` takes the 50 steps of the published
    numbers, far fewer than a probe needs, so it is high and noisy on any model.
    """
    from concept_audit.metrics import niche_impurity_score, oracle_impurity_score
    from concept_audit.metrics.impurity import oracle_matrix

    unknown = sorted(set(scores) - set(SCORES))
    if unknown:
        raise ValueError(f"scores must be among {', '.join(SCORES)}, got {unknown}.")
    arrays = run.arrays(split)
    c_hat, c, n = arrays["c_hat"], arrays["c"], len(arrays["y"])
    published = c_hat
    if run.encoding == "hard" and "c_logits" in arrays:
        # The reference code scores hard models on their probabilities, not on their concepts.
        published = expit(np.asarray(arrays["c_logits"], dtype=np.float64))
    rows: list[Row] = []
    for repeat in range(repeats):
        for score in scores:
            reference = score.endswith("_reference")
            values = published if reference else c_hat
            options: dict[str, Any] = {
                "compat": "reference" if reference else None,
                "seed": seed + repeat,
            }
            if score.startswith("ois"):
                key = f"{score}/{split}/{seed + repeat}"
                if key not in run.shared:
                    run.shared[key] = oracle_matrix(c, **options)
                value = oracle_impurity_score(values, c, oracle=run.shared[key], **options).mean
            else:
                value = niche_impurity_score(values, c, **options).mean
            rows.append(row(score, value, split=split, n=n, repeat=repeat))
    return repeated(rows)
