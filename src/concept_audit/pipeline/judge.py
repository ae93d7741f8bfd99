"""`concept-audit judge`: one judge on the explanations of one submission.

Replies go to `judgements/<judge>/answers.jsonl`, so that the same command makes no call twice;
scores and provenance lie beside them, one file for each submission.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hydra import compose
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import OmegaConf

from concept_audit.council.intake import items_from_submission
from concept_audit.council.judges.base import Judge, JudgeError, JudgeItem
from concept_audit.council.judging import JudgingReport, judge_items
from concept_audit.council.reply_store import ReplyStore
from concept_audit.council.subsets import SubsetManifest, read_manifest
from concept_audit.pipeline.plan import config_dir, hydra_ready, options
from concept_audit.pipeline.schema import build
from concept_audit.store.atomic import atomic_path, write_json
from concept_audit.store.keys import canonical_json
from concept_audit.store.layout import OutputLayout

__all__ = [
    "judge_config",
    "judge_folder",
    "main",
    "make_judge",
    "scores_name",
    "submission_manifests",
]

_USAGE = (
    "usage: concept-audit judge judge=<name> submission=PATH [manifests=FOLDER] [images=FOLDER] "
    "[annotations=FOLDER] [scale=9] [key=value ...]"
)


def judge_config(name: str) -> dict[str, Any]:
    """Config of one judge, with what it inherits from others of its group."""
    with hydra_ready():
        config = compose(config_name="judge", overrides=[f"judge={name}"])
    plain: Any = OmegaConf.to_container(config.judge, resolve=True)
    return dict(plain)


def make_judge(config: Mapping[str, Any], **offered: Any) -> Judge:
    """Build a judge; one that is left partial takes what it needs of `offered`.

    Raises
    ------
    ValueError  on a setting without a value, or a judge that needs what is not there.
    """
    absent = [key for key, value in config.items() if value == "???"]
    if absent:
        raise ValueError(
            f"judge.{absent[0]} must be given: add judge.{absent[0]}=<value>. "
            "The first lines of the judge's YAML file say which."
        )
    made: Any = build(dict(config))
    if isinstance(made, functools.partial):
        parameters = inspect.signature(made.func).parameters
        taken = {name: value for name, value in offered.items() if name in parameters}
        missing = [
            name
            for name, parameter in parameters.items()
            if parameter.default is parameter.empty
            and name not in taken
            and name not in made.keywords
        ]
        if missing:
            raise ValueError(
                f"the judge {config.get('name', made.func.__name__)!r} needs "
                f"{', '.join(missing)}. Give annotations=FOLDER with <dataset>.npz, which holds "
                "image_ids (n,), c (n, k) and concept_names (k,)."
            )
        made = made(**taken)
    judge: Judge = made
    return judge


def judge_folder(layout: OutputLayout, judge: Judge) -> Path:
    """Folder of a judge's replies: another revision or setting is another judge."""
    record = judge.identity.record()
    digest = hashlib.sha256(canonical_json(record).encode()).hexdigest()[:12]
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", judge.identity.name).strip("_.-") or "judge"
    return layout.judgement_dir(f"{name.replace('..', '.')}-{digest}")


def submission_manifests(submission: Path, given: str | None) -> dict[str, SubsetManifest]:
    """Image lists by data set, from the folder given or the one beside the submission."""
    folder = submission.parent / "manifests" if given is None else Path(given)
    found = [read_manifest(path) for path in sorted(folder.glob("*.json"))]
    if not found:
        raise FileNotFoundError(
            f"no image list (*.json) in {folder}. Give manifests=FOLDER with <dataset>.json."
        )
    return {manifest.dataset: manifest for manifest in found}


def _annotations(folder: str | None, dataset: str) -> dict[str, Any]:
    """What the annotation judge takes, of one data set; empty without a folder."""
    if folder is None:
        return {}
    path = Path(folder) / f"{dataset}.npz"
    if not path.is_file():
        raise FileNotFoundError(f"no annotations of {dataset}: no file at {path}.")
    with np.load(path, allow_pickle=False) as archive:
        absent = [name for name in ("image_ids", "c", "concept_names") if name not in archive]
        if absent:
            raise ValueError(f"{path} lacks {', '.join(absent)}.")
        return {
            "dataset": dataset,
            "image_ids": [str(name) for name in archive["image_ids"]],
            "c": archive["c"],
            "concept_names": [str(name) for name in archive["concept_names"]],
        }


