"""An array that is made block by block, for what is too large to stand in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from concept_audit.arrays import check_finite

__all__ = ["ArrayBlocks"]


@dataclass(frozen=True)
class ArrayBlocks:
    """Shape and kind of an array, and a function that makes its blocks of rows in order.

    Parameters
    ----------
    shape : of the whole array, rows first
    dtype : of every block
    make : starts a new pass over the blocks; each has some rows and the other dimensions whole

    Notes
    -----
    `numpy.asarray` joins the blocks, where the whole does fit into memory.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    make: Callable[[], Iterator[NDArray[Any]]]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the whole array in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def checked(self, name: str) -> Iterator[NDArray[Any]]:
        """The blocks in order, each checked before it is given.

        Raises
        ------
        ValueError  naming the array and its rows: a block of another shape or kind, values that are
        not finite, more or fewer rows than `shape` promises.
        """
        done = 0
        for block in self.make():
            rows = f"{name}, block from row {done}"
            if block.dtype != self.dtype or block.shape[1:] != self.shape[1:]:
                raise ValueError(
                    f"{rows}: must hold rows of shape {self.shape[1:]} and dtype {self.dtype}, got "
                    f"{block.shape[1:]} and {block.dtype}."
                )
            if done + len(block) > self.shape[0]:
                raise ValueError(
                    f"{rows}: the blocks must add up to {self.shape[0]} rows, got "
                    f"{done + len(block)} and maybe more."
                )
            check_finite(rows, block)
            done += len(block)
            yield block
        if done != self.shape[0]:
            raise ValueError(f"{name}: the blocks must add up to {self.shape[0]} rows, got {done}.")

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array made by blocks cannot be had without making it: copy=True.")
        whole = np.empty(self.shape, dtype=self.dtype if dtype is None else dtype)
        start = 0
        for block in self.checked("array"):
            whole[start : start + len(block)] = block
            start += len(block)
        return whole
