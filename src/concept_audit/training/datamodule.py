"""Lightning's view of a dataset: loaders of one training phase."""

from __future__ import annotations

import pytorch_lightning as pl
import torch

from concept_audit.data.base import ConceptDataset
from concept_audit.training.batches import Batch, EpochLoader, InputTransform, Shard

__all__ = ["ConceptDataModule"]


class ConceptDataModule(pl.LightningDataModule):
    """Training and validation loaders with a seeded order of their own.

    Parameters
    ----------
    dataset : ConceptDataset
        The data.
    batch_size : int
        Rows per batch, over all processes.
    seed, phase, shuffle
        Address of the training order.
    inputs : dict of str to Tensor, optional
        Inputs by split that replace the dataset's: what a head by itself is trained on.
    augmentation : str
        Of the training images, see `EpochLoader`.
    shard : Shard
        What this process takes of each batch.
    num_workers : int
        Processes that decode a set of files.
    channels_last : bool
        Memory format of image batches.
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
        augmentation: str = "none",
        shard: Shard | None = None,
        num_workers: int = 0,
        channels_last: bool = False,
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
            augmentation="none" if inputs or not dataset.is_image else augmentation,
            shard=shard,
            num_workers=num_workers,
        )
        self._val = EpochLoader(
            dataset,
            "val",
            batch_size=batch_size,
            phase=phase,
            inputs=inputs.get("val"),
            shard=shard,
            num_workers=num_workers,
        )
        self._transform = InputTransform(dataset, channels_last=channels_last)
        self._ready = bool(inputs)

    def train_dataloader(self) -> EpochLoader:
        """Batches of the training split."""
        return self._train

    def val_dataloader(self) -> EpochLoader:
        """Batches of the validation split, in its order."""
        return self._val

    def place(self, device: torch.device) -> None:
        """Keep what fits in the memory of the device."""
        self._train.place(device)
        self._val.place(device)

    def release(self) -> None:
        """Let go of device memory and workers once the phase is over."""
        self._train.release()
        self._val.release()

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Cast, augment and normalise on the device."""
        if self._ready:
            return batch
        return batch._replace(x=self._transform(batch.x, batch.augmentation), augmentation=None)
