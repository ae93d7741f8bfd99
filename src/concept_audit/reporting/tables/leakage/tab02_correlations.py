"""Leakage paper, Table 2: correlation of leakage scores with the intervention score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from concept_audit.reporting.tables.matching import (
    base_dataset,
    comparison,
    comparison_frame,
    find,
    with_base_dataset,
)

__all__ = ["build"]

_HELD_AGAINST, _BESIDE = "leaky_relu", "linear"
# The paper ran OIS with its original settings, so that form is the one to hold against it.
_SCORES = {"CTL": "ctl", "ICL": "icl", "OIS": "ois_reference"}


def build(rows: pd.DataFrame, paper_values: pd.DataFrame) -> pd.DataFrame:
    """Pearson r and p of CTL, ICL and OIS with S_int, ours beside the paper's.

    Parameters
    ----------
    rows : results table; rows of scope comparison, metrics pearson_r and pearson_p, are read
    paper_values : from `read_paper_values`

    Returns
    -------
    DataFrame with `COMPARISON_COLUMNS`; `n` counts classes of models. `ours` are TabularToy models
    with LeakyReLU and dropout on their concept outputs, `beside` the same with linear outputs.
    """
    rows = with_base_dataset(rows)
    rows = rows[rows["scope"] == "comparison"]
    values = paper_values[paper_values["artefact"] == "tab02_correlations"]
    lines = []
    for line in values.to_dict("records"):
        score = line["column"].split()[0]
        ours, beside = _pair(rows, line, line["metric"])
        p_values: dict[str, float | None] = {}
        if line["metric"] == "pearson_r":
            p_row, _ = _pair(rows, line, "pearson_p")
            paper_p = values[(values["row"] == line["row"]) & (values["column"] == f"{score} p")][
                "value"
            ]
            p_values = {
                "ours_p": None if p_row is None else float(p_row["value"]),
                "paper_p": float(paper_p.iloc[0]) if len(paper_p) else None,
            }
        note = "" if ours is None or pd.isna(ours["note"]) else str(ours["note"])
        lines.append(comparison(line, ours, beside=beside, note=note, **p_values))
    return comparison_frame(lines)


def _pair(
    rows: pd.DataFrame, line: Mapping[Any, Any], metric: str
) -> tuple[pd.Series | None, pd.Series | None]:
    """Our row to hold against the paper, and the one to show beside it."""
    dataset = base_dataset(line["dataset"])
    target = f"{_SCORES[line['column'].split()[0]]}~intervention_score"
    candidates = rows[
        (rows["dataset"] == dataset) & (rows["metric"] == metric) & (rows["target"] == target)
    ]
    ours = find(candidates, concept_output=_HELD_AGAINST)
    beside = find(candidates, concept_output=_BESIDE)
    if ours is None and not dataset.startswith("tabulartoy"):
        return beside, None  # image encoders have linear outputs only
    return ours, beside
