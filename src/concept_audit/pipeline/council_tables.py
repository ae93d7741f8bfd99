"""From a council's answers to the rows of all tables, and to the leaderboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from concept_audit.council.labels import synthetic_labels
from concept_audit.council.leaderboard import ModelEntry, write_leaderboard
from concept_audit.council.prompts import SCALES
from concept_audit.council.result_rows import (
    benchmark_rows,
    consensus_rows,
    position_bias_rows,
    recovery_rows,
)
from concept_audit.council.scoring import benchmark_scores, ranks
from concept_audit.pipeline.council_answers import Answers
from concept_audit.pipeline.council_sets import JudgedSet
from concept_audit.store.layout import OutputLayout

__all__ = ["table_rows", "write_board"]

_RESAMPLES = {"offline": 2000, "scripted": 200}
_NOTES = (
    "Stand-in data: drawn pictures that imitate the real data sets.",
    "Offline council: no judge sees an image or is a language model, and none was validated "
    "against people.",
)


def _extreme(
    rows: Sequence[Mapping[str, Any]], model: str, choose: Callable[..., Any]
) -> list[dict[str, Any]]:
    """The row of the least or most of some rows, under a name of its own."""
    if not rows:
        return []
    row = dict(choose(rows, key=lambda row: row["value"]))
    note = str(row["model"])
    return [{**row, "model": model, "note": f"{note}; {row['note']}" if row.get("note") else note}]


def _design_rows(sets: Sequence[JudgedSet], labels: Sequence[Mapping[str, Any]], note: str) -> Any:
    """Table 1: sizes of the study."""

    def row(dataset: str, metric: str, value: float, unit: str) -> dict[str, Any]:
        return {
            "paper": "cbx", "scope": "comparison", "dataset": dataset, "metric": metric,
            "target": "mean", "value": float(value), "unit": unit, "note": note,
        }  # fmt: skip

    rows = [row("overall", "n_datasets", len(sets), "data sets")]
    for name in ("overall", *(data.name for data in sets)):
        images = sum(len(data.image_ids) for data in sets if name in ("overall", data.name))
        items = [label for label in labels if name in ("overall", label["dataset"])]
        answers = sum(len(label["answers"]) for label in items)
        rows += [
            row(name, "n_images", images, "images"),
            row(name, "n_pairs_per_image", len(items) / images, "pairs"),
            row(name, "n_items", len(items), "comparisons"),
            row(name, "n_judgments", answers, "answers"),
            row(name, "n_answers_per_item", answers / len(items), "answers"),
        ]
    return rows


def table_rows(
    judged: Answers, sets: Sequence[JudgedSet], study: Sequence[str], council: str
) -> list[dict[str, Any]]:
    """Rows of all seven tables."""
    # Invented people prefer the model that gives the annotated class more probability, which no
    # offline judge sees; their labels rehearse the alignment and are no evidence of anything.
    quality = {
        key: value for data in sets for key, value in data.confidence.items() if key[2] in study
    }
    labels = synthetic_labels(quality, seed=0)
    resamples = _RESAMPLES[council]
    rows = _design_rows(sets, labels, "synthetic labels")
    rows += consensus_rows(labels)
    recovery: list[dict[str, Any]] = []
    for scale in SCALES:
        scores = [row for row in judged.scores[scale] if row["model"] in study]
        found = recovery_rows(labels, scores, scale_max=scale, n_resamples=resamples)
        if scale != SCALES[-1]:
            found = [row for row in found if row["model"] != "chance"]
        recovery += found
    singles = [
        row
        for row in recovery
        if row["dataset"] == "overall"
        and row["metric"] in ("recovery_strict", "recovery_weak")
        and not row["model"].startswith(("vote_majority", "score_sum", "chance"))
    ]
    for metric in ("recovery_strict", "recovery_weak"):
        rows += _extreme([r for r in singles if r["metric"] == metric], "best_judge", max)
    rows += recovery
    top = SCALES[-1]
    images = {data.name: data.image_ids for data in sets}
    bench = benchmark_scores(
        judged.scores[top], scale_max=top, images=images, n_resamples=resamples
    )
    models = list(sets[0].tables)
    accuracy = {m: {d.name: d.entries[m]["accuracy"] for d in sets} for m in models}
    rows += benchmark_rows(bench, accuracy=accuracy)
    shared = {"paper": "cbx", "scope": "comparison", "target": "mean"}
    for data in sets:
        for model, rank in ranks({m: accuracy[m][data.name] for m in models}).items():
            rows.append(
                {**shared, "dataset": data.name, "model": model, "metric": "accuracy_rank",
                 "value": rank, "unit": "rank"}
            )  # fmt: skip
    for metric, value in (
        ("score_sum_low", len(bench.judges)),
        ("score_sum_high", top * len(bench.judges)),
    ):
        rows.append(
            {**shared, "dataset": "overall", "metric": metric, "value": value, "unit": "points"}
        )
    bias = position_bias_rows(judged.pairs)
    plain = [row for row in bias if row["metric"] == "position_bias"]
    rows += [
        *bias,
        *_extreme(plain, "lowest_judge", min),
        *_extreme(plain, "highest_judge", max),
    ]
    return [{**row, "standin": True} for row in rows]


def write_board(
    layout: OutputLayout, judged: Answers, sets: Sequence[JudgedSet], council: str
) -> None:
    """Write the leaderboard of our own models, with what its numbers rest on."""
    top = SCALES[-1]

    def of(model: str, name: str) -> dict[str, float]:
        return {data.name: data.entries[model][name] for data in sets}

    subsets = tuple(
        f"{data.name}: {len(data.image_ids)} images, within "
        f"{data.manifest.tolerance_points:g} points of each model's full accuracy."
        for data in sets
    )
    write_leaderboard(
        layout.leaderboard,
        judged.scores[top],
        [item for data in sets for item in data.items],
        models=[
            ModelEntry(
                name=model,
                authors="concept_audit",
                accuracy=of(model, "accuracy"),
                nec=of(model, "nec"),
                ncc95=of(model, "ncc95"),
                flags=("stand-in data",),
            )
            for model in sets[0].tables
        ],
        title="CBX leaderboard of our own models",
        notes=(*_NOTES, *subsets, *judged.warnings)
        if council == "offline"
        else (_NOTES[0], "Scripted council: the scores are invented.", *subsets),
        images={data.name: data.image_ids for data in sets},
        n_resamples=_RESAMPLES[council],
    )
