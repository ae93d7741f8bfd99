"""Explanations handed in by others: one folder, checked in one pass that reports every fault.

A submission is a folder with `submission.json` (who, what, how) and one JSON Lines file per data
set, one line per image: predicted class and raw, signed contributions. Cutting, normalising and
rounding are the benchmark's. A lone `.jsonl` is checked by itself.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from concept_audit.council.submission_schema import (
    SCHEMA_VERSION,
    ExplanationRow,
    SubmissionCard,
    faults_of,
)
from concept_audit.council.subsets import SubsetManifest
from concept_audit.store.atomic import file_sha256

__all__ = [
    "CheckReport",
    "Fault",
    "check_submission",
    "read_rows",
    "submission_digest",
]

MAX_FILE_BYTES = 200_000_000
MAX_LINE_BYTES = 2_000_000
MAX_CARD_BYTES = 1_000_000
_SHOWN_MISSING = 5


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong (E..), doubtful (W..) or could not be checked (N..)."""

    code: str
    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.code} {self.message}"


@dataclass(frozen=True)
class CheckReport:
    """Outcome of a check."""

    path: str
    faults: tuple[Fault, ...]  # errors: the submission is refused
    warnings: tuple[Fault, ...]
    notes: tuple[Fault, ...]  # what could not be checked
    n_rows: dict[str, int] = field(default_factory=dict)  # accepted rows per data set
    complete: bool = True  # every image of every manifest is there

    @property
    def accepted(self) -> bool:
        """Whether there is no error."""
        return not self.faults


@dataclass
class _Findings:
    faults: list[Fault] = field(default_factory=list)
    warnings: list[Fault] = field(default_factory=list)
    notes: list[Fault] = field(default_factory=list)

    def add(self, code: str, file: str, line: int | None, message: str) -> None:
        kind = {"E": self.faults, "W": self.warnings, "N": self.notes}[code[0]]
        kind.append(Fault(code, file, line, message))


def check_submission(
    path: str | Path,
    *,
    manifests: Mapping[str, SubsetManifest] | None = None,
    partial: bool = False,
    on_board: Mapping[tuple[str, str], str] | None = None,
) -> CheckReport:
    """Check a submission folder, or a lone `.jsonl` file, and report everything that is wrong.

    Parameters
    ----------
    path : folder with `submission.json`, or a `.jsonl` file
    manifests : per data set the benchmark's images and classes; what needs one is noted as
        unchecked (N01) without it
    partial : accept missing images; the submission then gets no rank
    on_board : content digest per (model name, version) already on the leaderboard

    Returns
    -------
    CheckReport. Nothing in the submission is executed, imported or unpickled.

    Raises
    ------
    FileNotFoundError  when there is nothing at `path`.
    """
    root = Path(path)
    found = _Findings()
    n_rows: dict[str, int] = {}
    missing = 0
    if root.is_dir():
        card = _read_card(root, found)
        for dataset, entry in (card.datasets if card else {}).items():
            file = _inside(root, entry.file, found)
            if file is None:
                continue
            digest = file_sha256(file)
            if digest != entry.file_sha256:
                found.add(
                    "E14", entry.file, None,
                    f"hashes to {digest[:12]}..., submission.json states "
                    f"{entry.file_sha256[:12]}...; make the submission again.",
                )  # fmt: skip
            manifest = (manifests or {}).get(dataset)
            if manifest and entry.manifest_sha256 != manifest.sha256:
                found.add(
                    "E14", "submission.json", None,
                    f"was made for another image list of {dataset}: manifest "
                    f"{entry.manifest_sha256[:12]}..., the benchmark's is "
                    f"{manifest.sha256[:12]}...",
                )  # fmt: skip
            rows, absent = _check_file(file, dataset, manifests, partial, found)
            n_rows[dataset] = len(rows)
            missing += absent
            if manifest and rows:
                _check_accuracy(rows, manifest, entry.full_test_accuracy, entry.file, found)
        if card is not None:
            _check_board(root, card, on_board, found)
    elif root.is_file():
        rows, missing = _check_file(root, None, manifests, partial, found)
        n_rows = dict(Counter(row.dataset for row in rows))
    else:
        raise FileNotFoundError(
            f"no submission at {root}. Give a folder with submission.json, or a .jsonl file; "
            "concept-audit submission make writes one."
        )
    return CheckReport(
        str(root),
        tuple(found.faults),
        tuple(found.warnings),
        tuple(found.notes),
        n_rows,
        complete=missing == 0,
    )


