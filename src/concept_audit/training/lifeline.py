"""Processes that never outlive the command that started them.

A command may be ended from outside in the middle of a chunk that takes a quarter of an hour. All
that is worth keeping lies on the disk, so its processes leave at once, and the next command goes
on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

__all__ = ["leave_at_end_of", "lifeline"]


def leave_at_end_of(line: Connection) -> None:
    """Leave this process as soon as the other end of `line` is closed, by hand or by death."""

    def watch() -> None:
        try:
            line.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)  # no clean-up: files are atomic, and a chunk cannot be interrupted

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; one of them shall speak
    threading.Thread(target=watch, name="leave with the parent", daemon=True).start()


@contextmanager
def lifeline() -> Iterator[Connection]:
    """End of a pipe for children; whoever reads it sees its end when this block or process ends."""
    theirs, ours = multiprocessing.Pipe(duplex=False)
    with theirs:
        try:
            yield theirs
        finally:
            ours.close()
