"""Figure 17: leakage of each concept for the models of Figure 4 (Appendix C).

Rows: scope "run" with empty `repeat`, metrics `ctl`, `icl`, target = the concept's name, lowest
fold; the two models of each data set's pair (see `_pairs`).
"""

from __future__ import annotations

from math import nan

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._pairs import complete_pairs, pair_series
from concept_audit.reporting.panels import grid, grouped_bars, panel_title
from concept_audit.reporting.selection import (
    Number,
    interval_caption,
    missing_rows,
    model_rows,
    number,
    present_metrics,
    select,
    setting_rows,
)
from concept_audit.reporting.style import axis_label, caption, styled

__all__ = ["draw"]

_STEM = "fig17_concept_wise"
_MOST_WHISKERS = 40  # with more concepts whiskers would hide the bars


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """A row for each pair: bars of CTL_i, then of ICL_i."""
    metrics = ["ctl", "icl"]
    selected = select(rows, _STEM, metrics, scope="run", encodings=("soft", "logit"), target=None)
    target = selected["target"].astype(str)
    selected = selected[(target != "mean") & ~target.str.contains("|", regex=False)]
    pairs = complete_pairs(selected)
    if not pairs:
        raise missing_rows(
            _STEM, metrics, "run", "target = a concept's name for both models of a pair", rows
        )
    drawn = pd.concat(
        [model_rows(setting_rows(selected, s), model) for s, pair in pairs for model in pair]
    )
    present = present_metrics(drawn, metrics)
    most = max(setting_rows(drawn, s)["target"].nunique() for s, _ in pairs)
    figure, axes = grid(
        len(pairs),
        len(present),
        width=min(6.0, max(2.6, 0.42 * most)),
        height=2.0,
        extra=(1.6, 0.5),
    )
    for line, (setting, pair) in zip(axes, pairs, strict=True):
        part, series = setting_rows(drawn, setting), pair_series(pair)
        concepts = list(dict.fromkeys(part["target"].astype(str)))
        for panel, metric in zip(line, present, strict=True):
            panel_title(panel, setting)
            numbers = {
                (concept, one.label): number(model_rows(part, model), metric=metric, target=concept)
                for concept in concepts
                for model, one in zip(pair, series, strict=True)
            }
            if len(concepts) > _MOST_WHISKERS:
                numbers = {
                    key: one and Number(one.value, nan, nan, one.n) for key, one in numbers.items()
                }
            grouped_bars(panel, concepts, series, numbers)
            step = -(-len(concepts) // 30)  # names that fit side by side
            panel.set_xticks(range(0, len(concepts), step), concepts[::step])
            if len(concepts) > 8 or max(map(len, concepts)) > 4:
                panel.tick_params(axis="x", rotation=90 if len(concepts) > 8 else 30)
            panel.set_xlabel("concept")
            panel.set_ylabel(axis_label(metric))
        line[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    sentences = interval_caption(drawn, "Bars")
    if most > _MOST_WHISKERS:
        sentences.append(f"No whiskers where there are more than {_MOST_WHISKERS} concepts.")
    caption(figure, sentences)
    return figure