def _read_card(root: Path, found: _Findings) -> SubmissionCard | None:
    name = "submission.json"
    file = _inside(root, name, found)
    if file is None:
        return None
    if file.stat().st_size > MAX_CARD_BYTES:
        found.add("E01", name, None, f"is larger than {MAX_CARD_BYTES} bytes.")
        return None
    data = file.read_bytes()
    try:
        record = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        found.add("E01", name, None, f"cannot be read as JSON: {_short(error)}.")
        return None
    version = record.get("schema_version") if isinstance(record, dict) else None
    if version != SCHEMA_VERSION:
        found.add(
            "E02", name, None, f"schema_version must be {SCHEMA_VERSION}, got {_short(version)}."
        )
        return None
    try:
        return SubmissionCard.model_validate_json(data)
    except ValidationError as error:
        for code, message in faults_of(error):
            found.add(code, name, None, message)
        return None


def _inside(root: Path, name: str, found: _Findings) -> Path | None:
    """Plain file of the folder; links and paths that lead elsewhere are refused."""
    file = root / name
    if file.is_symlink() or file.resolve().parent != root.resolve():
        found.add("E01", name, None, "must be a plain file in the submission's folder, no link.")
        return None
    if not file.is_file():
        found.add("E01", name, None, "is missing.")
        return None
    return file


