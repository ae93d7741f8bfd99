"""Building blocks of figures: grids of panels, bars and points with intervals, curves, heatmaps.

Each function draws given numbers onto given axes and labels them; none averages or fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullFormatter, NullLocator

from concept_audit.reporting.selection import Number, Setting
from concept_audit.reporting.style import (
    ENCODING_COLOURS,
    ENCODING_MARKERS,
    GREY,
    axis_label,
    mark_standin,
    parse_dataset,
    ramp,
    tint,
)

__all__ = [
    "LAMBDA_LABEL",
    "REFERENCE_LABEL",
    "STEP_LABEL",
    "Series",
    "apart",
    "curve",
    "encoding_series",
    "grid",
    "grouped_bars",
    "heatmap",
    "interval_points",
    "lambda_axis",
    "legend",
    "panel_title",
    "reference_line",
    "setting_metric_grid",
    "shaded_series",
    "step_axis",
]

LAMBDA_LABEL = "concept weight λ (unitless)"
STEP_LABEL = "concepts intervened on (number)"
REFERENCE_LABEL = "head trained on true concepts"
_LINE_STYLES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


@dataclass(frozen=True)
class Series:
    """One entry of a legend: words, colour, and what repeats the distinction without colour."""

    label: str
    colour: str
    marker: str = "o"
    line: str = "-"
    hatch: str = ""

    @property
    def face(self) -> str:
        """Filling of a bar or point: pale where hatched, so that the hatching shows."""
        return tint(self.colour, 0.65) if self.hatch else self.colour


def encoding_series(encoding: str, label: str = "") -> Series:
    """Series of an encoding in its fixed colour and marker."""
    words = label or ("CEM" if encoding == "cem" else f"{encoding} concepts")
    return Series(words, ENCODING_COLOURS[encoding], ENCODING_MARKERS[encoding])


def shaded_series(labels: Sequence[str], colour: str) -> list[Series]:
    """Ordered series in shades of one colour, light to dark, with their own markers and lines."""
    shades = ramp(colour, len(labels))
    return [
        Series(label, shade, _MARKERS[i % len(_MARKERS)], _LINE_STYLES[i % len(_LINE_STYLES)])
        for i, (label, shade) in enumerate(zip(labels, shades, strict=True))
    ]


def grid(
    n_rows: int,
    n_columns: int,
    *,
    width: float = 2.5,
    height: float = 1.9,
    extra: tuple[float, float] = (0.6, 0.9),
    **options: Any,
) -> tuple[Figure, np.ndarray]:
    """Figure with a grid of panels of `width` x `height` inches; axes as an array (rows, columns).

    Legend and caption have their place outside the panels, `extra` inches across and down.
    """
    size = (max(4.2, n_columns * width + extra[0]), n_rows * height + extra[1])
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, **options)
    return figure, axes


def panel_title(axes: Axes, setting: Setting, addition: str = "") -> None:
    """Title of a setting's panel, with the stand-in mark in title and background."""
    label = f"{setting.label}\n{addition}" if addition else setting.label
    if parse_dataset(setting.dataset).standin:
        mark_standin(axes)
        axes.set_title(label, color="#8c510a")
    else:
        axes.set_title(label)


