"""Figure 7: leakage with complete and with incomplete concept sets.

Rows: scope "mean", metrics `ctl`, `icl`, target "mean", soft CBMs, `lambda_concept` 0.1, 1 and 5
(all present if none of these is), data sets in pairs such as `tabulartoy_d025` and
`tabulartoy_incomplete`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._variants import draw_variants
from concept_audit.reporting.style import styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """Bars of CTL and ICL for both concept sets."""
    return draw_variants(
        rows,
        "fig07_incomplete",
        ["ctl", "icl"],
        variant="incomplete",
        labels=("complete concepts", "incomplete concepts"),
    )
