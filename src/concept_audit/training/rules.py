"""Which epoch to keep, when to stop, when to lower the learning rate: for one model or for many.

The same code serves single training and the bank, so both decide alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from concept_audit.training.recipe import Phase, Recipe

__all__ = ["EpochRules"]

_PLATEAU_THRESHOLD = 1e-4  # relative improvement that counts, as in torch's ReduceLROnPlateau


class EpochRules:
    """Best epoch, early stopping and plateau schedule of `n_members` models.

    Parameters
    ----------
    n_members : int
        Number of models.
    phase, recipe
        Where learning rate, patience and the kind of checkpoint come from.
    """

    _vectors = ("lr", "best_val", "best_epoch", "stale", "best_train", "flat", "stopped")

    def __init__(self, n_members: int, phase: Phase, recipe: Recipe) -> None:
        self.recipe = recipe
        self.lr = np.full(n_members, phase.lr)
        self.best_val = np.full(n_members, np.inf)
        self.best_epoch = np.zeros(n_members, dtype=np.int64)
        self.stale = np.zeros(n_members, dtype=np.int64)
        self.best_train = np.full(n_members, np.inf)
        self.flat = np.zeros(n_members, dtype=np.int64)
        self.stopped = np.zeros(n_members, dtype=bool)

    def update(
        self, epoch: int, train_loss: NDArray[np.float64], val_loss: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Digest the losses of an epoch; True where the weights of this epoch are to be kept."""
        better = val_loss < self.best_val
        self.best_val = np.where(better, val_loss, self.best_val)
        self.stale = np.where(better, 0, self.stale + 1)
        if self.recipe.early_stopping_patience is not None:
            self.stopped |= self.stale >= self.recipe.early_stopping_patience
        if self.recipe.plateau_patience is not None:
            lower = train_loss < self.best_train * (1 - _PLATEAU_THRESHOLD)
            self.best_train = np.where(lower, train_loss, self.best_train)
            self.flat = np.where(lower, 0, self.flat + 1)
            due = self.flat > self.recipe.plateau_patience
            self.lr = np.where(due, self.lr * self.recipe.plateau_factor, self.lr)
            self.flat[due] = 0
        self.lr = self.lr * self.recipe.lr_decay
        keep = better if self.recipe.checkpoint == "best" else np.ones_like(better)
        self.best_epoch = np.where(keep, epoch, self.best_epoch)
        return keep

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Go on with these members only."""
        for name in self._vectors:
            setattr(self, name, getattr(self, name)[rows].copy())

    def state(self) -> dict[str, torch.Tensor]:
        """Plain tensors for a resume file."""
        return {name: torch.from_numpy(getattr(self, name).copy()) for name in self._vectors}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        for name in self._vectors:
            setattr(self, name, state[name].numpy().copy())
