"""Lightning's view of a dataset: loaders of one training phase."""

from __future__ import annotations

import pytorch_lightning as pl
import torch

from concept_audit.data.base import ConceptDataset
from concept_audit.training.batches import EpochLoader

__all__ = ["ConceptDataModule"]


class ConceptDataModule(pl.LightningDataModule):
    """Training and validation loaders with a seeded order of their own.

    Parameters
    ----------
    dataset : ConceptDataset
        The data.
    batch_size : int
        Rows per batch.
    seed, phase, shuffle
        Address of the training order.
    inputs : dict of str to Tensor, optional
        Inputs by split that replace the dataset's: what a head by itself is trained on.
    """

    def __init__(
        self,
        dataset: ConceptDataset,
        *,
        batch_size: int,
        seed: int = 0,
        phase: str = "joint",
        shuffle: bool = True,
        inputs: dict[str, torch.Tensor] | None = None,
    ) -> None:
        super().__init__()
        inputs = inputs or {}
        self._train = EpochLoader(
            dataset,
            "train",
            batch_size=batch_size,
            seed=seed,
            phase=phase,
            shuffle=shuffle,
            inputs=inputs.get("train"),
        )
        self._val = EpochLoader(
            dataset, "val", batch_size=batch_size, phase=phase, inputs=inputs.get("val")
        )

    def train_dataloader(self) -> EpochLoader:
        """Batches of the training split."""
        return self._train

    def val_dataloader(self) -> EpochLoader:
        """Batches of the validation split, in its order."""
        return self._val
