"""CBX-Bench, Table 1: size of the study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from concept_audit.reporting.tables.cbx._beside import beside_paper, dataset_label

__all__ = ["build"]

_EXTRA = {
    "n_images": "images",
    "n_pairs_per_image": "pairs per image",
    "n_items": "items",
    "n_judgments": "judgments",
}


def build(rows: pd.DataFrame, paper_values: pd.DataFrame) -> pd.DataFrame:
    """Data sets, images, comparisons and answers, ours beside the paper's.

    Parameters
    ----------
    rows : results table, with the council's rows
    paper_values : from `read_paper_values`

    Returns
    -------
    DataFrame with `COMPARISON_COLUMNS`
    """
    return beside_paper(rows, paper_values, "tab01_design", extra=_EXTRA, label=_label)


def _label(row: Mapping[Any, Any]) -> tuple[str, str]:
    return dataset_label(row["dataset"]), _EXTRA[row["metric"]]
