"""A data set beside its variant, for soft models at three supervision levels (7, 8, 21, 22)."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._supervision import supervision_levels
from concept_audit.reporting.panels import (
    LAMBDA_LABEL,
    Series,
    grouped_bars,
    interval_points,
    legend,
    setting_metric_grid,
)
from concept_audit.reporting.selection import (
    Setting,
    interval_caption,
    lambdas,
    missing_rows,
    number,
    order_settings,
    present_metrics,
    select,
)
from concept_audit.reporting.style import ENCODING_COLOURS, caption, parse_dataset

__all__ = ["draw_variants"]


def draw_variants(
    rows: pd.DataFrame,
    stem: str,
    metrics: Sequence[str],
    *,
    variant: str,
    labels: tuple[str, str],
    head: str | None = None,
    bars: bool = True,
) -> Figure:
    """Plain data set and its variant side by side at each weight of the concept loss.

    Parameters
    ----------
    rows : results table
    stem : name of the figure
    metrics : names of metrics, one panel each
    variant : "incomplete" or "nonlinear"
    labels : legend entries of the plain data set and of the variant
    head : kind of head to keep, None as in `select`
    bars : bars from 0, or points on an axis of their own
    """
    selected = select(rows, stem, metrics, encodings=("soft",), variants=("", variant), head=head)
    counterparts = _counterparts(selected, variant)
    if not counterparts:
        raise missing_rows(
            stem, metrics, "mean", f"a data set together with its {variant!r} variant", selected
        )
    drawn_names = {s.dataset for s in counterparts} | set(counterparts.values())
    drawn = selected[selected["dataset"].isin(drawn_names)]
    shown, present = list(counterparts), present_metrics(drawn, metrics)
    soft = ENCODING_COLOURS["soft"]
    series = [Series(labels[0], soft, "o"), Series(labels[1], soft, "s", hatch="////")]
    figure, panels, lowest = setting_metric_grid(shown, present)
    for (setting, metric), axes in panels.items():
        pair = (setting.dataset, counterparts[setting])
        part = drawn[
            drawn["dataset"].isin(pair) & (drawn["concept_output"] == setting.concept_output)
        ]
        levels = supervision_levels(lambdas(part))
        groups = [f"{level:g}" for level in levels]
        numbers = {
            (group, one.label): number(part, metric=metric, dataset=name, lambda_concept=level)
            for group, level in zip(groups, levels, strict=True)
            for name, one in zip(pair, series, strict=True)
        }
        (grouped_bars if bars else interval_points)(axes, groups, series, numbers)
    for axes in lowest:
        axes.set_xlabel(LAMBDA_LABEL)
    legend(figure, series, "bars" if bars else "points")
    caption(figure, interval_caption(drawn, "Bars" if bars else "Points"))
    return figure


def _counterparts(rows: pd.DataFrame, variant: str) -> dict[Setting, str]:
    """For each plain setting the name of its variant data set, where rows of both are there."""
    found = set(zip(rows["dataset"], rows["concept_output"], strict=True))
    variants = {}
    for name, output in found:
        parts = parse_dataset(name)
        if parts.variant == variant:
            variants[parts.family, parts.parameter, parts.standin, output] = name
    pairs = {}
    for name, output in found:
        parts = parse_dataset(name)
        key = (parts.family, parts.parameter, parts.standin, output)
        if not parts.variant and key in variants:
            pairs[name, output] = variants[key]
    return {setting: pairs[setting[:2]] for setting in order_settings(pairs)}
