"""`concept-audit submission check|make PATH`: the counter at which submissions are handed in."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from concept_audit.council.importers import ActivationTable
from concept_audit.council.submission import check_submission
from concept_audit.council.submission_make import make_submission
from concept_audit.council.subsets import SubsetManifest, read_manifest

__all__ = ["main"]

_MAKE_HELP = (
    "The archive of a data set holds activations (n, k), weights (l, k), bias (l,), "
    "concept_names (k,), class_names (l,), image_ids (n,), and y (n,) where known: "
    "np.savez('cub.npz', activations=..., ...)."
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="concept-audit submission",
        description="Check a submission of explanations, or make one from activations.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    check = verbs.add_parser("check", help="report every fault of a folder or a lone .jsonl file")
    check.add_argument("path", type=Path)
    check.add_argument(
        "--manifests", type=Path, help="folder of the benchmark's image lists, <dataset>.json"
    )
    check.add_argument("--partial", action="store_true", help="accept missing images, without rank")
    check.add_argument(
        "--board",
        type=Path,
        help="JSON file of accepted submissions: [{model_name, model_version, digest}]",
    )
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    make = verbs.add_parser("make", help="write a submission folder", epilog=_MAKE_HELP)
    make.add_argument("path", type=Path, help="folder to write")
    make.add_argument("--card", type=Path, required=True, help="JSON: model_name, authors, ...")
    make.add_argument(
        "--table", action="append", required=True, metavar="DATASET=FILE.npz",
        help="one per data set",
    )  # fmt: skip
    make.add_argument(
        "--accuracy", action="append", default=[], metavar="DATASET=POINTS",
        help="accuracy on the full test set, 0 to 100; that of the table by default",
    )  # fmt: skip
    make.add_argument("--manifests", type=Path)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 = accepted or written, 1 = refused, 2 = wrong use.

    Parameters
    ----------
    argv : arguments after `submission`; those of the process by default
    """
    arguments = _parser().parse_args(argv)
    try:
        if arguments.verb == "check":
            return _check(arguments)
        return _make(arguments)
    except (ValueError, OSError, KeyError) as error:
        print(f"concept-audit submission: {error}", file=sys.stderr)
        return 2


def _manifests(folder: Path | None) -> dict[str, SubsetManifest]:
    if folder is None:
        return {}
    found = [read_manifest(path) for path in sorted(folder.glob("*.json"))]
    if not found:
        raise FileNotFoundError(f"no image list (*.json) in {folder}.")
    return {manifest.dataset: manifest for manifest in found}


def _check(arguments: argparse.Namespace) -> int:
    on_board = {}
    if arguments.board is not None:
        for entry in json.loads(arguments.board.read_text(encoding="utf-8")):
            on_board[(entry["model_name"], entry["model_version"])] = entry["digest"]
    report = check_submission(
        arguments.path,
        manifests=_manifests(arguments.manifests),
        partial=arguments.partial,
        on_board=on_board,
    )
    if arguments.json:
        record: dict[str, Any] = {
            "path": report.path,
            "accepted": report.accepted,
            "complete": report.complete,
            "rows": report.n_rows,
            "findings": [
                {"code": f.code, "file": f.file, "line": f.line, "message": f.message}
                for f in (*report.faults, *report.warnings, *report.notes)
            ],
        }
        print(json.dumps(record, indent=2, ensure_ascii=False))
    else:
        for finding in (*report.faults, *report.warnings, *report.notes):
            print(finding)
        rows = ", ".join(f"{name} {count}" for name, count in report.n_rows.items()) or "none"
        verdict = "accepted" if report.accepted else f"refused, {len(report.faults)} errors"
        print(
            f"{report.path}: {verdict}; {len(report.warnings)} warnings; explanations read: {rows}"
        )
    return 0 if report.accepted else 1


def _make(arguments: argparse.Namespace) -> int:
    card = json.loads(arguments.card.read_text(encoding="utf-8"))
    tables = {}
    accuracy = {key: float(value) for key, value in map(_pair, arguments.accuracy)}
    for dataset, file in map(_pair, arguments.table):
        table, image_ids = _table(Path(file))
        tables[dataset] = (table, image_ids)
        if dataset not in accuracy:
            if table.y is None:
                raise ValueError(
                    f"{file} has no y, so the accuracy on {dataset} is unknown. "
                    f"Give --accuracy {dataset}=POINTS."
                )
            accuracy[dataset] = table.accuracy
    folder = make_submission(
        arguments.path,
        card,
        tables,
        full_test_accuracy=accuracy,
        manifests=_manifests(arguments.manifests),
    )
    print(f"wrote {folder}; look at it with: concept-audit submission check {folder}")
    return 0


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise ValueError(f"expected DATASET=VALUE, got {text!r}.")
    return name, value


def _table(path: Path) -> tuple[ActivationTable, list[str]]:
    needed = ("activations", "weights", "bias", "concept_names", "class_names", "image_ids")
    with np.load(path, allow_pickle=False) as archive:
        absent = [name for name in needed if name not in archive]
        if absent:
            raise ValueError(f"{path} lacks {', '.join(absent)}; it must hold {', '.join(needed)}.")
        table = ActivationTable(
            activations=archive["activations"].astype(np.float64),
            weights=archive["weights"].astype(np.float64),
            bias=archive["bias"].astype(np.float64),
            concept_names=tuple(map(str, archive["concept_names"])),
            class_names=tuple(map(str, archive["class_names"])),
            y=archive["y"].astype(np.int64) if "y" in archive else None,
        )
        return table, [str(name) for name in archive["image_ids"]]


if __name__ == "__main__":
    sys.exit(main())
