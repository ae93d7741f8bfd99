"""CBX-Bench, Table 5: recovery where all annotators agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from concept_audit.reporting.tables.cbx._beside import beside_paper, dataset_label, model_label

__all__ = ["build"]

_EXTRA = {
    "recovery_weak_unanimous": "ties included",
    "recovery_strict_unanimous": "CBM-only",
}


def build(rows: pd.DataFrame, paper_values: pd.DataFrame) -> pd.DataFrame:
    """Recovery on unanimous comparisons, ours beside the paper's.

    Parameters
    ----------
    rows : results table, with the council's rows
    paper_values : from `read_paper_values`

    Returns
    -------
    DataFrame with `COMPARISON_COLUMNS`
    """
    return beside_paper(rows, paper_values, "tab05_unanimous", extra=_EXTRA, label=_label)


def _label(row: Mapping[Any, Any]) -> tuple[str, str]:
    row_label = f"{model_label(row['model'])}, {dataset_label(row['dataset'])}"
    return row_label, _EXTRA[row["metric"]]
