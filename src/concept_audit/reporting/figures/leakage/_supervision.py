"""Leakage of soft and logit models as bars over the weight of the concept loss (Figures 6, 20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.panels import (
    LAMBDA_LABEL,
    encoding_series,
    grouped_bars,
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
from concept_audit.reporting.style import caption

__all__ = ["draw_supervision", "supervision_levels"]

_LEVELS = (0.1, 1.0, 5.0)  # low, intermediate, high: our choice, the paper's are not in its text


def supervision_levels(found: Sequence[float]) -> list[float]:
    """Low, intermediate and high weight of those present; all of them if none of the three is."""
    return [v for v in found if v in _LEVELS] or list(found)


def draw_supervision(
    rows: pd.DataFrame, stem: str, levels: Callable[[Sequence[float]], list[float]]
) -> Figure:
    """CTL and ICL against lambda, a pair of bars (soft, logit) at each of the chosen levels."""
    selected = select(rows, stem, ["ctl", "icl"], encodings=("soft", "logit"))
    shown, metrics = settings(selected), present_metrics(selected, ["ctl", "icl"])
    encodings = [e for e in ("soft", "logit") if e in set(selected["encoding"])]
    series = [encoding_series(encoding) for encoding in encodings]
    chosen = {s: levels(lambdas(setting_rows(selected, s))) for s in shown}
    most = max(len(values) for values in chosen.values())
    figure, panels, lowest = setting_metric_grid(shown, metrics, width=max(2.3, 0.42 * most))
    for (setting, metric), axes in panels.items():
        part = setting_rows(selected, setting)
        numbers = {
            (f"{level:g}", one.label): number(
                part, metric=metric, encoding=encoding, lambda_concept=level
            )
            for level in chosen[setting]
            for encoding, one in zip(encodings, series, strict=True)
        }
        grouped_bars(axes, [f"{level:g}" for level in chosen[setting]], series, numbers)
    for axes in lowest:
        axes.set_xlabel(LAMBDA_LABEL)
    legend(figure, series, "bars")
    caption(figure, interval_caption(selected, "Bars"))
    return figure
