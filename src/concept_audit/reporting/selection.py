"""From the results table to the rows that a figure draws: filters and look-ups, no arithmetic.

A figure names the metrics, scope and models it wants; `select` returns those rows or says what is
missing. `number` then looks up the one row of one spot in a panel, and refuses if two rows with
different values claim it. So a figure never averages: means come as rows of scope "mean", and the
number of a single model as a row of scope "run" whose `repeat` is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from concept_audit.reporting.style import (
    STANDIN_NOTE,
    dataset_label,
    parse_dataset,
)

__all__ = [
    "Model",
    "Number",
    "Setting",
    "counted",
    "interval_caption",
    "lambdas",
    "lowest_fold",
    "missing_rows",
    "model_rows",
    "number",
    "order_settings",
    "present_metrics",
    "select",
    "setting_rows",
    "settings",
    "tidied",
]

_INFORMATION = {  # metrics whose axis labels shorten "mutual information"
    "alignment_leakage",
    "concepts_task_information",
    "ctl",
    "icl",
    "interconcept_information",
    "self_information",
}
_NUMBERS = ("lambda_concept", "p_int", "fold", "step", "value", "low", "high", "n_runs")
_TEXTS = ("dataset", "model", "encoding", "head", "concept_output", "metric", "target", "note")
_LOW_DEPENDENCE = ("d025", "g0")
_FAMILY_ORDER = ("tabulartoy", "dsprites", "shapes3d", "cub", "ham10k")


class Number(NamedTuple):
    """One row's value with its interval (NaN where it has none) and n (0 where not recorded)."""

    value: float
    low: float
    high: float
    n: int

    @property
    def has_interval(self) -> bool:
        """Whether both ends are known."""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))


class Setting(NamedTuple):
    """What gets a panel of its own: a data set and the form of the concept output."""

    dataset: str
    concept_output: str
    several_outputs: bool = False

    @property
    def label(self) -> str:
        """Panel title: the data set, and the concept output where it is not the usual one."""
        label = dataset_label(self.dataset)
        if self.concept_output == "leaky_relu":
            return f"{label}\nLeakyReLU + dropout on logits"
        if self.concept_output != "linear":
            return f"{label}\n{self.concept_output.replace('_', ' ')}"
        return f"{label}\nlinear logits" if self.several_outputs else label


class Model(NamedTuple):
    """A class of models inside a setting."""

    encoding: str
    lambda_concept: float | None = None
    p_int: float | None = None

    @property
    def label(self) -> str:
        """Legend entry, e.g. "soft, λ = 0.1" or "CEM, λ = 1, p_int = 0.25"."""
        words = ["CEM" if self.encoding == "cem" else self.encoding]
        if self.lambda_concept is not None:
            words.append(f"λ = {self.lambda_concept:g}")
        if self.p_int is not None:
            words.append(f"p_int = {self.p_int:g}")
        return ", ".join(words)


def missing_rows(
    stem: str, metrics: Iterable[str], scope: str, wanted: str, found: pd.DataFrame | None = None
) -> ValueError:
    """Error for a figure that has nothing to draw: what it looked for, and what there is."""
    seen = "none" if found is None or found.empty else ", ".join(sorted(set(found["metric"])))
    return ValueError(
        f"{stem} has nothing to draw: it needs rows with scope {scope!r}, metric "
        f"{' or '.join(repr(m) for m in metrics)} and {wanted}; metrics in the rows given: {seen}. "
        "Run the experiment of this name, or pass rows that hold its results."
    )


