"""ConceptDataset: inputs, concepts and labels as arrays that carry their names and splits."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concept_audit.arrays import as_binary_concepts, as_labels, check_same_rows

__all__ = ["ConceptDataset"]

_ROWS_PER_BLOCK = 4096  # rows hashed at a time, so that a memory map is never read as a whole


@dataclass(frozen=True, eq=False)
class ConceptDataset:
    """Inputs with annotated concepts, a task label, names for all of them, and fixed splits.

    Everything downstream reads sizes and names from here; a new dataset is one function that
    returns this class.

    Parameters
    ----------
    name : str
        Short name used in tables, for example ``tabulartoy_d025``.
    x : Shaped[ndarray, "n ..."]
        Float32 tables ``(n, d)`` or uint8 images ``(n, H, W, C)``. A large set may pass any object
        with ``__len__``, ``shape``, ``dtype`` and ``__getitem__`` of an index array.
    c : Int[ndarray, "n k"]
        Annotated concepts, 0 or 1; ``k`` may be 0 for a set that has factors only.
    y : Int[ndarray, "n"]
        Class index.
    concept_names, class_names : tuple of str
        Unique names, one per column of `c` and one per class.
    splits : dict of str to Int[ndarray, "rows"]
        Row indices of ``train``, ``val`` and ``test``; disjoint.
    concept_groups : dict of str to tuple of int, optional
        Columns of `c` that are intervened on together; one group per concept by default.
    standin : bool
        True for drawn imitations of a real dataset; every result carries the flag.
    factors : Int[ndarray, "n K"], optional
        Class indices of the generating factors, with `factor_names`, `factor_sizes` (number of
        values) and `factor_kinds` (``categorical`` or ``continuous``).
    mean, std : tuple of float, optional
        Per-channel constants that normalise images in [0, 1].
    notes : tuple of str
        Sentences that reports print beside results.
    content_digest : str, optional
        Hash of the files behind a lazy `x`; the fingerprint uses it instead of reading `x`.

    Raises
    ------
    ValueError
        When rows, names, groups, splits or factors do not fit together; the message names the
        field, the rule, the value and the remedy.
    """

    name: str
    x: Any
    c: NDArray[np.int64]
    y: NDArray[np.int64]
    concept_names: tuple[str, ...]
    class_names: tuple[str, ...]
    splits: dict[str, NDArray[np.int64]]
    concept_groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    standin: bool = False
    factors: NDArray[np.int64] | None = None
    factor_names: tuple[str, ...] = ()
    factor_sizes: tuple[int, ...] = ()
    factor_kinds: tuple[str, ...] = ()
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    notes: tuple[str, ...] = ()
    content_digest: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name must not be empty: tables and folders are labelled with it.")
        y = as_labels("y", self.y)
        c = _concepts(self.c, n=len(y))
        _check_x(self.x)
        check_same_rows(x=np.broadcast_to(np.float32(0), self.x.shape), c=c, y=y)
        self._set(c=c, y=y)
        for label in ("concept_names", "class_names", "factor_names", "factor_kinds", "notes"):
            self._set(**{label: tuple(str(value) for value in getattr(self, label))})
        self._set(factor_sizes=tuple(int(size) for size in self.factor_sizes))
        _check_names("concept_names", self.concept_names, c.shape[1], "columns of c")
        _check_classes(y, self.class_names)
        if not self.concept_groups:
            self._set(concept_groups={name: (i,) for i, name in enumerate(self.concept_names)})
        else:
            groups = {str(g): tuple(int(i) for i in cs) for g, cs in self.concept_groups.items()}
            self._set(concept_groups=groups)
            _check_groups(groups, c.shape[1])
        self._set(splits=_checked_splits(self.splits, len(y)))
        self._check_factors()
        self._check_normalisation()

    def _set(self, **values: Any) -> None:
        for label, value in values.items():
            object.__setattr__(self, label, value)

    def _check_factors(self) -> None:
        if self.factors is None:
            if self.factor_names or self.factor_sizes or self.factor_kinds:
                raise ValueError(
                    "factor_names, factor_sizes and factor_kinds need factors: pass them."
                )
            return
        factors = as_binary_concepts("factors", self.factors)
        check_same_rows(factors=factors, y=self.y)
        self._set(factors=factors)
        n_factors = factors.shape[1]
        _check_names("factor_names", self.factor_names, n_factors, "columns of factors")
        for label in ("factor_sizes", "factor_kinds"):
            if len(getattr(self, label)) != n_factors:
                raise ValueError(
                    f"{label} must have one entry per factor: got {len(getattr(self, label))} for "
                    f"{n_factors} factors."
                )
        unknown = sorted(set(self.factor_kinds) - {"categorical", "continuous"})
        if unknown:
            raise ValueError(f"factor_kinds must be 'categorical' or 'continuous', got {unknown}.")
        for label, size, column in zip(
            self.factor_names, self.factor_sizes, factors.T, strict=True
        ):
            if column.min() < 0 or column.max() >= size:
                raise ValueError(
                    f"factor {label!r} must hold indices 0..{size - 1}, got {column.min()} to "
                    f"{column.max()}. Correct factor_sizes or encode the values from 0."
                )

    def _check_normalisation(self) -> None:
        if (self.mean is None) != (self.std is None):
            raise ValueError("mean and std go together: pass both or neither.")
        if self.mean is None or self.std is None:
            return
        channels = int(self.x.shape[-1])
        self._set(mean=tuple(map(float, self.mean)), std=tuple(map(float, self.std)))
        if len(self.mean) != channels or len(self.std) != channels or min(self.std) <= 0:
            raise ValueError(
                f"mean and std need one value per channel and std > 0: got {self.mean} and "
                f"{self.std} for {channels} channels."
            )

    @property
    def n_samples(self) -> int:
        """Number of rows over all splits."""
        return len(self.y)

    @property
    def n_concepts(self) -> int:
        """Number of annotated concepts, k."""
        return int(self.c.shape[1])

    @property
    def n_classes(self) -> int:
        """Number of task classes, l."""
        return len(self.class_names)

    @property
    def is_image(self) -> bool:
        """Whether `x` holds images (n, H, W, C)."""
        return len(self.x.shape) == 4

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input as a network sees it: (d,) or channels first (C, H, W)."""
        shape = tuple(int(size) for size in self.x.shape[1:])
        return (shape[-1], *shape[:-1]) if self.is_image else shape

    def rows(self, split: str) -> NDArray[np.int64]:
        """Row indices of a split; an unknown name lists those that exist."""
        if split not in self.splits:
            close = difflib.get_close_matches(split, self.splits, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"split must be one of {sorted(self.splits)} of {self.name}, got {split!r}.{hint}"
            )
        return self.splits[split]

    def fingerprint(self) -> str:
        """Hex SHA-256 of content, names and splits; computed once and kept."""
        cached = self.__dict__.get("_fingerprint")
        if cached is None:
            cached = self._compute_fingerprint()
            self._set(_fingerprint=cached)
        return str(cached)

    def _compute_fingerprint(self) -> str:
        digest = hashlib.sha256()
        described = {
            "name": self.name,
            "concept_names": self.concept_names,
            "concept_groups": self.concept_groups,
            "class_names": self.class_names,
            "factor_names": self.factor_names,
            "factor_sizes": self.factor_sizes,
            "factor_kinds": self.factor_kinds,
            "mean": self.mean,
            "std": self.std,
            "standin": self.standin,
            "x": [list(map(int, self.x.shape)), str(self.x.dtype), self.content_digest],
        }
        digest.update(json.dumps(described, sort_keys=True).encode())
        _hash_arrays(digest, [self.c, self.y])
        if self.factors is not None:
            _hash_arrays(digest, [self.factors])
        for split in sorted(self.splits):
            digest.update(split.encode())
            _hash_arrays(digest, [self.splits[split]])
        if self.content_digest is None:
            for start in range(0, len(self.x), _ROWS_PER_BLOCK):
                block = self.x[np.arange(start, min(start + _ROWS_PER_BLOCK, len(self.x)))]
                _hash_arrays(digest, [np.asarray(block)])
        return digest.hexdigest()