def _lines(file: Path, found: _Findings) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers; those too long are reported and passed over."""
    if file.stat().st_size > MAX_FILE_BYTES:
        found.add("E01", file.name, None, f"is larger than {MAX_FILE_BYTES} bytes.")
        return
    with file.open("rb") as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                found.add("E01", file.name, number, f"is longer than {MAX_LINE_BYTES} bytes.")
                while line and not line.endswith(b"\n"):
                    line = stream.readline(MAX_LINE_BYTES)
                continue
            if line.strip():
                yield number, line


def _check_file(
    file: Path,
    dataset: str | None,
    manifests: Mapping[str, SubsetManifest] | None,
    partial: bool,
    found: _Findings,
) -> tuple[list[ExplanationRow], int]:
    """Rows without faults of one file, and the number of images that the manifests still expect."""
    rows: list[ExplanationRow] = []
    seen: dict[tuple[str, str], int] = {}
    lookup = {
        name: {image.image_id: image.class_name for image in manifest.images}
        for name, manifest in (manifests or {}).items()
    }
    for number, line in _lines(file, found):
        before = len(found.faults)
        try:
            row = ExplanationRow.model_validate_json(line)
        except ValidationError as error:
            for code, message in faults_of(error):
                found.add(code, file.name, number, message)
            continue
        if dataset is not None and row.dataset != dataset:
            found.add(
                "E03", file.name, number,
                f"dataset must be {dataset!r}, as submission.json lists this file, "
                f"got {row.dataset!r}.",
            )  # fmt: skip
        elif manifests and row.dataset not in manifests:
            found.add(
                "E03", file.name, number,
                f"dataset {row.dataset!r} is unknown; known are {', '.join(sorted(manifests))}.",
            )  # fmt: skip
        elif row.dataset in lookup:
            _check_against(
                row, lookup[row.dataset], (manifests or {})[row.dataset], file, number, found
            )
        key = (row.dataset, row.image_id)
        if key in seen:
            found.add(
                "E05", file.name, number, f"image {row.image_id!r} stands in line {seen[key]} too."
            )
        seen.setdefault(key, number)
        if len(found.faults) == before:
            rows.append(row)
    if not seen and not found.faults:
        found.add("E06", file.name, None, "holds no explanation.")
    missing = 0
    datasets = [dataset] if dataset else sorted({name for name, _ in seen})
    for name in datasets:
        if name in lookup:
            missing += _check_coverage(name, lookup[name], seen, file, partial, found)
        else:
            found.add(
                "N01", file.name, None,
                f"image names, classes and coverage of {name!r} were not checked: "
                "no manifest given.",
            )  # fmt: skip
    _warn(rows, file, found)
    return rows, missing


def _check_against(
    row: ExplanationRow,
    images: Mapping[str, str],
    manifest: SubsetManifest,
    file: Path,
    number: int,
    found: _Findings,
) -> None:
    """Image, annotated class and predicted class of one row against the manifest."""
    if row.image_id not in images:
        found.add("E04", file.name, number, f"image {row.image_id!r} is not in the manifest.")
    elif row.gt_class is not None and row.gt_class != images[row.image_id]:
        found.add(
            "E07", file.name, number,
            f"gt_class must be {images[row.image_id]!r} for image {row.image_id!r}, "
            f"got {row.gt_class!r}.",
        )  # fmt: skip
    if row.pred_class not in manifest.class_names:
        found.add(
            "E08", file.name, number,
            f"pred_class {row.pred_class!r} is none of the {len(manifest.class_names)} classes.",
        )  # fmt: skip


def _check_coverage(
    dataset: str,
    images: Mapping[str, str],
    seen: Mapping[tuple[str, str], int],
    file: Path,
    partial: bool,
    found: _Findings,
) -> int:
    absent = [image for image in images if (dataset, image) not in seen]
    if absent:
        names = ", ".join(repr(image) for image in absent[:_SHOWN_MISSING])
        more = f" and {len(absent) - _SHOWN_MISSING} more" if len(absent) > _SHOWN_MISSING else ""
        found.add(
            "N02" if partial else "E06", file.name, None,
            f"lacks {len(absent)} of {len(images)} images of {dataset}: {names}{more}"
            + ("; it gets no rank." if partial else "; --partial accepts it without a rank."),
        )  # fmt: skip
    return len(absent)


def _warn(rows: Sequence[ExplanationRow], file: Path, found: _Findings) -> None:
    """Doubts about the whole file."""
    if not rows:
        return
    few = negative = named = scaled = 0
    by_class: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        shown = row.explanation()
        few += len(shown.concepts) < min(5, row.n_concepts or len(row.concepts))
        negative += shown.n_negative_kept > 0
        named += any(row.pred_class.casefold() in c.name.casefold() for c in shown.concepts)
        total = math.fsum(abs(c.contribution) for c in row.concepts)
        scaled += not row.complete and math.isclose(total, 1.0, abs_tol=1e-3)
        by_class.setdefault(row.pred_class, []).append(tuple(c.name for c in shown.concepts))
    n = len(rows)
    if 2 * few > n:
        found.add("W01", file.name, None, f"{few} of {n} show fewer than five concepts.")
    if named:
        found.add("W03", file.name, None, f"{named} of {n} show a concept that names the class.")
    if negative:
        found.add("W04", file.name, None, f"{negative} of {n} have a negative among the top five.")
    if scaled == n:
        found.add(
            "W05", file.name, None,
            "all contributions sum to 1 and are not complete: send them raw, not normalised.",
        )  # fmt: skip
    repeated = [c for c, shown in by_class.items() if len(shown) > 2 and len(set(shown)) == 1]
    if repeated:
        found.add(
            "W06", file.name, None,
            f"all images predicted as {repeated[0]!r} have the same explanation"
            + (f", and so in {len(repeated) - 1} more classes." if len(repeated) > 1 else "."),
        )  # fmt: skip


def _check_accuracy(
    rows: Sequence[ExplanationRow],
    manifest: SubsetManifest,
    declared: float,
    file: str,
    found: _Findings,
) -> None:
    truth = {image.image_id: image.class_name for image in manifest.images}
    right = [row.pred_class == truth[row.image_id] for row in rows if row.image_id in truth]
    accuracy = 100 * sum(right) / len(right) if right else math.nan
    if abs(accuracy - declared) > 5:
        found.add(
            "W02", file, None,
            f"accuracy on these images is {accuracy:.1f}, declared for the full test set is "
            f"{declared:.1f}: more than 5 points apart.",
        )  # fmt: skip


def submission_digest(folder: str | Path) -> str:
    """Hash over `submission.json` and the files it lists: identity of the content."""
    root = Path(folder)
    card = json.loads((root / "submission.json").read_text(encoding="utf-8"))
    names = sorted(entry["file"] for entry in card["datasets"].values())
    parts = [file_sha256(root / name) for name in names if Path(name).name == name]
    text = json.dumps([card, parts], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_board(
    root: Path,
    card: SubmissionCard,
    on_board: Mapping[tuple[str, str], str] | None,
    found: _Findings,
) -> None:
    known = (on_board or {}).get((card.model_name, card.model_version))
    if known is not None and not found.faults and known != submission_digest(root):
        found.add(
            "E15", "submission.json", None,
            f"{card.model_name!r} version {card.model_version!r} is on the board with other "
            "content; raise model_version.",
        )  # fmt: skip


def read_rows(path: str | Path) -> list[ExplanationRow]:
    """Rows of a checked `.jsonl` file.

    Raises
    ------
    ValueError  when any line is at fault; `check_submission` lists them all.
    """
    found = _Findings()
    rows, _ = _check_file(Path(path), None, None, True, found)
    if found.faults:
        raise ValueError(
            f"{path} has {len(found.faults)} faults, first: {found.faults[0]}. "
            "concept-audit submission check lists them all."
        )
    return rows


def _short(value: Any) -> str:
    """Start of a value for a message, on one line."""
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else text[:79] + "…"
