"""Scores across runs: intervals of a mean, the Leakage Criterion, pooled correlations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import to_numpy

__all__ = [
    "LeakageComparison",
    "MeanInterval",
    "PooledCorrelation",
    "ScoreComparison",
    "leakage_criterion",
    "mean_interval",
    "pooled_pearson",
]

SCORE_NAMES = ("CTL", "ICL")


@dataclass(frozen=True)
class MeanInterval:
    """Mean over runs with its t-interval.

    Attributes
    ----------
    mean, low, high : float
        Mean and interval; `low` and `high` are NaN for a single run, whose spread is unknown.
    sd, standard_error : float
        Standard deviation (n - 1) and standard error of the mean; NaN for a single run.
    confidence : float
        Level of the interval.
    n_runs : int
        Number of values.
    """

    mean: float
    low: float
    high: float
    sd: float
    standard_error: float
    confidence: float
    n_runs: int


@dataclass(frozen=True)
class ScoreComparison:
    """One score compared between two models.

    Attributes
    ----------
    score : str
        Name of the score.
    a, b : MeanInterval
        Mean and interval of each model.
    difference : float
        Mean of a minus mean of b.
    t_statistic, dof, p_value : float
        Welch's test, two-sided. Two models without any spread get p = 1 if equal, else p = 0.
    intervals_overlap : bool
        Whether the two intervals share a point: shown beside the test, not used by it.
    decision : str
        `higher`, `lower` (a against b, p < alpha) or `compatible`.
    """

    score: str
    a: MeanInterval
    b: MeanInterval
    difference: float
    t_statistic: float
    dof: float
    p_value: float
    intervals_overlap: bool
    decision: str


@dataclass(frozen=True)
class LeakageComparison:
    """Verdict of the Leakage Criterion on two models.

    Attributes
    ----------
    verdict : str
        `a_leaks_more`, `b_leaks_more`, `compatible` (no score differs) or `undecided` (scores
        differ in opposite directions).
    text : str
        The same in a sentence, with the numbers.
    scores : tuple of ScoreComparison
        One test per score.
    alpha : float
        Level of each test.
    """

    verdict: str
    text: str
    scores: tuple[ScoreComparison, ...]
    alpha: float


@dataclass(frozen=True)
class PooledCorrelation:
    """Pearson correlation pooled over Monte-Carlo draws by Rubin's rules.

    Attributes
    ----------
    r : float
        Mean of the correlations of the draws, as published (not the tanh of `z_mean`).
    p_value : float
        Two-sided, from `t_statistic` and `dof`; NaN when every draw was undefined.
    z_mean, t_statistic, dof : float
        Mean Fisher z, z over its total standard error, degrees of freedom.
    within_variance, between_variance : float
        1 / (n - 3), and the variance of z over draws.
    dof_formula : str
        `rubin` or `barnard_rubin`.
    n_models, n_draws, n_undefined : int
        Points, draws, and draws dropped because their correlation is undefined or exactly +-1.
    """

    r: float
    p_value: float
    z_mean: float
    t_statistic: float
    dof: float
    within_variance: float
    between_variance: float
    dof_formula: str
    n_models: int
    n_draws: int
    n_undefined: int


def _as_values(name: str, value: ArrayLike) -> Float[NDArray[np.float64], " n"]:
    """Float64 vector of per-run scores."""
    array = np.asarray(to_numpy(name, value), dtype=np.float64)
    if array.ndim == 0:
        array = array[None]
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must hold one score per run, shape (n,), got {array.shape}.")
    bad = int(array.size - np.count_nonzero(np.isfinite(array)))
    if bad:
        raise ValueError(
            f"{name} must be finite, got {bad} NaN or infinite of {array.size} scores. "
            "Leave out the runs whose score is undefined and say how many they are."
        )
    return array


def mean_interval(values: ArrayLike, *, confidence: float = 0.95) -> MeanInterval:
    """Mean over runs with a Student t interval.

    Parameters
    ----------
    values : Float[ndarray, "n"]
        One score per run.
    confidence : float
        Level of the interval, in (0, 1).

    Returns
    -------
    MeanInterval
        With one run the interval is NaN; equal values give an interval of width zero.

    Raises
    ------
    ValueError
        On an empty or non-finite input, or a level outside (0, 1).
    """
    from scipy.special import stdtrit

    scores = _as_values("values", values)
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}.")
    n = scores.size
    # Equal scores have no spread; rounding must invent neither a mean nor a deviation of its own.
    equal = bool(np.ptp(scores) == 0.0)
    mean = float(scores[0] if equal else scores.mean())
    if n == 1:
        return MeanInterval(mean, np.nan, np.nan, np.nan, np.nan, confidence, 1)
    sd = 0.0 if equal else float(scores.std(ddof=1))
    error = sd / float(np.sqrt(n))
    half = float(stdtrit(n - 1, 0.5 + confidence / 2)) * error
    return MeanInterval(mean, mean - half, mean + half, sd, error, confidence, n)


def _as_score_table(
    name: str, value: Mapping[str, ArrayLike] | ArrayLike
) -> dict[str, Float[NDArray[np.float64], " n"]]:
    """Per-run scores by name, from a mapping, `(n_runs, 2)` or one score `(n_runs,)`."""
    if isinstance(value, Mapping):
        table = {str(key): _as_values(f"{name}[{key!r}]", item) for key, item in value.items()}
    else:
        array = np.asarray(to_numpy(name, value), dtype=np.float64)
        if array.ndim == 1:
            table = {"score": _as_values(name, array)}
        elif array.ndim == 2 and array.shape[1] == len(SCORE_NAMES):
            table = {s: _as_values(name, array[:, i]) for i, s in enumerate(SCORE_NAMES)}
        else:
            raise ValueError(
                f"{name} must have shape (n_runs,) for one score or (n_runs, 2) for CTL and ICL, "
                f"got {array.shape}. Other sets of scores go in as a mapping of name to values."
            )
    if not table:
        raise ValueError(f"{name} must hold at least one score, got an empty mapping.")
    for key, scores in table.items():
        if scores.size < 2:
            raise ValueError(
                f"{name} needs at least 2 runs to know its spread, got {scores.size} of {key}. "
                "Train the model with more seeds."
            )
    return table


def _welch(
    score: str, a: NDArray[np.float64], b: NDArray[np.float64], alpha: float
) -> ScoreComparison:
    """Welch's t-test of one score."""
    from scipy.special import stdtr

    first, second = mean_interval(a, confidence=1 - alpha), mean_interval(b, confidence=1 - alpha)
    difference = first.mean - second.mean
    va, vb = first.standard_error**2, second.standard_error**2
    if va + vb > 0.0:
        t = difference / np.sqrt(va + vb)
        dof = (va + vb) ** 2 / (va**2 / (a.size - 1) + vb**2 / (b.size - 1))
        p = 2.0 * float(stdtr(dof, -abs(t)))
    else:
        t = 0.0 if difference == 0.0 else float(np.copysign(np.inf, difference))
        dof = float(a.size + b.size - 2)
        p = 1.0 if difference == 0.0 else 0.0
    decision = "compatible" if p >= alpha else "higher" if difference > 0 else "lower"
    overlap = first.low <= second.high and second.low <= first.high
    return ScoreComparison(
        score, first, second, float(difference), float(t), float(dof), p, bool(overlap), decision
    )


