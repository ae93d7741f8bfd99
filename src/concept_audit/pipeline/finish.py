"""What a sweep does before its first and after its last cell, whichever launcher runs the cells."""

from __future__ import annotations

import sys
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from concept_audit.store.layout import OutputLayout

__all__ = ["DrawAfterSweep"]


# Each cell is a job of its own in processes of this machine: a missing dataset would be reported by
# every one of them, with a stack trace. On a cluster the data may be elsewhere.
_LOCAL_LAUNCHERS = ("BasicLauncher", "JoblibLauncher")


def _print_table(layout: OutputLayout, overrides: list[str]) -> None:
    from concept_audit.pipeline.execute import keyed_cells
    from concept_audit.pipeline.plan import expand
    from concept_audit.pipeline.results_table import write_results_table
    from concept_audit.pipeline.summary import sweep_lines

    rows = write_results_table(layout)
    runs = [(item.key, item.cell.overrides) for item in keyed_cells(expand(overrides))]
    print("\n" + "\n".join(sweep_lines(layout, rows, runs)))


class DrawAfterSweep(Callback):
    """Check folder and data first; draw the experiment's figure or table at the end.

    Hydra makes a warning of what a callback raises, except of a demand to leave.
    """

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Leave before training where results could not be written; forget the last sweep's runs.

        Leave also where data cannot be built and no launcher of ours would say so.
        """
        from concept_audit.pipeline.artefacts import clear_members
        from concept_audit.pipeline.execute import keyed_cells
        from concept_audit.pipeline.plan import expand
        from concept_audit.pipeline.run import stop

        layout = OutputLayout(config.paths.output_dir)
        try:
            layout.check_writable()
            if str(config.hydra.launcher._target_).endswith(_LOCAL_LAUNCHERS):
                keyed_cells(expand([str(text) for text in config.hydra.overrides.task]))
        except (ValueError, OSError) as error:
            stop(error)
        if config.experiment_name:
            clear_members(layout, config.experiment_name)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Draw the artefact from the rows that the cells left, or print a table of them."""
        from concept_audit.pipeline.artefacts import draw_artefact

        layout = OutputLayout(config.paths.output_dir)
        if not config.experiment_name:
            _print_table(layout, [str(text) for text in config.hydra.overrides.task])
            return
        artefact: Any = OmegaConf.to_container(config.artefact, resolve=True)
        drawn = draw_artefact(layout, config.experiment_name, artefact)
        paper, stem = config.experiment_name.split("/")
        if drawn.state == "failed":
            print(f"{drawn.name} was not drawn: {drawn.error}", file=sys.stderr)
            raise SystemExit(1)
        kind = "draw" in artefact
        path = layout.figure_path(paper, stem, "png") if kind else layout.table_path(paper, stem)
        print(f"{drawn.name}: {drawn.state}, {path}")
