"""Readers of official files: they never unpickle, stream what is large, and name every fault.

Every fault of a file is a `DatasetFileError` that names the file, what was expected, what was
found and the command that puts it right; an absent file is a `DatasetMissingError`.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from concept_audit.store.atomic import atomic_path, write_json

__all__ = [
    "DatasetFileError",
    "DatasetMissingError",
    "file_stamp",
    "map_npz_array",
    "raise_missing",
    "read_h5_rows",
    "read_npz_rows",
    "rows_digest",
]

_BLOCK_BYTES = 1 << 25  # read at a time


class DatasetFileError(ValueError):
    """A data file that is not what it should be.

    Attributes
    ----------
    path : the file
    expected, found : what the loader needs and what the file holds
    remedy : what to do, usually a command
    """

    def __init__(self, path: str | Path, *, expected: str, found: str, remedy: str) -> None:
        self.path, self.expected, self.found, self.remedy = Path(path), expected, found, remedy
        super().__init__(f"{path}: expected {expected}, found {found}. {remedy}")


class DatasetMissingError(FileNotFoundError):
    """A data file that is not there; the message names the command that fetches it."""


def raise_missing(path: str | Path, dataset: str, *, standin: str | None = None) -> NoReturn:
    """Raise DatasetMissingError with the command that fetches `dataset`, and the stand-in."""
    data_dir = next(
        (each.parent for each in Path(path).parents if each.name == "raw"), Path("data")
    )
    place = "" if data_dir == Path("data") else f" data_dir={data_dir}"
    other = f" Or train on the drawn stand-in: data={standin}." if standin else ""
    raise DatasetMissingError(
        f"{path} is missing: {dataset} is not in the data folder. "
        f"Run: concept-audit fetch data={dataset}{place}.{other}"
    )


def _header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"npy format version {version}")
    return read(stream)


def _checked_header(
    stream: Any, path: Path, label: str, shape: tuple[int, ...], kinds: str, remedy: str
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    found_shape, fortran, dtype = _header(stream)
    if dtype.hasobject:
        raise DatasetFileError(
            path,
            expected=f"numbers in {label!r}",
            found="Python objects, which are never unpickled because they may run code",
            remedy=remedy,
        )
    if found_shape != shape or dtype.kind not in kinds or fortran:
        raise DatasetFileError(
            path,
            expected=f"{label!r} of shape {shape} in C order, dtype kind {kinds!r}",
            found=f"shape {found_shape}, dtype {dtype}, {'Fortran' if fortran else 'C'} order",
            remedy=remedy,
        )
    return found_shape, dtype


def read_npz_rows(
    path: str | Path,
    name: str,
    rows: NDArray[np.integer] | None,
    *,
    shape: tuple[int, ...],
    kinds: str,
    remedy: str,
) -> NDArray[Any]:
    """Chosen rows of one array of an npz, read as a stream: the whole is never held in memory.

    Parameters
    ----------
    path, name : the file and the array's name; no other array is touched
    rows : ascending row numbers; None takes all
    shape, kinds : what the array must be; `kinds` are numpy kind letters, for example ``"u"``
    remedy : sentence for the error message

    Raises
    ------
    DatasetFileError  on a file that is no npz, a missing name, another shape or dtype, Python
    objects, or data that end early or fail their checksum.
    """
    file = Path(path)
    with (
        _damage_named(file, name, remedy),
        zipfile.ZipFile(file) as archive,
        archive.open(_member(archive, file, name, remedy)) as stream,
    ):
        found_shape, dtype = _checked_header(stream, file, name, shape, kinds, remedy)
        return _stream_rows(stream, found_shape, dtype, rows)


@contextmanager
def _damage_named(file: Path, name: str, remedy: str) -> Iterator[None]:
    """Turn the errors of a broken npz into a DatasetFileError."""
    try:
        yield
    except (DatasetFileError, FileNotFoundError):
        raise
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        OSError,
        KeyError,
        struct.error,
        RuntimeError,  # an encrypted or unknown kind of compression
    ) as error:
        raise DatasetFileError(
            file,
            expected=f"a whole npz file with {name!r}",
            found=f"damage ({error})",
            remedy=remedy,
        ) from error


def _member(archive: zipfile.ZipFile, file: Path, name: str, remedy: str) -> zipfile.ZipInfo:
    """Entry of an array in the archive."""
    members = {Path(member).stem: member for member in archive.namelist()}
    if name not in members:
        raise DatasetFileError(
            file, expected=f"an array {name!r}", found=f"arrays {sorted(members)}", remedy=remedy
        )
    return archive.getinfo(members[name])


def map_npz_array(
    path: str | Path,
    name: str,
    *,
    shape: tuple[int, ...],
    kinds: str,
    remedy: str,
    unpacked_dir: str | Path,
) -> NDArray[Any]:
    """Memory map of a large array of an npz; a compressed one is unpacked once into a folder.

    Arguments as `read_npz_rows`. An npz stores its arrays uncompressed unless asked otherwise, and
    then the map points into the npz itself.
    """
    file = Path(path)
    with _damage_named(file, name, remedy), zipfile.ZipFile(file) as archive:
        info = _member(archive, file, name, remedy)
        if info.compress_type == zipfile.ZIP_STORED:
            with archive.open(info) as stream:
                _, dtype = _checked_header(stream, file, name, shape, kinds, remedy)
                length = stream.tell()
            with file.open("rb") as raw:
                raw.seek(info.header_offset + 26)  # local header: lengths of its name and extras
                sizes = int.from_bytes(raw.read(2), "little") + int.from_bytes(
                    raw.read(2), "little"
                )
            offset = info.header_offset + 30 + sizes + length
            wanted = offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            if wanted > file.stat().st_size:
                raise EOFError("data end early")
            return np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=shape)
    target = Path(unpacked_dir) / f"{file.stem}-{name}.npy"
    stamp = [*file_stamp(file), list(shape)]
    note = target.with_suffix(".json")
    if not _is_unpacked(target, note, stamp):
        with (
            _damage_named(file, name, remedy),
            zipfile.ZipFile(file) as archive,
            archive.open(_member(archive, file, name, remedy)) as stream,
            atomic_path(target) as temporary,
        ):
            _, dtype = _checked_header(stream, file, name, shape, kinds, remedy)
            written = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=shape)
            flat = written.reshape(shape[0], -1)
            per_block = max(1, _BLOCK_BYTES // max(1, flat.shape[1] * dtype.itemsize))
            for start in range(0, shape[0], per_block):
                rows = flat[start : start + per_block]
                buffer = stream.read(rows.nbytes)
                if len(buffer) != rows.nbytes:
                    raise EOFError(f"data end after row {start}")
                rows[...] = np.frombuffer(buffer, dtype=dtype).reshape(rows.shape)
            if stream.read(1):  # also makes zipfile compare its checksum at the end
                raise ValueError("more data than the shape says")
            written.flush()
        write_json(note, stamp)
    return np.load(target, mmap_mode="r", allow_pickle=False)


def _is_unpacked(target: Path, note: Path, stamp: list[Any]) -> bool:
    """Whether the unpacked copy belongs to the npz and can be mapped."""
    try:
        if json.loads(note.read_text(encoding="utf-8")) != stamp:
            return False
        np.load(target, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):  # absent, or damaged since: unpacked again
        return False
    return True


def _stream_rows(
    stream: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    rows: NDArray[np.integer] | None,
) -> NDArray[Any]:
    row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    per_block = max(1, _BLOCK_BYTES // max(1, row_bytes))
    wanted = np.arange(shape[0]) if rows is None else np.asarray(rows)
    result = np.empty((len(wanted), *shape[1:]), dtype=dtype)
    for start in range(0, shape[0], per_block):
        stop = min(start + per_block, shape[0])
        buffer = stream.read((stop - start) * row_bytes)
        if len(buffer) != (stop - start) * row_bytes:
            raise EOFError(
                f"data end in row {start + len(buffer) // max(1, row_bytes)} of {shape[0]}"
            )
        first, last = np.searchsorted(wanted, [start, stop])
        if last > first:
            block = np.frombuffer(buffer, dtype=dtype).reshape(-1, *shape[1:])
            result[first:last] = block[wanted[first:last] - start]
    if stream.read(1):  # also makes zipfile compare its checksum at the end
        raise ValueError("more data than the shape says")
    return result


def read_h5_rows(
    path: str | Path,
    name: str,
    rows: NDArray[np.integer] | None,
    *,
    shape: tuple[int, ...],
    kinds: str,
    remedy: str,
) -> NDArray[Any]:
    """Chosen rows of one dataset of an HDF5 file, by blocks; arguments as `read_npz_rows`."""
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Reading HDF5 files needs h5py: pip install 'concept-audit[pipeline]'."
        ) from error

    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist. {remedy}")
    try:
        with h5py.File(file, "r") as opened:
            if name not in opened or not isinstance(opened[name], h5py.Dataset):
                raise DatasetFileError(
                    file, expected=f"a dataset {name!r}", found=f"{sorted(opened)}", remedy=remedy
                )
            dataset = opened[name]
            if dataset.shape != shape or dataset.dtype.kind not in kinds:
                raise DatasetFileError(
                    file,
                    expected=f"{name!r} of shape {shape}, dtype kind {kinds!r}",
                    found=f"shape {dataset.shape}, dtype {dataset.dtype}",
                    remedy=remedy,
                )
            wanted = np.arange(shape[0]) if rows is None else np.asarray(rows)
            result = np.empty((len(wanted), *shape[1:]), dtype=dataset.dtype)
            row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dataset.dtype.itemsize
            per_block = max(1, _BLOCK_BYTES // max(1, row_bytes))
            for start in range(0, shape[0], per_block):
                first, last = np.searchsorted(wanted, [start, start + per_block])
                if last > first:
                    block = dataset[start : start + per_block]
                    result[first:last] = block[wanted[first:last] - start]
            return result
    except DatasetFileError:
        raise
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        raise DatasetFileError(
            file,
            expected=f"a whole HDF5 file with {name!r}",
            found=f"damage ({error})",
            remedy=remedy,
        ) from error


def rows_digest(rows: NDArray[np.integer]) -> str:
    """Short hash of row numbers, for the keys of cached arrays."""
    return sha256(np.ascontiguousarray(rows, dtype=np.int64).tobytes()).hexdigest()[:16]


def file_stamp(path: str | Path) -> list[Any]:
    """Name, size and modification time of a file: changes when the file is replaced."""
    stat = Path(path).stat()
    return [Path(path).name, stat.st_size, stat.st_mtime_ns]
