"""The published board: static pages and a table, from judged scores.

No script runs on a page, every text is escaped by the template engine, file names are numbers and
hashes, and images are encoded anew. The same input gives the same bytes.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from concept_audit.council.judges.base import JudgeImage, JudgeItem
from concept_audit.council.scoring import BenchmarkScores, ScoreInterval, benchmark_scores, ranks
from concept_audit.store.atomic import write_bytes, write_json, write_text

__all__ = ["ModelEntry", "write_leaderboard"]

OVERALL = "overall"
_IMAGE_SIDE = 480


@dataclass(frozen=True)
class ModelEntry:
    """What a submission says about its model, shown beside the score."""

    name: str
    version: str = ""
    authors: str = ""
    code_url: str | None = None
    accuracy: Mapping[str, float] = field(default_factory=dict)  # per data set, in points
    nec: Mapping[str, float] = field(default_factory=dict)
    ncc95: Mapping[str, float] = field(default_factory=dict)
    flags: tuple[str, ...] = ()  # shown in words, such as "stand-in data"


def write_leaderboard(
    folder: str | Path,
    rows: Sequence[Mapping[str, Any]],
    items: Sequence[JudgeItem],
    *,
    models: Sequence[ModelEntry] = (),
    title: str = "CBX leaderboard",
    date: str = "",
    notes: Sequence[str] = (),
    images: Mapping[str, Sequence[str]] | None = None,
    scale_max: int = 9,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Path:
    """Write the board: `index.html`, `leaderboard.csv`, `leaderboard.json` and a page per image.

    Parameters
    ----------
    folder : where to write
    rows : judged scores of all models and judges, as `judge_items` gives them, of one protocol
    items : the explanations behind them; those with an image show it
    models : what is known of the models; a model without an entry shows its name alone
    title, date, notes : shown on top; a note says what is unusual, such as stand-in data
    images : image names per data set that count as full coverage, as in `benchmark_scores`
    scale_max : K of the scale 1..K
    n_resamples, seed : of the bootstrap intervals

    Returns
    -------
    Path of `index.html`.

    Raises
    ------
    ValueError  without rows, or with rows of several protocols.
    """
    root = Path(folder)
    scores = benchmark_scores(
        rows, scale_max=scale_max, images=images, n_resamples=n_resamples, seed=seed
    )
    entries = {entry.name: entry for entry in models}
    board = _board(scores, rows, entries)
    pages = _pages(scores, rows, items)
    protocol = next((str(row["protocol_id"]) for row in rows if row.get("protocol_id")), "")
    shared = {"title": title, "date": date, "protocol": protocol, "scale_max": scale_max}

    environment = _environment()
    page_template = environment.get_template("leaderboard_item.html.j2")
    image_names: dict[str, str] = {}
    for page in pages:
        image: JudgeImage | None = page["image"]
        page["image_file"] = _write_image(root, image, image_names) if image else None
        write_text(root / page["file"], page_template.render(page=page, **shared))
    index = environment.get_template("leaderboard.html.j2").render(
        board=board,
        judges=_judges(rows),
        pages=pages,
        datasets=scores.datasets,
        notes=list(notes),
        confidence=round(100 * scores.confidence),
        n_resamples=scores.n_resamples,
        n_incomplete=len(scores.incomplete),
        **shared,
    )
    write_text(root / "leaderboard.csv", _csv(board, protocol, date))
    write_json(
        root / "leaderboard.json",
        {"protocol_id": protocol, "date": date, "title": title, "rows": _records(board)},
    )
    write_text(root / "index.html", index)
    return root / "index.html"


def _environment() -> Any:
    try:
        import jinja2
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "the leaderboard needs the package jinja2. "
            "Install it with: pip install 'concept-audit[pipeline]'"
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("concept_audit.council", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["score"] = lambda value: "–" if value is None else f"{value:.3f}"
    environment.filters["points"] = lambda value: "–" if value is None else f"{value:.1f}"
    environment.filters["percent"] = lambda value: f"{100 * value:.2f}%"
    return environment


def _board(
    scores: BenchmarkScores, rows: Sequence[Mapping[str, Any]], entries: Mapping[str, ModelEntry]
) -> dict[str, list[dict[str, Any]]]:
    """Per data set (and overall) one line per model, best first."""
    board = {}
    for dataset in (OVERALL, *scores.datasets):
        accuracy = {m: _accuracy(entries.get(m), dataset, scores.datasets) for m in scores.models}
        accuracy_ranks = ranks(accuracy)
        means = _judge_means(rows, dataset)
        lines: list[dict[str, Any]] = []
        for model in scores.models:
            entry = entries.get(model) or ModelEntry(model)
            value = scores.get(model, dataset)
            lines.append(
                {
                    "entry": entry,
                    "url": _web(entry.code_url),
                    "score": value,
                    "accuracy": accuracy[model],
                    "accuracy_rank": accuracy_ranks[model],
                    "nec": entry.nec.get(dataset),
                    "ncc95": entry.ncc95.get(dataset),
                    "judge_means": [means.get((judge, model)) for judge in scores.judges],
                    "flags": [*entry.flags, *_flags(value)],
                }
            )
        lines.sort(key=lambda line: _order(line["score"]))
        board[dataset] = lines
    return board


def _order(score: ScoreInterval) -> tuple[float, float, str]:
    return (score.rank or math.inf, -(score.partial or 0.0), score.model)


def _flags(score: ScoreInterval) -> list[str]:
    if score.n_images == score.n_expected:
        return []
    return [f"incomplete: {score.n_images} of {score.n_expected} images"]


def _accuracy(entry: ModelEntry | None, dataset: str, datasets: Sequence[str]) -> float | None:
    if entry is None:
        return None
    if dataset != OVERALL:
        return entry.accuracy.get(dataset)
    values = [entry.accuracy[name] for name in datasets if name in entry.accuracy]
    return sum(values) / len(values) if len(values) == len(datasets) else None


def _judge_means(
    rows: Sequence[Mapping[str, Any]], dataset: str
) -> dict[tuple[str, str], float | None]:
    groups: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if dataset in (OVERALL, row["dataset"]) and row["score"] is not None:
            groups.setdefault((row["judge"], row["model"]), []).append(row["score"])
    return {key: sum(values) / len(values) for key, values in groups.items()}


def _web(url: str | None) -> str | None:
    """Address that may become a link: http or https only."""
    return url if url and re.fullmatch(r"https?://[^\s<>\"'`]+", url) else None


def _judges(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Per judge: what it was, and how its replies were read."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row["judge"]), []).append(row)
    judges = []
    for name, group in sorted(groups.items()):
        kinds = Counter(str(row.get("parse_status", "ok")).partition(":")[0] for row in group)
        first = group[0]
        judges.append(
            {
                "name": name,
                "n": len(group),
                "counts": {k: kinds[k] for k in ("ok", "repaired", "constrained", "failed")},
                **{
                    key: first.get(key, "")
                    for key in ("judge_revision", "engine", "engine_version", "dtype", "batch_size")
                },
            }
        )
    return judges


def _pages(
    scores: BenchmarkScores, rows: Sequence[Mapping[str, Any]], items: Sequence[JudgeItem]
) -> list[dict[str, Any]]:
    """One page per image: every model's explanation with every judge's score and reasoning."""
    verdicts: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = (str(row["dataset"]), str(row["image_id"]), str(row["model"]))
        verdicts.setdefault(key, []).append(row)
    groups: dict[tuple[str, str], list[JudgeItem]] = {}
    for item in items:
        groups.setdefault((item.dataset, item.image_id), []).append(item)
    pages: list[dict[str, Any]] = []
    for number, ((dataset, image_id), group) in enumerate(groups.items(), start=1):
        shown: list[dict[str, Any]] = []
        for item in group:
            key = (item.dataset, item.image_id, item.model)
            shown.append(
                {
                    "item": item,
                    "right": item.pred_class == item.gt_class,
                    "z": scores.per_item.get(key),
                    "verdicts": sorted(verdicts.get(key, []), key=lambda row: str(row["judge"])),
                }
            )
        known = [entry["z"] for entry in shown if entry["z"] is not None]
        pages.append(
            {
                "number": number,
                "file": f"items/{number:05d}.html",
                "dataset": dataset,
                "image_id": image_id,
                "gt_class": group[0].gt_class,
                "image": next((item.image for item in group if item.image), None),
                "models": shown,
                "mean": sum(known) / len(known) if known else None,
            }
        )
    for position, page in enumerate(pages):
        page["before"] = pages[position - 1]["number"] if position else None
        page["after"] = pages[position + 1]["number"] if position + 1 < len(pages) else None
    return pages


def _write_image(root: Path, image: JudgeImage, written: dict[str, str]) -> str:
    """Encode the image anew, so that nothing but pixels is published; returns its name."""
    if image.sha256 not in written:
        name = f"images/{image.sha256[:24]}.png"
        buffer = io.BytesIO()
        image.open(_IMAGE_SIDE).save(buffer, format="PNG")
        write_bytes(root / name, buffer.getvalue())
        written[image.sha256] = name
    return written[image.sha256]


def _records(board: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    records = []
    for dataset, lines in board.items():
        for line in lines:
            score: ScoreInterval = line["score"]
            records.append(
                {
                    "dataset": dataset,
                    "rank": score.rank,
                    "model": score.model,
                    "version": line["entry"].version,
                    "score": score.value,
                    "low": score.low,
                    "high": score.high,
                    "partial": score.partial,
                    "n_images": score.n_images,
                    "n_expected": score.n_expected,
                    "p_first": score.p_first,
                    "accuracy": line["accuracy"],
                    "accuracy_rank": line["accuracy_rank"],
                    "nec": line["nec"],
                    "ncc95": line["ncc95"],
                    "flags": "; ".join(line["flags"]),
                }
            )
    return records


def _csv(board: Mapping[str, Sequence[Mapping[str, Any]]], protocol: str, date: str) -> str:
    records = _records(board)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["protocol_id", "date", *records[0]])
    for record in records:
        writer.writerow([protocol, date, *(_cell(value) for value in record.values())])
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    """Value for a spreadsheet; a text that it would run as a formula gets a leading apostrophe."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
