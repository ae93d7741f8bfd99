"""Write predictions.npz: 400 test rows of a leaking concept bottleneck model, 4 concepts, seeded.

python scripts/examples/make_predictions.py [FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def predictions(seed: int = 0, n: int = 400) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    names = np.array(["has red wing", "has hooked beak", "has long tail", "is spotted"])
    c = (rng.random((n, 4)) < [0.5, 0.4, 0.5, 0.3]).astype(np.int64)
    y = (c[:, 0] + c[:, 1] + c[:, 2] >= 2).astype(np.int64)
    # The first two concepts carry the class beside their own meaning; the last one is clean.
    leak = (2 * y - 1)[:, None] * np.array([1.5, 0.8, 0.0, 0.0])
    c_logits = 3.0 * (2 * c - 1) + leak + 0.8 * rng.standard_normal((n, 4))
    margin = c_logits[:, :3].sum(axis=1) / 3 + 0.5 * rng.standard_normal(n)
    return {
        "c": c,
        "c_hat": 1 / (1 + np.exp(-c_logits)),
        "c_logits": c_logits,
        "concept_names": names,
        "y": y,
        "y_logits": np.stack([-margin, margin], axis=1),
    }


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "predictions.npz"
    np.savez_compressed(target, **predictions())
    print(f"wrote {target}")