def _check_x(x: Any) -> None:
    if not hasattr(x, "shape") or not hasattr(x, "dtype") or not hasattr(x, "__getitem__"):
        raise TypeError(
            "x must offer shape, dtype and indexing like a numpy array, "
            f"got {type(x).__name__}. Wrap lists with np.asarray."
        )
    if len(x.shape) not in (2, 4):
        raise ValueError(
            f"x must be a table (n, d) or images (n, H, W, C), got shape {tuple(x.shape)}."
        )
    if isinstance(x, np.ndarray) and x.dtype.kind == "f" and not np.isfinite(x).all():
        bad = int(x.size - np.count_nonzero(np.isfinite(x)))
        raise ValueError(f"x must be finite, got {bad} NaN or infinite of {x.size} values.")


def _concepts(c: Any, *, n: int) -> NDArray[np.int64]:
    """Checked concepts; a set without concepts has shape (n, 0)."""
    if getattr(c, "shape", None) == (n, 0):
        return np.zeros((n, 0), dtype=np.int64)
    return as_binary_concepts("c", c, binary=True)


def _check_names(label: str, names: tuple[str, ...], expected: int, what: str) -> None:
    if len(names) != expected:
        raise ValueError(f"{label} must name all {expected} {what}, got {len(names)} names.")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"{label} must be unique, got {doubled} more than once. Rename them.")


