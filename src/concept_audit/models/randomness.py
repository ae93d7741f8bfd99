"""Random numbers addressed by seed, purpose and epoch, and the dropout that reads them.

Every stream is a function of its address, not of what was drawn before it elsewhere. So a model
sees the same permutations and masks alone, in a batched program, after a resume, and on any device.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

__all__ = ["SeededDropout", "dropout_threshold", "dropout_words", "stream", "words_for"]


def stream(seed: int, purpose: str, epoch: int) -> np.random.Generator:
    """Generator for one purpose in one epoch of the run with this seed."""
    tag = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, tag, epoch])))


def words_for(n_values: int) -> int:
    """Number of 64-bit words that hold `n_values` 16-bit draws."""
    return -(-n_values // 4)


def dropout_words(generator: np.random.Generator, n_values: int) -> NDArray[np.uint16]:
    """16-bit draws from raw 64-bit words: four for the price of one, and splittable into calls."""
    words = generator.bit_generator.random_raw(words_for(n_values))
    return np.asarray(words, dtype="<u8").view("<u2")[:n_values]


def dropout_threshold(p: float) -> int:
    """Draws below this value are kept; the keep rate is a multiple of 2**-16."""
    return round((1.0 - p) * 65536)


class SeededDropout(nn.Module):
    """Dropout whose masks come from `stream`, so that they can be repeated anywhere.

    Parameters
    ----------
    p : float
        Share of values set to 0, in [0, 1); the others are divided by the keep rate.

    Raises
    ------
    ValueError
        If `p` lies outside [0, 1).
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {p}.")
        self.p = p
        self._generator: np.random.Generator | None = None

    def start_epoch(self, generator: np.random.Generator) -> None:
        """Take the masks of the coming epoch from `generator`."""
        self._generator = generator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Masked and rescaled `x` in training mode, `x` itself in evaluation mode."""
        if not self.training or self.p == 0:
            return x
        if self._generator is None:
            return nn.functional.dropout(x, self.p)
        threshold = dropout_threshold(self.p)
        draws = dropout_words(self._generator, x.numel()).reshape(x.shape)
        mask = torch.from_numpy((draws < threshold).astype(np.float32) * (65536 / threshold))
        return x * mask.to(device=x.device, dtype=x.dtype)
