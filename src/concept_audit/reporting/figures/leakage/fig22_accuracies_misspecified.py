"""Figure 22: accuracies of the models of Figure 8.

Rows: scope "mean", metrics `concept_accuracy`, `task_accuracy`, target "mean"; models and data
sets as for `fig08_misspecified`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._variants import draw_variants
from concept_audit.reporting.style import styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """Concept and task accuracy for both tasks."""
    return draw_variants(
        rows,
        "fig22_accuracies_misspecified",
        ["concept_accuracy", "task_accuracy"],
        variant="nonlinear",
        labels=("well-specified linear head", "misspecified linear head"),
        head="linear",
        bars=False,
    )