def _check_classes(y: NDArray[np.int64], class_names: tuple[str, ...]) -> None:
    _check_names("class_names", class_names, len(class_names), "classes")
    if y.min() < 0 or y.max() >= len(class_names):
        raise ValueError(
            f"y must hold class indices 0..{len(class_names) - 1} for {len(class_names)} "
            f"class_names, got {y.min()} to {y.max()}. Name every class or encode y from 0."
        )


def _check_groups(groups: dict[str, tuple[int, ...]], n_concepts: int) -> None:
    members = sorted(i for columns in groups.values() for i in columns)
    if members != list(range(n_concepts)):
        missing = sorted(set(range(n_concepts)) - set(members))
        doubled = sorted({i for i in members if members.count(i) > 1})
        unknown = sorted(set(members) - set(range(n_concepts)))
        raise ValueError(
            f"concept_groups must hold each of the {n_concepts} concepts once: missing {missing}, "
            f"repeated {doubled}, unknown {unknown}."
        )


def _checked_splits(splits: dict[str, Any], n: int) -> dict[str, NDArray[np.int64]]:
    checked: dict[str, NDArray[np.int64]] = {}
    if not splits:
        raise ValueError("splits must name at least one split, for example 'train', 'val', 'test'.")
    seen = np.zeros(n, dtype=np.int64)
    for name, rows in splits.items():
        index = np.asarray(rows)
        if index.ndim != 1 or index.dtype.kind not in "iu" or not len(index):
            raise ValueError(
                f"splits[{name!r}] must be a non-empty vector of row indices, got shape "
                f"{index.shape} of {index.dtype}. Turn a mask into indices with np.flatnonzero."
            )
        if index.min() < 0 or index.max() >= n:
            raise ValueError(
                f"splits[{name!r}] must hold rows 0..{n - 1}, got {index.min()} to {index.max()}."
            )
        np.add.at(seen, index, 1)
        checked[name] = np.ascontiguousarray(index, dtype=np.int64)
    if seen.max() > 1:
        raise ValueError(
            f"splits must be disjoint, got {int((seen > 1).sum())} rows in more than one place "
            f"of {sorted(splits)}, first row {int(seen.argmax())}."
        )
    return checked


def _hash_arrays(digest: Any, arrays: Iterable[NDArray[Any]]) -> None:
    for array in arrays:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
