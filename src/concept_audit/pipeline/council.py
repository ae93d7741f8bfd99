"""The council over our own concept bottleneck models: explanations, judgements, rows, leaderboard.

All tables of CBX-Bench read the same judgement of the same runs. It is made once, under a key of
its runs, the council and the code; replies are kept apart, so that a new judgement asks only what
was never asked.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from concept_audit.council.importers import ActivationTable, table_from_linear_cbm
from concept_audit.council.intake import items_from_table
from concept_audit.council.judges.base import Judge, JudgeImage, JudgeItem
from concept_audit.council.judging import judge_items, judge_pairs
from concept_audit.council.labels import synthetic_labels
from concept_audit.council.leaderboard import ModelEntry, write_leaderboard
from concept_audit.council.prompts import SCALES
from concept_audit.council.reply_store import ReplyStore
from concept_audit.council.result_rows import (
    benchmark_rows,
    consensus_rows,
    position_bias_rows,
    recovery_rows,
)
from concept_audit.council.scoring import benchmark_scores, ranks
from concept_audit.council.sparsity import (
    number_of_contributing_concepts,
    number_of_effective_concepts,
)
from concept_audit.council.subsets import SubsetManifest, choose_subset
from concept_audit.pipeline.judge import judge_config, judge_folder, make_judge
from concept_audit.pipeline.predict import restore
from concept_audit.pipeline.resume import dataset_of
from concept_audit.pipeline.runs import StoredRun
from concept_audit.store.atomic import file_sha256, write_json
from concept_audit.store.keys import canonical_json, code_digest
from concept_audit.store.layout import OutputLayout
from concept_audit.store.locks import held_lock
from concept_audit.store.results import read_rows, rows_frame, rows_valid, write_rows

__all__ = ["COUNCILS", "balanced_subset", "council_rows", "judge_runs", "model_name"]

# Judges of each council, files of configs/judge. Five, as in the paper, so that sums lie in
# [5, 45]; the offline ones are variants of two judges, and each looks at one of the criteria that
# the paper's prompt names.
COUNCILS: dict[str, tuple[str, ...]] = {
    "offline": (
        "annotation",
        "annotation_even",
        "embedding",
        "embedding_relevance",
        "embedding_diversity",
    ),
    "scripted": ("scripted", "scripted_2", "scripted_3"),
}
_IMAGES = {"offline": 100, "scripted": 20}  # at most, of each data set; the paper has 100
_RESAMPLES = {"offline": 2000, "scripted": 200}
# DEVIATION: a few dozen test images a class cannot always keep every model within the paper's two
# points of its full accuracy, so wider bounds are tried in turn; the manifest states the one used.
_TOLERANCES = (2.0, 5.0, 10.0, 20.0, 100.0)
_SEEDS_TRIED = 300
_CONTEXTS = {
    "cub_standin": "Drawn bird image in the layout of CUB-200-2011 (20 invented bird species)",
    "ham10k_standin": "Drawn skin lesion image in the layout of HAM10000 (benign or malignant)",
}
_NOTES = (
    "Stand-in data: drawn pictures that imitate the real data sets.",
    "Offline council: no judge sees an image or is a language model, and none was validated "
    "against people.",
)


@dataclass(frozen=True)
class _DataSet:
    """Explanations of one data set."""

    name: str
    manifest: SubsetManifest
    rows: NDArray[np.int64]  # of the manifest's images in the test bundle
    tables: dict[str, ActivationTable]  # per model, of those rows
    items: list[JudgeItem]
    c: NDArray[np.int64]
    concept_names: tuple[str, ...]
    confidence: dict[tuple[str, str, str], float]  # probability of the annotated class
    entries: dict[str, dict[str, float]]  # model -> accuracy, nec, ncc95

    @property
    def image_ids(self) -> list[str]:
        return [image.image_id for image in self.manifest.images]


def model_name(run: StoredRun) -> str:
    """Name of a run's model on the board, such as `cbm_soft_lambda0.1`."""
    weight = run.identity["lambda_concept"]
    suffix = "" if weight is None else f"_lambda{weight:g}"
    return f"cbm_{run.encoding}{suffix}"


