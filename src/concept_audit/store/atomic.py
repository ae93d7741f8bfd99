"""Writing a file so that a reader sees the old one or the new one, never half of one.

Every file under the outputs folder is written through this module: a temporary name in the same
folder, flushed to the disk, then renamed over the target.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = [
    "atomic_path",
    "file_sha256",
    "process_start",
    "remove_leftovers",
    "write_bytes",
    "write_json",
    "write_text",
]

_TEMPORARY_SUFFIX = ".partial"
_TEMPORARY = re.compile(r"\.(\d+)\.[0-9a-f]{8}\.partial")  # process number, random token
_hashes: dict[tuple[str, int, int, int], str] = {}


def process_start(pid: int) -> str | None:
    """Start time of a running process in clock ticks, `""` where unknown, None if there is none.

    A process number is used again after its owner is gone; number and start time together are not.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # it runs, under another user
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""  # no /proc on this system
    return None if fields[0] == "Z" else fields[19]


def _fsync(path: Path) -> None:
    """Ask the operating system to put a file or folder on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Temporary path beside `path` that replaces it when the block ends without an error.

    Parameters
    ----------
    path : the final name; its folder is made if missing

    Yields
    ------
    Path to write to. When the block raises, it is removed and `path` stays as it was.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last, since pandas, torch and matplotlib choose a format by it.
    temporary = target.with_name(
        f".{target.stem}.{os.getpid()}.{secrets.token_hex(4)}{_TEMPORARY_SUFFIX}{target.suffix}"
    )
    try:
        yield temporary
        _fsync(temporary)
        os.replace(temporary, target)
    except BaseException:  # also KeyboardInterrupt: clean up, then pass it on
        temporary.unlink(missing_ok=True)
        raise
    _fsync(target.parent)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text to `path` atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as readable JSON (sorted keys, two spaces) to `path` atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def file_sha256(path: str | Path) -> str:
    """SHA-256 of a file in hexadecimal.

    A file whose inode, modification time and size are unchanged is not read twice by one process.
    """
    resolved = Path(path).resolve()
    stat = resolved.stat()
    key = (str(resolved), stat.st_ino, stat.st_mtime_ns, stat.st_size)
    digest = _hashes.get(key)
    if digest is None:
        with resolved.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        _hashes[key] = digest
    return digest


def remove_leftovers(folder: str | Path) -> int:
    """Delete temporary files in `folder` whose writer no longer runs; returns how many.

    Call it while holding the folder's lock: a writer on another machine cannot be seen from here.
    """
    removed = 0
    for candidate in Path(folder).glob(f".*{_TEMPORARY_SUFFIX}*"):
        writer = _TEMPORARY.search(candidate.name)
        if writer is not None and process_start(int(writer.group(1))) is None:
            candidate.unlink(missing_ok=True)
            removed += 1
    return removed
