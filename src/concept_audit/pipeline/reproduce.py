"""`concept-audit reproduce`: every figure and table of the papers, then the report."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from concept_audit.pipeline.plan import (
    Cell,
    Experiment,
    check_overrides,
    config_dir,
    experiment_names,
    load_experiment,
)
from concept_audit.pipeline.progress import Progress
from concept_audit.store.atomic import write_text
from concept_audit.store.layout import OutputLayout

__all__ = ["main", "planned_experiments"]

PAPERS = ("leakage", "dci_es", "cbx")


def _plan_name(names: Sequence[str], overrides: Sequence[str]) -> str:
    """Hash of all that a plan depends on: the YAML files, the overrides, Hydra, this code."""
    digest = hashlib.sha256()
    for path in sorted(config_dir().rglob("*.yaml")):
        digest.update(str(path.relative_to(config_dir())).encode() + path.read_bytes())
    for path in (Path(__file__), Path(__file__).with_name("plan.py")):
        digest.update(path.read_bytes())
    versions = [importlib.metadata.version(name) for name in ("hydra-core", "omegaconf")]
    digest.update(json.dumps([list(names), list(overrides), versions]).encode())
    return digest.hexdigest()[:16]


def planned_experiments(
    names: Sequence[str], overrides: Sequence[str], layout: OutputLayout
) -> list[Experiment]:
    """Experiments with their cells; composing hundreds of configs is slow, so plans are kept."""
    path = layout.logs / "plans" / f"{_plan_name(names, overrides)}.json"
    if path.is_file():
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return [
                Experiment(
                    item["name"],
                    item["artefact"],
                    tuple(Cell(cell["config"], tuple(cell["overrides"])) for cell in item["cells"]),
                )
                for item in stored
            ]
        except (ValueError, KeyError, TypeError):
            path.unlink()  # a damaged plan is made again
    experiments = []
    with Progress("plan", len(names)) as progress:
        for name in names:
            experiments.append(load_experiment(name, overrides))
            progress.finish("done")
    plain = [
        {
            "name": item.name,
            "artefact": item.artefact,
            "cells": [{"config": cell.config, "overrides": cell.overrides} for cell in item.cells],
        }
        for item in experiments
    ]
    write_text(path, json.dumps(plain))
    return experiments


def _reproduce_paper(paper: str, overrides: Sequence[str], layout: OutputLayout) -> bool:
    """Train, evaluate and draw one paper; True when nothing failed."""
    from concept_audit.pipeline.artefacts import clear_members, draw_all
    from concept_audit.pipeline.run import run_cells

    started = time.monotonic()
    experiments = planned_experiments(experiment_names(paper), overrides, layout)
    cells = [cell for item in experiments for cell in item.cells]
    print(f"{paper}: {len(experiments)} artefacts, {len(cells)} cells", file=sys.stderr)
    for item in experiments:
        clear_members(layout, item.name)
    results = run_cells(cells)
    failed = any(result.error is not None for result in results)
    jobs = int(cells[0].config["trainer"]["jobs"]) if cells else 1
    drawn_all = draw_all(layout, {item.name: item.artefact for item in experiments}, jobs=jobs)
    errors = [drawn for drawn in drawn_all if drawn.error is not None]
    for drawn in errors:
        print(f"  {drawn.name} was not drawn: {drawn.error}", file=sys.stderr)
    print(f"{paper}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return not failed and not errors


def main(argv: Sequence[str]) -> int:
    """Papers one after another, the report rewritten after each."""
    if "--help" in argv or "-h" in argv:
        print(
            "usage: concept-audit reproduce [paper=leakage,dci_es,cbx] [profile=embedded] "
            "[logger=none] [key=value ...]"
        )
        return 0
    papers = [paper for paper in PAPERS if experiment_names(paper)]
    overrides = []
    for text in argv:
        if text.startswith("paper="):
            papers = text.removeprefix("paper=").split(",")
        else:
            overrides.append(text)
    unknown = sorted(set(papers) - set(PAPERS))
    try:
        if unknown:
            raise ValueError(f"paper={','.join(unknown)} is unknown; known: {', '.join(PAPERS)}.")
        check_overrides(overrides)
    except ValueError as error:
        print(f"concept-audit reproduce: {error}", file=sys.stderr)
        return 2
    from concept_audit.pipeline import report, tracking
    from concept_audit.pipeline.execute import CannotBuildError
    from concept_audit.pipeline.results_table import write_results_table
    from concept_audit.store.layout import OutputNotWritableError

    given = dict(text.split("=", 1) for text in overrides if "=" in text)
    layout = OutputLayout(given.get("paths.output_dir", "outputs"))
    try:
        layout.check_writable()
    except OutputNotWritableError as error:
        print(f"concept-audit reproduce: {error}", file=sys.stderr)
        return 1
    logger = given.get("logger") or tracking.default_logger(given.get("profile", "embedded"))
    good = True
    for paper in papers:
        try:
            good = _reproduce_paper(paper, overrides, layout) and good
        except CannotBuildError as error:
            print(f"concept-audit reproduce: {error}", file=sys.stderr)
            return 1
        report.write(layout)
        tracking.sync(layout, logger)
    write_results_table(layout)
    print(f"report: {layout.report_html}")
    return 0 if good else 1
