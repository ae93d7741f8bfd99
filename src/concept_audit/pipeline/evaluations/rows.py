"""What all evaluations share: the run they read and the rows they write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from concept_audit.metrics import mean_interval

__all__ = ["EvaluatedRun", "Row", "matrix_rows", "needs", "repeated", "row", "score_rows"]

Row = dict[str, Any]
Function = TypeVar("Function", bound=Callable[..., list[Row]])


def needs(*names: str) -> Callable[[Function], Function]:
    """Mark an evaluation with the arrays that it reads; runs that lack one are passed over."""

    def mark(function: Function) -> Function:
        vars(function)["needs"] = frozenset(names)
        return function

    return mark


class EvaluatedRun(Protocol):
    """What an evaluation may read of a run."""

    concept_names: tuple[str, ...]
    encoding: str  # hard | soft | logit | embedding
    kept_epoch: dict[str, Any]  # losses of the epoch whose weights were kept
    shared: dict[str, Any]  # results that runs on the same data share, for example OIS oracles

    def arrays(self, split: str) -> Mapping[str, NDArray[Any]]:
        """Arrays of one split's bundle."""
        ...

    def head(self) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """The task head: bottleneck to task logits."""
        ...

    def percentiles(self) -> NDArray[Any] | None:
        """5th and 95th percentile of each training logit, shape (2, k)."""
        ...


def row(metric: str, value: float, *, split: str, n: int, target: str = "mean", **more: Any) -> Row:
    """One number of a run."""
    return {
        "scope": "run",
        "metric": metric,
        "target": target,
        "value": float(value),
        "split": split,
        "n_samples": int(n),
        "unit": more.pop("unit", "1"),
        **more,
    }


def repeated(rows: Sequence[Row]) -> list[Row]:
    """The rows, and for each quantity the mean over repeats with its interval."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for item in rows:
        groups.setdefault((item["metric"], item["target"], item.get("step")), []).append(item)
    summaries = []
    for members in groups.values():
        values = [item["value"] for item in members]
        summary = {key: value for key, value in members[0].items() if key != "repeat"}
        if len(values) > 1 and np.all(np.isfinite(values)):
            interval = mean_interval(values)
            summary.update(value=interval.mean, low=interval.low, high=interval.high)
        else:
            summary.update(value=float(np.mean(values)))
        summaries.append({**summary, "n_runs": len(values)})
    return [*rows, *summaries]


def score_rows(
    metric: str, names: Iterable[str], mean: float, per_concept: NDArray[Any], **more: Any
) -> list[Row]:
    """A score and its values for each concept."""
    rows = [row(metric, mean, **more)]
    rows += [
        row(metric, value, target=name, **more)
        for name, value in zip(names, per_concept, strict=True)
    ]
    return rows


def matrix_rows(
    metric: str, names: Sequence[str], matrix: NDArray[Any], *, ordered: bool, **more: Any
) -> list[Row]:
    """Off-diagonal entries; one of each pair unless `ordered`."""
    return [
        row(metric, matrix[i, j], target=f"{names[i]}|{names[j]}", **more)
        for i in range(len(names))
        for j in range(len(names))
        if i != j and (ordered or i < j)
    ]
