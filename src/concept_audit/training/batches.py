"""Batches gathered from memory, in an order that is a function of seed and epoch.

No worker processes: a small set is gathered, cast and normalised in one step per batch, and the
order of rows cannot depend on how many workers there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from concept_audit.data.base import ConceptDataset
from concept_audit.models.randomness import stream

__all__ = ["Batch", "EpochLoader", "order_of", "to_inputs"]


class Batch(NamedTuple):
    """Inputs as the network sees them, annotated concepts (n, k) and class indices (n,)."""

    x: torch.Tensor
    c: torch.Tensor
    y: torch.Tensor


def to_inputs(dataset: ConceptDataset, rows: NDArray[np.int64]) -> torch.Tensor:
    """Float32 inputs of these rows: tables as they are, images channels first and normalised."""
    block = torch.from_numpy(np.ascontiguousarray(dataset.x[rows]))
    if not dataset.is_image:
        return block.to(torch.float32)
    images = block.permute(0, 3, 1, 2).to(torch.float32)
    if block.dtype == torch.uint8:
        images = images / 255
    if dataset.mean is not None and dataset.std is not None:
        mean, std = torch.tensor(dataset.mean), torch.tensor(dataset.std)
        images = (images - mean[:, None, None]) / std[:, None, None]
    return images.contiguous()


def order_of(n_rows: int, seed: int, phase: str, epoch: int, shuffle: bool) -> NDArray[np.int64]:
    """Order of the training rows in one epoch."""
    if not shuffle:
        return np.arange(n_rows)
    return stream(seed, f"order/{phase}", epoch).permutation(n_rows)


class EpochLoader:
    """Iterable of batches over one split.

    Parameters
    ----------
    dataset : ConceptDataset
        The data.
    split : str
        Name of the split.
    batch_size : int
        Rows per batch; the last one may be smaller.
    seed, phase, shuffle
        Address of the order; without `shuffle` the rows keep the split's order.
    inputs : Float[Tensor, "n ..."], optional
        Inputs to use instead of the dataset's, one per row of the split.
    """

    def __init__(
        self,
        dataset: ConceptDataset,
        split: str,
        *,
        batch_size: int,
        seed: int = 0,
        phase: str = "joint",
        shuffle: bool = False,
        inputs: torch.Tensor | None = None,
    ) -> None:
        self.dataset = dataset
        self.rows = dataset.rows(split)
        self.batch_size = batch_size
        self.seed = seed
        self.phase = phase
        self.shuffle = shuffle
        self._epoch = 0
        if inputs is None and not dataset.is_image:
            inputs = to_inputs(dataset, self.rows)
        self._inputs = inputs
        self._c = torch.from_numpy(dataset.c[self.rows]).to(torch.float32)
        self._y = torch.from_numpy(dataset.y[self.rows])

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next."""
        self._epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        order = order_of(len(self.rows), self.seed, self.phase, self._epoch, self.shuffle)
        for start in range(0, len(order), self.batch_size):
            part = order[start : start + self.batch_size]
            index = torch.from_numpy(part)
            if self._inputs is None:
                x = to_inputs(self.dataset, self.rows[part])
            else:
                x = self._inputs[index]
            yield Batch(x, self._c[index], self._y[index])
