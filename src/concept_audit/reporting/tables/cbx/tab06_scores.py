"""CBX-Bench, Table 6: scores and accuracies of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from concept_audit.reporting.tables.cbx._beside import beside_paper, dataset_label, model_label

__all__ = ["build"]

_EXTRA = {
    "cbx_score": "score",
    "cbx_rank": "rank by score",
    "task_accuracy": "accuracy",
    "accuracy_rank": "rank by accuracy",
}


def build(rows: pd.DataFrame, paper_values: pd.DataFrame) -> pd.DataFrame:
    """Score in [0, 1], accuracy in points, and both ranks, ours beside the paper's.

    Parameters
    ----------
    rows : results table, with the council's rows
    paper_values : from `read_paper_values`

    Returns
    -------
    DataFrame with `COMPARISON_COLUMNS`
    """
    return beside_paper(rows, paper_values, "tab06_scores", extra=_EXTRA, label=_label)


def _label(row: Mapping[Any, Any]) -> tuple[str, str]:
    return model_label(row["model"]), f"{dataset_label(row['dataset'])}, {_EXTRA[row['metric']]}"
