"""Figure 19: scores and task accuracy against the concept weight up to and beyond 10 (Appendix E).

Rows: scope "mean", target "mean", metrics `ctl`, `icl`, `ois_reference`, `ois`, `task_accuracy`;
soft and logit CBMs at every `lambda_concept`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.panels import (
    LAMBDA_LABEL,
    curve,
    encoding_series,
    lambda_axis,
    legend,
    setting_metric_grid,
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
from concept_audit.reporting.style import caption, styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """Lines with bands; a dotted line marks a weight of 10, beyond which the paper sees harm."""
    metrics = ["ctl", "icl", "ois_reference", "ois", "task_accuracy"]
    selected = select(rows, "fig19_lambda_range", metrics, encodings=("soft", "logit"))
    shown, present = settings(selected), present_metrics(selected, metrics)
    encodings = [e for e in ("soft", "logit") if e in set(selected["encoding"])]
    series = [encoding_series(encoding) for encoding in encodings]
    figure, panels, lowest = setting_metric_grid(shown, present)
    for (setting, metric), axes in panels.items():
        part = setting_rows(selected, setting)
        levels = lambdas(part)
        for encoding, one in zip(encodings, series, strict=True):
            points = [
                (level, number(part, metric=metric, encoding=encoding, lambda_concept=level))
                for level in levels
            ]
            curve(axes, points, one)
        lambda_axis(axes, levels)
        axes.axvline(10.0, color="black", linewidth=0.8, linestyle=":")
    for axes in lowest:
        axes.set_xlabel(LAMBDA_LABEL)
    legend(figure, series, "lines")
    caption(
        figure,
        [*interval_caption(selected, "Points", interval="bands"), "Dotted line: λ = 10."],
    )
    return figure
