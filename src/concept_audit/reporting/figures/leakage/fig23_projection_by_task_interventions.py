"""Figure 23: as Figure 9 for CEMs trained with interventions.

Rows: scope "run", metrics `projection_1`, `projection_2`, target = the concept shown, step = sample
number, note = labels such as "y=1,c2=0,c3=1"; CEMs with every `p_int` above 0; the smallest and
largest `lambda_concept`, lowest fold.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._projection import by_task, draw_projection
from concept_audit.reporting.style import styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """Scatter plots at the lowest and the highest weight of the concept loss."""
    return draw_projection(
        rows, "fig23_projection_by_task_interventions", by_task, interventions=True
    )
