"""Checks at the door of every public function: the one place that phrases shape and value errors.

Everything accepts numpy arrays, nested lists and torch tensors on any device, and returns new
C-contiguous numpy arrays: the caller's data are never changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "as_binary_concepts",
    "as_labels",
    "as_matrix",
    "as_vectors",
    "check_finite",
    "check_same_rows",
    "check_same_shape",
    "to_numpy",
]


def to_numpy(name: str, value: ArrayLike) -> NDArray[Any]:
    """Numpy view or copy of `value`; torch tensors are detached and brought to the CPU."""
    detach = getattr(value, "detach", None)
    if callable(detach):  # a torch tensor, recognised without importing torch
        tensor: Any = detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            tensor = tensor.float()
        return np.asarray(tensor.numpy())
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"{name} must be a rectangular array, got a ragged one: {error}."
        ) from None
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise TypeError(
            f"{name} must hold numbers, got dtype {array.dtype}. "
            "Encode class names as integers first: np.unique(names, return_inverse=True)[1]."
        )
    return array


def check_finite(name: str, array: NDArray[Any]) -> None:
    """Raise on NaN and infinity, with the argument and the count."""
    if array.dtype.kind == "f":
        bad = int(array.size - np.count_nonzero(np.isfinite(array)))
        if bad:
            raise ValueError(
                f"{name} must be finite, got {bad} NaN or infinite of {array.size} values. "
                "Drop or impute those rows first."
            )


def _check_rows(name: str, array: NDArray[Any], min_rows: int) -> None:
    if array.shape[0] < min_rows:
        raise ValueError(f"{name} needs at least {min_rows} rows, got {array.shape[0]}.")


def as_matrix(
    name: str, value: ArrayLike, *, rows: str = "n", columns: str = "k", min_rows: int = 1
) -> NDArray[np.float64]:
    """Float64 copy of a matrix `(rows, columns)`; one dimension is not guessed into two."""
    array = to_numpy(name, value)
    if array.ndim != 2:
        hint = f" For a single column pass {name}[:, None]." if array.ndim == 1 else ""
        raise ValueError(f"{name} must have shape ({rows}, {columns}), got {array.shape}.{hint}")
    _check_rows(name, array, min_rows)
    if array.shape[1] == 0:
        raise ValueError(f"{name} needs at least one column, got shape {array.shape}.")
    check_finite(name, array)
    return np.array(array, dtype=np.float64, order="C")


def as_vectors(
    name: str, value: ArrayLike, *, shape: str = "n, k, m", min_rows: int = 1
) -> NDArray[np.float64]:
    """Float64 copy of embeddings `(n, k, m)`."""
    array = to_numpy(name, value)
    if array.ndim != 3:
        raise ValueError(
            f"{name} must have shape ({shape}), got {array.shape}. "
            "Concatenated embeddings (n, k*m) become (n, k, m) by reshape(n, k, m): concept-major."
        )
    _check_rows(name, array, min_rows)
    if 0 in array.shape:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}.")
    check_finite(name, array)
    return np.array(array, dtype=np.float64, order="C")


def _as_integers(name: str, array: NDArray[Any]) -> NDArray[np.int64]:
    check_finite(name, array)
    if array.dtype.kind == "f":
        rounded = np.rint(array)
        off = int(np.count_nonzero(np.abs(array - rounded) > 1e-8))
        if off:
            raise ValueError(
                f"{name} must hold class indices, got {off} of {array.size} values that are no "
                "integers."
            )
        array = rounded
    return np.array(array, dtype=np.int64, order="C")


def as_labels(name: str, value: ArrayLike, *, min_rows: int = 1) -> NDArray[np.int64]:
    """Int64 class indices `(n,)`; `(n, 1)` is flattened, one-hot is refused with the remedy."""
    array = to_numpy(name, value)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        hint = f" If it is one-hot, pass {name}.argmax(axis=1)." if array.ndim == 2 else ""
        raise ValueError(
            f"{name} must hold one class index per row, shape (n,), got {array.shape}.{hint}"
        )
    _check_rows(name, array, min_rows)
    return _as_integers(name, array)


def as_binary_concepts(
    name: str, value: ArrayLike, *, min_rows: int = 1, binary: bool = False
) -> NDArray[np.int64]:
    """Int64 annotated concepts `(n, k)`; with `binary`, values other than 0 and 1 are refused."""
    array = to_numpy(name, value)
    if array.ndim != 2:
        hint = f" For a single concept pass {name}[:, None]." if array.ndim == 1 else ""
        raise ValueError(f"{name} must have shape (n, k), got {array.shape}.{hint}")
    _check_rows(name, array, min_rows)
    if array.shape[1] == 0:
        raise ValueError(f"{name} needs at least one concept, got shape {array.shape}.")
    result = _as_integers(name, array)
    if binary and result.size and (result.min() < 0 or result.max() > 1):
        raise ValueError(
            f"{name} must hold 0 or 1, got values from {result.min()} to {result.max()}. "
            "Split a concept with more values into one column per value."
        )
    return result


def check_same_rows(**arrays: NDArray[Any]) -> int:
    """Number of rows shared by all arrays; unequal numbers raise and name each."""
    sizes = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        swapped = [
            name
            for name, array in arrays.items()
            if array.ndim == 2
            and array.shape[1] in sizes.values()
            and array.shape[0] < array.shape[1]
        ]
        hint = f" Rows are samples: {', '.join(swapped)} looks transposed." if swapped else ""
        raise ValueError(
            f"{' and '.join(arrays)} must agree on the number of rows n: got {shapes}.{hint}"
        )
    return next(iter(sizes.values()))


def check_same_shape(axes: str, **arrays: NDArray[Any]) -> tuple[int, ...]:
    """Shape shared by all arrays; unequal shapes raise, name each and say which axes must agree."""
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"{' and '.join(arrays)} must agree on {axes}: got {listed}.")
    return next(iter(shapes.values()))
