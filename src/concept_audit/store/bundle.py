"""The array bundle: what a model said about one split, and all that the scores need.

A bundle is a safetensors file, which maps into memory, cannot hold code and reads into numpy and
torch alike. Arrays larger than memory are written by blocks and mapped on reading. All metadata
stand in ONE JSON string: with several keys the bytes of equal content differ between runs. A user's
`.npz` with the same array names is read by the same function.
"""

from __future__ import annotations

import difflib
import json
import math
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import to_numpy
from concept_audit.store.array_blocks import ArrayBlocks
from concept_audit.store.atomic import file_sha256
from concept_audit.store.safetensors_file import (
    map_safetensors_array,
    safetensors_header,
    write_safetensors,
)

__all__ = ["BUNDLE_ARRAYS", "Bundle", "BundleError", "read_bundle", "write_bundle"]

BUNDLE_VERSION = 1
_METADATA_KEY = "concept_audit"
_MEMORY_BYTES = 1 << 30  # larger arrays are mapped, not read

# Name -> dimensions. n rows, k concepts, l classes, m embedding width, K factors, L code size.
BUNDLE_ARRAYS: dict[str, tuple[str, ...]] = {
    "index": ("n",),  # row numbers in the data set
    "y": ("n",),
    "y_logits": ("n", "l"),
    "c": ("n", "k"),
    "c_logits": ("n", "k"),
    "c_hat": ("n", "k"),  # what the head sees: {0, 1} hard, probability soft, logit logit
    "c_pos": ("n", "k", "m"),
    "c_neg": ("n", "k", "m"),
    "c_mix": ("n", "k", "m"),
    "factors": ("n", "K"),
    "codes": ("n", "L"),
}
_INTEGER = {"index", "y", "c"}
# Texts that a user's npz may hold beside the arrays; they become metadata.
_TEXTS = {"concept_names", "class_names", "factor_names"}


class BundleError(ValueError):
    """A bundle has wrong names, shapes or kinds, or its file cannot be read."""


