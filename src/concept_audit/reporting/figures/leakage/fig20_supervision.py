"""Figure 20: leakage of soft and logit models at every weight up to 10, all data sets.

Rows: as for `fig06_supervision`, with every `lambda_concept` up to 10 (larger ones belong to
`fig19_lambda_range`).
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._supervision import draw_supervision
from concept_audit.reporting.style import styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """Bars of CTL and ICL at every weight of the concept loss up to 10."""
    return draw_supervision(
        rows,
        "fig20_supervision",
        lambda levels: [level for level in levels if level <= 10.0] or list(levels),
    )
