"""CBX-Bench, Table 4: recovery of weak rankings by judges and councils."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from concept_audit.reporting.tables.cbx._beside import beside_paper, dataset_label, model_label

__all__ = ["build"]

_EXTRA = ("recovery_weak",)


def build(rows: pd.DataFrame, paper_values: pd.DataFrame) -> pd.DataFrame:
    """Recovery in the weak setting on three scales, ours beside the paper's.

    Parameters
    ----------
    rows : results table, with the council's rows
    paper_values : from `read_paper_values`

    Returns
    -------
    DataFrame with `COMPARISON_COLUMNS`
    """
    return beside_paper(rows, paper_values, "tab04_weak_recovery", extra=_EXTRA, label=_label)


def _label(row: Mapping[Any, Any]) -> tuple[str, str]:
    dataset = str(row["dataset"])
    return model_label(row["model"]), "overall" if dataset == "overall" else dataset_label(dataset)