@dataclass(frozen=True)
class Bundle:
    """Named arrays of one split, with their metadata.

    Attributes
    ----------
    arrays : name to array, shapes as in `BUNDLE_ARRAYS`
    metadata : schema version, concept and class names, split, run key, ...
    ignored : names in the file that the schema does not know, left unread
    """

    arrays: dict[str, NDArray[Any]]
    metadata: dict[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Array by name; a missing one is an error that says what there is."""
        if name not in self.arrays:
            raise KeyError(f"no array {name!r} in the bundle, which has {sorted(self.arrays)}")
        return self.arrays[name]

    def __contains__(self, name: object) -> bool:
        return name in self.arrays

    @property
    def n_samples(self) -> int:
        """Number of rows n."""
        return int(next(iter(self.arrays.values())).shape[0])


def _check_shapes(arrays: Mapping[str, NDArray[Any] | ArrayBlocks], where: str) -> None:
    """Each array has its dimensions, and equal letters mean equal sizes."""
    sizes: dict[str, tuple[int, str]] = {}
    for name, array in arrays.items():
        dims = BUNDLE_ARRAYS[name]
        if array.ndim != len(dims):
            raise BundleError(
                f"{where}: {name} must have shape ({', '.join(dims)}), got {array.shape}."
            )
        for letter, size in zip(dims, array.shape, strict=True):
            expected, other = sizes.setdefault(letter, (size, name))
            if size != expected:
                raise BundleError(
                    f"{where}: {name} {array.shape} and {other} {arrays[other].shape} must agree "
                    f"on {letter}, got {size} and {expected}. All arrays of a bundle describe the "
                    "same rows and concepts, in the same order."
                )


def _unknown(names: Collection[str]) -> str:
    """Sentence on names outside the schema, with the nearest known ones."""
    parts = []
    for name in sorted(names):
        near = difflib.get_close_matches(name, BUNDLE_ARRAYS, n=1)
        parts.append(f"{name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    return ", ".join(parts)


def write_bundle(
    path: str | Path,
    arrays: Mapping[str, ArrayLike | ArrayBlocks],
    metadata: Mapping[str, Any],
) -> str:
    """Write a bundle atomically.

    Parameters
    ----------
    path : ends in `.safetensors`
    arrays : names and shapes of `BUNDLE_ARRAYS`; `index`, `y` and `c` hold integers. One that does
        not fit into memory comes as `ArrayBlocks`, whose values must be finite
    metadata : any JSON content: concept names, split, run key

    Returns
    -------
    SHA-256 of the file. Equal arrays and metadata give equal bytes.

    Raises
    ------
    BundleError  on no arrays, unknown names, wrong or disagreeing shapes, fractional labels, or
        blocks that are not what their source promises.
    TypeError  on arrays that hold no numbers.
    """
    target = Path(path)
    unknown = set(arrays) - set(BUNDLE_ARRAYS)
    if unknown or not arrays:
        found = f"unknown names {_unknown(unknown)}" if unknown else "no arrays"
        raise BundleError(
            f"{target.name}: a bundle holds arrays named {', '.join(BUNDLE_ARRAYS)}, got {found}."
        )
    checked: dict[str, NDArray[Any] | ArrayBlocks] = {}
    for name in BUNDLE_ARRAYS:  # schema order, so that the order of the call does not matter
        if name in arrays:
            given = arrays[name]
            array = given if isinstance(given, ArrayBlocks) else to_numpy(name, given)
            if name in _INTEGER and array.dtype.kind not in "biu":
                raise BundleError(
                    f"{target.name}: {name} must hold integers, got dtype {array.dtype}. "
                    f"Convert it with {name}.astype(int)."
                )
            checked[name] = array
    _check_shapes(checked, target.name)
    content = {**metadata, "schema_version": BUNDLE_VERSION}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    try:
        write_safetensors(target, checked, {_METADATA_KEY: text})
    except ValueError as error:
        raise BundleError(f"{target.name}: {error}") from error
    return file_sha256(target)


def read_bundle(
    path: str | Path,
    *,
    names: Collection[str] | None = None,
    required: Collection[str] = (),
) -> Bundle:
    """Read a bundle, ours (`.safetensors`) or a user's (`.npz`, never unpickled).

    Parameters
    ----------
    path : file to read
    names : arrays to read; default: all that the schema knows
    required : arrays without which the caller cannot go on

    Returns
    -------
    Bundle. Arrays that the schema does not know are left unread and listed in `ignored`. Of a
    safetensors file, an array beyond 1 GiB is a read-only memory map.

    Raises
    ------
    FileNotFoundError  if there is no such file.
    BundleError  if it cannot be read, lacks a required array or has wrong shapes.
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(
            f"no bundle at {source}. Run the model first, or give the path of a .safetensors or "
            ".npz file."
        )
    wanted = set(BUNDLE_ARRAYS if names is None else names) | set(required)
    if unknown := wanted - set(BUNDLE_ARRAYS):
        raise BundleError(
            f"names must be among {', '.join(BUNDLE_ARRAYS)}, got {_unknown(unknown)}."
        )
    if source.suffix == ".safetensors":
        arrays, metadata, present = _read_safetensors(source, wanted)
    elif source.suffix == ".npz":
        arrays, metadata, present = _read_npz(source, wanted)
    else:
        raise BundleError(
            f"{source.name}: a bundle is a .safetensors or .npz file, got suffix {source.suffix!r}."
        )
    ignored = tuple(sorted(present - set(BUNDLE_ARRAYS) - _TEXTS))
    if missing := [name for name in BUNDLE_ARRAYS if name in required and name not in arrays]:
        extra = f" Names it has that are not known: {_unknown(ignored)}." if ignored else ""
        raise BundleError(
            f"{source.name}: looked for the arrays {', '.join(sorted(required))}, found "
            f"{', '.join(sorted(arrays)) or 'none of them'}: {', '.join(missing)} missing.{extra}"
        )
    if not arrays:
        raise BundleError(
            f"{source.name}: looked for arrays named {', '.join(sorted(wanted))}, found "
            f"{_unknown(ignored) or 'nothing'}. Rename the arrays accordingly."
        )
    _check_shapes(arrays, source.name)
    return Bundle(arrays=arrays, metadata=metadata, ignored=ignored)


def _size(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Bytes of an array."""
    return math.prod(shape) * dtype.itemsize


def _read_safetensors(
    source: Path, wanted: set[str]
) -> tuple[dict[str, NDArray[Any]], dict[str, Any], set[str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(source, framework="numpy") as stream:
            text = (stream.metadata() or {}).get(_METADATA_KEY, "{}")
            present = set(stream.keys())
            places = safetensors_header(source)  # the library has checked it against the file
            arrays = {}
            for name in BUNDLE_ARRAYS:
                if name in present & wanted:
                    dtype, shape, offset = places[name]
                    large = dtype is not None and _size(dtype, shape) > _MEMORY_BYTES
                    arrays[name] = (
                        map_safetensors_array(source, dtype, shape, offset)
                        if large
                        else stream.get_tensor(name)
                    )
        metadata = json.loads(text)
    except (SafetensorError, json.JSONDecodeError, OSError) as error:
        raise BundleError(
            f"{source.name} is no readable bundle ({error}). Delete {source} and run again."
        ) from error
    version = metadata.get("schema_version", BUNDLE_VERSION)
    if version > BUNDLE_VERSION:
        raise BundleError(
            f"{source.name} has schema version {version}, this program reads up to "
            f"{BUNDLE_VERSION}. Update concept-audit."
        )
    return arrays, metadata, present


def _read_npz(
    source: Path, wanted: set[str]
) -> tuple[dict[str, NDArray[Any]], dict[str, Any], set[str]]:
    arrays: dict[str, NDArray[Any]] = {}
    metadata: dict[str, Any] = {}
    try:
        with np.load(source, allow_pickle=False) as archive:
            present = set(archive.files)
            # Only known members are opened; others, such as an object array, stay untouched.
            for name in [*BUNDLE_ARRAYS, *sorted(_TEXTS)]:
                if name not in present or (name in BUNDLE_ARRAYS and name not in wanted):
                    continue
                try:
                    array = archive[name]
                except ValueError as error:
                    raise BundleError(
                        f"{source.name}: {name} is an object array, which could hide code and is "
                        "not opened. Save it as numbers, for example with array.astype(float)."
                    ) from error
                if name in _TEXTS:
                    metadata[name] = [str(text) for text in array.ravel()]
                else:
                    arrays[name] = _numbers(source, name, array)
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"{source.name} is no readable .npz file ({error}).") from error
    return arrays, metadata, present


def _numbers(source: Path, name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "biuf":
        raise BundleError(
            f"{source.name}: {name} must hold numbers, got dtype {array.dtype}. "
            "Encode names as integers first."
        )
    return array
