"""Figure 12: what CEM vectors tell about their own and other concepts (eq. 11, 12).

Rows: scope "mean", metrics `concept_accuracy`, `self_information`, `interconcept_information`,
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
    """Concept accuracy, I(self) and I(IC) against lambda."""
    return draw_cem_scores(
        rows,
        "fig12_cem_self_interconcept",
        ["concept_accuracy", "self_information", "interconcept_information"],
    )
