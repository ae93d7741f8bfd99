"""Two principal components of the first concept's embeddings."""

from __future__ import annotations

import numpy as np

from concept_audit.pipeline.evaluations.rows import EvaluatedRun, Row, needs, row

__all__ = ["projection"]


@needs("c_mix")
def projection(
    run: EvaluatedRun, *, split: str = "test", max_points: int = 600, seed: int = 0
) -> list[Row]:
    """Two principal components of the first concept's embeddings.

    Vectors of all concepts are scaled to unit length, standardised and projected together
    (leakage paper, Figures 9, 11, 23, 24); the first concept's points are kept.
    """
    arrays = run.arrays(split)
    mix, c, y = np.asarray(arrays["c_mix"], dtype=np.float64), arrays["c"], arrays["y"]
    n, k, m = mix.shape
    stacked = mix.transpose(1, 0, 2).reshape(k * n, m)
    stacked = stacked / np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), 1e-12)
    spread = stacked.std(axis=0)
    stacked = (stacked - stacked.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    _, _, axes = np.linalg.svd(stacked, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2][np.arange(2), np.abs(axes[:2]).argmax(axis=1)])[:, None]
    points = stacked[:n] @ axes.T
    chosen = np.sort(np.random.default_rng(seed).permutation(n)[:max_points])
    name = run.concept_names[0]
    rows = []
    for sample in chosen:
        others = ",".join(
            f"{other}={c[sample, i]}" for i, other in enumerate(run.concept_names) if i > 0
        )
        for axis in (0, 1):
            rows.append(
                row(
                    f"projection_{axis + 1}",
                    points[sample, axis],
                    target=name,
                    step=int(sample),
                    split=split,
                    n=n,
                    note=f"y={y[sample]},{others}",
                )
            )
    return rows
