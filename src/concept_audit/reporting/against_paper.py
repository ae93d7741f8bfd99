"""Verdicts: our number against the paper's, by rules that stand here and in the report.

Pure functions of numbers. A verdict says how close two numbers are, not who is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "ACCURACY_TOLERANCE",
    "RATIO_TOLERANCE",
    "SCORE_TOLERANCE",
    "SIGNIFICANCE",
    "VERDICT_RULES",
    "Measured",
    "Printed",
    "Verdict",
    "count_verdicts",
    "judge",
    "judge_share",
]

ACCURACY_TOLERANCE = 0.02  # accuracies, F1 and AUC, which sit close to 1
SCORE_TOLERANCE = 0.05  # leakage, impurity and intervention scores
RATIO_TOLERANCE = 2.0  # a score within this factor of the paper's is of the same order
SIGNIFICANCE = 0.05  # for correlations and their p-values


class Verdict(StrEnum):
    """How our number stands to the paper's."""

    WITHIN_INTERVAL = "within interval"
    SAME_ORDER = "same order"
    DIFFERS = "differs"
    NOT_RUN = "not run"
    STAND_IN = "stand-in"
    UNKNOWN = "paper's value unknown"


VERDICT_RULES: dict[Verdict, str] = {
    Verdict.WITHIN_INTERVAL: (
        "our 95 % interval, widened by half the last digit that the paper prints, meets the "
        "paper's value or its interval"
    ),
    Verdict.SAME_ORDER: (
        "outside the interval, but an accuracy, F1 or AUC differs by at most "
        f"{ACCURACY_TOLERANCE}; another score by at most {SCORE_TOLERANCE}, or it has the same "
        f"sign and lies within a factor of {RATIO_TOLERANCE:g}; a correlation has the same sign "
        f"and is significant (p < {SIGNIFICANCE}) where the paper's is; a p-value lies on the same "
        f"side of {SIGNIFICANCE}"
    ),
    Verdict.DIFFERS: "neither of these",
    Verdict.NOT_RUN: "no run of ours gives this number under this profile",
    Verdict.STAND_IN: "our data only imitate the paper's, so the numbers are not compared",
    Verdict.UNKNOWN: "the paper draws the number without printing it; nothing is guessed",
}


@dataclass(frozen=True)
class Measured:
    """Our number: value, 95 % interval (NaN if none), runs behind it."""

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int | None = None
    standin: bool = False


@dataclass(frozen=True)
class Printed:
    """The paper's number: value (NaN if unknown), interval, half a unit of its last digit."""

    value: float
    low: float = math.nan
    high: float = math.nan
    resolution: float = 0.0


def _or(value: float, other: float) -> float:
    return other if math.isnan(value) else value


def _intervals_meet(ours: Measured, paper: Printed) -> bool:
    slack = _or(paper.resolution, 0.0) * (1 + 1e-9)
    low, high = _or(ours.low, ours.value), _or(ours.high, ours.value)
    return (
        low - slack <= _or(paper.high, paper.value) and _or(paper.low, paper.value) <= high + slack
    )


def _same_order(
    metric: str, ours: float, paper: float, ours_p: float | None, paper_p: float | None
) -> bool:
    if metric == "pearson_p":
        return (ours < SIGNIFICANCE) == (paper < SIGNIFICANCE)
    if metric == "pearson_r":
        alike = ours * paper > 0
        if ours_p is not None and paper_p is not None:
            alike = alike and (ours_p < SIGNIFICANCE) == (paper_p < SIGNIFICANCE)
        return alike
    difference = abs(ours - paper) - 1e-9  # 0.990 - 0.970 is a little more than 0.02
    if metric.endswith(("accuracy", "f1", "auc")):
        return difference <= ACCURACY_TOLERANCE
    if difference <= SCORE_TOLERANCE:
        return True
    return ours * paper > 0 and 1 / RATIO_TOLERANCE <= ours / paper <= RATIO_TOLERANCE


def judge(
    metric: str,
    ours: Measured | None,
    paper: Printed | None,
    *,
    ours_p: float | None = None,
    paper_p: float | None = None,
) -> Verdict:
    """Verdict on one number.

    Parameters
    ----------
    metric : name as in the results table; decides what "same order" means
    ours : our number, None if it was not run; a NaN value counts as not run
    paper : the paper's number, None or NaN if it is not printed
    ours_p, paper_p : p-values that go with a correlation

    Returns
    -------
    Verdict. The rules are tried in this order: not run, stand-in, paper's value unknown, within
    interval, same order, differs.
    """
    if ours is None or math.isnan(ours.value):
        return Verdict.NOT_RUN
    if ours.standin:
        return Verdict.STAND_IN
    if paper is None or math.isnan(paper.value):
        return Verdict.UNKNOWN
    if _intervals_meet(ours, paper):
        return Verdict.WITHIN_INTERVAL
    if _same_order(metric, ours.value, paper.value, ours_p, paper_p):
        return Verdict.SAME_ORDER
    return Verdict.DIFFERS


def judge_share(holds: int, total: int, *, standin: bool = False) -> str:
    """Verdict on a claim in words: holds in all, in part or in none of the cases tested.

    Of stand-in data the verdict says just that: the paper's claim is about real ones.

    Parameters
    ----------
    holds, total : cases in which the claim holds, and cases that could be tested here

    Raises
    ------
    ValueError  unless 0 <= holds <= total.
    """
    if not 0 <= holds <= total:
        raise ValueError(f"holds must lie between 0 and total, got {holds} of {total}.")
    if total == 0:
        return "not run"
    if standin:
        return str(Verdict.STAND_IN)
    if holds == total:
        return "holds"
    if holds == 0:
        return "does not hold"
    return "holds in part"


def count_verdicts(verdicts: Iterable[Verdict | str]) -> dict[Verdict, int]:
    """How often each verdict occurs, in the order of the enumeration; absent ones left out."""
    counts = dict.fromkeys(Verdict, 0)
    for verdict in verdicts:
        counts[Verdict(verdict)] += 1
    return {verdict: count for verdict, count in counts.items() if count}
