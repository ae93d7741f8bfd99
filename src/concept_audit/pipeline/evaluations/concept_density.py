"""Histogram of the first learnt concept for each value of the other concept and the task."""

from __future__ import annotations

import numpy as np

from concept_audit.pipeline.evaluations.rows import EvaluatedRun, Row, needs, row

__all__ = ["concept_density"]


@needs("c_hat")
def concept_density(run: EvaluatedRun, *, split: str = "test", bins: int = 25) -> list[Row]:
    """Histogram of the first learnt concept for each value of the other concept and the task."""
    arrays = run.arrays(split)
    names, n = run.concept_names, len(arrays["y"])
    values = arrays["c_hat"][:, 0]
    edges = np.linspace(0.0, 1.0, bins + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    rows = []
    for other in (0, 1):
        for label in np.unique(arrays["y"]):
            chosen = (arrays["c"][:, 1] == other) & (arrays["y"] == label)
            counts, _ = np.histogram(values[chosen], bins=edges)
            rows += [
                row(
                    "concept_density",
                    count / n,
                    target=f"{names[0]}|{names[1]}={other},y={label}",
                    step=float(centre),
                    split=split,
                    n=n,
                    unit="share of test rows",
                )
                for centre, count in zip(centres, counts, strict=True)
            ]
    return rows
