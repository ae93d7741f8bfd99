"""Figure 6: leakage of soft and logit models at low, intermediate and high supervision.

Rows: scope "mean", metrics `ctl`, `icl`, target "mean", `model` cbm, encodings soft and logit,
`lambda_concept` 0.1, 1 and 5 (all that are present if none of these is). One column of panels for
each data set and concept output.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._supervision import (
    draw_supervision,
    supervision_levels,
)
from concept_audit.reporting.style import styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """Bars of CTL and ICL at three weights of the concept loss."""
    return draw_supervision(rows, "fig06_supervision", supervision_levels)
