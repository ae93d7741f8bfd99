"""One process a run: a lock file made with exclusive create, naming its holder.

Of two jobs with the same key one computes; the other waits or goes on with something else. A lock
whose holder died on this machine is taken over. A holder on another machine cannot be checked from
here, so its lock stays until it is released or deleted by hand.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from concept_audit.store.atomic import process_start

__all__ = ["Holder", "held_lock", "lock_holder"]

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP}
_WRITING_S = 0.1


@dataclass(frozen=True)
class Holder:
    """Who holds a lock.

    Attributes
    ----------
    host, pid : machine and process
    started : when the lock was taken, ISO 8601, UTC
    process_start : start time of the process in clock ticks; tells a reused process number
    token : distinguishes two locks of one process
    """

    host: str
    pid: int
    started: str
    process_start: str
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.started}"


def lock_holder(path: str | Path) -> Holder | None:
    """Holder of a lock, or None if it is free."""
    try:
        text = Path(path).read_text()
        if not text:  # being written, on a disk without hard links
            time.sleep(_WRITING_S)
            text = Path(path).read_text()
        return Holder(**json.loads(text))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (json.JSONDecodeError, TypeError):
        raise ValueError(
            f"{path} is no lock of this program. Make sure that nothing runs, then delete it."
        ) from None


def _try_create(path: Path, holder: Holder) -> bool:
    """Make the lock file, complete from the first moment; False if there is one already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{holder.pid}.{holder.token[:8]}.partial")
    content = json.dumps(asdict(holder))
    draft.write_text(content)
    try:
        os.link(draft, path)  # fails if the name exists, atomically, also on network disks
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _create_without_links(path, content)
    finally:
        draft.unlink()
    return True


def _create_without_links(path: Path, content: str) -> bool:
    """Exclusive create on a disk that has no hard links; a reader may see it empty for a moment."""
    try:
        with path.open("x") as stream:
            stream.write(content)
    except FileExistsError:
        return False
    return True


def _is_stale(holder: Holder | None) -> bool:
    """True if the holder was a process of this machine that no longer runs."""
    if holder is None or holder.host != socket.gethostname():
        return False
    now = process_start(holder.pid)
    return now is None or bool(now and holder.process_start and now != holder.process_start)


def _take_over(path: Path, mine: Holder) -> bool:
    """Replace a stale lock; of several processes that see it, one succeeds."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # same machine only, and so is staleness
        if not _is_stale(lock_holder(path)):
            return False
        path.unlink()
        return _try_create(path, mine)
    finally:
        os.close(folder)


def _acquire(path: Path, mine: Holder, wait_s: float | None, poll_s: float) -> bool:
    deadline = None if wait_s is None else time.monotonic() + wait_s
    while True:
        if _try_create(path, mine):
            return True
        if _is_stale(lock_holder(path)) and _take_over(path, mine):
            return True
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(poll_s)


@contextmanager
def held_lock(
    path: str | Path, *, wait_s: float | None = 0.0, poll_s: float = 0.2
) -> Iterator[bool]:
    """Hold a lock for the length of a `with` block.

    Parameters
    ----------
    path : the lock file; its folder is made if missing
    wait_s : seconds to wait for another holder; 0 does not wait, None waits for ever
    poll_s : seconds between two looks

    Yields
    ------
    True if the lock is ours; False if somebody else still holds it, in which case the caller must
    not write. After True look again whether the work is already done: the last holder may have
    done it.
    """
    target = Path(path)
    mine = Holder(
        host=socket.gethostname(),
        pid=os.getpid(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        process_start=process_start(os.getpid()) or "",
        token=secrets.token_hex(8),
    )
    acquired = _acquire(target, mine, wait_s, poll_s)
    try:
        yield acquired
    finally:
        if acquired and lock_holder(target) == mine:
            target.unlink()
