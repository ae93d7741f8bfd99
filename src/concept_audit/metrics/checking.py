"""Does a score of one's own behave like a leakage score? `check_metric` tries it on arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import (
    as_binary_concepts,
    as_labels,
    as_matrix,
    check_same_rows,
    check_same_shape,
)

__all__ = ["MetricReport", "PropertyResult", "check_metric"]

Status = Literal["holds", "fails", "does not apply"]


@dataclass(frozen=True)
class PropertyResult:
    """One property of a metric, with the numbers that decided."""

    name: str
    status: Status
    detail: str


@dataclass(frozen=True)
class MetricReport:
    """What `check_metric` found; printing it gives a table."""

    metric: str
    results: tuple[PropertyResult, ...]
    n_samples: int
    seed: int

    @property
    def passed(self) -> bool:
        """Whether no property fails."""
        return not self.failures

    @property
    def failures(self) -> tuple[PropertyResult, ...]:
        """The properties that fail."""
        return tuple(result for result in self.results if result.status == "fails")

    def __str__(self) -> str:
        width = max(len(result.name) for result in self.results)
        lines = [f"{self.metric} on {self.n_samples} samples (seed {self.seed})"]
        lines += [
            f"  {result.name:<{width}}  {result.status:<14}  {result.detail}"
            for result in self.results
        ]
        return "\n".join(lines)


def _mean(value: Any) -> float:
    return float(getattr(value, "mean", value) if not isinstance(value, float) else value)


class _Trial:
    """A metric with its arrays; `y` takes part only when it was given."""

    def __init__(
        self, metric: Callable[..., Any], c_hat: NDArray, c: NDArray, y: NDArray | None
    ) -> None:
        self.metric, self.c_hat, self.c, self.y = metric, c_hat, c, y
        self.base = self.score()

    def result(self, **changes: Any) -> Any:
        arrays = {"c_hat": self.c_hat, "c": self.c, "y": self.y} | changes
        if self.y is None:
            del arrays["y"]
        return self.metric(*arrays.values())

    def score(self, **changes: Any) -> float:
        return _mean(self.result(**changes))


def _equal(name: str, found: float, wanted: float, tolerance: float) -> PropertyResult:
    same = abs(found - wanted) <= tolerance or (np.isnan(found) and np.isnan(wanted))
    return PropertyResult(
        name, "holds" if same else "fails", f"{wanted:.6g} and {found:.6g}, tolerance {tolerance:g}"
    )


def _refusal(name: str, trial: _Trial, changes: dict[str, Any]) -> PropertyResult:
    try:
        found = trial.score(**changes)
    except ValueError as error:
        return PropertyResult(name, "holds", f"ValueError: {str(error)[:60]}")
    return PropertyResult(name, "fails", f"returned {found:.6g} instead of raising ValueError")


def check_metric(
    metric: Callable[..., Any],
    c_hat: ArrayLike,
    c: ArrayLike,
    y: ArrayLike | None = None,
    *,
    tolerance: float = 1e-6,
    seed: int = 0,
) -> MetricReport:
    """Try on example arrays what a leakage score must do.

    Parameters
    ----------
    metric : callable
        ``metric(c_hat, c, y)``, or ``metric(c_hat, c)`` when `y` is left out. Returns a float, or
        an object with ``mean`` and, if it likes, ``per_concept``.
    c_hat : array (n, k)
        Learnt concepts, probabilities or logits.
    c : array (n, k)
        Annotated concepts, 0 or 1.
    y : array (n,), optional
        Class index.
    tolerance : float
        Largest difference that counts as none.
    seed : int
        Seed of the permutations.

    Returns
    -------
    MetricReport
        ``passed``, ``failures``, ``results``; ``print(report)`` shows a table. Properties: same
        call same number; inputs unchanged; order of rows and of concepts and names of classes make
        no difference; accepted containers agree; a value in [0, 1]; 0 where the learnt concepts
        are the annotations; larger where a concept is replaced by a leak; NaN and unequal rows
        raise ``ValueError``.

    Raises
    ------
    ValueError
        On arrays that do not fit each other. What the metric itself raises on the arrays as given
        is passed on.

    Examples
    --------
    >>> import numpy as np
    >>> from concept_audit.metrics import check_metric, concepts_task_leakage
    >>> rng = np.random.default_rng(0)
    >>> c = rng.integers(0, 2, (500, 3))
    >>> y = (c.sum(axis=1) >= 2).astype(int)
    >>> c_hat = c + 0.2 * rng.standard_normal(c.shape)
    >>> check_metric(concepts_task_leakage, c_hat, c, y).passed
    True
    """
    if not callable(metric):
        raise TypeError(
            f"metric must be callable as metric(c_hat, c, y), got {type(metric).__name__}. "
            "Pass the function itself, not its result."
        )
    if not tolerance >= 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}. The default is 1e-6.")
    learnt = as_matrix("c_hat", c_hat, min_rows=10)
    annotated = as_binary_concepts("c", c, binary=True)
    check_same_rows(c_hat=learnt, c=annotated)
    check_same_shape("(n, k)", c_hat=learnt, c=annotated)
    labels = None if y is None else as_labels("y", y)
    if labels is not None:
        check_same_rows(c_hat=learnt, y=labels)
    trial = _Trial(metric, learnt.copy(), annotated.copy(), labels)
    rng = np.random.default_rng(seed)
    results = [
        _equal("same call, same number", trial.score(), trial.base, 0.0),
        *_invariances(trial, rng, tolerance),
        *_containers(trial, tolerance),
        *_meaning(trial, tolerance),
        _refusal("NaN is refused", trial, {"c_hat": _with_nan(learnt)}),
        _refusal("unequal rows are refused", trial, {"c": annotated[:-1]}),
    ]
    unchanged = np.array_equal(trial.c_hat, learnt) and np.array_equal(trial.c, annotated)
    results.insert(
        1,
        PropertyResult(
            "inputs unchanged",
            "holds" if unchanged else "fails",
            "c_hat and c as before" if unchanged else "c_hat or c was written to",
        ),
    )
    name = getattr(metric, "__name__", type(metric).__name__)
    return MetricReport(name, tuple(results), learnt.shape[0], seed)


def _with_nan(learnt: NDArray) -> NDArray:
    broken = learnt.copy()
    broken[0, 0] = np.nan
    return broken


def _invariances(trial: _Trial, rng: np.random.Generator, tolerance: float) -> list[PropertyResult]:
    rows = rng.permutation(len(trial.c_hat))
    order = rng.permutation(trial.c_hat.shape[1])
    changes: dict[str, Any] = {"c_hat": trial.c_hat[rows], "c": trial.c[rows]}
    if trial.y is not None:
        changes["y"] = trial.y[rows]
    results = [_equal("order of rows", trial.score(**changes), trial.base, tolerance)]
    relabelled = trial.result(c_hat=trial.c_hat[:, order], c=trial.c[:, order])
    results.append(_equal("order of concepts", _mean(relabelled), trial.base, tolerance))
    base = getattr(trial.result(), "per_concept", None)
    if base is not None and np.shape(base) == (order.size,):
        found = np.asarray(relabelled.per_concept, dtype=float)
        gap = np.abs(found - np.asarray(base, dtype=float)[order])
        worst = float(np.nanmax(gap)) if not np.isnan(gap).all() else 0.0
        results.append(_equal("order of concepts, each", worst, 0.0, tolerance))
    if trial.y is None:
        results.append(PropertyResult("names of classes", "does not apply", "no y was given"))
    else:
        renamed = trial.y.max() - trial.y
        results.append(_equal("names of classes", trial.score(y=renamed), trial.base, tolerance))
    return results


def _containers(trial: _Trial, tolerance: float) -> list[PropertyResult]:
    wide = np.repeat(trial.c_hat, 2, axis=1)[:, ::2]
    frozen = trial.c_hat.copy()
    frozen.flags.writeable = False
    return [
        _equal(f"{name} c_hat", trial.score(c_hat=form), trial.base, tolerance)
        for name, form in (("list", trial.c_hat.tolist()), ("strided", wide), ("read-only", frozen))
    ]


def _meaning(trial: _Trial, tolerance: float) -> list[PropertyResult]:
    inside = -tolerance <= trial.base <= 1 + tolerance
    results = [PropertyResult("within [0, 1]", "holds" if inside else "fails", f"{trial.base:.6g}")]
    clean = trial.score(c_hat=trial.c.astype(np.float64))
    results.append(_equal("0 without leakage", clean, 0.0, tolerance))
    leaking = trial.c.astype(np.float64)
    if trial.y is not None:
        leaking[:, 0] = trial.y
    elif trial.c.shape[1] > 1:
        leaking[:, 0] = leaking[:, 1]
    else:
        results.append(
            PropertyResult("sees a leak", "does not apply", "one concept and no y to leak")
        )
        return results
    leak = trial.score(c_hat=leaking)
    what = "y" if trial.y is not None else "concept 1"
    results.append(
        PropertyResult(
            "sees a leak",
            "holds" if leak > clean + tolerance else "fails",
            f"{leak:.6g} with concept 0 replaced by {what}, {clean:.6g} without",
        )
    )
    return results
