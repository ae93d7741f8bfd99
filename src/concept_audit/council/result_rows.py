"""Numbers of the council as rows of the results table, named as the paper's tables name them.

Shares are in percent, as CBX-Bench prints them; scores in [0, 1]. `dataset` is `overall` where
the images of all data sets are pooled, and `model` a judge, `score_sum` or `vote_majority` with
its scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from concept_audit.council.alignment import (
    chance_levels,
    consensus_table,
    labels_from_scores,
    permutation_baseline,
    position_bias_rate,
    ranking_recovery,
)
from concept_audit.council.labels import is_synthetic
from concept_audit.council.scoring import BenchmarkScores

__all__ = ["benchmark_rows", "consensus_rows", "position_bias_rows", "recovery_rows"]

SYNTHETIC_NOTE = "synthetic labels"


def _row(metric: str, value: float | None, **columns: Any) -> dict[str, Any]:
    row = {
        "paper": "cbx",
        "scope": "comparison",
        "dataset": "overall",
        "metric": metric,
        "target": "mean",
        "value": value,
        "unit": "%",
        **columns,
    }
    return {name: cell for name, cell in row.items() if cell is not None}


def consensus_rows(human: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Table 2: strength of human consensus, overall and per data set, counts and shares."""
    note = SYNTHETIC_NOTE if is_synthetic([dict(row) for row in human]) else None
    rows = []
    for dataset in ("overall", *_datasets(human)):
        table = consensus_table([r for r in human if dataset in ("overall", r["dataset"])])
        counts = {
            "consensus": table.items - table.none,
            "consensus_unanimous": table.unanimous,
            "consensus_majority": table.majority,
            "consensus_none": table.none,
            "consensus_preference": table.preference,
            "consensus_tie": table.tie,
        }
        shared = {"dataset": dataset, "n_samples": table.items, "note": note}
        for name, count in counts.items():
            rows.append(_row(f"{name}_items", count, unit="comparisons", **shared))
            rows.append(_row(f"{name}_share", 100 * count / table.items, **shared))
    return rows


def recovery_rows(
    human: Sequence[Mapping[str, Any]],
    scores: Sequence[Mapping[str, Any]],
    *,
    scale_max: int = 9,
    n_resamples: int = 2000,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Tables 3 to 5: recovery by each judge and both councils, with chance levels and variants.

    Parameters
    ----------
    human : labels, see `labels`
    scores : judged rows of one scale
    scale_max : that scale
    n_resamples, seed : of the bootstrap
    """
    note = SYNTHETIC_NOTE if is_synthetic([dict(row) for row in human]) else None
    judges = sorted({str(row["judge"]) for row in scores})
    rows = []
    for method in (*judges, "vote_majority", "score_sum"):
        predicted = labels_from_scores(scores, method=method)
        model = f"{method} scale={scale_max}"
        for setting in ("strict", "weak"):
            for unanimous in (False, True):
                found = ranking_recovery(
                    human, predicted, setting=setting, unanimous=unanimous,
                    n_resamples=n_resamples, seed=seed,
                )  # fmt: skip
                metric = f"recovery_{setting}" + ("_unanimous" if unanimous else "")
                for dataset, value in {"overall": found.overall, **found.per_dataset}.items():
                    pairs = f"{value.n_pairs} pairs"
                    rows.append(
                        _row(
                            metric,
                            100 * value.value,
                            low=100 * value.low,
                            high=100 * value.high,
                            dataset=dataset,
                            model=model,
                            n_samples=value.n_images,
                            note=f"{pairs}; {note}" if note else pairs,
                        )
                    )
                shared = {"model": model, "n_samples": found.overall.n_images, "note": note}
                rows.append(_row(f"{metric}_pooled_pairs", 100 * found.pooled_pairs, **shared))
                shuffled = permutation_baseline(
                    human, predicted, setting=setting, unanimous=unanimous
                )
                rows.append(_row(f"{metric}_shuffled", 100 * shuffled, **shared))
    table = consensus_table(human)
    chance = chance_levels(table.preference, table.tie)
    for metric, level in (
        ("recovery_strict", chance.strict),
        ("recovery_weak", chance.weak),
        ("recovery_weak_given_human", chance.weak_given_human),
        ("recovery_weak_ceiling", chance.weak_ceiling_without_ties),
    ):
        rows.append(_row(metric, 100 * level, model="chance", n_samples=table.items, note=note))
    return rows


def benchmark_rows(
    scores: BenchmarkScores, *, accuracy: Mapping[str, Mapping[str, float]] | None = None
) -> list[dict[str, Any]]:
    """Table 6: score, interval and rank per model and data set, and accuracy where it is given.

    Parameters
    ----------
    scores : of `benchmark_scores`
    accuracy : points (0 to 100) per model and data set
    """
    rows = []
    for entry in scores.scores:
        shared = {"dataset": entry.dataset, "model": entry.model, "n_samples": entry.n_images}
        if entry.value is None:
            continue
        rows.append(
            _row("cbx_score", entry.value, low=entry.low, high=entry.high, unit="1", **shared)
        )
        rows.append(_row("cbx_rank", entry.rank, unit="rank", **shared))
        points = (accuracy or {}).get(entry.model, {}).get(entry.dataset)
        if points is not None:
            rows.append(_row("task_accuracy", points, **shared))
    return rows


def position_bias_rows(
    comparisons: Mapping[str, Sequence[Mapping[str, Any]]],
) -> list[dict[str, Any]]:
    """Table 7: share of answers that change when positions swap, per judge."""
    rows = []
    for judge, pairs in comparisons.items():
        bias = position_bias_rate(pairs)
        shared = {"model": judge, "n_samples": bias.n_comparisons}
        rows.append(_row("position_bias", 100 * bias.rate, **shared))
        rows.append(_row("position_bias_4way", 100 * bias.rate_4way, **shared))
        rows.append(_row("position_bias_strict_flip", 100 * bias.rate_strict_flip, **shared))
    return rows


def _datasets(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(row["dataset"]) for row in rows))
