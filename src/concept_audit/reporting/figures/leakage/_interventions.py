"""Rows of intervention curves (Figures 3, 4, 25)."""

from __future__ import annotations

import pandas as pd

from concept_audit.reporting.selection import Number, Setting, number, tidied

__all__ = ["reference_number", "steps"]


def steps(rows: pd.DataFrame) -> list[float]:
    """Numbers of intervened concepts, increasing."""
    return sorted({float(step) for step in rows["step"].dropna()})


def reference_number(rows: pd.DataFrame, setting: Setting) -> Number | None:
    """Accuracy of the head trained on true concepts, where the rows have it.

    The head does not depend on the concept output, so rows of any are taken; several runs that
    disagree give no line.
    """
    found = rows[
        (rows["metric"] == "reference_task_accuracy")
        & (rows["scope"] == "mean")
        & (rows["dataset"] == setting.dataset)
    ]
    return number(tidied(found)) if found["value"].nunique() == 1 else None
