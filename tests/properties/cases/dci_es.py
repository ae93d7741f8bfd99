"""Rows of D, C, I, E, S, of the importances behind them and of the scores beside them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from concept_audit import metrics
from concept_audit.arrays import to_numpy
from concept_audit.metrics.probes.rff import RffProbes
from properties.table import Argument, Case, DoesNotHold, Exact, Within

SHARDS = Within(1e-9, "the same arrays, put together again")
SUMS = Within(1e-9, "sums run in another order")
NO_SAMPLES = DoesNotHold("takes no samples, only numbers computed from them")
NO_CLASSES = DoesNotHold("has no class names among its arguments")
NO_UNITS = DoesNotHold("its arguments have no units of their own")
NO_MODULE = DoesNotHold("takes numbers that belong to all samples at once: no torchmetrics form")


def importances(rng: np.random.Generator) -> dict[str, Any]:
    """Importance matrix with some zeros."""
    shape = rng.integers(2, 8, 2)
    return {"R": rng.random(shape) ** 3 * (rng.random(shape) < 0.8)}


def factor_losses(rng: np.random.Generator) -> dict[str, Any]:
    return {"loss": rng.random(int(rng.integers(1, 8)))}


def sizes(rng: np.random.Generator) -> dict[str, Any]:
    return {"L": int(rng.integers(1, 100)), "K": int(rng.integers(1, 10))}


def curve(rng: np.random.Generator) -> dict[str, Any]:
    steps, n_factors = int(rng.integers(2, 8)), int(rng.integers(1, 4))
    return {
        "capacities": rng.uniform(0.1, 2, steps).cumsum()[:, None],
        "losses": rng.random((steps, n_factors)),
        "baseline": rng.uniform(0.5, 1, n_factors),
    }


def score_curve(capacities: Any, losses: Any, baseline: Any) -> Any:
    capacities = to_numpy("capacities", capacities)[:, 0]
    span = float(np.min(capacities)), float(np.max(capacities))
    return metrics.explicitness((capacities, losses), capacity_range=span, baseline=baseline)


def representation(rng: np.random.Generator) -> dict[str, Any]:
    """Noisy mixtures of factors; every factor takes every value."""
    n = int(rng.integers(60, 160))
    n_factors, n_codes = int(rng.integers(2, 4)), int(rng.integers(3, 6))
    factors = rng.integers(0, 4, (n, n_factors))
    factors[:4] = np.arange(4)[:, None]
    codes = factors @ rng.standard_normal((n_factors, n_codes))
    return {"codes": codes + 0.5 * rng.standard_normal(codes.shape), "factors": factors}


def with_held_out_rows(rng: np.random.Generator) -> dict[str, Any]:
    drawn = representation(rng)
    held = 40
    return {
        "codes": drawn["codes"][:-held],
        "factors": np.concatenate([drawn["factors"][:4], drawn["factors"][4:-held]]),
        "held_codes": drawn["codes"][-held:],
        "held_factors": drawn["factors"][-held:],
    }


PROBES = RffProbes(features=(2, 6), ridge=1e-3, sigma=0.2)


def score_curve_of_codes(codes: Any, factors: Any, held_codes: Any, held_factors: Any) -> Any:
    held = (held_codes, held_factors)
    return metrics.loss_capacity_curve(
        codes, factors, PROBES, kinds="continuous", factor_sizes=[4] * np.shape(factors)[1],
        validation=held, test=held,
    )  # fmt: skip


def score_codes(codes: Any, factors: Any, held_codes: Any, held_factors: Any) -> Any:
    held = (held_codes, held_factors)
    return metrics.dci_es(
        codes, factors, "continuous", PROBES, factor_sizes=[4] * np.shape(factors)[1],
        validation=held, test=held,
    )  # fmt: skip


HELD_OUT = {
    "codes": Argument("n L"),
    "factors": Argument("n K"),
    "held_factors": Argument("h K"),
}
OF_PROBES = {
    "row permutation": Within(1e-6, "the Gram matrix sums in another order; its condition is 1e6"),
    "relabelling": Within(1e-6, "factors only: each has a probe of its own"),
    "class relabelling": DoesNotHold("continuous factors are ordered"),
    "affine rescaling": DoesNotHold("the scale of the features is absolute (standardize_codes)"),
    "seed repeatability": Exact(),
    "inputs unchanged": Exact(),
    "shard and merge": DoesNotHold("probes are trained on all rows; see the form in modules"),
}


def for_sage(rng: np.random.Generator) -> dict[str, Any]:
    n, n_codes = int(rng.integers(20, 60)), int(rng.integers(2, 6))
    codes = rng.standard_normal((n, n_codes))
    return {
        "codes": codes,
        "target": codes.sum(axis=1) + rng.standard_normal(n),
        "background": rng.standard_normal((8, n_codes)),
    }


def explain(codes: Any, target: Any, background: Any) -> Any:
    """SAGE of a probe that treats all codes alike, so that their order is a matter of naming."""
    return metrics.sage_values(
        lambda x: np.sin(x).sum(axis=1) ** 2, codes, target, background=background
    )


def weights(rng: np.random.Generator) -> dict[str, Any]:
    return {"weight": rng.standard_normal(rng.integers(1, 6, 2))}


def matrix_of(weight: Any) -> Any:
    probes = [SimpleNamespace(coef_=column) for column in np.asarray(weight).T]
    return metrics.importance_matrix(probes, method="weights")


OF_NUMBERS = {
    "row permutation": NO_SAMPLES,
    "relabelling": Exact(),
    "class relabelling": NO_CLASSES,
    "affine rescaling": NO_UNITS,
    "seed repeatability": Exact(),
    "inputs unchanged": Exact(),
    "shard and merge": NO_MODULE,
}
OF_CODES = {"codes": Argument("n L", scale=True), "factors": Argument("n K", classes=True)}
UNITS = Within(1e-9, "the score does not depend on the units, their rounding aside")
ORDERED = DoesNotHold("factors are taken as ordered values")

CASES = [
    Case(
        "disentanglement",
        metrics.disentanglement,
        importances,
        {"R": Argument("L K")},
        {"mean": "", "per_code": "L", "weights": "L"},
        OF_NUMBERS,
    ),
    Case(
        "completeness",
        metrics.completeness,
        importances,
        {"R": Argument("L K")},
        {"mean": "", "per_factor": "K", "weights": "K"},
        OF_NUMBERS,
    ),
    Case(
        "informativeness",
        lambda loss: metrics.informativeness(loss, "continuous", baseline=np.ones(len(loss))),
        factor_losses,
        {"loss": Argument("K")},
        {"mean": "", "per_factor": "K", "chance_corrected": "K"},
        OF_NUMBERS,
    ),
    Case(
        "representation_size",
        metrics.representation_size,
        sizes,
        {},
        {"": ""},
        OF_NUMBERS | {"relabelling": DoesNotHold("takes two numbers, nothing to relabel")},
    ),
    Case(
        "explicitness",
        score_curve,
        curve,
        {
            "capacities": Argument("T one", scale=True),
            "losses": Argument("T K"),
            "baseline": Argument("K"),
        },
        {"mean": "", "per_factor": "K"},
        OF_NUMBERS | {"affine rescaling": UNITS},
    ),
    Case(
        "loss_capacity_curve",
        score_curve_of_codes,
        with_held_out_rows,
        HELD_OUT,
        {"losses": "T K", "capacities": "T", "baseline": "K"},
        OF_PROBES,
        examples=10,
        relabelled=frozenset("K"),
    ),
    Case(
        "dci_es",
        score_codes,
        with_held_out_rows,
        HELD_OUT,
        {"I": "", "E": "", "S": "", "D": "", "C": "", "R": "L K"},
        OF_PROBES,
        examples=10,
        relabelled=frozenset("K"),
    ),
    Case(
        "sage_values",
        explain,
        for_sage,
        {"codes": Argument("n L"), "target": Argument("n"), "background": Argument("b L")},
        {"values": "L", "loss_empty": "", "loss_full": ""},
        {
            "row permutation": SUMS,
            "relabelling": SUMS,
            "class relabelling": NO_CLASSES,
            "affine rescaling": DoesNotHold("the probe reads codes in the units it was fitted on"),
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": DoesNotHold("an explanation of a probe: no torchmetrics form"),
        },
        examples=50,
    ),
    Case(
        "importance_matrix",
        matrix_of,
        weights,
        {"weight": Argument("L K")},
        {"R": "L K", "values": "L K"},
        OF_NUMBERS,
    ),
    Case(
        "mig",
        metrics.mig,
        representation,
        OF_CODES,
        {"mean": "", "per_factor": "K", "matrix": "L K"},
        {
            "row permutation": SUMS,
            "relabelling": SUMS,
            "class relabelling": SUMS,
            "affine rescaling": UNITS,
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SHARDS,
        },
        module="MIG",
    ),
    Case(
        "sap",
        lambda codes, factors: metrics.sap(codes, factors, "continuous"),
        representation,
        OF_CODES,
        {"mean": "", "per_factor": "K", "matrix": "L K"},
        {
            "row permutation": SUMS,
            "relabelling": SUMS,
            "class relabelling": ORDERED,
            "affine rescaling": UNITS,
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SHARDS,
        },
        module="SAP",
        options={"kinds": "continuous"},
    ),
    Case(
        "factor_vae_score",
        lambda codes, factors: metrics.factor_vae_score(codes, factors, n_votes=100),
        representation,
        OF_CODES,
        {"mean": "", "per_factor": "K", "matrix": "L K"},
        {
            "row permutation": DoesNotHold("batches are drawn by the position of rows"),
            "relabelling": Within(1e-9, "codes only: the order of factors decides the draws"),
            "class relabelling": DoesNotHold("the order of the values decides the draws"),
            "affine rescaling": UNITS,
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SHARDS,
        },
        module="FactorVAEScore",
        options={"n_votes": 100},
        examples=50,
        relabelled=frozenset("L"),
    ),
    Case(
        "mcc",
        metrics.mcc,
        representation,
        OF_CODES,
        {"mean": "", "per_factor": "K", "matrix": "L K"},
        {
            "row permutation": SUMS,
            "relabelling": SUMS,
            "class relabelling": ORDERED,
            "affine rescaling": UNITS,
            "seed repeatability": Exact(),
            "inputs unchanged": Exact(),
            "shard and merge": SHARDS,
        },
        module="MCC",
    ),
]
