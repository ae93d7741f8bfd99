"""Safetensors files written block by block and mapped: arrays larger than memory pass through.

The library's own writer takes whole arrays. The format is eight bytes with the length of a JSON
header (unsigned, little endian), the header padded with spaces to a multiple of eight, then the
arrays' bytes, little endian and in C order, at the offsets of the header. For equal arrays the
bytes here are those of the library.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concept_audit.store.array_blocks import ArrayBlocks
from concept_audit.store.atomic import atomic_path

__all__ = ["map_safetensors_array", "safetensors_header", "write_safetensors"]

# Names of the format, in the order in which the library lays the arrays out: wide kinds first, so
# that every array is aligned.
_KINDS = {
    "u8": "U64", "i8": "I64", "f8": "F64", "f4": "F32", "u4": "U32", "i4": "I32",
    "f2": "F16", "u2": "U16", "i2": "I16", "i1": "I8", "u1": "U8", "b1": "BOOL",
}  # fmt: skip
_ORDER = {kind: place for place, kind in enumerate(_KINDS)}
_DTYPES = {name: np.dtype(f"<{kind}") for kind, name in _KINDS.items()}
_WRITTEN_BYTES = 1 << 25  # of a whole array, converted and written at a time


def _kind(name: str, dtype: np.dtype[Any]) -> str:
    kind = f"{dtype.kind}{dtype.itemsize}"
    if kind not in _KINDS:
        raise TypeError(
            f"{name} has dtype {dtype}, which a safetensors file cannot hold. "
            f"Convert it, for example with {name}.astype(np.float64)."
        )
    return kind


def _pieces(name: str, array: NDArray[Any] | ArrayBlocks) -> Iterator[NDArray[Any]]:
    if isinstance(array, ArrayBlocks):
        yield from array.checked(name)
    elif array.ndim == 0 or array.nbytes <= _WRITTEN_BYTES:
        yield array
    else:
        rows = max(1, _WRITTEN_BYTES * len(array) // array.nbytes)
        for start in range(0, len(array), rows):
            yield array[start : start + rows]


def write_safetensors(
    path: str | Path,
    arrays: Mapping[str, NDArray[Any] | ArrayBlocks],
    metadata: Mapping[str, str],
) -> None:
    """Write arrays atomically; no more than one block of one array is copied at a time.

    Parameters
    ----------
    path : the file
    arrays : whole arrays, or sources of blocks
    metadata : texts; with more than one key the library's bytes differ from call to call

    Raises
    ------
    TypeError  on a kind that the format lacks, for example complex numbers.
    ValueError  when a source does not give what it promises. No file is left then.
    """
    kinds = {name: _kind(name, array.dtype) for name, array in arrays.items()}
    names = sorted(arrays, key=lambda name: (_ORDER[kinds[name]], name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        start, end = end, end + arrays[name].nbytes
        header[name] = {
            "dtype": _KINDS[kinds[name]],
            "shape": list(arrays[name].shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            little = arrays[name].dtype.newbyteorder("<")
            for piece in _pieces(name, arrays[name]):
                # The buffer itself: `tobytes` would copy once more.
                stream.write(
                    np.ascontiguousarray(piece, dtype=little).reshape(-1).view(np.uint8).data
                )


def safetensors_header(path: str | Path) -> dict[str, Any]:
    """Header of a file that the library has opened without complaint, with each array's offset.

    Returns
    -------
    dict from name to (dtype, shape, position of the first byte in the file)
    """
    with Path(path).open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    return {
        name: (
            _DTYPES.get(item["dtype"]),
            tuple(item["shape"]),
            8 + length + item["data_offsets"][0],
        )
        for name, item in header.items()
    }


def map_safetensors_array(
    path: str | Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int
) -> NDArray[Any]:
    """Read-only map of one array of the file; its pages are read as they are used."""
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)
