"""Agreement among annotators, among judges, and the strengths that people's choices imply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from concept_audit.council.alignment import decided_label
from concept_audit.council.scoring import ANSWERS, consensus

__all__ = [
    "AnnotatorAgreement",
    "JudgeAgreement",
    "bradley_terry",
    "inter_annotator_agreement",
    "judge_agreement",
]

Row = Mapping[str, Any]
_MISSING_KRIPPENDORFF = (
    "Krippendorff's alpha needs the package krippendorff. Install it with: "
    "pip install 'concept-audit[judge]'"
)


@dataclass(frozen=True)
class AnnotatorAgreement:
    """Chance-corrected agreement of the people who compared explanations."""

    alpha: float  # Krippendorff, nominal, on A / B / tie
    alpha_4way: float  # with the two equalities kept apart
    fleiss_kappa: float  # on A / B / tie; NaN with unequal numbers of answers per item
    n_items: int
    n_answers: int


def inter_annotator_agreement(human: Sequence[Row]) -> AnnotatorAgreement:
    """Krippendorff's alpha and Fleiss' kappa of raw answers.

    Parameters
    ----------
    human : table with `answers` per item: `A`, `B`, `equally_good`, `equally_bad`

    Returns
    -------
    AnnotatorAgreement; alpha is NaN when every answer is the same, where it is not defined.

    Raises
    ------
    ValueError  without an item that has two answers.
    """
    raw = [tuple(row["answers"]) for row in human]
    if not any(len(answers) > 1 for answers in raw):
        raise ValueError("human must hold an item with at least two answers, got none.")
    three = [consensus(answers).collapsed for answers in raw]
    counts = _counts(three, ("A", "B", "tie"))
    return AnnotatorAgreement(
        alpha=_alpha(counts, "nominal"),
        alpha_4way=_alpha(_counts(raw, (*ANSWERS, "tie")), "nominal"),
        fleiss_kappa=_fleiss(counts),
        n_items=len(raw),
        n_answers=sum(map(len, raw)),
    )


def _counts(answers: Sequence[Sequence[str]], values: Sequence[str]) -> NDArray[np.int64]:
    return np.array([[row.count(value) for value in values] for row in map(list, answers)])


def _alpha(
    counts: NDArray[np.int64],
    level: Literal["nominal", "ordinal"],
    values: Sequence[float] | None = None,
) -> float:
    """Krippendorff's alpha of a table (items, values) of answer counts."""
    try:
        import krippendorff
    except ModuleNotFoundError:
        raise ModuleNotFoundError(_MISSING_KRIPPENDORFF) from None
    used = counts.sum(axis=0) > 0
    if used.sum() < 2:
        return float("nan")
    domain = np.arange(counts.shape[1]) if values is None else np.asarray(values)
    return float(
        krippendorff.alpha(
            value_counts=counts[:, used], value_domain=domain[used], level_of_measurement=level
        )
    )


def _fleiss(counts: NDArray[np.int64]) -> float:
    raters = counts.sum(axis=1)
    if raters.min() != raters.max() or raters[0] < 2:
        return float("nan")
    n = raters[0]
    observed = np.mean(((counts**2).sum(axis=1) - n) / (n * (n - 1)))
    chance = np.sum((counts.sum(axis=0) / counts.sum()) ** 2)
    return float((observed - chance) / (1 - chance)) if chance < 1 else float("nan")


