"""Figure 10: task information of CEM vectors (eq. 10) beside task and concept accuracy.

Rows: scope "mean", metrics `concepts_task_information`, `task_accuracy`, `concept_accuracy`,
target "mean", `model` cem, every `lambda_concept` and `p_int`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._cem import draw_cem_scores
from concept_audit.reporting.style import styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """I(CT), task accuracy and concept accuracy against lambda."""
    return draw_cem_scores(
        rows,
        "fig10_cem_task_information",
        ["concepts_task_information", "task_accuracy", "concept_accuracy"],
    )
