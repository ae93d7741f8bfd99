"""Resume files: written whole or not at all, read without running code, never mixed up."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

from concept_audit.store.atomic import atomic_path

__all__ = ["previous_path", "read_resume", "remove_resume", "write_resume"]

_FORMAT = 1


def previous_path(path: str | Path) -> Path:
    """Where the state before the last one is kept."""
    return Path(path).with_suffix(".previous")


def write_resume(path: str | Path, identity: str, state: dict[str, Any]) -> None:
    """Write `state` atomically; the file it replaces is kept as the previous one.

    Parameters
    ----------
    path : str or Path
        Final name.
    identity : str
        Digest of members, data and recipe; a file of other ones is refused when read.
    state : dict
        Tensors, numbers, strings, lists and dictionaries.
    """
    target = Path(path)
    with atomic_path(target) as temporary:
        torch.save({"format": _FORMAT, "identity": identity, "state": state}, temporary)
        if target.exists():
            target.replace(previous_path(target))


def read_resume(path: str | Path, identity: str) -> dict[str, Any] | None:
    """State to continue from, or None when there is no file.

    A broken file is passed over with a warning and the previous one is read instead.

    Raises
    ------
    ValueError
        If the file belongs to other members, data or recipe, or no file can be read.
    """
    broken: list[str] = []
    for candidate in (Path(path), previous_path(path)):
        if not candidate.exists():
            continue
        try:
            content = torch.load(candidate, weights_only=True, map_location="cpu")
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
            broken.append(f"{candidate}: {type(error).__name__}")
            continue
        if content.get("format") != _FORMAT or content.get("identity") != identity:
            raise ValueError(
                f"{candidate} holds the training of other members, data or recipe "
                f"(identity {content.get('identity')!r}, expected {identity!r}). "
                "Delete it to start afresh, or pass another resume_path."
            )
        if broken:
            warnings.warn(
                f"resumed from {candidate}, since the newer file cannot be read ({broken[0]}).",
                stacklevel=2,
            )
        state: dict[str, Any] = content["state"]
        return state
    if broken:
        raise ValueError(
            f"no resume file can be read ({'; '.join(broken)}). Delete them to start afresh."
        )
    return None


def remove_resume(path: str | Path) -> None:
    """Delete the file and the previous one, if they exist."""
    Path(path).unlink(missing_ok=True)
    previous_path(path).unlink(missing_ok=True)
