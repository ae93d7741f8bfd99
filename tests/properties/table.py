"""The table metric x property: what each public score promises, and how the promise is checked.

A row is a `Case`; the rows live in `tests/properties/cases/<area>.py`, each with a list `CASES`.
A case says how to draw inputs, what the axes of its arguments and results mean, and for every
property a verdict: `Exact`, `Within(tolerance, why)` or `DoesNotHold(why)`. Axis letters are those
of the package (`n` samples, `k` concepts, `m` width, `K` factors, `L` codes, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

PROPERTIES = (
    "row permutation",  # the order of samples
    "relabelling",  # the order of concepts, codes or factors
    "class relabelling",  # the names of the classes
    "affine rescaling",  # units and origin of continuous inputs
    "seed repeatability",  # the same seed gives the same digits
    "inputs unchanged",  # arrays are read, not written
    "shard and merge",  # the torchmetrics form fed in two parts equals the function
)


@dataclass(frozen=True)
class Exact:
    """Equal to 1e-12, that is up to the order of a sum."""

    tolerance = 1e-12


@dataclass(frozen=True)
class Within:
    """Equal up to `tolerance`, absolute; `why` says where the tolerance comes from."""

    tolerance: float
    why: str


@dataclass(frozen=True)
class DoesNotHold:
    """The property is not promised, or means nothing for this score."""

    why: str


Verdict = Exact | Within | DoesNotHold


@dataclass(frozen=True)
class Argument:
    """Axes of an array argument; `classes`: its names are arbitrary; `scale`: its units are."""

    axes: str
    classes: bool = False
    scale: bool = False


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str  # public name
    call: Callable[..., Any]  # takes the drawn arrays as keywords
    draw: Callable[[np.random.Generator], dict[str, Any]]
    arguments: Mapping[str, Argument]  # those that take part in the transformations
    results: Mapping[str, str]  # attribute -> axes; "" is the returned value itself
    verdicts: Mapping[str, Verdict]
    examples: int = 200  # 5 to 10 for scores that train something
    module: str | None = None  # class in concept_audit.metrics.modules
    options: Mapping[str, Any] = field(default_factory=dict)  # of the module, as `call` has them
    logged: tuple[str, ...] | None = None  # results in `compute()`; None: the one it names
    relabelled: frozenset[str] = field(default_factory=lambda: frozenset("kKL"))


def cases() -> list[Case]:
    """All rows, from every module in `cases/`."""
    names = sorted(path.stem for path in (Path(__file__).parent / "cases").glob("[a-z]*.py"))
    return [case for name in names for case in import_module(f"properties.cases.{name}").CASES]


def values_of(case: Case, result: Any) -> dict[str, np.ndarray]:
    """The numbers of a result that the table compares."""
    return {
        key: np.asarray(getattr(result, key) if key else result, dtype=float)
        for key in case.results
    }


def _take(array: Any, axes: str, orders: Mapping[str, np.ndarray]) -> Any:
    for position, letter in enumerate(axes.split()):
        if letter in orders:
            array = np.take(array, orders[letter], axis=position)
    return array


def reordered(
    case: Case, arrays: dict[str, Any], letters: set[str], rng: np.random.Generator
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Arguments with the given axes shuffled, and the orders used."""
    orders: dict[str, np.ndarray] = {}
    for name, argument in case.arguments.items():
        for position, letter in enumerate(argument.axes.split()):
            if letter in letters and letter not in orders:
                orders[letter] = rng.permutation(np.shape(arrays[name])[position])
    changed = {
        name: _take(value, case.arguments[name].axes, orders) if name in case.arguments else value
        for name, value in arrays.items()
    }
    return changed, orders


def expected_after(
    case: Case, values: dict[str, np.ndarray], orders: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Results as they should come out when the axes are shuffled like this."""
    return {key: _take(value, case.results[key], orders) for key, value in values.items()}


def renamed_classes(case: Case, arrays: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Arguments with the class names exchanged."""
    changed = dict(arrays)
    for name, argument in case.arguments.items():
        if argument.classes:
            classes, index = np.unique(arrays[name], return_inverse=True)
            changed[name] = rng.permutation(classes)[index].reshape(np.shape(arrays[name]))
    return changed


def rescaled(case: Case, arrays: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Continuous arguments in other units, column by column."""
    changed = dict(arrays)
    for name, argument in case.arguments.items():
        if argument.scale:
            columns = np.shape(arrays[name])[1:2]
            tail = (1,) * (np.ndim(arrays[name]) - 2)
            factor = rng.uniform(0.5, 2.0, columns).reshape(*columns, *tail)
            shift = rng.uniform(-1.0, 1.0, columns).reshape(*columns, *tail)
            changed[name] = arrays[name] * factor + shift
    return changed
