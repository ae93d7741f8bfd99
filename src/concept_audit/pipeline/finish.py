"""What a sweep does before its first and after its last cell, whichever launcher runs the cells."""

from __future__ import annotations

import sys
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

__all__ = ["DrawAfterSweep"]


class DrawAfterSweep(Callback):
    """Check the outputs folder first; draw the experiment's figure or table at the end."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Fail before training where results could not be written; forget the last sweep's runs."""
        from concept_audit.pipeline.artefacts import clear_members
        from concept_audit.store.layout import OutputLayout

        layout = OutputLayout(config.paths.output_dir)
        layout.check_writable()
        if config.experiment_name:
            clear_members(layout, config.experiment_name)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Draw the artefact from the rows that the cells left."""
        if not config.experiment_name:
            return
        from concept_audit.pipeline.artefacts import draw_artefact
        from concept_audit.store.layout import OutputLayout

        layout = OutputLayout(config.paths.output_dir)
        artefact: Any = OmegaConf.to_container(config.artefact, resolve=True)
        drawn = draw_artefact(layout, config.experiment_name, artefact)
        paper, stem = config.experiment_name.split("/")
        if drawn.state == "failed":
            print(f"{drawn.name} was not drawn: {drawn.error}", file=sys.stderr)
            raise RuntimeError(f"{drawn.name} was not drawn")
        kind = "draw" in artefact
        path = layout.figure_path(paper, stem, "png") if kind else layout.table_path(paper, stem)
        print(f"{drawn.name}: {drawn.state}, {path}")
