"""Pools of worker processes that leave with the command that started them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.managers import SyncManager
from typing import Any

from concept_audit.training.lifeline import leave_at_end_of, lifeline

__all__ = ["progress_channel", "worker_pool"]


@contextmanager
def worker_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Pool of fresh processes; an error or Ctrl-C in the block, or its process's death, ends them.

    Parameters
    ----------
    jobs : number of processes
    """
    context = multiprocessing.get_context("spawn")
    pool = None
    try:
        with lifeline() as line:
            pool = ProcessPoolExecutor(
                jobs, mp_context=context, initializer=leave_at_end_of, initargs=(line,)
            )
            yield pool
            pool.shutdown()  # the good end: before the line is cut
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)


@contextmanager
def progress_channel() -> Iterator[Any]:
    """Queue from the workers to this process; its server leaves like a worker."""
    with lifeline() as line:
        manager = SyncManager(ctx=multiprocessing.get_context("spawn"))
        manager.start(initializer=leave_at_end_of, initargs=(line,))
        with manager:
            yield manager.Queue()