def select(
    rows: pd.DataFrame,
    stem: str,
    metrics: Sequence[str],
    *,
    scope: str = "mean",
    encodings: Sequence[str] = ("hard", "soft", "logit"),
    target: str | None = "mean",
    split: str = "test",
    variants: Sequence[str] = ("",),
    head: str | None = None,
) -> pd.DataFrame:
    """Keep the rows a figure draws.

    Parameters
    ----------
    rows : the results table (any superset of what is needed)
    stem : name of the figure, for the error
    metrics : names of metrics; those without rows simply give no panel
    scope : "mean", or "run" for single models (their lowest fold, the mean over its repeats)
    encodings : encodings of CBMs to keep, "cem" for CEMs; empty for models of every kind
    target : value of the column `target`, None for any
    split : value of the column `split`; rows without one are kept
    variants : variants of data sets to keep, "" being the plain one
    head : value of the column `head`; None keeps "mlp" where a data set has both kinds

    Returns
    -------
    DataFrame in the order given, as `tidied` leaves it.

    Raises
    ------
    ValueError  if no row is left, naming the metrics and the scope.
    """
    wanted = f"target {target!r}, " if target is not None else ""
    wanted += f"encoding in {list(encodings)}, " if encodings else ""
    wanted += f"data set variant in {list(variants)}"
    kept = rows[rows["metric"].isin(list(metrics)) & (rows["scope"] == scope)]
    kept = kept[kept["split"].isna() | (kept["split"] == split)]
    if target is not None:
        kept = kept[kept["target"] == target]
    if scope == "run":
        kept = kept[kept["repeat"].isna()]
    kept = tidied(kept)
    if encodings:
        kept = kept[kept["model"].isin(["cbm", "cem"]) & kept["encoding"].isin(list(encodings))]
    variant = kept["dataset"].map(lambda name: parse_dataset(name).variant)
    kept = kept[variant.isin(list(variants)).astype(bool)]
    if head is not None:
        kept = kept[kept["head"] == head]
    else:
        with_mlp = set(kept.loc[kept["head"] == "mlp", "dataset"])
        kept = kept[~(kept["dataset"].isin(with_mlp) & (kept["head"] == "linear"))]
    if kept.empty:
        raise missing_rows(stem, metrics, scope, wanted, rows)
    return kept


