"""Figure 14: alignment leakage of CEMs (eq. 13).

Rows: scope "mean", metrics `alignment_leakage`,
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
    """I(align) against lambda, with a line at 0."""
    return draw_cem_scores(rows, "fig14_alignment", ["alignment_leakage"])