def bradley_terry(human: Sequence[Row], *, regularisation: float = 0.0) -> dict[str, float]:
    """Log-strengths of models from human choices; a tie is half a win each way.

    Parameters
    ----------
    human : table with `pair` and `answers`, each of which counts; or with `consensus` and
        `strength`, where items without a consensus are left out
    regularisation : added to every comparison; needed where a model won or lost all of its own

    Returns
    -------
    Log-strength per model, with mean zero.

    Raises
    ------
    ValueError  when no finite solution exists without regularisation.
    """
    try:
        import choix
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "bradley_terry needs the package choix. "
            "Install it with: pip install 'concept-audit[judge]'"
        ) from None
    decided: list[tuple[Sequence[Any], str | None]] = []
    for row in human:
        votes = (
            consensus(row["answers"]).collapsed if row.get("answers") else [decided_label(row)[0]]
        )
        decided += [(row["pair"], vote) for vote in votes]
    models = sorted({str(name) for pair, _ in decided for name in pair})
    places = {name: position for position, name in enumerate(models)}
    wins = np.zeros((len(models), len(models)))
    for (first, second), label in decided:
        i, j = places[str(first)], places[str(second)]
        if label is not None:
            share = {"A": 1.0, "B": 0.0, "tie": 0.5}[label]
            wins[i, j] += share
            wins[j, i] += 1 - share
    if regularisation == 0 and not _strongly_connected(wins > 0):
        raise ValueError(
            "no finite Bradley-Terry strengths: some models only win or only lose. "
            "Pass regularisation=0.01, or leave those models out."
        )
    strengths = choix.ilsr_pairwise_dense(wins, alpha=regularisation)
    return {name: float(s) for name, s in zip(models, strengths - strengths.mean(), strict=True)}


def _strongly_connected(beats: NDArray[np.bool_]) -> bool:
    from scipy.sparse.csgraph import connected_components

    return int(connected_components(beats, connection="strong")[0]) == 1


@dataclass(frozen=True)
class JudgeAgreement:
    """Agreement of judges on the items they all scored or share pairwise."""

    judges: tuple[str, ...]
    weighted_kappa: NDArray[np.float64]  # (J, J) quadratic weights
    spearman: NDArray[np.float64]  # (J, J); NaN where a judge gives one score only
    alpha: float  # Krippendorff, ordinal, over all judges
    n_items: int


def judge_agreement(rows: Sequence[Row], *, scale_max: int = 9) -> JudgeAgreement:
    """Pairwise quadratic-weighted kappa and Spearman correlation, and ordinal alpha.

    Parameters
    ----------
    rows : table with `dataset`, `image_id`, `model`, `judge`, `score` (None where missing)
    scale_max : K of the scale 1..K

    Returns
    -------
    JudgeAgreement; a pair of judges is compared on the items both scored.
    """
    judges = tuple(sorted({str(row["judge"]) for row in rows}))
    if len(judges) < 2:
        raise ValueError(f"rows must hold at least two judges, got {len(judges)}.")
    items: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        item = (row.get("dataset", ""), row["image_id"], row["model"])
        items.setdefault(item, {})[str(row["judge"])] = row["score"]
    table = np.array([[item.get(j) for j in judges] for item in items.values()], dtype=np.float64)
    kappa, spearman = np.eye(len(judges)), np.eye(len(judges))
    for i, j in combinations(range(len(judges)), 2):
        both = np.isfinite(table[:, i]) & np.isfinite(table[:, j])
        x, y = table[both, i], table[both, j]
        kappa[i, j] = kappa[j, i] = _quadratic_kappa(x, y)
        spearman[i, j] = spearman[j, i] = _spearman(x, y)
    values = np.arange(1, scale_max + 1)
    counts = np.array([[np.count_nonzero(row == value) for value in values] for row in table])
    counts = counts[counts.sum(axis=1) > 1]
    alpha = _alpha(counts, "ordinal", list(values)) if len(counts) else float("nan")
    return JudgeAgreement(judges, kappa, spearman, alpha, len(items))


def _quadratic_kappa(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """1 - observed / chance mean squared difference; the scale's length cancels."""
    if not x.size:
        return float("nan")
    chance = np.mean(x**2) + np.mean(y**2) - 2 * x.mean() * y.mean()
    return float(1 - np.mean((x - y) ** 2) / chance) if chance > 0 else float("nan")


def _spearman(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    from scipy.stats import rankdata

    if not x.size or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])
