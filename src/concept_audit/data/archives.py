"""Unpacking that a hostile archive cannot abuse: no path escape, no links, no bomb, no half."""

from __future__ import annotations

import os
import secrets
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Literal

__all__ = ["ArchiveError", "unpack"]

_MAX_MEMBERS = 200_000
_CHUNK = 1 << 20


class ArchiveError(ValueError):
    """An archive that cannot or must not be unpacked; names archive, entry and reason."""

    def __init__(self, archive: Path, reason: str) -> None:
        super().__init__(
            f"{archive}: {reason}. Nothing was unpacked. Delete the archive and fetch it again."
        )


def _safe_parts(archive: Path, name: str) -> tuple[str, ...]:
    """Parts of a member's path, if it stays inside the target folder."""
    pure = PurePosixPath(name)
    windows = "\\" in name or (len(name) > 1 and name[1] == ":")
    if pure.is_absolute() or ".." in pure.parts or windows or "\0" in name:
        raise ArchiveError(archive, f"the entry {name!r} points outside the folder")
    return tuple(part for part in pure.parts if part not in ("", "."))


_Members = Generator[tuple[str, bool, IO[bytes]], None, None]


def _zip_members(archive: Path, opened: zipfile.ZipFile) -> _Members:
    for info in opened.infolist():
        kind = (info.external_attr >> 16) & 0o170000
        if kind not in (0, 0o100000, 0o040000):
            raise ArchiveError(archive, f"the entry {info.filename!r} is a link or a device")
        with opened.open(info) as stream:
            yield info.filename, info.is_dir(), stream


def _tar_members(archive: Path, opened: tarfile.TarFile) -> _Members:
    for info in opened:
        if not (info.isfile() or info.isdir()):
            raise ArchiveError(archive, f"the entry {info.name!r} is a link or a device")
        stream = opened.extractfile(info) if info.isfile() else None
        yield info.name, info.isdir(), stream  # type: ignore[misc]


@contextmanager
def _members(archive: Path, kind: Literal["zip", "tar.gz"]) -> Iterator[_Members]:
    if kind == "zip":
        with (
            zipfile.ZipFile(archive) as opened,
            closing(_zip_members(archive, opened)) as members,
        ):
            yield members
    else:
        with (
            tarfile.open(archive, "r:gz") as opened_tar,
            closing(_tar_members(archive, opened_tar)) as members,
        ):
            yield members


def _extract(archive: Path, kind: Literal["zip", "tar.gz"], draft: Path, max_bytes: int) -> None:
    """Write all members below `draft`, counting the bytes that really come out."""
    written, count, files = 0, 0, set()
    with _members(archive, kind) as members:
        for name, is_folder, stream in members:
            parts = _safe_parts(archive, name)
            count += 1
            if count > _MAX_MEMBERS:
                raise ArchiveError(archive, f"it has more than {_MAX_MEMBERS} entries")
            if not parts:
                continue
            path = draft.joinpath(*parts)
            if is_folder:
                path.mkdir(parents=True, exist_ok=True)
                continue
            if parts in files:
                raise ArchiveError(archive, f"the entry {name!r} occurs twice")
            files.add(parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as target:
                while chunk := stream.read(_CHUNK):
                    written += len(chunk)
                    if written > max_bytes:
                        raise ArchiveError(archive, f"it unpacks to more than {max_bytes} bytes")
                    target.write(chunk)


def unpack(
    archive: str | Path,
    folder: str | Path,
    *,
    kind: Literal["zip", "tar.gz"],
    max_bytes: int,
    proof: str | None = None,
) -> None:
    """Unpack an archive into a folder, completely or not at all.

    Parameters
    ----------
    archive, kind : the file and its format
    folder : gets the archive's top-level entries, replacing those of the same name
    max_bytes : refuse to write more than this
    proof : path below `folder` that must exist afterwards

    Raises
    ------
    ArchiveError  on an entry outside the folder, a link or device, too many bytes or entries,
    damage, or a missing `proof`. The folder is then as it was.
    """
    source, target = Path(archive), Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    draft = target / f".unpacking.{os.getpid()}.{secrets.token_hex(4)}"
    draft.mkdir()
    try:
        try:
            _extract(source, kind, draft, max_bytes)
        except (
            zipfile.BadZipFile,
            tarfile.TarError,
            zlib.error,
            EOFError,
            OSError,
            RuntimeError,
        ) as error:  # RuntimeError: an encrypted zip
            raise ArchiveError(source, f"it is damaged or the disk is full ({error})") from error
        if proof is not None and not (draft / proof).exists():
            found = sorted(path.name for path in draft.iterdir())[:5]
            raise ArchiveError(source, f"expected {proof!r} inside, found {found}")
        _move_all(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _move_all(draft: Path, target: Path) -> None:
    """Rename the top-level entries into place; on a fault put back what was there."""
    old = draft.with_name(draft.name + ".old")
    old.mkdir()
    moved: list[str] = []
    try:
        for entry in sorted(draft.iterdir()):
            place = target / entry.name
            if place.exists():
                place.rename(old / entry.name)
            moved.append(entry.name)
            entry.rename(place)
    except OSError:
        for name in moved:
            if (target / name).exists():
                (target / name).rename(draft / name)
            if (old / name).exists():
                (old / name).rename(target / name)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