def scores_name(submission: Path, dataset: str, scale: int) -> str:
    """Name of the scores of one submission on one data set, in every judge's folder."""
    card = submission / "submission.json"
    source = card.read_bytes() if card.is_file() else str(submission).encode()
    return f"{dataset}-{hashlib.sha256(source).hexdigest()[:12]}-s{scale}"


def _merge(reports: Sequence[JudgingReport]) -> JudgingReport:
    counts: dict[str, int] = {}
    for report in reports:
        for kind, count in report.counts.items():
            counts[kind] = counts.get(kind, 0) + count
    return JudgingReport(
        rows=[row for report in reports for row in report.rows],
        counts=counts,
        n_calls=sum(report.n_calls for report in reports),
        n_from_store=sum(report.n_from_store for report in reports),
        warnings=tuple(text for report in reports for text in report.warnings),
    )


def _judge(config: Mapping[str, Any], layout: OutputLayout) -> int:
    submission = Path(config["submission"])
    items = items_from_submission(
        submission,
        manifests=submission_manifests(submission, config["manifests"]),
        image_root=config["images"],
        partial=bool(config["partial"]),
    )
    by_dataset: dict[str, list[JudgeItem]] = {}
    for item in items:
        by_dataset.setdefault(item.dataset, []).append(item)
    whole = not config["judge"].get("_partial_", False)
    judge = make_judge(config["judge"]) if whole else None
    reports = []
    for dataset, group in by_dataset.items():
        asked = judge or make_judge(config["judge"], **_annotations(config["annotations"], dataset))
        folder = judge_folder(layout, asked)
        with ReplyStore(folder / "answers.jsonl") as store:
            report = judge_items(
                group,
                asked,
                store,
                scale_max=int(config["scale"]),
                contexts=config["contexts"],
                max_new_tokens=int(config["max_new_tokens"]),
            )
        reports.append(report)
        _write(folder, asked, config, dataset, report)
        print(
            f"{asked.identity.name} on {dataset}: {len(report.rows)} explanations, "
            f"{report.n_calls} calls, {report.n_from_store} answers from the store: {folder}"
        )
    total = _merge(reports)
    for text in total.warnings:
        print(f"warning: {text}", file=sys.stderr)
    scores = [row["score"] for row in total.rows if row["score"] is not None]
    mean = f", mean score {np.mean(scores):.3f} of 1..{config['scale']}" if scores else ""
    print(f"{len(scores)} of {len(total.rows)} explanations scored{mean}")
    return 0


def _write(
    folder: Path, judge: Judge, config: Mapping[str, Any], dataset: str, report: JudgingReport
) -> None:
    """Scores and manifest of one data set of one submission."""
    name = scores_name(Path(config["submission"]), dataset, int(config["scale"]))
    with atomic_path(folder / f"scores-{name}.parquet") as temporary:
        pd.DataFrame(report.rows).to_parquet(temporary, index=False)
    write_json(
        folder / f"manifest-{name}.json",
        {
            "config": dict(config),
            "judge": judge.identity.record(),
            "dataset": dataset,
            "counts": report.counts,
            "calls": report.n_calls,
            "from_store": report.n_from_store,
            "warnings": list(report.warnings),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    )


def main(argv: Sequence[str]) -> int:
    """Score a submission; 0 = done, 1 = the judge failed or nothing was judged, 2 = wrong use."""
    if not argv or "--help" in argv or "-h" in argv:
        print(_USAGE, file=sys.stdout if argv else sys.stderr)
        print(f"judges: {', '.join(options('judge'))}", file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    try:
        with hydra_ready():
            config = compose(config_name="judge", overrides=list(argv))
        plain: Any = OmegaConf.to_container(config, resolve=True)
    except (ConfigCompositionException, HydraException) as error:
        print(f"concept-audit judge: {error}\n{_USAGE}", file=sys.stderr)
        print(f"judges: {', '.join(options('judge'))}; see {config_dir()}/judge", file=sys.stderr)
        return 2
    if plain["submission"] == "???":
        print(f"concept-audit judge: submission must be given.\n{_USAGE}", file=sys.stderr)
        return 2
    layout = OutputLayout(plain["paths"]["output_dir"])
    try:
        layout.check_writable()
        return _judge(plain, layout)
    except (JudgeError, ValueError, OSError, json.JSONDecodeError) as error:
        print(f"concept-audit judge: {error}", file=sys.stderr)
        return 1
