"""Batches in an order that is a function of seed and epoch, gathered where the data lie.

A set in memory needs no worker processes: rows are gathered as they are stored (uint8 images),
moved to the device, and cast, augmented and normalised there, a whole batch at a time. A set of
files is decoded in workers, which are handed the rows of each batch, so that the order cannot
depend on how many there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from concept_audit.data.base import ConceptDataset
from concept_audit.models.randomness import stream
from concept_audit.training.augmentation import augment, draw_augmentation

__all__ = [
    "Batch",
    "EpochLoader",
    "InputTransform",
    "Shard",
    "order_of",
    "rows_per_pass",
    "to_inputs",
]

_ROWS_PER_COPY = 4096
_RESIDENT_SHARE = 0.25  # of a GPU's free memory that a split's images may take


class Batch(NamedTuple):
    """Inputs (n, ...), annotated concepts (n, k), class indices (n,), and what they count for.

    `n_counted` is how many of the rows enter a mean, 0 where a row only fills an empty place;
    `scale` turns the mean loss of these rows into their part of the whole batch's gradient;
    `augmentation` (n, p) holds the parameters of `augment`.
    """

    x: torch.Tensor
    c: torch.Tensor
    y: torch.Tensor
    n_counted: int
    scale: float = 1.0
    augmentation: torch.Tensor | None = None


class Shard(NamedTuple):
    """Which part of every batch a process takes, and into how many pieces it cuts that part."""

    rank: int = 0
    world_size: int = 1
    micro_batches: int = 1


class InputTransform:
    """From rows as they are stored to what a network reads, on the device that holds them.

    Parameters
    ----------
    dataset : ConceptDataset
        Says whether rows are images, and how they are normalised.
    channels_last : bool
        Memory format of image batches; the values do not depend on it.
    """

    def __init__(self, dataset: ConceptDataset, *, channels_last: bool = False) -> None:
        self.is_image = dataset.is_image
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self._constants: tuple[torch.Tensor, torch.Tensor] | None = None
        if dataset.is_image and dataset.mean is not None and dataset.std is not None:
            mean, std = self._whole(dataset, dataset.mean), self._whole(dataset, dataset.std)
            self._constants = mean, std

    def _whole(self, dataset: ConceptDataset, values: tuple[float, ...]) -> torch.Tensor:
        """One value per channel as an image of the batch's memory format: see `_cast`."""
        image = torch.tensor(values)[None, :, None, None].expand(1, *dataset.input_shape)
        return image.contiguous(memory_format=self.format)

    def _cast(self, block: torch.Tensor) -> torch.Tensor:
        """Float32 images (n, C, H, W) of (n, H, W, C).

        A CPU is slow where its inner loop runs over three channels, so a plane is copied at a time,
        and constants have the size of an image (`python tests/benchmarks --only images`).
        """
        if block.device.type != "cpu" or self.format == torch.channels_last:
            return block.permute(0, 3, 1, 2).to(torch.float32, copy=True)
        n, height, width, channels = block.shape
        images = torch.empty((n, channels, height, width))
        for channel in range(channels):
            images[:, channel].copy_(block[..., channel])
        return images

    def __call__(
        self, block: torch.Tensor, augmentation: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Float32 inputs: tables (n, d) as they are, images (n, H, W, C) as (n, C, H, W)."""
        if not self.is_image:
            return block.to(torch.float32)
        images = self._cast(block)
        if block.dtype == torch.uint8:
            images = images.div_(255)
        if augmentation is not None:
            images = augment(images, augmentation)
        images = images.contiguous(memory_format=self.format)
        if self._constants is not None:
            if self._constants[0].device != images.device:
                mean, std = self._constants
                self._constants = mean.to(images.device), std.to(images.device)
            images = images.sub_(self._constants[0]).div_(self._constants[1])
        return images


def rows_per_pass(dataset: ConceptDataset) -> int:
    """Rows that one forward pass without gradients takes: 4096, fewer of large images."""
    return max(32, min(4096, 2**24 // max(1, math.prod(dataset.input_shape))))


def to_inputs(
    dataset: ConceptDataset, rows: NDArray[np.int64], device: str | torch.device = "cpu"
) -> torch.Tensor:
    """Float32 inputs of these rows: tables as they are, images channels first and normalised."""
    block = torch.from_numpy(np.ascontiguousarray(dataset.x[rows])).to(device)
    return InputTransform(dataset)(block)


def order_of(n_rows: int, seed: int, phase: str, epoch: int, shuffle: bool) -> NDArray[np.int64]:
    """Order of the training rows in one epoch."""
    if not shuffle:
        return np.arange(n_rows)
    return stream(seed, f"order/{phase}", epoch).permutation(n_rows)


class EpochLoader:
    """Iterable of batches over one split; images come as they are stored, see `InputTransform`.

    Parameters
    ----------
    dataset : ConceptDataset
        The data.
    split : str
        Name of the split.
    batch_size : int
        Rows per batch over all processes; the last one may be smaller.
    seed, phase, shuffle
        Address of the order; without `shuffle` the rows keep the split's order.
    inputs : Float[Tensor, "n ..."], optional
        Inputs to use instead of the dataset's, one per row of the split.
    augmentation : str
        One of `AUGMENTATIONS`; its parameters are drawn for the whole batch, whatever the shard.
    shard : Shard
        Part of each batch that this process takes. Every process makes the same number of steps:
        where a batch has fewer rows than there are parts, a row fills the place and counts nothing
        in loss or gradient; only the running statistics of a batch norm see it.
    num_workers : int
        Processes that decode a set of files; sets in memory need none.
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
        augmentation: str = "none",
        shard: Shard | None = None,
        num_workers: int = 0,
    ) -> None:
        self.dataset = dataset
        self.rows = dataset.rows(split)
        self.batch_size = batch_size
        self.seed = seed
        self.phase = phase
        self.shuffle = shuffle
        self.augmentation = augmentation
        self.shard = Shard() if shard is None else shard
        self.num_workers = num_workers
        self.device = torch.device("cpu")
        self._epoch = 0
        if inputs is None and not dataset.is_image:
            inputs = to_inputs(dataset, self.rows)
        self._inputs = inputs
        self._c = torch.from_numpy(dataset.c[self.rows]).to(torch.float32)
        self._y = torch.from_numpy(dataset.y[self.rows])
        self._decoder: DataLoader[torch.Tensor] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next."""
        self._epoch = epoch

    def place(self, device: torch.device) -> None:
        """Keep concepts, labels and, where they fit, inputs in the memory of a GPU."""
        self.device = device
        if device.type != "cuda":
            return
        self._c, self._y = self._c.to(device), self._y.to(device)
        images = self.dataset.x
        if self._inputs is not None:
            self._inputs = self._inputs.to(device)
        elif isinstance(images, np.ndarray):  # also a map of a file
            free, _ = torch.cuda.mem_get_info(device)
            if images[:1].nbytes * len(self.rows) <= _RESIDENT_SHARE * free:
                self._inputs = self._on_device(images, device)

    def _on_device(self, images: NDArray[Any], device: torch.device) -> torch.Tensor:
        """The split's images as they are stored, copied a block at a time."""
        kept = torch.empty(
            (len(self.rows), *images.shape[1:]), dtype=torch.from_numpy(images[:0].copy()).dtype,
            device=device,
        )  # fmt: skip
        for start in range(0, len(self.rows), _ROWS_PER_COPY):
            rows = self.rows[start : start + _ROWS_PER_COPY]
            kept[start : start + len(rows)] = torch.from_numpy(images[rows]).to(device)
        return kept

    def release(self) -> None:
        """Let go of device memory and workers; Lightning's cycles would keep them for a while."""
        self._inputs, self._decoder = None, None
        self._c, self._y = self._c[:0], self._y[:0]

    @property
    def n_concepts(self) -> int:
        """Number of annotated concepts."""
        return self.dataset.n_concepts

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size) * self.shard.micro_batches

    def __iter__(self) -> Iterator[Batch]:
        pieces = self._pieces()
        parts = [piece[0] for piece in pieces]
        # One copy to the device for the epoch: one a step would make the host wait at each.
        indices = self._uploaded(parts)
        draws = [piece[3] for piece in pieces]
        parameters = [None] * len(pieces) if draws[0] is None else self._uploaded(draws)
        n_shards = self.shard.world_size * self.shard.micro_batches
        for (part, n_batch, filled, _), index, drawn, block in zip(
            pieces, indices, parameters, self._blocks(parts), strict=True
        ):
            n_counted = 0 if filled else len(part)
            yield Batch(
                self._inputs[index] if block is None and self._inputs is not None else block,
                self._c[index],
                self._y[index],
                n_counted,
                n_counted * n_shards / n_batch,
                drawn,
            )

    def _uploaded(self, parts: list[Any]) -> Any:
        """Arrays of one row per sample as tensors on the device of concepts and labels."""
        whole = torch.from_numpy(np.concatenate(parts)).to(self._c.device)
        return whole.split([len(part) for part in parts])

    def _pieces(self) -> list[tuple[NDArray[np.int64], int, bool, NDArray[np.float32] | None]]:
        """Positions in the split, rows of the whole batch, whether they only fill, parameters."""
        order = order_of(len(self.rows), self.seed, self.phase, self._epoch, self.shuffle)
        draws = None
        if self.augmentation != "none":
            generator = stream(self.seed, f"augmentation/{self.phase}", self._epoch)
            height, width = self.dataset.x.shape[1:3]
            draws = draw_augmentation(generator, len(order), (height, width))
        rank, world_size, micro_batches = self.shard
        pieces = []
        for start in range(0, len(order), self.batch_size):
            places = np.arange(start, min(start + self.batch_size, len(order)))
            for piece in range(micro_batches):
                mine = places[rank::world_size][piece::micro_batches]
                filled = not len(mine)
                mine = places[:1] if filled else mine
                parameters = None if draws is None else draws[mine]
                pieces.append((order[mine], len(places), filled, parameters))
        return pieces

    def _blocks(self, parts: list[NDArray[np.int64]]) -> Iterator[Any]:
        """Images of each part, or None where the inputs lie in memory as one tensor."""
        if self._inputs is not None:
            yield from (None for _ in parts)
        elif self.num_workers and not isinstance(self.dataset.x, np.ndarray):
            yield from self._decoded(parts)
        else:
            pin = self.device.type == "cuda"
            for part in parts:
                block = torch.from_numpy(np.ascontiguousarray(self.dataset.x[self.rows[part]]))
                yield block.pin_memory() if pin else block

    def _decoded(self, parts: list[NDArray[np.int64]]) -> Iterator[torch.Tensor]:
        """Blocks decoded by workers that live as long as the loader."""
        if self._decoder is None:
            self._parts = _Parts()
            self._decoder = DataLoader(
                _Decoder(self.dataset.x),
                batch_size=None,
                sampler=self._parts,
                num_workers=self.num_workers,
                persistent_workers=True,
                pin_memory=self.device.type == "cuda",
                generator=torch.Generator(),  # its seeds are not to be taken from the model's noise
            )
        self._parts.rows = [self.rows[part] for part in parts]
        return iter(self._decoder)


class _Parts:
    """Sampler of row indices, one array a batch, set anew for each epoch."""

    rows: list[NDArray[np.int64]]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class _Decoder(Dataset[torch.Tensor]):
    """Images of an array of rows, for a worker process."""

    def __init__(self, images: Any) -> None:
        self.images = images

    def __getitem__(self, rows: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(self.images[rows]))
