"""Rows of interventions, impurity, accuracies and of the comparisons across runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from concept_audit import metrics
from properties.table import Argument, Case, DoesNotHold, Exact, Within

SUMS = Within(1e-9, "sums run in another order")
NO_TASK = DoesNotHold("there is no task label")
NO_UNITS = DoesNotHold("probabilities and binary values have no units of their own")
NO_MODULE = DoesNotHold("takes a head or settings that a metric object does not get by default")
DRAWN_BY_ROW = DoesNotHold("split, batches or noise are drawn by row number")


def concepts(rng: np.random.Generator, most: int = 120) -> dict[str, Any]:
    """Soft concepts, annotations with both classes, a label and a margin of it."""
    n, k = int(rng.integers(20, most)), int(rng.integers(2, 5))
    c = rng.integers(0, 2, (n, k))
    c[0], c[1] = 0, 1
    y = (c.sum(axis=1) * 2 > k).astype(int)
    logits = 2.0 * (2 * c - 1) + rng.normal(size=(n, k)) + rng.uniform(0, 2) * y[:, None]
    return {"c_hat": 1 / (1 + np.exp(-logits)), "c": c, "y": y}


def pair(rng: np.random.Generator) -> dict[str, Any]:
    drawn = concepts(rng)
    return {"c_hat": drawn["c_hat"], "c": drawn["c"]}


def small_pair(rng: np.random.Generator) -> dict[str, Any]:
    drawn = concepts(rng, most=60)
    return {"c_hat": drawn["c_hat"], "c": drawn["c"]}


def annotations(rng: np.random.Generator) -> dict[str, Any]:
    return {"c": concepts(rng, most=60)["c"]}


def annotated_task(rng: np.random.Generator) -> dict[str, Any]:
    drawn = concepts(rng)
    return {"c": drawn["c"], "y": drawn["y"]}


def task(rng: np.random.Generator) -> dict[str, Any]:
    n, n_classes = int(rng.integers(20, 120)), int(rng.integers(2, 6))
    y = rng.integers(0, n_classes, n)
    y[:n_classes] = np.arange(n_classes)
    return {"y_logits": rng.normal(size=(n, n_classes)) + np.eye(n_classes)[y], "y": y}


def accuracies(rng: np.random.Generator) -> dict[str, Any]:
    reference, intervened = rng.random(2)
    return {"reference": float(reference), "intervened": float(intervened)}


def runs(rng: np.random.Generator) -> dict[str, Any]:
    return {"values": rng.normal(size=int(rng.integers(2, 10)))}


def two_models(rng: np.random.Generator) -> dict[str, Any]:
    a, b = (rng.normal(rng.random(), 0.3, (int(rng.integers(3, 8)), 2)) for _ in range(2))
    return {"a": a, "b": b}


def models(rng: np.random.Generator) -> dict[str, Any]:
    n = int(rng.integers(5, 15))
    x = rng.random(n)
    y = 0.5 * x + 0.2 * rng.random(n)
    return {"x": x, "sx": np.full(n, 0.05), "y": y, "sy": np.full(n, 0.05)}


def counting_head(bottleneck: np.ndarray) -> np.ndarray:
    """At least half of the concepts: the same head whatever their order."""
    return np.round(bottleneck.sum(axis=1) - bottleneck.shape[1] / 2 - 0.25, 9)


def _curve(policy: str) -> Any:
    return lambda c_hat, c, y: metrics.intervention_curve(counting_head, c_hat, c, y, policy=policy)


def _criterion(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    compared = metrics.leakage_criterion(a, b)
    return np.array([test.p_value for test in compared.scores])


def _pearson(x: np.ndarray, sx: np.ndarray, y: np.ndarray, sy: np.ndarray) -> Any:
    return metrics.pooled_pearson(x, sx, y, sy, n_draws=200)


def _weights(c_hat: np.ndarray, c: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.array(metrics.coop_weights(counting_head, c_hat, c, y))


CONCEPTS = {"c_hat": Argument("n k"), "c": Argument("n k")}
WITH_LABEL = {**CONCEPTS, "y": Argument("n")}
NUMBERS_OF_CLASSES = DoesNotHold(
    "the class index is the column of the logits, it has no other name"
)

CASES = [
    Case(
        "intervention_curve",
        _curve("uncertainty"),
        concepts,
        WITH_LABEL,
        {"task_accuracy": "steps"},
        {
            "row permutation": SUMS,
            "relabelling": SUMS,
            "class relabelling": NUMBERS_OF_CLASSES,
            "affine rescaling": NO_UNITS,
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": NO_MODULE,
        },
        examples=50,
    ),
    Case(
        "coop_weights",
        _weights,
        concepts,
        WITH_LABEL,
        {"": ""},
        {
            "row permutation": SUMS,
            "relabelling": DoesNotHold("of equally good groups CooP takes the first"),
            "class relabelling": NUMBERS_OF_CLASSES,
            "affine rescaling": NO_UNITS,
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": DoesNotHold("chosen once on a validation split: no metric form"),
        },
        examples=10,
    ),
    Case(
        "intervention_score",
        lambda reference, intervened: metrics.intervention_score(reference, intervened),
        accuracies,
        {},
        {"": ""},
        {
            "row permutation": DoesNotHold("takes no samples, only two accuracies"),
            "relabelling": DoesNotHold("takes no samples, only two accuracies"),
            "class relabelling": DoesNotHold("takes no samples, only two accuracies"),
            "affine rescaling": NO_UNITS,
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": NO_MODULE,
        },
    ),
    Case(
        "misclassified_configurations",
        lambda c, y: metrics.misclassified_configurations(counting_head, None, c, y),
        annotated_task,
        {"c": Argument("n k"), "y": Argument("n")},
        {"intervened_task_accuracy": ""},
        {
            "row permutation": SUMS,
            "relabelling": SUMS,
            "class relabelling": NUMBERS_OF_CLASSES,
            "affine rescaling": NO_UNITS,
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": DoesNotHold("a list of configurations has no metric form"),
        },
    ),
    Case(
        "task_accuracy",
        metrics.task_accuracy,
        task,
        {"y_logits": Argument("n l", scale=True), "y": Argument("n")},
        {"accuracy": "", "f1": "", "auc": ""},
        {
            "row permutation": SUMS,
            "relabelling": DoesNotHold("the class index is the column of the logits"),
            "class relabelling": NUMBERS_OF_CLASSES,
            "affine rescaling": DoesNotHold("columns are rescaled apart, logits are compared"),
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SUMS,
        },
        module="TaskAccuracy",
    ),
    Case(
        "concept_accuracy",
        metrics.concept_accuracy,
        pair,
        CONCEPTS,
        {"accuracy": "", "f1": "", "auc": "", "auc_per_concept": "k"},
        {
            "row permutation": SUMS,
            "relabelling": SUMS,
            "class relabelling": NO_TASK,
            "affine rescaling": NO_UNITS,
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SUMS,
        },
        module="ConceptAccuracy",
    ),
    Case(
        "oracle_impurity_score",
        lambda c_hat, c: metrics.oracle_impurity_score(c_hat, c, epochs=3),
        small_pair,
        CONCEPTS,
        {"mean": "", "matrix": "k k"},
        {
            "row permutation": DRAWN_BY_ROW,
            "relabelling": DoesNotHold("each probe's weights are drawn by its place in the matrix"),
            "class relabelling": NO_TASK,
            "affine rescaling": NO_UNITS,
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": Exact(),
        },
        examples=5,
        module="OracleImpurityScore",
        options={"epochs": 3},
    ),
    Case(
        "oracle_matrix",
        lambda c: metrics.oracle_matrix(c, epochs=3),
        annotations,
        {"c": Argument("n k")},
        {"auc": "k k"},
        {
            "row permutation": DRAWN_BY_ROW,
            "relabelling": DoesNotHold("each probe's weights are drawn by its place in the matrix"),
            "class relabelling": NO_TASK,
            "affine rescaling": NO_UNITS,
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": DoesNotHold("one side of a score, which has the metric form"),
        },
        examples=5,
    ),
    Case(
        "niche_impurity_score",
        metrics.niche_impurity_score,
        small_pair,
        CONCEPTS,
        {"mean": "", "per_concept": "k"},
        {
            "row permutation": DRAWN_BY_ROW,
            "relabelling": DoesNotHold(
                "the network's weights are drawn by input and output number"
            ),
            "class relabelling": NO_TASK,
            "affine rescaling": NO_UNITS,
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": Exact(),
        },
        examples=5,
        module="NicheImpurityScore",
    ),
    Case(
        "mean_interval",
        metrics.mean_interval,
        runs,
        {"values": Argument("n")},
        {"mean": "", "low": "", "high": ""},
        {
            "row permutation": SUMS,
            "relabelling": DoesNotHold("one number per run: nothing to relabel"),
            "class relabelling": NO_TASK,
            "affine rescaling": DoesNotHold("the interval moves with the unit, as it should"),
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SUMS,
        },
        module="MeanInterval",
        logged=("mean", "low", "high"),
    ),
    Case(
        "leakage_criterion",
        _criterion,
        two_models,
        {"a": Argument("n s"), "b": Argument("q s")},
        {"": "s"},
        {
            "row permutation": SUMS,
            "relabelling": DoesNotHold("the two columns are named: CTL, then ICL"),
            "class relabelling": NO_TASK,
            "affine rescaling": DoesNotHold("each model would be rescaled apart"),
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": DoesNotHold("the metric form returns a verdict: test_modules"),
        },
    ),
    Case(
        "pooled_pearson",
        _pearson,
        models,
        {"x": Argument("n"), "sx": Argument("n"), "y": Argument("n"), "sy": Argument("n")},
        {"r": "", "p_value": "", "z_mean": ""},
        {
            "row permutation": DRAWN_BY_ROW,
            "relabelling": DoesNotHold("one number per model: nothing to relabel"),
            "class relabelling": NO_TASK,
            "affine rescaling": DoesNotHold("the standard errors carry the same unit"),
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SUMS,
        },
        examples=50,
        module="PooledPearson",
        options={"n_draws": 200},
        logged=("r", "p_value"),
    ),
]
