"""How far judges and councils agree with people, with each other and with themselves.

CBX-Bench, sections 3.2 and 4: instance-wise ranking recovery with its chance levels, position bias
of pairwise prompts; beside them agreement among annotators and judges, and Bradley-Terry strengths.

Human labels are a table with `dataset`, `image_id`, `pair` (two model names) and either `answers`
(raw, in the order of `pair`) or `consensus` and `strength`. Predicted labels are a table with
`dataset`, `image_id`, `pair`, `label`; a pair may stand in either order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import numpy as np

from concept_audit.council.scoring import (
    consensus,
    score_sum_council,
    vote_majority_council,
)

__all__ = [
    "ChanceLevels",
    "ConsensusTable",
    "PositionBias",
    "RankingRecovery",
    "RecoveryValue",
    "chance_levels",
    "consensus_table",
    "decided_label",
    "labels_from_scores",
    "permutation_baseline",
    "position_bias_rate",
    "ranking_recovery",
]

Row = Mapping[str, Any]
_Key = tuple[str, str, str, str]  # dataset, image, and the pair in alphabetical order


@dataclass(frozen=True)
class RecoveryValue:
    """Mean share of recovered relations per image."""

    value: float  # NaN without a usable image
    low: float
    high: float
    n_images: int
    n_pairs: int


@dataclass(frozen=True)
class RankingRecovery:
    """Recovery of human relations by a judge or council."""

    overall: RecoveryValue  # all images pooled
    per_dataset: dict[str, RecoveryValue]
    pooled_pairs: float  # share of all pairs, whatever their image
    mean_of_datasets: float
    n_missing: int  # usable pairs without a predicted label; each counts as a miss
    setting: str
    unanimous: bool
    per_image: dict[tuple[str, str], float]

    @property
    def value(self) -> float:
        """Overall recovery, a share in [0, 1]."""
        return self.overall.value


def decided_label(row: Row) -> tuple[str | None, str]:
    """Consensus label and strength of a human row, computed from its raw answers if it has them."""
    if "answers" in row:
        result = consensus(row["answers"])
        return result.label, result.strength
    if "consensus" in row and "strength" in row:
        return row["consensus"], row["strength"]
    raise ValueError(
        "a human row needs `answers`, or `consensus` and `strength`; "
        f"got the columns {', '.join(sorted(row))}."
    )


def _key(row: Row) -> tuple[_Key, bool]:
    """Identity of a comparison, and whether its pair stands in reverse alphabetical order."""
    first, second = row["pair"]
    if first == second:
        raise ValueError(f"pair must name two different models, got {first!r} twice.")
    reverse = str(first) > str(second)
    low, high = (second, first) if reverse else (first, second)
    return (str(row.get("dataset", "")), str(row["image_id"]), str(low), str(high)), reverse


def _oriented(label: str | None, reverse: bool) -> str | None:
    if label not in ("A", "B", "tie", None):
        raise ValueError(f"label must be 'A', 'B', 'tie' or None, got {label!r}.")
    return {"A": "B", "B": "A"}.get(label or "", label) if reverse else label


def _table(rows: Iterable[Row], name: str, read: Any) -> dict[_Key, Any]:
    table: dict[_Key, Any] = {}
    for row in rows:
        key, reverse = _key(row)
        if key in table:
            raise ValueError(f"{name} must hold each comparison once, got {key} twice.")
        table[key] = read(row, reverse)
    if not table:
        raise ValueError(f"{name} must hold at least one comparison, got none.")
    return table


def _human_table(human: Iterable[Row]) -> dict[_Key, tuple[str | None, str]]:
    def read(row: Row, reverse: bool) -> tuple[str | None, str]:
        label, strength = decided_label(row)
        return _oriented(label, reverse), strength

    return _table(human, "human", read)


def _predicted_table(predicted: Iterable[Row]) -> dict[_Key, str | None]:
    return _table(predicted, "predicted", lambda row, reverse: _oriented(row["label"], reverse))


def _usable(
    human: Mapping[_Key, tuple[str | None, str]],
    setting: str,
    unanimous: bool,
    image_filter: str,
) -> list[_Key]:
    """Comparisons that a setting counts."""
    if setting not in ("strict", "weak"):
        raise ValueError(f"setting must be 'strict' or 'weak', got {setting!r}.")
    allowed = {"strict": ("A", "B"), "weak": ("A", "B", "tie")}[setting]
    keys = [
        key
        for key, (label, strength) in human.items()
        if label in allowed and (not unanimous or strength == "unanimous")
    ]
    if image_filter == "none":
        return keys
    blocking = {"consensus_pairs": ("tie",), "all_pairs": ("tie", None)}.get(image_filter)
    if blocking is None:
        raise ValueError(
            f"image_filter must be 'none', 'consensus_pairs' or 'all_pairs', got {image_filter!r}."
        )
    dropped = {key[:2] for key, (label, _) in human.items() if label in blocking}
    return [key for key in keys if key[:2] not in dropped]


def ranking_recovery(
    human: Sequence[Row],
    predicted: Sequence[Row],
    *,
    setting: Literal["strict", "weak"] = "strict",
    unanimous: bool = False,
    tie_credit: float = 0.0,
    image_filter: Literal["none", "consensus_pairs", "all_pairs"] = "none",
    n_resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> RankingRecovery:
    """Share of human pairwise relations that a judge or council recovers, per image, averaged.

    Parameters
    ----------
    human, predicted : tables as the module describes them
    setting : `strict` counts pairs whose consensus is A or B; `weak` counts ties as well
    unanimous : count only pairs on which all annotators agree
    tie_credit : credit of a predicted tie on a strict pair; the paper's rule gives none
    image_filter : `consensus_pairs` drops an image with any human tie, `all_pairs` one with any
        pair that is no strict preference; the default filters pairs, not images
    n_resamples, confidence, seed : percentile bootstrap over images, stratified by dataset

    Returns
    -------
    RankingRecovery

    Raises
    ------
    ValueError  on an unknown setting, a comparison listed twice, or one that `predicted` lacks.

    Notes
    -----
    CBX-Bench, section 3.2 and tables 3 to 5. The paper's overall values are weighted by counts, so
    images of all datasets are pooled.
    """
    truth = _human_table(human)
    guess = _predicted_table(predicted)
    keys = _usable(truth, setting, unanimous, image_filter)
    absent = [key for key in keys if key not in guess]
    if absent:
        raise ValueError(
            f"predicted lacks {len(absent)} of {len(keys)} comparisons, first {absent[0]}. "
            "Give a row for each; its label may be None where a score is missing."
        )
    hits: dict[tuple[str, str], list[float]] = {}
    for key in keys:
        label, wanted = guess[key], truth[key][0]
        half = tie_credit if label == "tie" and wanted != "tie" else 0.0
        hits.setdefault(key[:2], []).append(1.0 if label == wanted else half)
    per_image = {image: float(np.mean(values)) for image, values in hits.items()}
    datasets = list(dict.fromkeys(dataset for dataset, _ in per_image))
    groups = {
        name: np.array([value for (dataset, _), value in per_image.items() if dataset == name])
        for name in datasets
    }
    counts = Counter(key[0] for key in keys)
    rng = np.random.default_rng(seed)
    draws = {
        name: rng.choice(values, size=(n_resamples, values.size)) for name, values in groups.items()
    }
    tail = 100 * (1 - confidence) / 2

    def summary(names: Sequence[str], n_pairs: int) -> RecoveryValue:
        values = np.concatenate([groups[name] for name in names] or [np.empty(0)])
        if not values.size:
            return RecoveryValue(np.nan, np.nan, np.nan, 0, 0)
        drawn = np.concatenate([draws[name] for name in names], axis=1).mean(axis=1)
        low, high = np.percentile(drawn, [tail, 100 - tail])
        return RecoveryValue(float(values.mean()), float(low), float(high), values.size, n_pairs)

    per_dataset = {name: summary([name], counts[name]) for name in datasets}
    every = [hit for values in hits.values() for hit in values]
    return RankingRecovery(
        overall=summary(datasets, len(keys)),
        per_dataset=per_dataset,
        pooled_pairs=float(np.mean(every)) if every else np.nan,
        mean_of_datasets=float(np.mean([v.value for v in per_dataset.values()]))
        if per_dataset
        else np.nan,
        n_missing=sum(guess[key] is None for key in keys),
        setting=setting,
        unanimous=unanimous,
        per_image=per_image,
    )


def labels_from_scores(rows: Sequence[Row], *, method: str = "score_sum") -> list[dict[str, Any]]:
    """Pairwise labels of a council or of one judge, as `ranking_recovery` reads them.

    Parameters
    ----------
    rows : table with `dataset`, `image_id`, `model`, `judge`, `score`
    method : `score_sum`, `vote_majority`, or the name of a judge

    Returns
    -------
    One row per image and pair of its models.
    """
    images: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        if method not in ("score_sum", "vote_majority") and row["judge"] != method:
            continue
        table = images.setdefault((row.get("dataset", ""), row["image_id"]), {})
        table.setdefault(row["judge"], {})[row["model"]] = row["score"]
    if not images:
        names = sorted({str(row["judge"]) for row in rows})
        raise ValueError(
            f"method must be 'score_sum', 'vote_majority' or a judge ({', '.join(names)}), "
            f"got {method!r}."
        )
    council = vote_majority_council if method == "vote_majority" else score_sum_council
    labels = []
    for (dataset, image), table in images.items():
        verdict = council(table)
        labels += [
            {"dataset": dataset, "image_id": image, "pair": pair, "label": label}
            for pair, label in zip(verdict.pairs, verdict.labels, strict=True)
        ]
    return labels


@dataclass(frozen=True)
class ChanceLevels:
    """What recovery must be read against, all shares in [0, 1]."""

    strict: float  # random strict ranking: 1/2
    weak: float  # two uniform weak rankings of three: 59/169
    weak_given_human: float  # uniform weak ranking against the observed mix of human labels
    weak_ceiling_without_ties: float  # best weak value of a judge that never ties


def chance_levels(n_strict: int, n_tie: int) -> ChanceLevels:
    """Chance levels and ceiling for given counts of strict and tied human pairs.

    Notes
    -----
    CBX-Bench, section 4: three models have 13 weak orders. For one pair 5 of them say A, 5 say B
    and 3 a tie, so two uniform draws agree with (25 + 25 + 9) / 169.
    """
    total = n_strict + n_tie
    if min(n_strict, n_tie) < 0 or total == 0:
        raise ValueError(f"counts must be at least 0 and not both 0, got {n_strict} and {n_tie}.")
    return ChanceLevels(
        strict=0.5,
        weak=59 / 169,
        weak_given_human=(5 * n_strict + 3 * n_tie) / (13 * total),
        weak_ceiling_without_ties=n_strict / total,
    )


def permutation_baseline(
    human: Sequence[Row],
    predicted: Sequence[Row],
    *,
    setting: Literal["strict", "weak"] = "strict",
    unanimous: bool = False,
) -> float:
    """Expected recovery after the models of each image are shuffled, exactly, over all orders.

    It keeps the judge's own rate of ties: a judge that ties often has a strict chance level under
    one half.
    """
    truth = _human_table(human)
    guess = _predicted_table(predicted)
    keys = _usable(truth, setting, unanimous, "none")
    images: dict[tuple[str, str], list[_Key]] = {}
    for key in keys:
        images.setdefault((key[0], key[1]), []).append(key)
    shares = []
    for image, pairs in images.items():
        models = sorted({name for key in guess if key[:2] == image for name in key[2:]})
        matches = []
        for order in permutations(models):
            renamed = dict(zip(models, order, strict=True))
            for key in pairs:
                first, second = renamed[key[2]], renamed[key[3]]
                reverse = first > second
                low, high = (second, first) if reverse else (first, second)
                label = guess.get((*image, low, high))
                matches.append(_oriented(label, reverse) == truth[key][0])
        shares.append(np.mean(matches))
    return float(np.mean(shares)) if shares else float("nan")


@dataclass(frozen=True)
class ConsensusTable:
    """Counts of human consensus, as CBX-Bench's table 2 lists them."""

    items: int
    unanimous: int
    majority: int
    none: int
    preference: int
    tie: int


