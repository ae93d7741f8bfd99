"""Hydra launcher `bank`: all cells of a sweep at once, those alike trained as one program.

Hydra imports this module at every start, so everything heavy is imported inside the functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

__all__ = ["BankLauncher"]


class BankLauncher(Launcher):
    """Runs a sweep through `concept_audit.pipeline.run.run_cells`."""

    def __init__(self, **params: Any) -> None:
        self.params = params
        self.config: DictConfig | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep the sweep's own config."""
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Train and evaluate all cells; one that failed ends the sweep with status 1.

        An error that came back as a job's result would be printed with a stack trace, below the
        table that has said all.
        """
        from concept_audit.pipeline.plan import expand
        from concept_audit.pipeline.run import run_cells, stop

        assert self.config is not None
        Path(str(self.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        fixed = [str(text) for text in self.config.hydra.overrides.task]
        cells = expand(fixed, [list(overrides) for overrides in job_overrides])
        try:
            results = run_cells(cells)
        except (ValueError, OSError) as error:
            stop(error)
        if any(result.error is not None for result in results):
            raise SystemExit(1)
        returns = []
        for result in results:
            job = JobReturn(overrides=list(result.cell.overrides), cfg=None, working_dir=None)
            job.status, job.return_value = JobStatus.COMPLETED, result.key
            returns.append(job)
        return returns
