"""The callback of single training: keep weights, stop early, save for a resume, report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from concept_audit.training.concept_module import ConceptModule
from concept_audit.training.recipe import Progress
from concept_audit.training.resume_file import write_resume

__all__ = ["EpochRecorder", "cpu_copy"]


class EpochRecorder(pl.Callback):
    """What happens at the end of each epoch, after the module has written its history.

    Parameters
    ----------
    kept : dict of str to Tensor
        Weights to return; replaced whenever the rules say so.
    resume_path, identity, save_every, earlier
        Where and how often the state is saved, and what precedes this phase: its index and the
        history so far.
    progress : callable, optional
        See `Progress`.
    epochs_before, n_epochs : int
        For `progress`: epochs of earlier phases, and of all phases.
    """

    def __init__(
        self,
        kept: dict[str, torch.Tensor],
        *,
        resume_path: str | Path | None,
        identity: str,
        save_every: int,
        earlier: dict[str, Any],
        progress: Progress | None,
        epochs_before: int,
        n_epochs: int,
    ) -> None:
        self.kept = kept
        self.resume_path = resume_path
        self.identity = identity
        self.save_every = save_every
        self.earlier = earlier
        self.progress = progress
        self.epochs_before = epochs_before
        self.n_epochs = n_epochs

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep, stop, save, report; validation has run by now."""
        module = pl_module
        if not isinstance(module, ConceptModule):
            raise TypeError(f"EpochRecorder goes with ConceptModule, got {type(module).__name__}.")
        if module.keep_this_epoch:
            self.kept.update(cpu_copy(module.model.state_dict()))
        if module.rules.stopped[0]:
            trainer.should_stop = True
        finished = module.epoch + 1
        due = finished % self.save_every == 0 or trainer.should_stop
        if self.resume_path is not None and due and trainer.is_global_zero:
            optimiser: Any = module.optimizers()
            state = {
                **self.earlier,
                "epoch": finished,
                "model": cpu_copy(module.model.state_dict()),
                "optimiser": optimiser.optimizer.state_dict(),
                "extra": module.extra_state(),
                "kept": dict(self.kept),
                "rules": module.rules.state(),
                "history": [*self.earlier["history"], *module.history],
            }
            write_resume(self.resume_path, self.identity, state)
        if self.progress is not None and trainer.is_global_zero:
            label = module.member.label or "0"
            loss = float(module.history[-1]["val_loss"])
            self.progress(self.epochs_before + finished, self.n_epochs, {label: loss})


def cpu_copy(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copy of a state that later training steps do not change."""
    return {name: value.detach().cpu().clone() for name, value in state.items()}
