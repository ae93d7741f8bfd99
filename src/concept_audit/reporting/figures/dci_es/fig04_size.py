"""Figure 4: size of a representation against its informativeness and explicitness.

Rows: scope "run" with empty `repeat` (mean over fits of the probes to one trained representation,
lowest fold), target "mean", metrics `size_<probe>`, `informativeness_<probe>` and
`explicitness_<probe>` (which `compare: [explicitness]` adds), of MLP probes; any data sets.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from concept_audit.reporting.panels import grid, legend, panel_title
from concept_audit.reporting.representations import (
    order_representations,
    probe_label,
    representation_series,
)
from concept_audit.reporting.selection import (
    counted,
    number,
    select,
    setting_rows,
    settings,
)
from concept_audit.reporting.style import STANDIN_NOTE, axis_label, caption, parse_dataset, styled

__all__ = ["draw"]

_STEM = "fig04_size"
_PROBE = "mlp"
_SCORES = ("informativeness", "explicitness")


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """A row of panels for each data set: I and E against S, a point for each representation."""
    metrics = [f"{score}_{_PROBE}" for score in (*_SCORES, "size")]
    selected = select(rows, _STEM, metrics, scope="run", encodings=())
    shown = settings(selected)
    models = order_representations(selected["model"])
    figure, axes = grid(len(shown), len(_SCORES), width=3.0, height=2.3)
    for setting, line in zip(shown, axes, strict=True):
        part = setting_rows(selected, setting)
        for score, panel in zip(_SCORES, line, strict=True):
            panel_title(panel, setting, probe_label(_PROBE))
            panel.set_xscale("log")
            for model in models:
                _point(panel, part[part["model"] == model], score, model)
            panel.set_ylabel(axis_label(score))
            panel.set_xlabel("size S (factors per code, log scale)")
    legend(figure, [representation_series(model) for model in models], "points")
    sentences = [f"Points: mean over fits of the probes ({counted(selected)}); larger codes left."]
    if selected["low"].notna().any():
        sentences.append("Whiskers: 95 % t interval over the fits.")
    if any(parse_dataset(name).standin for name in set(selected["dataset"])):
        sentences.append(STANDIN_NOTE)
    caption(figure, sentences)
    return figure


def _point(axes: Axes, rows: pd.DataFrame, score: str, model: str) -> None:
    """One representation, with its interval where it has one."""
    size = number(rows, metric=f"size_{_PROBE}")
    value = number(rows, metric=f"{score}_{_PROBE}")
    if size is None or value is None:
        return
    series = representation_series(model)
    if value.has_interval:
        axes.vlines(size.value, value.low, value.high, color=series.colour, linewidth=0.9)
    axes.plot(
        [size.value],
        [value.value],
        linestyle="none",
        marker=series.marker,
        color=series.colour,
        label=series.label,
    )
