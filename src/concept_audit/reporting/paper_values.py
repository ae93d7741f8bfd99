"""The papers' own numbers: one committed CSV a paper, every line with its source.

A number that stands in no text is a line of kind `unknown` without a value, so the report can say
so; nothing is guessed.
"""

from __future__ import annotations

import csv
from decimal import Decimal, InvalidOperation
from pathlib import Path

import pandas as pd

__all__ = ["PAPER_KINDS", "PAPER_VALUE_COLUMNS", "PaperValuesError", "read_paper_values"]

PAPER_VALUE_COLUMNS: tuple[str, ...] = (
    "paper",
    "artefact",  # stem of the figure or table, or claims
    "row",
    "column",
    "metric",
    "dataset",
    "model",
    "value",
    "low",
    "high",
    "unit",
    "source",
    "kind",
)
PAPER_KINDS = ("text", "table", "read_from_plot", "unknown")
_NUMBERS = ("value", "low", "high")
_NEEDED = ("paper", "artefact", "row", "column", "metric", "source", "kind")


class PaperValuesError(ValueError):
    """A file of paper values breaks its schema."""


def _number(text: str, where: str) -> tuple[float, float]:
    """A printed number, and half a unit of its last printed digit; NaN for an empty cell."""
    if not text:
        return float("nan"), float("nan")
    try:
        exact = Decimal(text)
    except InvalidOperation:
        raise PaperValuesError(f"{where} must be a number or empty, got {text!r}.") from None
    exponent = exact.as_tuple().exponent
    if not isinstance(exponent, int):
        raise PaperValuesError(f"{where} must be finite, got {text!r}. Leave the cell empty.")
    return float(exact), 0.5 * 10.0**exponent


def read_paper_values(path: str | Path) -> pd.DataFrame:
    """Read and check one file of paper values.

    Parameters
    ----------
    path : CSV file with the columns `PAPER_VALUE_COLUMNS`

    Returns
    -------
    DataFrame with those columns (numbers as float64, texts as they stand, empty if missing), and
    `resolution`: half a unit of the last digit that the paper prints of `value`.

    Raises
    ------
    FileNotFoundError  if there is no such file.
    PaperValuesError  on other columns, an unknown kind, a text where a number belongs, a value
        outside its interval, a number that is called unknown, an unsourced line, or a repeated one.
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(
            f"no paper values at {source}. They are part of the repository, in data/paper_values/."
        )
    with source.open(newline="", encoding="utf-8") as stream:
        lines = list(csv.reader(stream))
    if not lines or tuple(lines[0]) != PAPER_VALUE_COLUMNS:
        raise PaperValuesError(
            f"{source.name} must start with the columns {', '.join(PAPER_VALUE_COLUMNS)}, got "
            f"{', '.join(lines[0]) if lines else 'an empty file'}."
        )
    records = []
    seen: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(lines[1:], start=2):
        where = f"{source.name}, line {number}"
        if len(line) != len(PAPER_VALUE_COLUMNS):
            raise PaperValuesError(
                f"{where}: expected {len(PAPER_VALUE_COLUMNS)} cells, got {len(line)}. "
                "Quote texts with commas."
            )
        record: dict[str, str | float] = dict(zip(PAPER_VALUE_COLUMNS, line, strict=True))
        _check(record, where)
        for name in _NUMBERS:
            value, resolution = _number(str(record[name]), f"{where}: {name}")
            record[name] = value
            if name == "value":
                record["resolution"] = resolution
        _check_interval(record, where)
        identity = (*line[:5], line[5], line[6])
        if identity in seen:
            raise PaperValuesError(f"{where} repeats line {seen[identity]}.")
        seen[identity] = number
        records.append(record)
    frame = pd.DataFrame(records, columns=[*PAPER_VALUE_COLUMNS, "resolution"])
    return frame.astype({name: "float64" for name in (*_NUMBERS, "resolution")})


def _check(record: dict[str, str | float], where: str) -> None:
    missing = [name for name in _NEEDED if not record[name]]
    if missing:
        raise PaperValuesError(f"{where}: {', '.join(missing)} must not be empty.")
    if record["kind"] not in PAPER_KINDS:
        raise PaperValuesError(
            f"{where}: kind must be one of {', '.join(PAPER_KINDS)}, got {record['kind']!r}."
        )
    if (record["kind"] == "unknown") and record["value"]:
        raise PaperValuesError(
            f"{where}: kind unknown must have no value, got {record['value']!r}. "
            "Name the kind of the source."
        )
    if not record["value"] and record["kind"] in ("table", "read_from_plot"):
        raise PaperValuesError(f"{where}: kind {record['kind']} needs a value. Use kind unknown.")


def _check_interval(record: dict[str, str | float], where: str) -> None:
    value, low, high = (float(record[name]) for name in _NUMBERS)
    if low > value or value > high or low > high:  # false where a bound is missing
        raise PaperValuesError(
            f"{where}: low <= value <= high must hold, got {low}, {value}, {high}."
        )
