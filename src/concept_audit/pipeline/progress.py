"""Progress of long work: a rich bar in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

__all__ = ["Progress"]


class Progress:
    """Cells done, skipped and failed, with the time left.

    Parameters
    ----------
    title : what is being done
    total : number of cells
    every_s : seconds between plain lines where the output is no terminal
    """

    def __init__(self, title: str, total: int, *, every_s: float = 15.0) -> None:
        self.title = title
        self.total = total
        self.done = self.skipped = self.failed = 0
        self._partial: dict[str, float] = {}
        self._ended: set[str] = set()
        self._started = self._last = time.monotonic()
        self._every_s = every_s
        self._bar = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%  {task.fields[counts]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(title, total=max(total, 1), counts="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self.total:
            self._line()

    @property
    def counts(self) -> str:
        """Counts in words."""
        text = f"{self.done} done, {self.skipped} already there"
        return f"{text}, {self.failed} failed" if self.failed else text

    def partial(self, name: str, share: float) -> None:
        """Report that `share` cells' worth of the group `name` is done."""
        if name not in self._ended:  # reports of other processes may come late
            self._partial[name] = share
            self._show()

    def finish(self, state: str, count: int = 1, name: str | None = None) -> None:
        """Count cells as `done`, `skipped` or `failed`; `name` ends that group's partial share."""
        setattr(self, state, getattr(self, state) + count)
        if name is not None:
            self._partial.pop(name, None)
            self._ended.add(name)
        self._show()

    def _finished(self) -> float:
        return self.done + self.skipped + self.failed + sum(self._partial.values())

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._finished(), counts=self.counts)
        elif time.monotonic() - self._last >= self._every_s:
            self._line()

    def _line(self) -> None:
        self._last = time.monotonic()
        elapsed = self._last - self._started
        worked = self._finished() - self.skipped
        left = ""
        remaining = self.total - self._finished()
        if worked > 0 and remaining > 0:
            left = f", about {remaining / worked * elapsed:.0f} s left"
        share = self._finished() / max(self.total, 1)
        print(
            f"{self.title}: {share:4.0%} of {self.total} ({self.counts}), {elapsed:.0f} s{left}",
            file=sys.stderr,
            flush=True,
        )
