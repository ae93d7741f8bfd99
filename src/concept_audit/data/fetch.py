"""Official files over HTTP: mirrors, resume, size and hash before anything is unpacked.

What is known about each file stands in ``checksums.toml`` beside this module. A download goes to
``<name>.part``, is resumed after a cut, and takes its final name only when size and hash are right.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, Literal

from concept_audit.data.archives import unpack
from concept_audit.data.selection import check_choice
from concept_audit.store.atomic import write_text
from concept_audit.store.locks import held_lock

__all__ = [
    "FetchError",
    "FetchedFile",
    "RemoteFile",
    "Source",
    "fetch",
    "fetch_file",
    "file_hashes",
    "load_sources",
]

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes expected
_CHUNK = 1 << 18
_HTML_STARTS = (b"<!doctype html", b"<html", b"<head", b"<?xml version")
_DEFAULT_MAX_SIZE = 20_000_000_000


class FetchError(RuntimeError):
    """A file that could not be fetched; names the file, what was expected and found, what to do."""


@dataclass(frozen=True)
class RemoteFile:
    """One official file.

    Attributes
    ----------
    name : file name below the dataset's folder
    urls : mirrors in order of preference; none for files behind a licence click
    size : exact bytes, or None; `max_size` bounds what is accepted
    md5, sha256, sha256_start : hashes that are known; `sha256_start` is a prefix
    unpack : archive format, or None; with `into` below the folder, `proof` must exist afterwards
    max_unpacked : bytes an archive may unpack to
    """

    name: str
    urls: tuple[str, ...] = ()
    size: int | None = None
    max_size: int = _DEFAULT_MAX_SIZE
    md5: str | None = None
    sha256: str | None = None
    sha256_start: str | None = None
    unpack: Literal["zip", "tar.gz"] | None = None
    into: str = "."
    proof: str | None = None
    max_unpacked: int = _DEFAULT_MAX_SIZE


@dataclass(frozen=True)
class Source:
    """A dataset or a set of weights: where it lies, on what terms, and how to get it by hand."""

    key: str
    title: str
    folder: str
    licence: str
    citation: str
    manual: str
    files: tuple[RemoteFile, ...]


@dataclass(frozen=True)
class FetchedFile:
    """What `fetch` did with a file: its place, size, SHA-256, and whether it was there already."""

    path: Path
    size: int
    sha256: str
    was_there: bool


def load_sources(path: str | Path | None = None) -> dict[str, Source]:
    """Everything `checksums.toml` lists, by key."""
    if path is None:
        text = package_files("concept_audit.data").joinpath("checksums.toml").read_text("utf-8")
    else:
        text = Path(path).read_text("utf-8")
    sources = {}
    for key, entry in tomllib.loads(text).items():
        listed = tuple(
            RemoteFile(**{**file, "urls": tuple(file.get("urls", ()))})
            for file in entry.pop("files")
        )
        sources[key] = Source(key=key, files=listed, **entry)
    return sources


def file_hashes(path: str | Path) -> dict[str, str]:
    """MD5 and SHA-256 of a file, read once."""
    digests = {"md5": hashlib.md5(usedforsecurity=False), "sha256": hashlib.sha256()}
    with Path(path).open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            for digest in digests.values():
                digest.update(chunk)
    return {name: digest.hexdigest() for name, digest in digests.items()}


def _mismatch(file: RemoteFile, path: Path) -> tuple[str | None, str]:
    """What is wrong with a file (None: nothing), and its SHA-256."""
    size = path.stat().st_size
    hashes = file_hashes(path)
    sha256 = hashes["sha256"]
    with path.open("rb") as stream:
        head = stream.read(512).lstrip().lower()
    if head.startswith(_HTML_STARTS) and not file.name.endswith((".html", ".xml")):
        return "found a web page (HTML) instead of the file: the link has moved", sha256
    for label, expected, found in (
        ("bytes", file.size, size),
        ("MD5", file.md5, hashes["md5"]),
        ("SHA-256", file.sha256, sha256),
        ("a SHA-256 beginning with", file.sha256_start, sha256[: len(file.sha256_start or "")]),
    ):
        if expected is not None and expected != found:
            return f"expected {label} {expected}, found {found} ({size} bytes)", sha256
    return None, sha256


class _HttpOnly(urllib.request.HTTPRedirectHandler):
    """Redirects stay on HTTP: urllib would also follow them to FTP."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if not newurl.startswith(("http://", "https://")):
            raise urllib.error.HTTPError(newurl, code, "redirect to another protocol", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _receive(
    url: str, part: Path, file: RemoteFile, progress: Progress | None, timeout_s: float
) -> bool:
    """One connection: append to `part`; True when the server's content is complete."""
    start = part.stat().st_size if part.exists() else 0
    if file.size is not None and start > file.size:
        part.unlink()
        start = 0
    request = urllib.request.Request(url, headers={"User-Agent": "concept-audit"})
    tag = part.with_name(part.name + ".etag")
    if start:
        request.add_header("Range", f"bytes={start}-")
        if tag.exists():  # the server sends the whole file again if it has changed since
            request.add_header("If-Range", tag.read_text())
    opener = urllib.request.build_opener(_HttpOnly)
    with opener.open(request, timeout=timeout_s) as answer:
        continued = answer.status == 206
        span = answer.headers.get("Content-Range", "")
        if continued and not span.startswith(f"bytes {start}-"):
            raise http.client.HTTPException(f"asked for bytes from {start}, got {span!r}")
        if not continued:
            start = 0
        etag = answer.headers.get("ETag")
        if etag and not etag.startswith("W/"):
            write_text(tag, etag)
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else file.size
        limit = file.size if file.size is not None else file.max_size
        if total is not None and total > limit:
            raise FetchError(
                f"{file.name}: expected at most {limit} bytes, the server announces {total}."
            )
        received = start
        with part.open("ab" if continued else "wb") as stream:
            while chunk := answer.read(_CHUNK):
                received += len(chunk)
                if received > limit:
                    raise FetchError(f"{file.name}: expected at most {limit} bytes, found more.")
                stream.write(chunk)
                if progress is not None:
                    progress(file.name, received, total)
        return total is None or received >= total


def _try_mirror(
    url: str,
    part: Path,
    file: RemoteFile,
    progress: Progress | None,
    timeout_s: float,
    attempts: int,
) -> str | None:
    """Why a mirror did not give the whole file; None when `part` is complete."""
    fault = "no attempt made"
    for _ in range(attempts):
        try:
            if _receive(url, part, file, progress, timeout_s):
                return None
            fault = f"the connection was cut after {part.stat().st_size} bytes"
        except urllib.error.HTTPError as error:
            fault = f"HTTP {error.code} {error.reason}"
            error.close()
            if error.code == 416:  # the part is longer than the file: start again
                part.unlink(missing_ok=True)
                continue
            if error.code < 500:
                return fault
        except FetchError as error:
            part.unlink(missing_ok=True)
            return str(error)
        except (TimeoutError, urllib.error.URLError, http.client.HTTPException, OSError) as error:
            fault = f"{type(error).__name__}: {getattr(error, 'reason', error)}"
    return f"{fault} ({attempts} attempts)"


def fetch_file(
    file: RemoteFile,
    folder: str | Path,
    *,
    progress: Progress | None = None,
    timeout_s: float = 60.0,
    attempts: int = 3,
) -> FetchedFile:
    """Bring one file into a folder, unless it is there with the right hash.

    Parameters
    ----------
    file, folder : what and where
    progress : called with the name, the bytes so far and the bytes expected (None: unknown)
    timeout_s : seconds without a byte after which a connection counts as cut
    attempts : connections per mirror; each goes on where the last one stopped

    Raises
    ------
    FetchError  when no mirror gives a file of the right size and hash; lists what each gave. A
    wrong file never takes the final name, and a file that is there is replaced only by a right one.
    """
    path = Path(folder) / file.name
    found_before = ""
    if path.exists():
        fault, sha256 = _mismatch(file, path)
        if fault is None:
            return FetchedFile(path, path.stat().st_size, sha256, was_there=True)
        found_before = f" The file that lies there is another one: {fault}."
    if not file.urls:
        raise FetchError(f"{path} cannot be downloaded by a program.{found_before}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if file.size is not None and shutil.disk_usage(path.parent).free < file.size:
        free = shutil.disk_usage(path.parent).free
        raise FetchError(f"{path} needs {file.size} bytes, {free} are free. Make room first.")
    part = path.with_name(path.name + ".part")
    faults = []
    for url in file.urls:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"urls must be http or https, got {url!r} for {file.name}.")
        fault = _try_mirror(url, part, file, progress, timeout_s, attempts)
        if fault is None:
            fault, sha256 = _mismatch(file, part)
            if fault is None:
                part.replace(path)
                _forget_tag(part)
                return FetchedFile(path, path.stat().st_size, sha256, was_there=False)
            part.unlink()  # a wrong file is no start for a right one
            fault += f"; its SHA-256 is {sha256}"
        _forget_tag(part)
        faults.append(f"{url}: {fault}")
    raise FetchError(f"{file.name} could not be fetched.{found_before} " + " | ".join(faults))


def _forget_tag(part: Path) -> None:
    part.with_name(part.name + ".etag").unlink(missing_ok=True)


def fetch(
    key: str,
    data_dir: str | Path = "data",
    *,
    sources: Mapping[str, Source] | None = None,
    progress: Progress | None = None,
    timeout_s: float = 60.0,
    attempts: int = 3,
) -> list[FetchedFile]:
    """Fetch, check and unpack everything of one dataset.

    Parameters
    ----------
    key : a key of `load_sources`, for example ``dsprites``
    data_dir : files go to ``raw/<folder>`` below it
    sources : what is known, default `load_sources`
    progress, timeout_s, attempts : as `fetch_file`

    Returns
    -------
    One entry per file, in the order listed.

    Raises
    ------
    ValueError  on an unknown key, with the nearest match.
    FetchError  when a file cannot be had, with instructions to get it by hand.
    ArchiveError  when an archive must not or cannot be unpacked; the folder is then as it was.
    """
    known = dict(sources) if sources is not None else load_sources()
    check_choice("data", key, sorted(known))
    source = known[key]
    folder = Path(data_dir) / "raw" / source.folder
    fetched = []
    with held_lock(folder / ".fetch.lock", wait_s=0) as mine:
        if not mine:
            raise FetchError(f"Another process is fetching {key} into {folder}. Wait for it.")
        for file in source.files:
            try:
                done = fetch_file(
                    file, folder, progress=progress, timeout_s=timeout_s, attempts=attempts
                )
            except FetchError as error:
                raise FetchError(
                    f"{error} By hand: {source.manual} Put the file into {folder} and run "
                    f"'concept-audit fetch data={key}' again: it checks and unpacks what is there."
                ) from error
            fetched.append(done)
            if file.unpack is not None:
                _unpack_once(done, file, folder)
    return fetched


def _unpack_once(done: FetchedFile, file: RemoteFile, folder: Path) -> None:
    """Unpack unless the note beside the archive says that this very file was unpacked."""
    note = folder / f".{file.name}.unpacked"
    target = folder / file.into
    there = file.proof is None or (target / file.proof).exists()
    if there and note.exists() and note.read_text() == done.sha256:
        return
    assert file.unpack is not None
    unpack(done.path, target, kind=file.unpack, max_bytes=file.max_unpacked, proof=file.proof)
    write_text(note, done.sha256)
