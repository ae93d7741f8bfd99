"""Where the compiled kernels come from, and how many threads share a job."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["in_threads", "kernels", "n_threads"]

_LOG = logging.getLogger("concept_audit.metrics")
_ANNOUNCED: set[str] = set()


def kernels(name: str) -> ModuleType | None:
    """Module of compiled kernels, or None where numpy has to do (no numba, or switched off).

    The environment variable CONCEPT_AUDIT_NUMBA=0 switches numba off; the numbers are the same.
    """
    if os.environ.get("CONCEPT_AUDIT_NUMBA") == "0" or find_spec("numba") is None:
        return None
    module = import_module(f"concept_audit.metrics.information.{name}")
    if name not in _ANNOUNCED:
        _ANNOUNCED.add(name)
        _say_when_compiling(module)
    return module


def _say_when_compiling(module: ModuleType) -> None:
    """One line on the log when the kernels are not in numba's cache yet."""
    kernel: Any = getattr(module, module.__all__[0])
    folder = Path(kernel.stats.cache_path or ".")
    if not any(folder.glob(f"{module.__name__.rpartition('.')[2]}.*.nbi")):
        _LOG.warning(
            "Compiling the neighbour search for this machine, once: 5 to 20 s; it is kept in %s",
            folder,
        )


def n_threads(n_tasks: int) -> int:
    """Threads for `n_tasks` equal pieces: the CPUs at hand, OMP_NUM_THREADS as upper bound."""
    available = getattr(os, "sched_getaffinity", None)
    cpus = len(available(0)) if available is not None else (os.cpu_count() or 1)
    stated = os.environ.get("OMP_NUM_THREADS", "")
    if stated.isdigit() and int(stated) > 0:
        cpus = min(cpus, int(stated))
    return max(1, min(cpus, n_tasks))


def in_threads(call: Callable[[int], None], tasks: Iterable[int], threads: int) -> None:
    """Run `call` on each task; kernels release the interpreter lock, so threads are enough."""
    if threads == 1:
        for task in tasks:
            call(task)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(call, tasks):
            pass
