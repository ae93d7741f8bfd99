"""Evaluate stage: bundles of finished runs in, one rows file for each run and evaluation out."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra

from concept_audit.pipeline.progress import Progress
from concept_audit.pipeline.resume import key_of_evaluation
from concept_audit.pipeline.runs import SPLITS, StoredRun
from concept_audit.pipeline.schema import check_targets
from concept_audit.pipeline.workers import progress_channel, worker_pool
from concept_audit.store.atomic import write_text
from concept_audit.store.layout import OutputLayout
from concept_audit.store.locks import held_lock
from concept_audit.store.results import rows_frame, rows_valid, write_rows
from concept_audit.store.status import read_status

__all__ = ["Evaluation", "evaluate"]

_CHUNK = 12  # most runs handed to a process at a time


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of one run."""

    run_key: str
    name: str
    config: Mapping[str, Any]
    evaluation_key: str


def planned(
    layout: OutputLayout, key: str, evaluations: Mapping[str, Any], mode: str = "digest"
) -> list[Evaluation]:
    """The evaluations of a finished run, with their names on disk.

    Those that read arrays which this kind of model does not give are left out, and named.
    """
    status = read_status(layout.run_dir(key))
    if status is None:
        raise FileNotFoundError(f"run {key} has no status file; train it first.")
    bundles = {
        split: status.files[layout.bundle_path(key, split).name]
        for split in SPLITS
        if layout.bundle_path(key, split).name in status.files
    }
    run = StoredRun(layout, key)
    plan = []
    skipped: dict[str, frozenset[str]] = {}
    for name, config in evaluations.items():
        check_targets(config)
        needed: frozenset[str] = getattr(
            hydra.utils.get_method(config["_target_"]), "needs", frozenset()
        )
        if missing := needed - run.array_names:
            skipped[name] = missing
        else:
            plan.append(
                Evaluation(key, name, config, key_of_evaluation(key, bundles, config, mode))
            )
    if skipped:
        print(
            f"run {key} ({run.identity['model']}): skipped {', '.join(skipped)}, which read "
            f"{', '.join(sorted(frozenset().union(*skipped.values())))}: "
            "a model of this kind does not give them.",
            file=sys.stderr,
        )
    return plan


def evaluate_one(layout: OutputLayout, run: StoredRun, evaluation: Evaluation) -> None:
    """Compute and write the rows of one evaluation."""
    check_targets(evaluation.config)
    function = hydra.utils.get_method(evaluation.config["_target_"])
    options = {key: value for key, value in evaluation.config.items() if key != "_target_"}
    rows = [{**run.identity, **row} for row in function(run, **options)]
    write_rows(
        layout.metrics_path(evaluation.run_key, evaluation.evaluation_key),
        rows_frame(rows),
        evaluation=evaluation.name,
        options=options,
    )


def _evaluate_chunk(
    root: str, chunk: Sequence[Evaluation], threads: int | None, channel: Any
) -> list[tuple[Evaluation, str | None]]:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    layout = OutputLayout(root)
    shared: dict[str, dict[str, Any]] = {}
    runs: dict[str, StoredRun] = {}
    results: list[tuple[Evaluation, str | None]] = []
    for item in chunk:
        try:
            if item.run_key not in runs:
                run = StoredRun(layout, item.run_key)
                run.shared = shared.setdefault(run.metadata["dataset_fingerprint"], {})
                runs = {item.run_key: run}  # arrays of one run at a time
            path = layout.metrics_path(item.run_key, item.evaluation_key)
            with held_lock(path.with_suffix(".lock"), wait_s=None):
                if not rows_valid(path):
                    evaluate_one(layout, runs[item.run_key], item)
            _error_path(layout, item).unlink(missing_ok=True)
            results.append((item, None))
        except Exception:  # one run's failure must not stop the others: reported in the table
            text = traceback.format_exc(limit=12)
            write_text(_error_path(layout, item), text)
            results.append((item, text))
        if channel is not None:
            channel.put((_chunk_name(chunk), float(len(results))))
    return results


def _error_path(layout: OutputLayout, item: Evaluation) -> Path:
    return layout.metrics_path(item.run_key, item.evaluation_key).with_suffix(".error.txt")


def _chunk_name(chunk: Sequence[Evaluation]) -> str:
    return f"{chunk[0].run_key}/{chunk[0].evaluation_key}"


def _chunks(items: Sequence[Evaluation], jobs: int) -> Iterator[list[Evaluation]]:
    """Runs with all their evaluations; of few runs so many chunks that no process is left idle."""
    by_run: dict[str, list[Evaluation]] = {}
    for item in items:
        by_run.setdefault(item.run_key, []).append(item)
    keys = list(by_run)
    size = max(1, min(_CHUNK, len(keys) // (4 * max(1, jobs))))
    for start in range(0, len(keys), size):
        yield [item for key in keys[start : start + size] for item in by_run[key]]


def evaluate(
    layout: OutputLayout, evaluations: Sequence[Evaluation], *, jobs: int = 1
) -> dict[tuple[str, str], str | None]:
    """Run what is missing; returns the error text, or None, of each (run key, evaluation name)."""
    unique = {(item.run_key, item.evaluation_key): item for item in evaluations}
    outcome: dict[tuple[str, str], str | None] = {}
    with Progress("evaluate", len(unique)) as progress:
        missing = []
        for item in unique.values():
            if rows_valid(layout.metrics_path(item.run_key, item.evaluation_key)):
                outcome[item.run_key, item.name] = None
                progress.finish("skipped")
            else:
                missing.append(item)

        def record(results: list[tuple[Evaluation, str | None]]) -> None:
            name = _chunk_name([item for item, _ in results])
            for item, error in results:
                outcome[item.run_key, item.name] = error
                progress.finish("done" if error is None else "failed", name=name)

        chunks = list(_chunks(missing, jobs))
        if jobs <= 1 or len(chunks) <= 1:
            for chunk in chunks:
                record(_evaluate_chunk(str(layout.root), chunk, None, None))
        else:
            with progress_channel() as channel, worker_pool(min(jobs, len(chunks))) as pool:
                pending = {
                    pool.submit(_evaluate_chunk, str(layout.root), chunk, 1, channel)
                    for chunk in chunks
                }
                while pending:
                    finished, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
                    while not channel.empty():
                        progress.partial(*channel.get())
                    for future in finished:
                        record(future.result())
    return outcome
