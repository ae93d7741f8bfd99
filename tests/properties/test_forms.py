"""Every public score takes every accepted form of its arrays, and names what it refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from properties import table

# These take numbers, or fitted probes that stand for the arrays.
NO_ARRAYS = {"intervention_score", "representation_size", "importance_matrix"}
CASES = [case for case in table.cases() if case.name not in NO_ARRAYS]


def is_float(array: Any) -> bool:
    return np.asarray(array).dtype.kind == "f"


def drawn(case: table.Case) -> dict[str, Any]:
    """Arrays whose values are the same in every form: floats are numbers of float16."""
    arrays = case.draw(np.random.default_rng(7))
    return {
        name: value.astype(np.float16).astype(np.float64) if is_float(value) else value
        for name, value in arrays.items()
    }


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def tensor(array: np.ndarray) -> Any:
    torch = pytest.importorskip("torch")
    return torch.tensor(array, requires_grad=is_float(array))


def narrow(array: np.ndarray) -> np.ndarray:
    """Half precision; small integers; bool where there are but two values."""
    if is_float(array):
        return array.astype(np.float16)
    return array.astype(bool if array.max() <= 1 and array.min() >= 0 else np.uint8)


FORMS = {
    "lists": lambda array: array.tolist(),
    "torch tensors with gradients": tensor,
    "float16, bool and uint8": narrow,
    "integers as floats": lambda array: array.astype(np.float64),
    "every second column of a wider array": lambda array: np.repeat(array, 2, -1)[..., ::2],
    "columns first": np.asfortranarray,
    "read-only": read_only,
    "reversed twice": lambda array: array[::-1].copy()[::-1],
    "the other byte order": lambda array: array.astype(array.dtype.newbyteorder(">")),
}


def numbers(result: Any) -> list[np.ndarray]:
    """All numbers of a result, its own results included."""
    if dataclasses.is_dataclass(result):
        return [x for f in dataclasses.fields(result) for x in numbers(getattr(result, f.name))]
    if isinstance(result, float | int | np.ndarray):
        return [np.asarray(result, dtype=float)]
    return []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_accepted_forms_give_equal_results(case):
    arrays = drawn(case)
    expected = numbers(case.call(**arrays))
    assert expected
    for label, form in FORMS.items():
        given = {name: form(np.asarray(array)) for name, array in arrays.items()}
        found = numbers(case.call(**given))
        assert len(found) == len(expected), label
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12, err_msg=label)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_named_and_counted(case, value):
    for name, array in drawn(case).items():
        if is_float(array):
            broken = array.copy()
            broken.flat[3 % broken.size] = value
            with pytest.raises(ValueError, match=r"finite") as caught:
                case.call(**{**drawn(case), name: broken})
            assert "1 NaN or infinite" in str(caught.value), (name, str(caught.value))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_wrong_shapes_and_kinds_are_refused(case):
    arrays = drawn(case)
    for name in case.arguments:
        array = np.asarray(arrays[name])
        words = array.astype(str)
        with pytest.raises((TypeError, ValueError), match=r"must|needs"):
            case.call(**{**arrays, name: words})
        with pytest.raises((TypeError, ValueError), match=r"got|needs"):
            case.call(**{**arrays, name: array[..., None, None, None]})
