"""Figure 5: scores of hard CBMs, which cannot leak, on every data set.

Rows: scope "mean", metrics `ctl`, `icl`, `ois_reference`, `ois`, target "mean", `model` cbm,
encoding hard.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.panels import encoding_series, grid, grouped_bars
from concept_audit.reporting.selection import (
    interval_caption,
    number,
    present_metrics,
    select,
    setting_rows,
    settings,
)
from concept_audit.reporting.style import axis_label, caption, styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """A panel for each score, a bar for each data set; all panels share the scale."""
    metrics = ["ctl", "icl", "ois_reference", "ois"]
    selected = select(rows, "fig05_hard_models", metrics, encodings=("hard",))
    shown, present = settings(selected), present_metrics(selected, metrics)
    series = [encoding_series("hard")]
    groups = [setting.label for setting in shown]
    figure, axes = grid(
        1,
        len(present),
        width=2.1,
        height=max(1.8, 0.9 + 0.34 * len(shown)),
        extra=(1.8, 0.4),
        sharey=True,
        sharex=True,
    )
    for panel, metric in zip(axes[0], present, strict=True):
        numbers = {
            (setting.label, series[0].label): number(setting_rows(selected, setting), metric=metric)
            for setting in shown
        }
        grouped_bars(panel, groups, series, numbers, horizontal=True)
        panel.set_xlabel(axis_label(metric))
        panel.axvline(0.0, color="black", linewidth=0.7)
    axes[0, 0].set_ylabel("data set, hard CBM")
    caption(figure, interval_caption(selected, "Bars"))
    return figure
