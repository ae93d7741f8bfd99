"""Loss-capacity curves and explicitness: how easily a representation gives up its factors.

Paper: "DCI-ES: An Extended Disentanglement Framework with Connections to Identifiability",
sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import check_finite, to_numpy
from concept_audit.metrics.probes.base import (
    LadderFit,
    ProbeData,
    ProbeFamily,
    baseline_loss,
)
from concept_audit.metrics.probes.mlp import MlpProbes
from concept_audit.metrics.probes.random_forest import RandomForestProbes
from concept_audit.metrics.probes.rff import RffProbes

__all__ = [
    "Explicitness",
    "LossCapacityCurve",
    "explicitness",
    "loss_capacity_curve",
    "probe_family",
    "shared_capacity_range",
]

Preset = Literal["small", "paper"]


@dataclass(frozen=True)
class LossCapacityCurve:
    """Test loss of the best probe of each capacity.

    `losses` (T, K) are means over seeds of 1 - accuracy or 1 - R2, `per_seed` (S, T, K) the single
    ones. `capacities` (T,) are on the axis named by `description`; `sizes` are the widths, depths
    or numbers of features behind them.
    """

    capacities: Float[np.ndarray, " T"]
    losses: Float[np.ndarray, "T K"]
    per_seed: Float[np.ndarray, "S T K"]
    baseline: Float[np.ndarray, " K"]
    sizes: tuple[int, ...]
    probe: str
    description: str
    n_samples: int
    seeds: tuple[int, ...]

    @property
    def mean(self) -> Float[np.ndarray, " T"]:
        """Loss averaged over factors."""
        return self.losses.mean(axis=1)


@dataclass(frozen=True)
class Explicitness:
    """E: `mean` over factors and `per_factor` (K,), in (-1, 1]; 1 = the smallest probe suffices.

    `capacity_range`, `floor` (the lowest loss of the triangle) and `baseline` are part of the
    score: values computed with others must not be compared. `note` is empty, or warns that the
    representation holds too little for E to mean anything.
    """

    mean: float
    per_factor: Float[np.ndarray, " K"]
    area: Float[np.ndarray, " K"]
    best_loss: Float[np.ndarray, " K"]
    baseline: Float[np.ndarray, " K"]
    floor: Float[np.ndarray, " K"]
    capacity_range: tuple[float, float]
    note: str = ""


def shared_capacity_range(
    curves: Sequence[LossCapacityCurve | tuple[ArrayLike, ArrayLike]],
) -> tuple[float, float]:
    """Smallest and largest capacity over all curves that will be compared.

    Parameters
    ----------
    curves : at least one curve, or (capacities, losses) pairs

    Returns
    -------
    (low, high), to be passed to `explicitness` for each of them.
    """
    if not curves:
        raise ValueError("curves must hold at least one curve, got none.")
    points = np.concatenate([_points(curve)[0] for curve in curves])
    return float(points.min()), float(points.max())


def _points(
    curve: LossCapacityCurve | tuple[ArrayLike, ArrayLike],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Capacities (T,) and losses (T, K), sorted by capacity; ties keep their order."""
    if isinstance(curve, LossCapacityCurve):
        x, y = curve.capacities, curve.losses
    else:
        x = np.array(to_numpy("capacities", curve[0]), dtype=np.float64)
        y = np.array(to_numpy("losses", curve[1]), dtype=np.float64)
    if y.ndim == 1:
        y = y[:, None]
    if x.ndim != 1 or y.ndim != 2 or len(x) != len(y) or not len(x):
        raise ValueError(
            f"curve must be capacities (T,) and losses (T,) or (T, K), got {x.shape} and {y.shape}."
        )
    check_finite("capacities", x)
    check_finite("losses", y)
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def explicitness(
    curve: LossCapacityCurve | tuple[ArrayLike, ArrayLike],
    *,
    capacity_range: tuple[float, float],
    baseline: ArrayLike | None = None,
    lstar: Literal["zero", "own"] | float = "zero",
    compat: Literal["reference"] | None = None,
) -> Explicitness:
    """Explicitness E: how little capacity a probe needs to reach its lowest loss.

    Parameters
    ----------
    curve : a `LossCapacityCurve`, or capacities (T,) with losses (T,) or (T, K)
    capacity_range : (low, high) declared for all curves that are compared; see
        `shared_capacity_range`. It is part of the score: a wider range raises E.
    baseline : loss of the best constant prediction, a number or one per factor; a
        `LossCapacityCurve` carries its own
    lstar : lowest loss of the triangle: "zero" as in the paper's experiments, "own" for each
        curve's minimum, or a number shared by all curves
    compat : "reference" returns 1 for a one-point curve or an empty range, as the authors' code

    Returns
    -------
    Explicitness. A straight line from (low, baseline) to (high, 0) scores 0, a curve that starts
    at its lowest loss 1. **A curve that never leaves the baseline scores 1 too**: E must be read
    together with I, and `note` says so.

    Raises
    ------
    ValueError  on a curve of one point, a capacity range that is empty or does not hold the curve,
        a baseline that is missing or not above `lstar`.

    Notes
    -----
    E_j = 1 - A_j / Z_j. A_j is the area between the running minimum of the loss and its own lowest
    value (trapezoids; extended flat to `high`, never to `low`), Z_j = (high - low)(baseline -
    lstar) / 2. DCI-ES paper, section 3; the authors' code takes the range from the curves that
    happen to be held together, which moves E when a curve is added.
    """
    if compat not in (None, "reference"):
        raise ValueError(f"compat must be None or 'reference', got {compat!r}.")
    x, y = _points(curve)
    n_factors = y.shape[1]
    if baseline is None:
        if not isinstance(curve, LossCapacityCurve):
            raise ValueError(
                "baseline must be given for a bare curve: the loss of the best constant, "
                "1 for R2 and 1 - 1/q for the accuracy of q balanced classes."
            )
        baseline = curve.baseline
    chance = np.array(to_numpy("baseline", baseline), dtype=np.float64)
    check_finite("baseline", chance)
    if chance.ndim > 1 or chance.size not in (1, n_factors):
        raise ValueError(
            f"baseline must be one number or one per factor ({n_factors},), got {chance.shape}."
        )
    chance = np.broadcast_to(chance.reshape(-1), (n_factors,)).copy()
    lowest = np.minimum.accumulate(y, axis=0)
    best = lowest[-1]
    if lstar == "zero":
        floor = np.zeros(n_factors)
    elif lstar == "own":
        floor = best.copy()
    elif isinstance(lstar, int | float) and np.isfinite(lstar):
        floor = np.full(n_factors, float(lstar))
    else:
        raise ValueError(f"lstar must be 'zero', 'own' or a finite number, got {lstar!r}.")
    low, high = map(float, capacity_range)
    width = high - low
    degenerate = len(x) < 2 or width == 0
    if compat is None:
        _check_range(x, low, high)
    if degenerate and compat == "reference":
        area, per_factor = np.zeros(n_factors), np.ones(n_factors)
    else:
        if not (chance > floor).all():
            raise ValueError(
                f"baseline must lie above lstar for each factor, got {chance} and {floor}."
            )
        ends = np.append(x, max(high, x[-1]))
        area = area_above_minimum(ends, np.vstack([lowest, best]))
        per_factor = 1 - area / (0.5 * width * (chance - floor))
    gained = float(np.mean((chance - best) / chance)) if (chance > 0).all() else np.inf
    mean = float(per_factor.mean())
    note = ""
    if mean > 0.8 and gained < 0.2:
        note = (
            f"E = {mean:.2f}, but the best probe removes only {100 * gained:.0f} % of the baseline "
            "loss: a representation that holds nothing has E = 1. Read E together with I."
        )
    return Explicitness(mean, per_factor, area, best, chance, floor, (low, high), note)


