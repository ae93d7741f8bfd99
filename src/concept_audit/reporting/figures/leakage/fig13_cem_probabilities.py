"""Figure 13: leakage of CEM probabilities.

Rows: scope "mean", metrics `ctl`, `icl`,
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
    """CTL and ICL of the probabilities against lambda."""
    return draw_cem_scores(rows, "fig13_cem_probabilities", ["ctl", "icl"])
