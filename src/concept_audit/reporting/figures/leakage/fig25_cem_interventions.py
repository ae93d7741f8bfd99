"""Figure 25: how CEMs react to interventions (Appendix G).

Rows: scope "mean", metric `intervention_accuracy` with target "random" and step = number of
concepts, and metric `intervention_score` with target "mean"; `model` cem, every `lambda_concept`
and `p_int`. Optional: scope "mean", metric `reference_task_accuracy` of the same data set.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._cem import intervention_probabilities
from concept_audit.reporting.figures.leakage._interventions import reference_number, steps
from concept_audit.reporting.panels import (
    LAMBDA_LABEL,
    STEP_LABEL,
    apart,
    curve,
    grid,
    lambda_axis,
    legend,
    panel_title,
    reference_line,
    shaded_series,
    step_axis,
)
from concept_audit.reporting.selection import (
    interval_caption,
    lambdas,
    number,
    select,
    setting_rows,
    settings,
)
from concept_audit.reporting.style import ENCODING_COLOURS, axis_label, caption, styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """A row for each setting: curves of each p_int with a line per lambda, then S_int."""
    metrics = ("intervention_accuracy", "intervention_score")
    selected = select(rows, "fig25_cem_interventions", metrics, encodings=("cem",), target=None)
    selected = selected[
        selected["target"].eq(
            selected["metric"].map(
                {"intervention_accuracy": "random", "intervention_score": "mean"}
            )
        )
    ]
    curves = selected[selected["metric"] == "intervention_accuracy"]
    scores = selected[selected["metric"] == "intervention_score"]
    chances = intervention_probabilities(selected)
    curve_chances = intervention_probabilities(curves)
    levels = lambdas(selected)
    shown = settings(selected)
    by_lambda = shaded_series([f"λ = {level:g}" for level in levels], ENCODING_COLOURS["cem"])
    n_columns = len(curve_chances) + int(not scores.empty)
    figure, axes = grid(len(shown), n_columns, width=2.4, height=2.0)
    drawn = []
    for line, setting in zip(axes, shown, strict=True):
        part = setting_rows(curves, setting)
        for panel, chance in zip(line, curve_chances, strict=False):
            panel_title(panel, setting, f"p_int = {chance:g}")
            own = part[part["p_int"].astype(float) == chance]
            counts = steps(own)
            for i, (level, one) in enumerate(zip(levels, by_lambda, strict=True)):
                shift = 0.025 * max(counts, default=0.0) * (i - (len(levels) - 1) / 2)
                points = [
                    (step + shift, number(own, step=step, lambda_concept=level)) for step in counts
                ]
                curve(panel, points, one, band=False)
            drawn.append(reference_line(panel, reference_number(rows, setting)))
            step_axis(panel)
            panel.set_xlabel(STEP_LABEL)
            panel.set_ylabel(axis_label("intervention_accuracy"))
            if panel is not line[0]:
                panel.sharey(line[0])
        if not scores.empty:
            panel, part = line[-1], setting_rows(scores, setting)
            panel_title(panel, setting, "S_int, all concepts set")
            greys = shaded_series([f"p_int = {chance:g}" for chance in chances], "#555555")
            for i, (chance, one) in enumerate(zip(chances, greys, strict=True)):
                points = [
                    (level * apart(i, len(greys)), number(part, lambda_concept=level, p_int=chance))
                    for level in levels
                ]
                curve(panel, points, one, band=False)
            panel.axhline(0.0, color="black", linewidth=0.7)
            lambda_axis(panel, levels)
            panel.set_xlabel(LAMBDA_LABEL)
            panel.set_ylabel(axis_label("intervention_score"))
    entries = by_lambda if scores.empty else [*by_lambda, *greys]
    legend(figure, entries, "lines", others=drawn)
    sentences = interval_caption(selected, "Points")
    sentences.append("Points of different λ or p_int are set slightly apart along the axis.")
    caption(figure, sentences)
    return figure