def area_above_minimum(
    capacities: NDArray[np.float64], losses: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Area between each column of losses (T, K) and its lowest value, by trapezoids."""
    heights = (losses[1:] + losses[:-1]) / 2 - losses.min(axis=0)
    return np.asarray((heights * np.diff(capacities)[:, None]).sum(axis=0))


def _check_range(x: NDArray[np.float64], low: float, high: float) -> None:
    if len(x) < 2:
        raise ValueError(
            "curve has one point, which is no curve: explicitness needs probes of at least two "
            "capacities. (compat='reference' returns 1.)"
        )
    if not high > low:
        raise ValueError(
            f"capacity_range must have high > low, got ({low}, {high}). Give the range of all "
            "compared curves, for example shared_capacity_range(curves)."
        )
    slack = 1e-9 * (high - low)
    if x[0] < low - slack or x[-1] > high + slack:
        raise ValueError(
            f"capacity_range must hold the whole curve, got ({low}, {high}) for capacities from "
            f"{x[0]} to {x[-1]}. Use shared_capacity_range(curves) over all compared curves."
        )


def probe_family(
    probe: str | ProbeFamily, *, preset: Preset = "small", n_factors: int = 1
) -> ProbeFamily:
    """Ladder of probes by name, or the one that was passed.

    "paper" takes the paper's ladders and training lengths (a GPU job for wide networks), "small"
    four depths, four widths and m up to 512, which a laptop fits in seconds to minutes. Forests of
    "small" are offered all codes at every split; those of "paper" sqrt(L) codes, which at three
    codes means one at random and a D of 0.4 where 1 is due.
    """
    if not isinstance(probe, str):
        return probe
    if preset not in ("small", "paper"):
        raise ValueError(f"preset must be 'small' or 'paper', got {preset!r}.")
    paper = preset == "paper"
    if probe == "random_forest":
        if paper:
            return RandomForestProbes()
        return RandomForestProbes(depths=(1, 4, 8, 16), max_features=None)
    if probe == "mlp":
        if paper:
            return MlpProbes(reference_samples=295_488)  # MPI3D training rows of the paper
        widths = (0, *(n_factors * factor for factor in (2, 8, 32)))
        return MlpProbes(widths=widths, learning_rate=2e-3, min_steps=3000)
    if probe == "rff":
        return RffProbes() if paper else RffProbes(features=(16, 32, 64, 128, 256, 512))
    raise ValueError(f"probe must be 'mlp', 'random_forest' or 'rff', got {probe!r}.")


def curve_from_fit(
    fit: LadderFit, data: ProbeData, family: ProbeFamily, seeds: Sequence[int], baseline: Any
) -> LossCapacityCurve:
    """Curve of the test losses of fitted probes."""
    losses = 1 - fit.test_scores
    return LossCapacityCurve(
        capacities=fit.capacities,
        losses=losses.mean(axis=0),
        per_seed=losses,
        baseline=baseline_loss(data.train.factors, data.kinds, data.sizes, baseline),
        sizes=fit.sizes,
        probe=family.name,
        description=family.describe(),
        n_samples=len(data.train.codes),
        seeds=tuple(seeds),
    )


def as_seeds(seed: int, n_seeds: int) -> tuple[int, ...]:
    """Seeds of the repeated fits."""
    if n_seeds < 1:
        raise ValueError(f"n_seeds must be at least 1, got {n_seeds}.")
    return tuple(range(seed, seed + n_seeds))


def loss_capacity_curve(
    codes: ArrayLike,
    factors: ArrayLike,
    probe: str | ProbeFamily = "mlp",
    *,
    kinds: Sequence[str] | str = "categorical",
    preset: Preset = "small",
    factor_sizes: Sequence[int] | None = None,
    validation: tuple[ArrayLike, ArrayLike] | None = None,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    n_seeds: int = 1,
    standardize_codes: bool = False,
    baseline: Literal["auto", "sizes", "frequency"] = "auto",
    seed: int = 0,
    device: str | None = None,
) -> LossCapacityCurve:
    """Test loss of each factor against the capacity of the probe that reads it from the codes.

    Parameters
    ----------
    codes : Float[ndarray, "n L"]   representation
    factors : Int[ndarray, "n K"]   class index of each factor, 0 .. q-1; continuous factors are
        regressed on index / (q - 1)
    probe : "mlp", "random_forest", "rff", or a `ProbeFamily`
    kinds : "categorical" or "continuous" per factor, or one word for all
    preset : "small" or "paper" ladder of a probe given by name
    factor_sizes : q of each factor; taken from the largest value when not given
    validation, test : (codes, factors) of held-out rows; drawn from the rows given when missing
    n_seeds : fits per capacity, with seeds `seed`, `seed + 1`, ...
    standardize_codes : scale codes to unit variance first (the paper does not)
    baseline : see `probes.base.baseline_loss`
    device : of torch, for probes that use it

    Returns
    -------
    LossCapacityCurve, sorted by capacity.

    Raises
    ------
    ValueError  on shapes, kinds or sizes that do not fit, or a factor with a single value.
    ImportError  for "mlp" without torch.
    """
    data = ProbeData.checked(
        codes,
        factors,
        kinds,
        factor_sizes=factor_sizes,
        validation=validation,
        test=test,
        seed=seed,
    )
    if standardize_codes:
        data = data.standardised()
    family = probe_family(probe, preset=preset, n_factors=data.n_factors)
    seeds = as_seeds(seed, n_seeds)
    return curve_from_fit(family.fit(data, seeds, device=device), data, family, seeds, baseline)
