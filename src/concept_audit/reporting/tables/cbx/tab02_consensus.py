"""CBX-Bench, Table 2: consensus of annotators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from concept_audit.reporting.tables.cbx._beside import beside_paper, dataset_label

__all__ = ["build"]

_WORDS = {
    "unanimous": "unanimous",
    "majority": "majority only",
    "none": "none",
    "preference": "clear preference",
    "tie": "tie",
}
_EXTRA = {
    f"consensus_{key}_{kind}": f"{words}, {kind}"
    for key, words in _WORDS.items()
    for kind in ("items", "share")
}


def build(rows: pd.DataFrame, paper_values: pd.DataFrame) -> pd.DataFrame:
    """Strength of consensus and kinds of labels, ours beside the paper's.

    Parameters
    ----------
    rows : results table, with the council's rows
    paper_values : from `read_paper_values`

    Returns
    -------
    DataFrame with `COMPARISON_COLUMNS`
    """
    return beside_paper(rows, paper_values, "tab02_consensus", extra=_EXTRA, label=_label)


def _label(row: Mapping[Any, Any]) -> tuple[str, str]:
    return dataset_label(row["dataset"]), _EXTRA[row["metric"]]
