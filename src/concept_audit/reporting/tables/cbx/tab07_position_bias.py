"""CBX-Bench, Table 7: position bias of pairwise judging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from concept_audit.reporting.tables.cbx._beside import beside_paper, model_label

__all__ = ["build"]

_EXTRA = {
    "position_bias": "disagreement",
    "position_bias_4way": "disagreement, both equalities apart",
    "position_bias_strict_flip": "from one model to the other",
}


def build(rows: pd.DataFrame, paper_values: pd.DataFrame) -> pd.DataFrame:
    """Share of answers that change under a swap, ours beside the paper's.

    Parameters
    ----------
    rows : results table, with the council's rows
    paper_values : from `read_paper_values`

    Returns
    -------
    DataFrame with `COMPARISON_COLUMNS`
    """
    return beside_paper(rows, paper_values, "tab07_position_bias", extra=_EXTRA, label=_label)


def _label(row: Mapping[Any, Any]) -> tuple[str, str]:
    return model_label(row["model"]), _EXTRA[row["metric"]]
