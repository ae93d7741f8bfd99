"""Rows of the leakage scores and of mutual information."""

from __future__ import annotations

from typing import Any

import numpy as np

from concept_audit import metrics
from properties.table import Argument, Case, DoesNotHold, Exact, Within

JITTER = Within(1e-9, "the noise of 1e-10 comes in another order; it moves no count without ties")
SHARDS = Within(1e-9, "the same arrays, put together again")


def soft(rng: np.random.Generator, most: int = 160) -> dict[str, Any]:
    """Leaking probabilities without ties, k concepts and a label."""
    n, k = int(rng.integers(50, most)), int(rng.integers(2, 5))
    c = rng.integers(0, 2, (n, k))
    y = (c.sum(axis=1) * 2 > k).astype(int) + (rng.random(n) < 0.1)
    y[:6] = [0, 0, 0, 1, 1, 1]
    logits = 2 * (2 * c - 1) + rng.uniform(0, 2) * y[:, None] + rng.standard_normal((n, k))
    return {"c_hat": 1 / (1 + np.exp(-logits)), "c": c, "y": y}


def without_label(rng: np.random.Generator) -> dict[str, Any]:
    drawn = soft(rng)
    return {"c_hat": drawn["c_hat"], "c": drawn["c"]}


def vectors(rng: np.random.Generator) -> dict[str, Any]:
    """Concept embeddings that tell something about concepts and label."""
    drawn = soft(rng, most=80)
    c, y = drawn["c"], drawn["y"]
    n, k = c.shape
    m = int(rng.integers(1, 6))
    shift = (c + 0.5 * y[:, None])[:, :, None] * rng.standard_normal((k, m))
    return {"vectors": shift + rng.standard_normal((n, k, m)), "c": c, "y": y}


def vectors_and(name: str):
    def draw(rng: np.random.Generator) -> dict[str, Any]:
        drawn = vectors(rng)
        return {"vectors": drawn["vectors"], name: drawn[name]}

    return draw


def signed(rng: np.random.Generator) -> dict[str, Any]:
    drawn = vectors(rng)
    noise = rng.standard_normal(drawn["vectors"].shape)
    return {
        "c_pos": drawn["vectors"],
        "c_neg": drawn["vectors"] + noise,
        "c": drawn["c"],
        "y": drawn["y"],
    }


def two_columns(rng: np.random.Generator) -> dict[str, Any]:
    n = int(rng.integers(60, 160))
    x = rng.standard_normal(n)
    y = x + rng.standard_normal(n)
    return {"x": x, "y": (y > 0).astype(int) if rng.random() < 0.5 else y}


CASES = [
    Case(
        "mutual_information",
        metrics.mutual_information,
        two_columns,
        {"x": Argument("n"), "y": Argument("n")},
        {"": ""},
        {
            "row permutation": JITTER,
            "relabelling": DoesNotHold("two variables, nothing to relabel"),
            "class relabelling": DoesNotHold("y may be continuous; tested for CTL"),
            "affine rescaling": DoesNotHold(
                "KSG takes the larger of both distances, so a unit of one side changes neighbours"
            ),
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": DoesNotHold("an estimator, not a score: no torchmetrics form"),
        },
    ),
    Case(
        "concepts_task_leakage",
        metrics.concepts_task_leakage,
        soft,
        {
            "c_hat": Argument("n k", scale=True),
            "c": Argument("n k"),
            "y": Argument("n", classes=True),
        },
        {"mean": "", "per_concept": "k", "learnt_information": "k", "annotated_information": "k"},
        {
            "row permutation": JITTER,
            "relabelling": JITTER,
            "class relabelling": Exact(),
            "affine rescaling": Within(1e-9, "Ross in one dimension depends on the order alone"),
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SHARDS,
        },
        module="ConceptsTaskLeakage",
    ),
    Case(
        "interconcept_leakage",
        metrics.interconcept_leakage,
        without_label,
        {"c_hat": Argument("n k", scale=True), "c": Argument("n k")},
        {"mean": "", "per_concept": "k", "matrix": "k k"},
        {
            "row permutation": JITTER,
            "relabelling": JITTER,
            "class relabelling": DoesNotHold("there is no task label"),
            "affine rescaling": Within(
                0.15, "KSG moves by its standard error, 0.1 to 0.3 nats here, over 2.6 nats or more"
            ),
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SHARDS,
        },
        module="InterconceptLeakage",
    ),
    Case(
        "concepts_task_information",
        metrics.concepts_task_information,
        vectors_and("y"),
        {"vectors": Argument("n k m", scale=True), "y": Argument("n", classes=True)},
        {"mean": "", "per_concept": "k"},
        {
            "row permutation": JITTER,
            "relabelling": JITTER,
            "class relabelling": Exact(),
            "affine rescaling": Within(1e-9, "one unit a vector keeps the order of its distances"),
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SHARDS,
        },
        module="ConceptsTaskInformation",
    ),
    Case(
        "interconcept_information",
        metrics.interconcept_information,
        vectors_and("c"),
        {"vectors": Argument("n k m", scale=True), "c": Argument("n k")},
        {"mean": "", "per_concept": "k", "matrix": "k k"},
        {
            "row permutation": JITTER,
            "relabelling": JITTER,
            "class relabelling": DoesNotHold("there is no task label"),
            "affine rescaling": Within(1e-9, "one unit a vector keeps the order of its distances"),
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SHARDS,
        },
        module="InterconceptInformation",
    ),
    Case(
        "self_information",
        metrics.self_information,
        vectors_and("c"),
        {"vectors": Argument("n k m", scale=True), "c": Argument("n k")},
        {"mean": "", "per_concept": "k"},
        {
            "row permutation": JITTER,
            "relabelling": JITTER,
            "class relabelling": DoesNotHold("there is no task label"),
            "affine rescaling": Within(1e-9, "one unit a vector keeps the order of its distances"),
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SHARDS,
        },
        module="SelfInformation",
    ),
    Case(
        "alignment_leakage",
        metrics.alignment_leakage,
        signed,
        {
            "c_pos": Argument("n k m", scale=True),
            "c_neg": Argument("n k m", scale=True),
            "c": Argument("n k"),
            "y": Argument("n", classes=True),
        },
        {"mean": "", "per_concept": "k"},
        {
            "row permutation": DoesNotHold("the balanced subset is drawn by row number"),
            "relabelling": DoesNotHold("the balanced subsets are drawn concept after concept"),
            "class relabelling": Exact(),
            "affine rescaling": Within(1e-9, "one unit a vector keeps the order of its distances"),
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SHARDS,  # in the same order of rows
        },
        module="AlignmentLeakage",
    ),
]