def consensus_table(human: Sequence[Row]) -> ConsensusTable:
    """Count consensus strengths and labels of a table of human labels."""
    decided = [decided_label(row) for row in human]
    strengths = Counter(strength for _, strength in decided)
    labels = Counter(label for label, _ in decided)
    return ConsensusTable(
        items=len(decided),
        unanimous=strengths["unanimous"],
        majority=strengths["majority"],
        none=strengths["none"],
        preference=labels["A"] + labels["B"],
        tie=labels["tie"],
    )


@dataclass(frozen=True)
class PositionBias:
    """How often a pairwise judge changes its mind when the explanations swap places."""

    rate: float  # changed three-way labels, the two equalities read as one
    rate_4way: float  # the two equalities kept apart
    rate_strict_flip: float  # from one model to the other
    first_position_choices: int  # over both orders
    second_position_choices: int
    tie_choices: int
    n_comparisons: int
    n_missing: int  # comparisons without a label in either order, left out of the rates


def position_bias_rate(rows: Sequence[Row]) -> PositionBias:
    """Instability of pairwise answers under a swap of positions.

    Parameters
    ----------
    rows : table with the models `first` and `second`, the label `forward` of the prompt (first,
        second) and the label `swapped` of the prompt (second, first); `CBM1`, `CBM2`,
        `Equally_Good`, `Equally_Bad` or None

    Returns
    -------
    PositionBias with `rate`, the share of comparisons whose label changed at the level of models.

    Notes
    -----
    CBX-Bench, table 7. Whether Equally_Good against Equally_Bad counts is not stated: `rate` reads
    both as a tie, as the rest of the protocol does.
    """
    changed, changed_4way, flipped = [], [], []
    choices: Counter[str] = Counter()
    missing = 0
    for row in rows:
        answers = (row["forward"], row["swapped"])
        if None in answers:
            missing += 1
            continue
        choices.update(answers)
        names = (row["first"], row["second"])
        mapped = [_model_of(answers[0], names), _model_of(answers[1], names[::-1])]
        three = [label if label in names else "tie" for label in mapped]
        changed.append(three[0] != three[1])
        changed_4way.append(mapped[0] != mapped[1])
        flipped.append("tie" not in three and three[0] != three[1])
    if not changed:
        raise ValueError(
            f"rows must hold a comparison with labels in both orders, got {len(rows)}."
        )
    return PositionBias(
        rate=float(np.mean(changed)),
        rate_4way=float(np.mean(changed_4way)),
        rate_strict_flip=float(np.mean(flipped)),
        first_position_choices=choices["CBM1"],
        second_position_choices=choices["CBM2"],
        tie_choices=choices["Equally_Good"] + choices["Equally_Bad"],
        n_comparisons=len(changed),
        n_missing=missing,
    )


def _model_of(label: str, names: Sequence[str]) -> str:
    if label not in ("CBM1", "CBM2", "Equally_Good", "Equally_Bad"):
        raise ValueError(f"label must be CBM1, CBM2, Equally_Good or Equally_Bad, got {label!r}.")
    return {"CBM1": names[0], "CBM2": names[1]}.get(label, label)
