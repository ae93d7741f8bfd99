"""Loading models without progress bars: library code is silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["silent_loading"]


@contextmanager
def silent_loading() -> Iterator[None]:
    """Progress bars of transformers off inside the block, and as they were after it."""
    from transformers.utils import logging

    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()
