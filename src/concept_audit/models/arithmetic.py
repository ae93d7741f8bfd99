"""How torch computes for a while: precision of products, number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["matrix_products", "one_thread"]


@contextmanager
def matrix_products(*, tf32: bool = False) -> Iterator[None]:
    """Float32 products and convolutions in full precision, or in TF32; torch's default mixes."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextmanager
def one_thread() -> Iterator[None]:
    """Matrices of a few dozen rows gain nothing from a second thread and lose time to it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
