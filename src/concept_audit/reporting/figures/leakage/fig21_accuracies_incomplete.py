"""Figure 21: accuracies of the models of Figure 7.

Rows: scope "mean", metrics `concept_accuracy`, `task_accuracy`, target "mean"; models and data
sets as for `fig07_incomplete`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._variants import draw_variants
from concept_audit.reporting.style import styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """Concept and task accuracy for both concept sets."""
    return draw_variants(
        rows,
        "fig21_accuracies_incomplete",
        ["concept_accuracy", "task_accuracy"],
        variant="incomplete",
        labels=("complete concepts", "incomplete concepts"),
        bars=False,
    )
