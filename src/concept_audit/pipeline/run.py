"""`concept-audit run`: one model, a sweep, or the models of one figure or table."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from concept_audit.pipeline.plan import Cell, check_overrides, config_dir
from concept_audit.pipeline.schema import check_targets, register

__all__ = ["RunFailedError", "main", "run_cells", "run_one", "stop"]

_FULL_ERROR = "HYDRA_FULL_ERROR"  # Hydra's variable: set to 1, errors come with a stack trace


class RunFailedError(CompactHydraException):
    """A cell failed, and the user has been told why; Hydra prints it without a stack trace."""


def stop(error: Exception) -> NoReturn:
    """Say what went wrong and leave with status 1, unless the user asked for stack traces."""
    if os.environ.get(_FULL_ERROR) == "1":
        raise error
    print(f"concept-audit run: {error}", file=sys.stderr)
    raise SystemExit(1) from None


def run_cells(cells: Sequence[Cell]) -> list[Any]:
    """Execute cells and note the runs for their artefact; returns the CellResults."""
    from concept_audit.pipeline.artefacts import note_members
    from concept_audit.pipeline.execute import execute, layout_of, print_failures

    results = execute(cells)
    for result in results:
        name = result.cell.config["experiment_name"]
        if name and result.evaluations:
            profile = result.cell.config["profile"]["name"]
            note_members(layout_of(result.cell), name, profile, result.evaluations)
    print_failures(results)
    return results


def run_one(config: DictConfig) -> str:
    """Task function of the basic, joblib and Slurm launchers: one cell in this process."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    check_targets(plain)
    plain.pop("hydra", None)
    plain["trainer"]["jobs"] = 1
    overrides = tuple(HydraConfig.get().overrides.task)
    (result,) = run_cells([Cell(config=plain, overrides=overrides)])
    if result.error is not None:
        raise RunFailedError(f"run {result.key} failed, see the table above")
    return str(result.key)


def _print_summary(config: DictConfig, key: str) -> None:
    from concept_audit.pipeline.summary import run_lines
    from concept_audit.store.layout import OutputLayout

    target = str(config.model.spec._target_)
    trained = not target.startswith("concept_audit.models.representation_specs.")
    layout = OutputLayout(config.paths.output_dir)
    print("\n" + "\n".join(run_lines(layout, key, has_pictures=trained)))


@hydra.main(version_base="1.3", config_path=None, config_name="run")
def _app(config: DictConfig) -> str:
    if HydraConfig.get().mode is not RunMode.RUN:
        try:
            return run_one(config)  # the launcher records a failure and goes on
        except (ValueError, OSError) as error:
            raise RunFailedError(str(error)) from error
    try:
        key = run_one(config)
    except RunFailedError:
        raise SystemExit(1) from None  # the table has said why; a stack trace would bury it
    except (ValueError, OSError) as error:  # data or model that cannot be built
        stop(error)
    _print_summary(config, key)
    return key


def main(argv: Sequence[str]) -> int:
    """Check the overrides, then hand over to Hydra."""
    register()
    overrides = [text for text in argv if not text.startswith("-")]
    try:
        check_overrides(overrides)
    except ValueError as error:
        print(f"concept-audit run: {error}", file=sys.stderr)
        return 2
    arguments = ["concept-audit run", *argv]
    if not any(text.startswith(("--config-dir", "-cd")) for text in argv):
        arguments += ["--config-dir", str(config_dir())]
    before, sys.argv = sys.argv, arguments
    try:
        _app()
    except SystemExit as stop:
        return int(stop.code or 0)
    except (RuntimeError, OSError) as error:
        print(f"concept-audit run: {error}", file=sys.stderr)
        return 1
    finally:
        sys.argv = before
    return 0
