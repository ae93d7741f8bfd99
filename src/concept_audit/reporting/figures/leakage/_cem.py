"""Scores of concept embedding models against the concept weight, a line for each p_int."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.panels import (
    LAMBDA_LABEL,
    Series,
    apart,
    curve,
    lambda_axis,
    legend,
    setting_metric_grid,
    shaded_series,
)
from concept_audit.reporting.selection import (
    interval_caption,
    lambdas,
    number,
    present_metrics,
    select,
    setting_rows,
    settings,
)
from concept_audit.reporting.style import ENCODING_COLOURS, caption

__all__ = ["draw_cem_scores", "intervention_probabilities", "probability_series"]


def intervention_probabilities(rows: pd.DataFrame) -> list[float]:
    """Chances of a training intervention found in selected rows, increasing."""
    return sorted({float(v) for v in rows["p_int"].dropna()})


def probability_series(chances: Sequence[float]) -> list[Series]:
    """Lines of the chances of a training intervention: the darker, the likelier."""
    return shaded_series([f"p_int = {chance:g}" for chance in chances], ENCODING_COLOURS["cem"])


def draw_cem_scores(rows: pd.DataFrame, stem: str, metrics: Sequence[str]) -> Figure:
    """One panel for each data set and metric: mean with whiskers against lambda."""
    selected = select(rows, stem, metrics, encodings=("cem",))
    shown, present = settings(selected), present_metrics(selected, metrics)
    chances = intervention_probabilities(selected)
    series = probability_series(chances)
    figure, panels, lowest = setting_metric_grid(shown, present)
    for (setting, metric), axes in panels.items():
        part = setting_rows(selected, setting)
        levels = lambdas(part)
        for i, (chance, one) in enumerate(zip(chances, series, strict=True)):
            points = [
                (
                    level * apart(i, len(series)),
                    number(part, metric=metric, lambda_concept=level, p_int=chance),
                )
                for level in levels
            ]
            curve(axes, points, one, band=False)
        lambda_axis(axes, levels)
        if metric == "alignment_leakage":
            axes.axhline(0.0, color="black", linewidth=0.7)
    for axes in lowest:
        axes.set_xlabel(LAMBDA_LABEL)
    legend(figure, series, "lines")
    caption(
        figure,
        [
            *interval_caption(selected, "Points"),
            "Points of different p_int are set slightly apart along the axis.",
        ],
    )
    return figure
