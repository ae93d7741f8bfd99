"""Arrays that take long to make, kept under a hash of everything that decides their content.

An array is written beside and renamed, so that a reader sees all of it or none. Large ones come
back as read-only memory maps.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concept_audit.store.atomic import atomic_path

__all__ = ["cache_path", "cached_array", "cached_rows", "load_cached", "mapped_digest"]

_ROWS_PER_BLOCK = 16_384  # images drawn at a time
_MEMORY_BYTES = 1 << 30  # larger cached arrays are mapped, not read


def cached_array(
    folder: str | Path, key: dict[str, Any], build: Callable[[], NDArray[Any]]
) -> NDArray[Any]:
    """Array kept under a hash of `key`; built on the first call, then mapped from the file.

    Parameters
    ----------
    folder : where to keep it, usually ``data/processed/<name>``
    key : everything that decides the content, for example generator, constants and rows
    build : returns the array

    Returns
    -------
    The array; beyond 1 GiB a read-only memory map, whose pages are read as they are used.
    """
    path = cache_path(folder, key)
    if not _readable(path):
        array = build()
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            np.save(stream, array, allow_pickle=False)
    return load_cached(path)


def cached_rows(
    folder: str | Path,
    key: dict[str, Any],
    draw: Callable[[NDArray[np.int64]], NDArray[np.uint8]],
    *,
    shape: tuple[int, ...],
    group: NDArray[np.integer] | None = None,
    rows_per_block: int | None = None,
) -> NDArray[np.uint8]:
    """Like `cached_array`, for images too many to hold in memory: drawn and written by blocks.

    Parameters
    ----------
    folder, key : as in `cached_array`
    draw : images of the given positions `(b,)` in the result
    shape : of the result
    group : positions of equal value are drawn together, for renderers that draw a geometry once
    rows_per_block : images drawn at a time; None takes a size that suits small images
    """
    path = cache_path(folder, key)
    if not _readable(path):
        order = np.arange(shape[0]) if group is None else np.argsort(group, kind="stable")
        with atomic_path(path) as temporary:
            written = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
            step = rows_per_block or _ROWS_PER_BLOCK
            for start in range(0, shape[0], step):
                positions = order[start : start + step]
                written[positions] = draw(positions)
            written.flush()
    return load_cached(path)


def _readable(path: Path) -> bool:
    """True for a cached array that can be read; one that cannot is deleted."""
    if not path.exists():
        return False
    try:
        np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError):
        path.unlink()
        return False
    return True


def cache_path(folder: str | Path, key: dict[str, Any]) -> Path:
    """Name of the cached array that belongs to `key`."""
    digest = sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
    return Path(folder) / f"{digest}.npy"


def mapped_digest(images: Any, *described: Any) -> str | None:
    """Digest that stands for a mapped array's content: what it was made from; None for the others.

    Hashing several gigabytes at every start would take longer than many a training.
    """
    if not isinstance(images, np.memmap):
        return None
    return sha256(json.dumps([list(images.shape), *described]).encode()).hexdigest()


def load_cached(path: Path) -> NDArray[Any]:
    """Read a cached array, or map it when it is larger than 1 GiB."""
    mapped = path.stat().st_size > _MEMORY_BYTES
    return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