def leakage_criterion(
    a: Mapping[str, ArrayLike] | ArrayLike,
    b: Mapping[str, ArrayLike] | ArrayLike,
    *,
    alpha: float = 0.05,
) -> LeakageComparison:
    """Decide whether model a leaks more than model b.

    Parameters
    ----------
    a, b : mapping of score name to Float[ndarray, "n_runs"], or Float[ndarray, "n_runs 2"]
        Scores of repeated runs: a mapping such as `{"CTL": [...], "ICL": [...]}`, an array with
        the columns CTL and ICL, or one column for a single score. The two models may have
        different numbers of runs.
    alpha : float
        Level of each test.

    Returns
    -------
    LeakageComparison
        Verdict, a sentence, and the test of each score.

    Raises
    ------
    ValueError
        On fewer than two runs, non-finite scores, different score names, alpha outside (0, 1).

    Notes
    -----
    Leakage paper, Leakage Criterion: a leaks more if both scores are higher with high confidence,
    or one is and the other is compatible; opposite differences leave it undecided. The paper does
    not name the test. DEVIATION: Welch's t-test on the per-run scores, "compatible" is p >= alpha.
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must lie between 0 and 1, got {alpha}.")
    first, second = _as_score_table("a", a), _as_score_table("b", b)
    if set(first) != set(second):
        raise ValueError(
            f"a and b must hold the same scores, got {sorted(first)} and {sorted(second)}."
        )
    tests = tuple(_welch(name, first[name], second[name], alpha) for name in first)
    decisions = {test.decision for test in tests}
    if {"higher", "lower"} <= decisions:
        verdict, lead = "undecided", "Undecided: the scores differ in opposite directions"
    elif "higher" in decisions:
        verdict, lead = "a_leaks_more", "a leaks more than b"
    elif "lower" in decisions:
        verdict, lead = "b_leaks_more", "b leaks more than a"
    else:
        verdict, lead = "compatible", "No difference found: all scores are compatible"
    parts = [
        f"{t.score} {t.a.mean:.3g} against {t.b.mean:.3g} (p = {t.p_value:.2g}, "
        f"{'overlapping' if t.intervals_overlap else 'disjoint'} {100 * (1 - alpha):g} % intervals)"
        for t in tests
    ]
    return LeakageComparison(verdict, f"{lead}: {'; '.join(parts)}.", tests, alpha)


def _as_errors(
    name: str, value: ArrayLike, shape: tuple[int, ...]
) -> Float[NDArray[np.float64], " n"]:
    """Standard errors, one or one per model, not negative."""
    errors = _as_values(name, value)
    if errors.size not in (1, shape[0]):
        raise ValueError(f"{name} must hold one standard error or {shape[0]}, got {errors.size}.")
    if errors.min() < 0.0:
        raise ValueError(f"{name} must not be negative, got {errors.min():.4g}.")
    return np.broadcast_to(errors, shape)


def pooled_pearson(
    x: ArrayLike,
    sx: ArrayLike,
    y: ArrayLike,
    sy: ArrayLike,
    *,
    n_draws: int = 10_000,
    dof: Literal["rubin", "barnard_rubin"] = "rubin",
    truncate: bool = True,
    compat: Literal["reference"] | None = None,
    seed: int = 0,
) -> PooledCorrelation:
    """Pearson correlation of two scores known with standard errors, pooled by Rubin's rules.

    Parameters
    ----------
    x, y : Float[ndarray, "n"]
        Mean score of each model, for example CTL and S_int.
    sx, sy : Float[ndarray, "n"] or float
        Standard error of each mean, sd / sqrt(repeats).
    n_draws : int
        Monte-Carlo rounds; the paper uses 10 000.
    dof : str
        `rubin` (1987), as the authors' code computes, or `barnard_rubin` (1999) with n - 2 degrees
        of freedom of the complete data, the name the code gives it.
    truncate : bool
        Cut draws at zero, as the authors' code does; this biases small scores upward.
    compat : str or None
        `reference` keeps undefined draws, so that a single one makes every number NaN.
    seed : int
        Seed of `numpy.random.default_rng`; x is drawn before y in each round.

    Returns
    -------
    PooledCorrelation
        Undefined draws (a constant one, or |r| = 1) are dropped and counted.

    Raises
    ------
    ValueError
        On unequal lengths, fewer than 4 models, negative standard errors, too few draws.

    Notes
    -----
    Leakage paper, Table 2. z_m = arctanh r_m, U = 1/(n-3), B the variance of z over draws,
    T = U + (1 + 1/M) B, t = z_mean / sqrt(T). With B = 0 the p-value is the normal one.
    """
    from scipy.special import ndtr, stdtr

    first, second = _as_values("x", x), _as_values("y", y)
    n = first.size
    if second.size != n:
        raise ValueError(f"x and y must agree on the number of models: got {n} and {second.size}.")
    if n < 4:
        raise ValueError(
            f"x and y need at least 4 models, got {n}: Fisher's z has variance 1/(n - 3)."
        )
    if dof not in ("rubin", "barnard_rubin"):
        raise ValueError(f"dof must be 'rubin' or 'barnard_rubin', got {dof!r}.")
    if compat not in (None, "reference"):
        raise ValueError(f"compat must be None or 'reference', got {compat!r}.")
    if n_draws < 2:
        raise ValueError(f"n_draws must be at least 2, got {n_draws}.")
    errors_x, errors_y = _as_errors("sx", sx, (n,)), _as_errors("sy", sy, (n,))
    noise = np.random.default_rng(seed).standard_normal((n_draws, 2, n))
    x_star = first + errors_x * noise[:, 0]
    y_star = second + errors_y * noise[:, 1]
    if truncate:
        x_star, y_star = np.maximum(x_star, 0.0), np.maximum(y_star, 0.0)
    r = _row_correlations(x_star, y_star)
    undefined = np.isnan(r) | (np.abs(r) >= 1.0)
    n_undefined = int(undefined.sum())
    r = np.clip(r, -(1 - 1e-12), 1 - 1e-12)
    if n_undefined and compat == "reference":
        r = np.full(n_draws, np.nan)
    elif n_undefined:
        r = r[~undefined]
    within = 1.0 / (n - 3)
    if r.size < 2 or np.isnan(r).any():
        nan = float("nan")
        return PooledCorrelation(nan, nan, nan, nan, nan, within, nan, dof, n, n_draws, n_undefined)
    m = r.size
    z = np.arctanh(r)
    z_mean = float(z.mean())
    between = float(z.var(ddof=1)) if np.ptp(z) > 0.0 else 0.0
    total = within + (1 + 1 / m) * between
    t = z_mean / float(np.sqrt(total))
    if between == 0.0:
        degrees, p = float("inf"), 2.0 * float(ndtr(-abs(t)))
    else:
        degrees = (m - 1) * (1 + within / ((1 + 1 / m) * between)) ** 2
        if dof == "barnard_rubin":
            missing = (1 + 1 / m) * between / total
            complete = n - 2
            observed = (complete + 1) / (complete + 3) * complete * (1 - missing)
            degrees = degrees * observed / (degrees + observed)
        p = 2.0 * float(stdtr(degrees, -abs(t)))
    return PooledCorrelation(
        float(r.mean()), p, z_mean, t, degrees, within, between, dof, n, n_draws, n_undefined
    )


def _row_correlations(
    x: Float[NDArray[np.float64], "M n"], y: Float[NDArray[np.float64], "M n"]
) -> Float[NDArray[np.float64], " M"]:
    """Pearson correlation of each row; NaN where a row is constant."""
    constant = (np.ptp(x, axis=1) == 0.0) | (np.ptp(y, axis=1) == 0.0)
    dx = x - x.mean(axis=1, keepdims=True)
    dy = y - y.mean(axis=1, keepdims=True)
    scale = np.sqrt((dx**2).sum(axis=1) * (dy**2).sum(axis=1))
    r = (dx * dy).sum(axis=1) / np.where(constant | (scale == 0.0), 1.0, scale)
    return np.where(constant | (scale == 0.0), np.nan, r)