def balanced_subset(
    dataset: str,
    image_ids: Sequence[str],
    y: NDArray[np.int64],
    predictions: Mapping[str, NDArray[np.int64]],
    class_names: Sequence[str],
    *,
    n_images: int,
) -> SubsetManifest:
    """As many images of each class as fit into `n_images`, fair to every model.

    Where there are fewer classes than images, the images of a class are dealt into equal strata
    and one is drawn from each, by the rule of `choose_subset`.
    """
    labels, counts = np.unique(y, return_counts=True)
    per_class = int(max(1, min(n_images // len(labels), counts.min())))
    taken = min(len(labels), n_images)
    place = np.zeros(len(y), dtype=np.int64)
    for label in labels:
        members = np.flatnonzero(y == label)
        place[members] = np.random.default_rng(0).permutation(len(members)) % per_class
    strata = y * per_class + place
    n_strata = len(class_names) * per_class
    guesses = {
        model: np.where(guess == y, strata, (strata + 1) % max(n_strata, 2))
        for model, guess in predictions.items()
    }
    names = [name for name in class_names for _ in range(per_class)]
    for tolerance in _TOLERANCES:
        try:
            manifest = choose_subset(
                dataset,
                image_ids,
                strata,
                guesses,
                names,
                n_classes=taken * per_class,
                tolerance_points=tolerance,
                max_seeds=_SEEDS_TRIED,
            )
        except ValueError:
            if tolerance == _TOLERANCES[-1]:
                raise
            continue
        return replace(manifest, class_names=tuple(class_names))
    raise AssertionError("the last tolerance accepts every subset or raises")


def _picture(pixels: NDArray[Any]) -> JudgeImage:
    """PNG of an image as the data set holds it, `(H, W, 1 or 3)`, uint8."""
    from PIL import Image

    array = np.repeat(pixels, 3, axis=-1) if pixels.shape[-1] == 1 else pixels
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array, dtype=np.uint8)).save(buffer, format="PNG")
    return JudgeImage.from_bytes(buffer.getvalue())


def _data_set(name: str, runs: Sequence[StoredRun], n_images: int) -> _DataSet:
    """Explanations of all models on one balanced subset."""
    whole: dict[str, ActivationTable] = {}
    for run in runs:
        arrays = run.arrays("test")
        table = table_from_linear_cbm(
            arrays["c_hat"],
            restore(run).head,
            run.concept_names,
            run.metadata["class_names"],
            y=arrays["y"],
        )
        table.check_logits(arrays["y_logits"], tolerance=1e-3)  # bundles are in single precision
        whole[model_name(run)] = table
    first = runs[0].arrays("test")
    index = np.asarray(first["index"])
    if any(not np.array_equal(run.arrays("test")["index"], index) for run in runs):
        raise ValueError(f"the runs on {name} must share their test images. Take one split seed.")
    ids = [f"{number:05d}" for number in index]
    y = np.asarray(first["y"], dtype=np.int64)
    manifest = balanced_subset(
        name,
        ids,
        y,
        {model: table.predictions for model, table in whole.items()},
        runs[0].metadata["class_names"],
        n_images=n_images,
    )
    place = {image: row for row, image in enumerate(ids)}
    rows = np.array([place[image.image_id] for image in manifest.images])
    pixels = dataset_of(runs[0].config).x[index[rows]]
    pictures = {
        image.image_id: _picture(array)
        for image, array in zip(manifest.images, pixels, strict=True)
    }
    manifest = replace(
        manifest,
        images=tuple(replace(i, sha256=pictures[i.image_id].sha256) for i in manifest.images),
    )
    tables, items, confidence, entries = {}, [], {}, {}
    for model, table in whole.items():
        part = replace(table, activations=table.activations[rows], y=y[rows])
        tables[model] = part
        chosen = [image.image_id for image in manifest.images]
        items += items_from_table(part, chosen, dataset=name, model=model, images=pictures)
        shifted = np.exp(part.logits - part.logits.max(axis=1, keepdims=True))
        probability = shifted / shifted.sum(axis=1, keepdims=True)
        for row, image in enumerate(chosen):
            confidence[name, image, model] = float(probability[row, y[rows[row]]])
        entries[model] = {
            "accuracy": table.accuracy,
            "nec": number_of_effective_concepts(table.weights),
            "ncc95": number_of_contributing_concepts(
                part.activations, part.weights, predicted_classes=part.predictions
            ),
        }
    return _DataSet(
        name=name,
        manifest=manifest,
        rows=rows,
        tables=tables,
        items=items,
        c=np.asarray(first["c"], dtype=np.int64)[rows],
        concept_names=tuple(runs[0].concept_names),
        confidence=confidence,
        entries=entries,
    )


def _study_models(models: Sequence[str]) -> list[str]:
    """Three models for pairs, as in the paper's study: the last of each kind of concepts."""
    kinds = {model.split("_")[1]: model for model in models}
    chosen = list(kinds.values())
    return [*chosen, *(model for model in models if model not in chosen)][:3]


def _judges(council: str) -> list[Callable[[_DataSet], Judge]]:
    """Makers of the judges: those that need the data set's annotations are made for each."""

    def maker(name: str) -> Callable[[_DataSet], Judge]:
        config = judge_config(name)
        if not config.get("_partial_", False):
            judge = make_judge(config)
            return lambda data: judge
        return lambda data: make_judge(
            config,
            dataset=data.name,
            image_ids=data.image_ids,
            c=data.c,
            concept_names=data.concept_names,
            quality=data.confidence,
        )

    return [maker(name) for name in COUNCILS[council]]


@dataclass
class _Judged:
    """Scores of every scale, and comparisons, of all data sets."""

    scores: dict[int, list[dict[str, Any]]]
    pairs: dict[str, list[dict[str, Any]]]
    n_calls: int = 0
    n_stored: int = 0
    warnings: tuple[str, ...] = ()


def _ask(layout: OutputLayout, council: str, sets: Sequence[_DataSet], study: Sequence[str]) -> Any:
    """Every judge on every item, at the paper's three scales, and on the study's pairs."""
    judged = _Judged({scale: [] for scale in SCALES}, {})
    size = len(COUNCILS[council])
    makers = _judges(council)
    for data in sets:
        for make in makers:
            judge = make(data)
            name = judge.identity.name
            with ReplyStore(judge_folder(layout, judge) / "answers.jsonl") as store:
                reports = {
                    scale: judge_items(
                        data.items,
                        judge,
                        store,
                        scale_max=scale,
                        panel_size=size,
                        contexts=_CONTEXTS,
                    )
                    for scale in SCALES
                }
                compared = judge_pairs(
                    [item for item in data.items if item.model in study],
                    judge,
                    store,
                    contexts=_CONTEXTS,
                )
            for scale, report in reports.items():
                judged.scores[scale] += report.rows
            judged.pairs.setdefault(name, []).extend(compared.rows)
            for report in (*reports.values(), compared):
                judged.n_calls += report.n_calls
                judged.n_stored += report.n_from_store
                judged.warnings += report.warnings
    return judged


def _extreme(
    rows: Sequence[Mapping[str, Any]], model: str, choose: Callable[..., Any]
) -> list[dict[str, Any]]:
    """The row of the least or most of some rows, under a name of its own."""
    if not rows:
        return []
    row = dict(choose(rows, key=lambda row: row["value"]))
    note = str(row["model"])
    return [{**row, "model": model, "note": f"{note}; {row['note']}" if row.get("note") else note}]


def _design_rows(sets: Sequence[_DataSet], labels: Sequence[Mapping[str, Any]], note: str) -> Any:
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


def _all_rows(
    judged: _Judged, sets: Sequence[_DataSet], study: Sequence[str], council: str
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


def _board(layout: OutputLayout, judged: _Judged, sets: Sequence[_DataSet], council: str) -> None:
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


def judge_runs(layout: OutputLayout, run_keys: Sequence[str], council: str) -> str:
    """Judge the explanations of some runs; returns the key of the judgement.

    Parameters
    ----------
    layout : the outputs folder
    run_keys : linear concept bottleneck models, one training of each setting, on data sets that all
        of them share
    council : a name of `COUNCILS`

    Raises
    ------
    ValueError  on an unknown council, or where a model is missing on a data set.
    """
    if council not in COUNCILS:
        raise ValueError(f"council must be one of {', '.join(COUNCILS)}, got {council!r}.")
    parts = {
        "runs": {key: file_sha256(layout.bundle_path(key, "test")) for key in sorted(run_keys)},
        "council": [council, COUNCILS[council]],
        "code": code_digest([__name__]),
    }
    key = hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:16]
    folder = layout.judgement_dir(f"council-{key}")
    with held_lock(folder / ".lock", wait_s=None):
        if rows_valid(folder / "rows.parquet"):
            return key
        started = time.monotonic()
        by_set: dict[str, list[StoredRun]] = {}
        for run_key in run_keys:
            run = StoredRun(layout, run_key)
            by_set.setdefault(run.identity["dataset"], []).append(run)
        sets = []
        for name in sorted(by_set):
            runs = sorted(by_set[name], key=model_name)
            names = [model_name(run) for run in runs]
            if len(set(names)) != len(names):
                raise ValueError(f"{name} must have one run of each model, got {names}.")
            sets.append(_data_set(name, runs, _IMAGES[council]))
        if any(list(data.tables) != list(sets[0].tables) for data in sets):
            found = {data.name: list(data.tables) for data in sets}
            raise ValueError(f"every data set must have the same models, got {found}.")
        study = _study_models(list(sets[0].tables))
        judged = _ask(layout, council, sets, study)
        rows = _all_rows(judged, sets, study, council)
        for data in sets:
            data.manifest.write(folder / "manifests" / f"{data.name}.json")
        scores = [row for scale in SCALES for row in judged.scores[scale]]
        pd.DataFrame(scores).to_parquet(folder / "scores.parquet", index=False)
        _board(layout, judged, sets, council)
        write_json(
            folder / "manifest.json",
            {
                **parts,
                "study_models": study,
                "calls": judged.n_calls,
                "from_store": judged.n_stored,
                "warnings": list(judged.warnings),
                "subsets": {
                    data.name: [len(data.image_ids), data.manifest.tolerance_points]
                    for data in sets
                },
            },
        )
        write_rows(folder / "rows.parquet", rows_frame(rows), evaluation="council")
        for text in judged.warnings:
            print(f"warning: {text}", file=sys.stderr)
        print(
            f"council {council}: {len(scores)} scores of {len(COUNCILS[council])} judges, "
            f"{judged.n_calls} calls, {judged.n_stored} answers from the store, "
            f"{time.monotonic() - started:.0f} s",
            file=sys.stderr,
        )
    return key


def council_rows(
    layout: OutputLayout, members: Mapping[str, Mapping[str, Any]], councils: Mapping[str, str]
) -> pd.DataFrame:
    """Rows of the judgement of an artefact's runs; judged where that was not done.

    Parameters
    ----------
    layout : the outputs folder
    members : runs of the artefact, with the profile they were noted under
    councils : council of each profile, as the experiment file names it
    """
    profiles = sorted({str(info["profile"]) for info in members.values()})
    named = {councils[profile] for profile in profiles if profile in councils}
    if len(named) != 1:
        raise ValueError(
            f"the runs of profiles {', '.join(profiles)} must lead to one council, got "
            f"{json.dumps(sorted(named))}. Name a council for each profile in artefact.council."
        )
    key = judge_runs(layout, list(members), named.pop())
    return read_rows(layout.judgement_dir(f"council-{key}") / "rows.parquet")
