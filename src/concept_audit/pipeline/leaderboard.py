"""`concept-audit leaderboard`: rank submissions by the scores that judges have given them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from concept_audit.council.intake import items_from_submission, model_entry
from concept_audit.council.judges.base import JudgeItem
from concept_audit.council.leaderboard import ModelEntry, write_leaderboard
from concept_audit.pipeline.judge import scores_name, submission_manifests
from concept_audit.store.layout import OutputLayout

__all__ = ["main"]

_USAGE = (
    "usage: concept-audit leaderboard submissions=PATH[,PATH ...] [manifests=FOLDER] "
    "[images=FOLDER] [scale=9] [title=TEXT] [out=FOLDER] [paths.output_dir=outputs]"
)


def _plain(value: Any) -> Any:
    return None if not isinstance(value, list | dict) and pd.isna(value) else value


def _scores(
    layout: OutputLayout, submission: Path, dataset: str, scale: int
) -> list[dict[str, Any]]:
    """Rows of every judge that has scored the submission on this data set."""
    name = f"scores-{scores_name(submission, dataset, scale)}.parquet"
    rows: list[dict[str, Any]] = []
    for path in sorted(layout.judgements.glob(f"*/{name}")):
        for record in pd.read_parquet(path).to_dict("records"):
            row = {str(key): _plain(value) for key, value in record.items()}
            row["score"] = None if row["score"] is None else int(row["score"])
            rows.append(row)
    if not rows:
        raise ValueError(
            f"{submission} has no scores on {dataset} at scale 1-{scale}. Judge it first: "
            f"concept-audit judge judge=<name> submission={submission} scale={scale}."
        )
    return rows


def _board(options: Mapping[str, str]) -> Path:
    layout = OutputLayout(options["paths.output_dir"])
    layout.check_writable()
    scale = int(options["scale"])
    rows: list[dict[str, Any]] = []
    items: list[JudgeItem] = []
    models: list[ModelEntry] = []
    images: dict[str, Sequence[str]] = {}
    for text in options["submissions"].split(","):
        submission = Path(text)
        manifests = submission_manifests(submission, options["manifests"] or None)
        found = items_from_submission(
            submission, manifests=manifests, image_root=options["images"] or None
        )
        items += found
        for dataset in sorted({item.dataset for item in found}):
            rows += _scores(layout, submission, dataset, scale)
            images[dataset] = [image.image_id for image in manifests[dataset].images]
        models.append(model_entry(submission))
    return write_leaderboard(
        options["out"] or layout.leaderboard,
        rows,
        items,
        models=models,
        title=options["title"],
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        images=images,
        scale_max=scale,
    )


def main(argv: Sequence[str]) -> int:
    """Write the board; 0 = written, 1 = a submission cannot be ranked, 2 = wrong use."""
    options = {
        "submissions": "",
        "manifests": "",
        "images": "",
        "scale": "9",
        "title": "CBX leaderboard",
        "out": "",
        "paths.output_dir": "outputs",
    }
    asked = bool({"-h", "--help"} & set(argv))
    for text in argv:
        key, _, value = text.partition("=")
        if asked or key not in options:
            print(_USAGE, file=sys.stdout if asked else sys.stderr)
            return 0 if asked else 2
        options[key] = value
    if not options["submissions"]:
        print(f"concept-audit leaderboard: submissions must be given.\n{_USAGE}", file=sys.stderr)
        return 2
    try:
        print(f"leaderboard: {_board(options)}")
    except (ValueError, OSError, json.JSONDecodeError) as error:
        print(f"concept-audit leaderboard: {error}", file=sys.stderr)
        return 1
    return 0
