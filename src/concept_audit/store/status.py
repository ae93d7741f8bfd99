"""Whether a run is done: `status.json` in its folder, with the hash of every file it made."""

from __future__ import annotations

import json
import os
import socket
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from concept_audit.store.atomic import file_sha256, write_json

__all__ = [
    "Status",
    "is_done",
    "mark_done",
    "mark_failed",
    "mark_running",
    "read_status",
    "verify_files",
]

_FILE = "status.json"
State = Literal["running", "done", "failed"]


@dataclass(frozen=True)
class Status:
    """State of a run.

    Attributes
    ----------
    state : running, done or failed
    files : path relative to the run's folder, to SHA-256; only for done
    error : traceback of a failed run
    time : when the state was written, ISO 8601, UTC
    info : whatever the stage added
    """

    state: State
    time: str
    files: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    info: dict[str, Any] = field(default_factory=dict)


def _write(
    run_dir: Path,
    state: State,
    *,
    info: Mapping[str, Any],
    files: Mapping[str, str] | None = None,
    error: str | None = None,
) -> None:
    content = {
        "state": state,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": dict(files or {}),
        "error": error,
        "info": dict(info),
    }
    write_json(run_dir / _FILE, content)


def mark_running(run_dir: str | Path, **info: Any) -> None:
    """Say that a process on this machine works on the run."""
    _write(
        Path(run_dir),
        "running",
        info={"host": socket.gethostname(), "pid": os.getpid(), **info},
    )


def mark_done(run_dir: str | Path, files: Iterable[str | Path], **info: Any) -> None:
    """Say that the run is complete; call it last, after every listed file is written.

    Parameters
    ----------
    run_dir : folder of the run
    files : files inside it, absolute or relative to it; each is hashed

    Raises
    ------
    FileNotFoundError  if a listed file does not exist.
    ValueError  if a listed file lies outside the folder.
    """
    folder = Path(run_dir)
    hashes = {}
    for file in files:
        path = Path(file)
        path = path if path.is_absolute() else _inside(folder, path)
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"files must lie in the run's folder {folder}, got {path}.")
        if not path.is_file():
            raise FileNotFoundError(f"the run cannot be marked done: {path} does not exist.")
        hashes[path.resolve().relative_to(folder.resolve()).as_posix()] = file_sha256(path)
    _write(folder, "done", info=info, files=hashes)


def _inside(folder: Path, path: Path) -> Path:
    """A relative path is meant from the run's folder, or already leads into it."""
    return path if path.resolve().is_relative_to(folder.resolve()) else folder / path


def mark_failed(run_dir: str | Path, error: BaseException | str, **info: Any) -> None:
    """Say that the run failed, and keep the traceback."""
    text = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    _write(Path(run_dir), "failed", info=info, error=text)


def read_status(run_dir: str | Path) -> Status | None:
    """State of a run, or None if none was written or the file is damaged."""
    try:
        content = json.loads((Path(run_dir) / _FILE).read_text())
        return Status(
            state=content["state"],
            time=content["time"],
            files=content["files"],
            error=content["error"],
            info=content["info"],
        )
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        return None  # as good as not done: the run is computed again


def verify_files(run_dir: str | Path) -> list[str]:
    """What is wrong with the files of a run, in words; empty when all match their hashes."""
    folder = Path(run_dir)
    status = read_status(folder)
    if status is None:
        return [f"{folder / _FILE} is missing or damaged"]
    faults = []
    for name, expected in status.files.items():
        path = folder / name
        if not path.is_file():
            faults.append(f"{path} is missing")
        elif file_sha256(path) != expected:
            faults.append(f"{path} has changed since it was written")
    return faults


def is_done(run_dir: str | Path) -> bool:
    """True if the run says it is done and every file it lists is there, unchanged."""
    status = read_status(run_dir)
    return status is not None and status.state == "done" and not verify_files(run_dir)