def tidied(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with plain floats (NaN where missing) and plain text ("" where missing).

    `concept_output` becomes "linear" where it is missing, and `encoding` "cem" for CEMs.
    """
    columns: dict[str, Any] = {
        name: pd.to_numeric(rows[name], errors="coerce").astype(float) for name in _NUMBERS
    }
    for name in _TEXTS:
        columns[name] = rows[name].astype(object).where(rows[name].notna(), "")
    tidy = rows.assign(**columns)
    return tidy.assign(
        encoding=tidy["encoding"].where(tidy["model"] != "cem", "cem"),
        concept_output=tidy["concept_output"].where(tidy["concept_output"] != "", "linear"),
    )


def present_metrics(rows: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    """The metrics that have rows, in the order of `metrics`."""
    found = set(rows["metric"])
    return [metric for metric in metrics if metric in found]


def order_settings(found: Iterable[tuple[str, str]]) -> list[Setting]:
    """Settings in the paper's order: weakly dependent concepts first, then by family."""
    pairs = set(found)

    def key(pair: tuple[str, str]) -> tuple[object, ...]:
        parts = parse_dataset(pair[0])
        family = parts.family
        rank = _FAMILY_ORDER.index(family) if family in _FAMILY_ORDER else len(_FAMILY_ORDER)
        if not parts.parameter:
            level = 2
        else:
            level = 0 if parts.parameter in _LOW_DEPENDENCE else 1
        return (level, rank, family, parts.parameter, pair[0], pair[1] != "linear", pair[1])

    outputs: dict[str, int] = {}
    for dataset, _ in pairs:
        outputs[dataset] = outputs.get(dataset, 0) + 1
    return [Setting(d, output, outputs[d] > 1) for d, output in sorted(pairs, key=key)]


def settings(rows: pd.DataFrame) -> list[Setting]:
    """Data sets and concept outputs found in selected rows, in the order of the panels."""
    return order_settings(zip(rows["dataset"], rows["concept_output"], strict=True))


def setting_rows(rows: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """Rows of one setting."""
    return rows[
        (rows["dataset"] == setting.dataset) & (rows["concept_output"] == setting.concept_output)
    ]


def lambdas(rows: pd.DataFrame) -> list[float]:
    """Weights of the concept loss found in selected rows, increasing."""
    return sorted({float(v) for v in rows["lambda_concept"].dropna()})


def number(rows: pd.DataFrame, **where: object) -> Number | None:
    """The one number at a spot, or None if there is no such row.

    Parameters
    ----------
    rows : selected rows
    where : column name and value; floats are compared with a tolerance, None is not compared

    Raises
    ------
    ValueError  if rows with different values match (rows of the lowest `fold` win before that).
    """
    mask = np.ones(len(rows), dtype=bool)
    for column, wanted in where.items():
        if wanted is not None:
            mask &= _matches(rows[column], wanted)
    found = rows[mask]
    if len(found) > 1:
        found = lowest_fold(found)
    if found.empty:
        return None
    if found["value"].nunique(dropna=False) > 1:
        differing = [c for c in found.columns if found[c].nunique(dropna=False) > 1]
        raise ValueError(
            f"{len(found)} different values stand for one spot {where}; they differ in "
            f"{differing}. Pass the rows of one choice of these columns."
        )
    row = found.iloc[0]
    return Number(
        float(row["value"]),
        _float(row["low"]),
        _float(row["high"]),
        0 if pd.isna(row["n_runs"]) else int(row["n_runs"]),
    )


def lowest_fold(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the lowest fold present; all rows where no fold is given."""
    if rows["fold"].notna().any():
        return rows[rows["fold"] == rows["fold"].min()]
    return rows


def model_rows(rows: pd.DataFrame, model: Model) -> pd.DataFrame:
    """Rows of one class of models."""
    mask = _matches(rows["encoding"], model.encoding)
    if model.lambda_concept is not None:
        mask &= _matches(rows["lambda_concept"], model.lambda_concept)
    if model.p_int is not None:
        mask &= _matches(rows["p_int"], model.p_int)
    return rows[mask]


def _matches(column: pd.Series, wanted: object) -> np.ndarray:
    """Where a column of tidied rows has a value; floats up to rounding."""
    values = column.to_numpy()
    if isinstance(wanted, float):
        return np.isclose(values.astype(float), wanted, rtol=1e-9, atol=1e-12)
    return np.asarray(values == wanted, dtype=bool)


def _float(value: object) -> float:
    """A float; NaN for a missing value."""
    return float("nan") if pd.isna(value) else float(value)  # type: ignore[arg-type, call-overload]


def counted(rows: pd.DataFrame) -> str:
    """Words for n: "n = 5", "n = 3 to 5", or "n not recorded"."""
    counts = sorted({int(v) for v in rows["n_runs"].dropna()})
    if not counts:
        return "n not recorded"
    return f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"


def interval_caption(rows: pd.DataFrame, marks: str, *, interval: str = "whiskers") -> list[str]:
    """Sentences of the caption: what the marks are, n, kind of interval, stand-ins.

    Parameters
    ----------
    rows : the rows drawn
    marks : what the values are shown as, e.g. "Bars"
    interval : what the intervals are shown as, e.g. "whiskers" or "bands"
    """
    scopes = set(rows["scope"])
    if scopes == {"run"}:
        what = f"{marks}: one model each, mean over repeated evaluations ({counted(rows)})"
    else:
        what = f"{marks}: mean over trained models ({counted(rows)})"
    if rows["low"].notna().any():
        what += f"; {interval}: 95 % t interval"
    sentences = [what + "."]
    if set(rows["metric"]) & _INFORMATION:
        sentences.append("MI: mutual information, H: entropy.")
    if any(parse_dataset(name).standin for name in set(rows["dataset"])):
        sentences.append(STANDIN_NOTE)
    return sentences
