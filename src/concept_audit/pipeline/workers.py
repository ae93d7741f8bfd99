"""Worker processes that never outlive the command that started them.

A command may be ended from outside in the middle of a chunk that takes a quarter of an hour. All
that is worth keeping lies on the disk, so its workers leave at once, and the next command goes on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.managers import SyncManager
from typing import Any

__all__ = ["progress_channel", "worker_pool"]


def _leave_at_end_of(line: Connection) -> None:
    """Leave this process as soon as the other end of `line` is closed, by hand or by death."""

    def watch() -> None:
        try:
            line.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)  # no clean-up: files are atomic, and a chunk cannot be interrupted

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; one of them shall speak
    threading.Thread(target=watch, name="leave with the parent", daemon=True).start()


@contextmanager
def _line() -> Iterator[Connection]:
    """End of a pipe for children; whoever reads it sees its end when this block or process ends."""
    theirs, ours = multiprocessing.Pipe(duplex=False)
    with theirs:
        try:
            yield theirs
        finally:
            ours.close()


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
        with _line() as line:
            pool = ProcessPoolExecutor(
                jobs, mp_context=context, initializer=_leave_at_end_of, initargs=(line,)
            )
            yield pool
            pool.shutdown()  # the good end: before the line is cut
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)


@contextmanager
def progress_channel() -> Iterator[Any]:
    """Queue from the workers to this process; its server leaves like a worker."""
    with _line() as line:
        manager = SyncManager(ctx=multiprocessing.get_context("spawn"))
        manager.start(initializer=_leave_at_end_of, initargs=(line,))
        with manager:
            yield manager.Queue()
