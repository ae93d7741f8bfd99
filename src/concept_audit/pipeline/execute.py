"""Train and evaluate cells: the one path that a single run, a sweep and `reproduce` share."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from concept_audit.pipeline.evaluate import Evaluation, evaluate, planned
from concept_audit.pipeline.fit import GPU, fit
from concept_audit.pipeline.plan import Cell
from concept_audit.pipeline.resume import KeyedCell, cell_key
from concept_audit.pipeline.schema import build
from concept_audit.store.keys import canonical_json
from concept_audit.store.layout import OutputLayout

__all__ = [
    "CannotBuildError",
    "CellResult",
    "execute",
    "keyed_cells",
    "layout_of",
    "print_failures",
]


class CannotBuildError(ValueError):
    """Data or a model that cannot be built, in its own words; nothing has been trained."""


@dataclass(frozen=True)
class CellResult:
    """What became of one cell."""

    cell: Cell
    key: str
    evaluations: tuple[Evaluation, ...]
    error: str | None


def layout_of(cell: Cell) -> OutputLayout:
    """The outputs folder of a cell."""
    return OutputLayout(cell.config["paths"]["output_dir"])


class _WrongPartError(ValueError):
    """A model, recipe or trainer with a value out of range, in words that name its key."""


_PRECISIONS = ("32-true", "bf16-mixed")


def _check_parts(cell: Cell) -> None:
    """Build model and recipe and look at the trainer, so that no sweep fails at its last cell."""
    config = cell.config
    for place in ("model.spec", "recipe"):
        part = config["recipe"] if place == "recipe" else config["model"]["spec"]
        try:
            _buildable(canonical_json(part))
        except (ValueError, TypeError) as error:
            raise _WrongPartError(f"{place}: {error}") from error
    trainer = config["trainer"]
    for key, least in (("micro_batches", 1), ("num_workers", 0), ("jobs", 1)):
        if not isinstance(trainer[key], int) or trainer[key] < least:
            raise _WrongPartError(
                f"trainer.{key} must be a whole number of at least {least}, got {trainer[key]!r}."
            )
    if trainer["precision"] not in _PRECISIONS:
        raise _WrongPartError(
            f"trainer.precision must be one of {', '.join(_PRECISIONS)}, got "
            f"{trainer['precision']!r}."
        )


@lru_cache(maxsize=1024)
def _buildable(part: str) -> None:
    build(json.loads(part))


def keyed_cells(cells: Sequence[Cell]) -> list[KeyedCell]:
    """Name every cell, which builds every dataset: what is missing is said before training begins.

    Raises
    ------
    CannotBuildError  with each message once, however many cells share it.
    """
    keyed = []
    errors: dict[str, Exception] = {}
    faulty = set()  # tried once: a fault may take minutes to be found
    for cell in cells:
        data = canonical_json(cell.config["data"])
        if data in faulty:
            continue
        try:
            keyed.append(cell_key(cell))
            _check_parts(cell)
        except (ValueError, OSError) as error:
            errors.setdefault(str(error), error)
            if not isinstance(error, _WrongPartError):
                faulty.add(data)
    if errors:
        raise CannotBuildError("\n".join(errors)) from next(iter(errors.values()))
    return keyed


def _check_device(cells: Sequence[Cell]) -> None:
    accelerators = {str(cell.config["trainer"]["accelerator"]) for cell in cells}
    if not accelerators & set(GPU):
        return
    import torch

    if not torch.cuda.is_available():
        raise CannotBuildError(
            f"trainer.accelerator={sorted(accelerators & set(GPU))[0]} needs a GPU that torch can "
            f"use, and there is none (torch {torch.__version__}, built for CUDA "
            f"{torch.version.cuda}). Use trainer=cpu, or install a CUDA build of torch."
        )


def execute(cells: Sequence[Cell]) -> list[CellResult]:
    """Train what is not trained, evaluate what is not evaluated; failures do not stop the rest.

    Raises
    ------
    CannotBuildError  before training, when data or a model of any cell cannot be built.
    """
    if not cells:
        return []
    layout = layout_of(cells[0])
    layout.check_writable()
    _check_device(cells)
    keyed = keyed_cells(cells)
    unique = {item.key: item for item in keyed}
    jobs = int(cells[0].config["trainer"]["jobs"])
    failures = fit(layout, list(unique.values()), jobs=jobs)
    plans: dict[tuple[str, int], list[Evaluation]] = {}
    for item in keyed:
        if item.key not in failures:
            plans[item.key, id(item.cell)] = planned(
                layout, item.key, item.cell.config["evaluation"], item.cell.config["resume"]["code"]
            )
    outcome = evaluate(layout, [each for plan in plans.values() for each in plan], jobs=jobs)
    results = []
    for item in keyed:
        error = failures.get(item.key)
        plan = plans.get((item.key, id(item.cell)), [])
        good = [each for each in plan if outcome.get((each.run_key, each.name)) is None]
        wrong = [each for each in plan if each not in good]
        if wrong:
            error = f"evaluation {wrong[0].name}: {outcome[item.key, wrong[0].name]}"
        results.append(CellResult(item.cell, item.key, tuple(good), error))
    return results


def print_failures(results: Sequence[CellResult]) -> None:
    """A table of what failed and why, once for each run."""
    failed = {result.key: result for result in results if result.error is not None}
    if not failed:
        return
    print(f"\n{len(failed)} of {len({r.key for r in results})} runs failed:", file=sys.stderr)
    for key, result in failed.items():
        lines = (result.error or "").strip().splitlines()
        print(f"  {key}  {result.cell.label}\n      {lines[-1]}", file=sys.stderr)
    print(
        "The whole error stands in each run's folder: status.json, or metrics/*.error.txt of an "
        "evaluation.",
        file=sys.stderr,
    )
