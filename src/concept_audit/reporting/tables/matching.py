"""Finding the row of ours that answers to a number of a paper, and setting the two side by side.

A table computes nothing: it picks rows that hold a mean and its interval already, takes the
difference to the printed number and asks for the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from concept_audit.reporting.against_paper import Measured, Printed, judge

__all__ = [
    "COMPARISON_COLUMNS",
    "base_dataset",
    "comparison",
    "comparison_frame",
    "find",
    "printed",
    "with_base_dataset",
]

COMPARISON_COLUMNS: tuple[str, ...] = (
    "row",
    "column",
    "ours",
    "low",
    "high",
    "n",
    "paper",
    "paper_low",
    "paper_high",
    "difference",
    "verdict",
    "source",
    "metric",
    "dataset",
    "beside",  # our number under another setting, shown and not judged
    "beside_low",
    "beside_high",
    "note",
)
_TEXTS = ("row", "column", "verdict", "source", "metric", "dataset", "note")
# The base version of each family, which some names leave out.
_BASE = re.compile(r"(?<=tabulartoy)_d025|(?<=dsprites)_g0|(?<=shapes3d)_g0")


def base_dataset(name: str) -> str:
    """Name of a data set without what does not tell it apart: base version, stand-in mark.

    >>> base_dataset("dsprites_g0_standin"), base_dataset("tabulartoy_d025_incomplete")
    ('dsprites', 'tabulartoy_incomplete')
    """
    return _BASE.sub("", name.removesuffix("_standin"))


def with_base_dataset(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with their data sets under the base names, the test split only."""
    split = rows["split"]
    kept = rows[(split == "test") | split.isna()]
    return kept.assign(dataset=kept["dataset"].map(base_dataset))


def find(rows: pd.DataFrame, **wanted: Any) -> pd.Series | None:
    """The one row with the given values, or None.

    Parameters
    ----------
    rows : from `with_base_dataset`
    wanted : column to value; None means missing

    Raises
    ------
    ValueError  if several rows with different values answer; says which columns tell them apart.
    """
    for column, value in wanted.items():
        match = rows[column].isna() if value is None else rows[column] == value
        rows = rows[match.fillna(False).astype(bool)]
    if rows.empty:
        return None
    if len(rows) > 1 and rows["value"].nunique(dropna=False) > 1:
        apart = [name for name in rows.columns if rows[name].nunique(dropna=False) > 1]
        raise ValueError(
            f"{len(rows)} rows answer to {wanted}: they differ in {', '.join(apart)}. "
            "Give the table the rows of one setting."
        )
    return rows.iloc[0]


def _measured(row: pd.Series | None) -> Measured | None:
    if row is None:
        return None
    return Measured(
        value=float(row["value"]),
        low=float(row["low"]),
        high=float(row["high"]),
        n=None if pd.isna(row["n_runs"]) else int(row["n_runs"]),
        standin=bool(row["standin"]) if not pd.isna(row["standin"]) else False,
    )


def printed(line: Mapping[Any, Any]) -> Printed:
    """The paper's number of one line of `read_paper_values`."""
    return Printed(
        value=float(line["value"]),
        low=float(line["low"]),
        high=float(line["high"]),
        resolution=float(line["resolution"]),
    )


def comparison(
    line: Mapping[Any, Any],
    ours: pd.Series | None,
    *,
    beside: pd.Series | None = None,
    note: str = "",
    ours_p: float | None = None,
    paper_p: float | None = None,
) -> dict[str, Any]:
    """One line of a table: ours, the paper's, difference, verdict.

    Parameters
    ----------
    line : of `read_paper_values`
    ours : row of the results table that answers to it, None if it was not run
    beside : row of another setting, shown without a verdict
    note : a sentence for the reader
    ours_p, paper_p : p-values that go with a correlation
    """
    measured, paper = _measured(ours), printed(line)
    verdict = judge(str(line["metric"]), measured, paper, ours_p=ours_p, paper_p=paper_p)
    nothing = float("nan")
    other = _measured(beside)
    return {
        "row": line["row"],
        "column": line["column"],
        "ours": measured.value if measured else nothing,
        "low": measured.low if measured else nothing,
        "high": measured.high if measured else nothing,
        "n": measured.n if measured else None,
        "paper": paper.value,
        "paper_low": paper.low,
        "paper_high": paper.high,
        "difference": measured.value - paper.value if measured else nothing,
        "verdict": str(verdict),
        "source": line["source"],
        "metric": line["metric"],
        "dataset": line["dataset"],
        "beside": other.value if other else nothing,
        "beside_low": other.low if other else nothing,
        "beside_high": other.high if other else nothing,
        "note": note if measured else "",
    }


def comparison_frame(lines: list[dict[str, Any]]) -> pd.DataFrame:
    """Lines as a table with `COMPARISON_COLUMNS` and fixed dtypes."""
    frame = pd.DataFrame(lines, columns=list(COMPARISON_COLUMNS))
    numbers = [name for name in COMPARISON_COLUMNS if name not in (*_TEXTS, "n")]
    return frame.astype(
        {**dict.fromkeys(_TEXTS, "string"), **dict.fromkeys(numbers, "float64"), "n": "Int64"}
    )
