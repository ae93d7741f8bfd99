"""Figure 18: each score against the intervention score (Appendix D).

Rows: scope "mean", target "mean", metrics `ctl`, `icl`, `ois_reference`, `ois` and
`intervention_score`; CBMs of every encoding and `lambda_concept`.
Optional: scope "comparison", metrics `pearson_r` and `pearson_p`, target such as
"ctl~intervention_score", for the line of text in a panel.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from concept_audit.reporting.panels import encoding_series, legend, setting_metric_grid
from concept_audit.reporting.selection import (
    Model,
    Setting,
    interval_caption,
    lambdas,
    missing_rows,
    model_rows,
    number,
    present_metrics,
    select,
    setting_rows,
    settings,
    tidied,
)
from concept_audit.reporting.style import (
    ENCODING_COLOURS,
    ENCODING_MARKERS,
    axis_label,
    caption,
    ramp,
    styled,
)

__all__ = ["draw"]

_STEM = "fig18_scatter"
_SCORES = ("ctl", "icl", "ois_reference", "ois")


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """One point with both intervals for each class of models; darker means a larger lambda."""
    selected = select(rows, _STEM, (*_SCORES, "intervention_score"))
    complete = [
        setting
        for setting in settings(selected)
        if {"intervention_score"} < set(setting_rows(selected, setting)["metric"])
    ]
    present = [m for m in present_metrics(selected, _SCORES)]
    if not complete:
        raise missing_rows(
            _STEM, ("intervention_score", *_SCORES), "mean", "both for a data set", rows
        )
    figure, panels, lowest = setting_metric_grid(complete, present)
    encodings = [e for e in ("hard", "soft", "logit") if e in set(selected["encoding"])]
    for (setting, metric), axes in panels.items():
        part = setting_rows(selected, setting)
        for encoding in encodings:
            _points(axes, part[part["encoding"] == encoding], encoding, metric)
        _correlation(axes, rows, setting, metric)
    for axes in lowest:
        axes.set_xlabel(axis_label("intervention_score"))
    legend(figure, [encoding_series(encoding) for encoding in encodings], "points")
    caption(
        figure,
        [
            *interval_caption(selected, "Points"),
            "Darker points have a larger λ. r: Pearson correlation with its pooled p-value.",
        ],
    )
    return figure


def _points(axes: Axes, part: pd.DataFrame, encoding: str, metric: str) -> None:
    """Points of one encoding in shades by lambda."""
    levels: list[float | None] = [*lambdas(part)]
    levels = levels or [None]
    found = []
    for level, shade in zip(levels, ramp(ENCODING_COLOURS[encoding], len(levels)), strict=True):
        own = model_rows(part, Model(encoding, level))
        x, y = number(own, metric="intervention_score"), number(own, metric=metric)
        if x is not None and y is not None:
            found.append((x, y, shade))
    if not found:
        return
    shades = [shade for _, _, shade in found]
    axes.errorbar(
        [x.value for x, _, _ in found],
        [y.value for _, y, _ in found],
        xerr=[[x.value - x.low for x, _, _ in found], [x.high - x.value for x, _, _ in found]],
        yerr=[[y.value - y.low for _, y, _ in found], [y.high - y.value for _, y, _ in found]],
        fmt="none",
        ecolor=shades,  # type: ignore[arg-type]  # a list is accepted, the stubs do not say so
        elinewidth=0.6,
    )
    axes.scatter(
        [x.value for x, _, _ in found],
        [y.value for _, y, _ in found],
        s=20,
        c=shades,
        marker=ENCODING_MARKERS[encoding],
        linewidths=0,
        label=encoding,
        zorder=2.5,
    )


def _correlation(axes: Axes, rows: pd.DataFrame, setting: Setting, metric: str) -> None:
    """Correlation as last line of the title, where a comparison row has it."""
    found = rows[
        (rows["scope"] == "comparison") & (rows["target"] == f"{metric}~intervention_score")
    ]
    found = setting_rows(tidied(found), setting)
    r, p = number(found, metric="pearson_r"), number(found, metric="pearson_p")
    if r is None:
        return
    words = f"r = {r.value:.2f}" + (f", p = {p.value:.1g}" if p is not None else "")
    axes.set_title("\n".join(filter(None, [axes.get_title(), words])))
