"""One figure or table: note its runs, collect and compare their rows, draw what has changed."""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
import pandas as pd

from concept_audit.pipeline.compare import compare
from concept_audit.pipeline.evaluate import Evaluation
from concept_audit.pipeline.plan import config_dir
from concept_audit.pipeline.progress import Progress
from concept_audit.pipeline.schema import check_targets
from concept_audit.pipeline.workers import worker_pool
from concept_audit.reporting.paper_values import read_paper_values
from concept_audit.reporting.style import save
from concept_audit.store.atomic import atomic_path, write_json
from concept_audit.store.keys import canonical_json, code_digest
from concept_audit.store.layout import OutputLayout
from concept_audit.store.results import collect, read_rows, rows_frame, write_rows

__all__ = [
    "Drawn",
    "clear_members",
    "draw_all",
    "draw_artefact",
    "note_members",
    "paper_values",
    "rows_of",
]


@dataclass(frozen=True)
class Drawn:
    """What became of an artefact: `drawn`, `unchanged` or `failed` with the error."""

    name: str
    state: str
    error: str | None = None


def paper_values(paper: str) -> pd.DataFrame:
    """Committed numbers of a paper, from the checkout or the installed package."""
    root = config_dir().parent
    for folder in (root / "data" / "paper_values", root / "paper_values"):
        if (folder / f"{paper}.csv").is_file():
            return read_paper_values(folder / f"{paper}.csv")
    raise FileNotFoundError(f"no data/paper_values/{paper}.csv beside {config_dir()}.")


def _folder(layout: OutputLayout, name: str) -> Path:
    paper, stem = name.split("/")
    return layout.membership_path(paper, stem, "x").parent


def clear_members(layout: OutputLayout, name: str) -> None:
    """Forget which runs the artefact used; a sweep notes them anew."""
    paper, stem = name.split("/")
    for key in layout.members(paper, stem):
        layout.membership_path(paper, stem, key).unlink(missing_ok=True)


def note_members(
    layout: OutputLayout, name: str, profile: str, evaluations: Sequence[Evaluation]
) -> None:
    """Note the runs and evaluations that the artefact uses."""
    paper, stem = name.split("/")
    by_run: dict[str, dict[str, str]] = {}
    for item in evaluations:
        by_run.setdefault(item.run_key, {})[item.name] = item.evaluation_key
    for key, evaluation_keys in by_run.items():
        info = {"profile": profile, "evaluations": dict(sorted(evaluation_keys.items()))}
        path = layout.membership_path(paper, stem, key)
        if not path.is_file() or json.loads(path.read_text()) != info:
            layout.add_member(paper, stem, key, info)


def _members(layout: OutputLayout, name: str) -> dict[str, dict[str, Any]]:
    paper, stem = name.split("/")
    return {
        key: json.loads(layout.membership_path(paper, stem, key).read_text())
        for key in layout.members(paper, stem)
    }


def rows_of(layout: OutputLayout, name: str) -> pd.DataFrame:
    """Rows that the artefact was last drawn from; raises FileNotFoundError where there are none."""
    return read_rows(_folder(layout, name) / "rows.parquet")


def _state(layout: OutputLayout, name: str, artefact: Mapping[str, Any]) -> tuple[str, bool]:
    """Key of what the artefact would be drawn from, and whether it was drawn from just that."""
    paper, stem = name.split("/")
    target = artefact.get("draw") or artefact["build"]
    stages = ["concept_audit.pipeline.compare", target.rpartition(".")[0]]
    if "council" in artefact:
        stages.append("concept_audit.pipeline.council")
    digest = code_digest(stages)
    text = canonical_json(
        [_members(layout, name), dict(artefact), paper_values(paper).to_csv(), digest]
    )
    key = hashlib.sha256(text.encode()).hexdigest()
    file = (
        layout.figure_path(paper, stem, "svg")
        if "draw" in artefact
        else layout.table_path(paper, stem, "csv")
    )
    note = _folder(layout, name) / ".drawn.json"
    known = json.loads(note.read_text()).get("key") if note.is_file() else None
    return key, known == key and file.is_file()


def draw_artefact(layout: OutputLayout, name: str, artefact: Mapping[str, Any]) -> Drawn:
    """Draw a figure or build a table from the stored rows of its members.

    Nothing is done when neither the rows nor the code that compares and draws them have changed.
    """
    paper, stem = name.split("/")
    members = _members(layout, name)
    if not members:
        return Drawn(name, "failed", "no run of this artefact is stored; run its experiment first.")
    key, current = _state(layout, name, artefact)
    if current:
        return Drawn(name, "unchanged")
    target = artefact.get("draw") or artefact["build"]
    check_targets({"_target_": target})
    try:
        keys = {run: list(info["evaluations"].values()) for run, info in members.items()}
        collected = collect(layout, evaluation_keys=keys).assign(paper=paper)
        rows = compare(rows_frame(collected), artefact.get("compare") or ())
        if "council" in artefact:
            from concept_audit.pipeline.council import council_rows

            judged = council_rows(layout, members, artefact["council"])
            rows = rows_frame(pd.concat([rows, judged], ignore_index=True))
        write_rows(_folder(layout, name) / "rows.parquet", rows, evaluation=name)
        function = hydra.utils.get_method(target)
        if "draw" in artefact:
            save(function(rows), layout.figure_path(paper, stem, "svg").with_suffix(""))
        else:
            table = function(rows, paper_values(paper))
            with atomic_path(layout.table_path(paper, stem, "csv")) as temporary:
                table.to_csv(temporary, index=False)
    except (ValueError, KeyError, OSError, TypeError) as error:
        return Drawn(name, "failed", f"{error}\n{traceback.format_exc(limit=6)}")
    write_json(_folder(layout, name) / ".drawn.json", {"key": key, "runs": len(members)})
    return Drawn(name, "drawn")


def _draw_in_process(root: str, name: str, artefact: Mapping[str, Any]) -> Drawn:
    return draw_artefact(OutputLayout(root), name, artefact)


def draw_all(
    layout: OutputLayout, artefacts: Mapping[str, Mapping[str, Any]], *, jobs: int = 1
) -> list[Drawn]:
    """Draw many artefacts, in processes of their own where several have changed."""
    with Progress("draw", len(artefacts)) as progress:
        results, changed = [], []
        for name, artefact in artefacts.items():
            if layout.members(*name.split("/")) and _state(layout, name, artefact)[1]:
                results.append(Drawn(name, "unchanged"))
                progress.finish("skipped")
            else:
                changed.append(name)

        def record(drawn: Drawn) -> None:
            results.append(drawn)
            progress.finish("done" if drawn.error is None else "failed")

        # A process takes seconds to start; tables of one judgement have it read once, here.
        here = [
            name
            for name in changed
            if jobs <= 1 or len(changed) < 4 or "council" in artefacts[name]
        ]
        for name in here:
            record(draw_artefact(layout, name, artefacts[name]))
        changed = [name for name in changed if name not in here]
        if changed:
            with worker_pool(jobs) as pool:
                futures = [
                    pool.submit(_draw_in_process, str(layout.root), name, artefacts[name])
                    for name in changed
                ]
                for future in as_completed(futures):
                    record(future.result())
    return results