def setting_metric_grid(
    settings: Sequence[Setting], metrics: Sequence[str], *, width: float = 2.5, height: float = 1.9
) -> tuple[Figure, dict[tuple[Setting, str], Axes], list[Axes]]:
    """Panels for each setting and metric, with titles and labelled y axes.

    Up to four settings stand side by side with a row for each metric; of more, as many share a row
    as give about four panels.

    Returns
    -------
    figure, axes by (setting, metric), and the lowest axes of each column, which need an x label.
    """
    if len(settings) <= 4:
        figure, axes = grid(len(metrics), len(settings), width=width, height=height, sharey="row")
        panels = {(s, m): axes[i, j] for i, m in enumerate(metrics) for j, s in enumerate(settings)}
        for setting, panel in zip(settings, axes[0], strict=True):
            panel_title(panel, setting)
        for setting, panel in zip(list(settings) * (len(metrics) - 1), axes[1:].flat, strict=True):
            if parse_dataset(setting.dataset).standin:
                mark_standin(panel)
        for metric, panel in zip(metrics, axes[:, 0], strict=True):
            panel.set_ylabel(axis_label(metric))
    else:
        together = max(1, 4 // len(metrics))
        n_rows = -(-len(settings) // together)
        figure, axes = grid(n_rows, together * len(metrics), width=width + 0.4, height=height)
        places = [(s, m) for s in settings for m in metrics]
        panels = dict(zip(places, axes.flat, strict=False))
        for panel in axes.flat[len(places) :]:
            panel.remove()
        first: dict[str, Axes] = {}
        for (setting, metric), panel in panels.items():
            panel_title(panel, setting)
            panel.set_ylabel(axis_label(metric))
            if metric in first:
                panel.sharey(first[metric])
            first.setdefault(metric, panel)
        return figure, panels, list(axes.flat[max(0, len(places) - axes.shape[1]) : len(places)])
    return figure, panels, list(axes[-1])


def _whiskers(
    axes: Axes, points: Sequence[tuple[float, Number]], colour: str, *, horizontal: bool = False
) -> None:
    """Intervals of the points that have one."""
    bounded = [(place, number) for place, number in points if number.has_interval]
    if not bounded:
        return
    places = [place for place, _ in bounded]
    values = [number.value for _, number in bounded]
    lengths = [
        [max(0.0, number.value - number.low) for _, number in bounded],
        [max(0.0, number.high - number.value) for _, number in bounded],
    ]
    style: dict[str, Any] = {"fmt": "none", "ecolor": colour, "elinewidth": 0.9, "capsize": 2}
    if horizontal:
        axes.errorbar(values, places, xerr=lengths, **style)
    else:
        axes.errorbar(places, values, yerr=lengths, **style)


def grouped_bars(
    axes: Axes,
    groups: Sequence[str],
    series: Sequence[Series],
    numbers: Mapping[tuple[str, str], Number | None],
    *,
    horizontal: bool = False,
) -> None:
    """Bars with whiskers; `numbers` by (group, series label), missing ones leave their place free.

    Horizontal bars run from the first group at the top to the last at the bottom.
    """
    thickness = 0.8 / len(series)
    for s, one in enumerate(series):
        found = [
            (g + (s - (len(series) - 1) / 2) * thickness, number)
            for g, group in enumerate(groups)
            if (number := numbers.get((group, one.label))) is not None
        ]
        places = [place for place, _ in found]
        values = [number.value for _, number in found]
        style: dict[str, Any] = {
            "color": one.face,
            "edgecolor": one.colour,
            "hatch": one.hatch,
            "linewidth": 0.7,
            "label": one.label,
        }
        if horizontal:
            axes.barh(places, values, height=0.92 * thickness, **style)
        else:
            axes.bar(places, values, width=0.92 * thickness, **style)
        _whiskers(axes, found, "black", horizontal=horizontal)
    if horizontal:
        axes.set_yticks(range(len(groups)), groups)
        axes.set_ylim(len(groups) - 0.45, -0.55)
        axes.grid(False, axis="y")
    else:
        axes.set_xticks(range(len(groups)), groups)
        axes.set_xlim(-0.55, len(groups) - 0.45)
        axes.grid(False, axis="x")


def interval_points(
    axes: Axes,
    groups: Sequence[str],
    series: Sequence[Series],
    numbers: Mapping[tuple[str, str], Number | None],
) -> None:
    """Points with whiskers, for axes that need not begin at 0; arguments as `grouped_bars`."""
    step = 0.5 / len(series)
    for s, one in enumerate(series):
        found = [
            (g + (s - (len(series) - 1) / 2) * step, number)
            for g, group in enumerate(groups)
            if (number := numbers.get((group, one.label))) is not None
        ]
        axes.plot(
            [place for place, _ in found],
            [number.value for _, number in found],
            linestyle="none",
            marker=one.marker,
            color=one.colour,
            markerfacecolor="white" if one.hatch else one.colour,
            label=one.label,
        )
        _whiskers(axes, found, one.colour)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.grid(False, axis="x")


def curve(
    axes: Axes,
    points: Sequence[tuple[float, Number | None]],
    series: Series,
    *,
    band: bool = True,
) -> None:
    """Line through (x, number) with bands or whiskers; absent numbers are left out."""
    found = [(x, number) for x, number in points if number is not None]
    if not found:
        return
    x = [place for place, _ in found]
    y = [number.value for _, number in found]
    axes.plot(
        x,
        y,
        series.line,
        color=series.colour,
        marker=series.marker,
        markersize=4,
        markevery=max(1, len(x) // 12),
        label=series.label,
    )
    bounded = [(place, number) for place, number in found if number.has_interval]
    if band and len(bounded) > 1:
        axes.fill_between(
            [place for place, _ in bounded],
            [number.low for _, number in bounded],
            [number.high for _, number in bounded],
            color=series.colour,
            alpha=0.15,
            linewidth=0,
        )
    else:
        _whiskers(axes, found, series.colour)


def apart(index: int, n: int) -> float:
    """Factor that sets the points of series `index` of `n` slightly apart on a logarithmic axis."""
    return float(1.07 ** (index - (n - 1) / 2))


def lambda_axis(axes: Axes, lambdas: Sequence[float]) -> None:
    """Logarithmic x axis with a tick at each weight; numbers stand at powers of ten if any."""
    axes.set_xscale("log")
    decades = [v for v in lambdas if abs(np.log10(v) - round(np.log10(v))) < 1e-9]
    numbered = decades if len(decades) > 1 else list(lambdas)
    axes.xaxis.set_major_locator(FixedLocator(numbered))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{v:g}" for v in numbered]))
    others = [v for v in lambdas if v not in numbered]
    axes.xaxis.set_minor_locator(FixedLocator(others) if others else NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(min(lambdas) / 1.7, max(lambdas) * 1.7)


def step_axis(axes: Axes) -> None:
    """Whole numbers of intervened concepts on the x axis."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))


def reference_line(axes: Axes, number: Number | None) -> Line2D | None:
    """Grey dashed line at the accuracy of the head trained on true concepts."""
    if number is None:
        return None
    return axes.axhline(
        number.value, color=GREY, linestyle=(0, (4, 2)), linewidth=1.0, label=REFERENCE_LABEL
    )


def heatmap(
    axes: Axes, matrix: np.ndarray, names: Sequence[str], *, low: float, high: float
) -> Any:
    """Square matrix with names on both axes; NaN cells stay grey; numbers where they fit.

    Returns
    -------
    The image, for a colour bar.
    """
    axes.set_facecolor("#dddddd")
    image = axes.imshow(np.ma.masked_invalid(matrix), vmin=low, vmax=high, cmap="viridis")
    axes.grid(False)
    k = len(names)
    step = max(1, k // 14)
    places = list(range(0, k, step))
    axes.set_xticks(
        places, [names[i] for i in places], rotation=90 if k > 8 or max(map(len, names)) > 3 else 0
    )
    axes.set_yticks(places, [names[i] for i in places])
    if k <= 8:
        for i, j in np.argwhere(np.isfinite(matrix)):
            light = matrix[i, j] > low + 0.6 * (high - low)
            axes.text(
                j,
                i,
                f"{matrix[i, j]:.2f}",
                ha="center",
                va="center",
                fontsize=6.5,
                color="black" if light else "white",
            )
    return image


def legend(
    figure: Figure,
    series: Sequence[Series],
    kind: str,
    *,
    title: str = "",
    others: Sequence[Line2D | None] = (),
) -> None:
    """Legend above all panels; `kind` is "bars", "lines" or "points", `others` drawn handles."""
    handles: list[Any] = []
    for one in series:
        if kind == "bars":
            handles.append(
                Patch(facecolor=one.face, edgecolor=one.colour, hatch=one.hatch, label=one.label)
            )
        else:
            line: Any = one.line if kind == "lines" else "none"
            handles.append(
                Line2D(
                    [],
                    [],
                    color=one.colour,
                    marker=one.marker,
                    markerfacecolor="white" if one.hatch and kind == "points" else one.colour,
                    linestyle=line,
                    label=one.label,
                )
            )
    drawn = [handle for handle in others if handle is not None]
    handles.extend(drawn[:1])
    longest = max(len(handle.get_label()) for handle in handles)
    per_row = max(1, int(figure.get_figwidth() / (0.5 + 0.075 * longest)))
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=min(len(handles), per_row),
        title=title or None,
    )
