"""Figure 8: leakage with a well-specified and with a misspecified linear head.

Rows: scope "mean", metrics `ctl`, `icl`, target "mean", soft CBMs with `head` linear,
`lambda_concept` 0.1, 1 and 5 (all present if none of these is), data sets in pairs such as
`tabulartoy_d025` (linear task) and `tabulartoy_nonlinear`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._variants import draw_variants
from concept_audit.reporting.style import styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """Bars of CTL and ICL for both tasks."""
    return draw_variants(
        rows,
        "fig08_misspecified",
        ["ctl", "icl"],
        variant="nonlinear",
        labels=("well-specified linear head", "misspecified linear head"),
        head="linear",
    )
