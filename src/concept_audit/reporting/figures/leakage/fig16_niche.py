"""Figure 16: niche impurity score of hard CBMs and of the pairs of Table 1 (Appendix B).

Rows: scope "mean", metrics `nis` (niche removed, as defined) and `nis_reference` (niche kept, as
published), target "mean"; hard CBMs and the two models of each data set's pair (see `_pairs`).
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._pairs import pair_of
from concept_audit.reporting.panels import encoding_series, grid, grouped_bars, legend
from concept_audit.reporting.selection import (
    Model,
    Number,
    interval_caption,
    model_rows,
    number,
    present_metrics,
    select,
    setting_rows,
    settings,
)
from concept_audit.reporting.style import GREY, axis_label, caption, styled

__all__ = ["draw"]


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """A panel for each form of the score; bars grouped by data set, coloured by encoding."""
    metrics = ["nis", "nis_reference"]
    selected = select(rows, "fig16_niche", metrics)
    present = present_metrics(selected, metrics)
    entries: dict[str, tuple[Model, pd.DataFrame]] = {}
    begins: list[int] = []  # place of each data set's first bar, which carries its name
    for setting in settings(selected):
        first = len(entries)
        part = setting_rows(selected, setting)
        for model in (Model("hard"), *pair_of(setting.dataset)):
            own = model_rows(part, model)
            if not own.empty:
                entries[f"{setting.label}: {model.label}"] = (model, own)
        if len(entries) > first:
            begins.append(first)
    encodings = [
        e for e in ("hard", "soft", "logit") if e in {m.encoding for m, _ in entries.values()}
    ]
    figure, axes = grid(
        1, len(present), width=2.8, height=0.7 + 0.3 * len(entries), extra=(2.4, 0.8), sharey=True
    )
    for panel, metric in zip(axes[0], present, strict=True):
        for encoding in encodings:
            numbers: dict[tuple[str, str], Number | None] = {
                (label, encoding): number(own, metric=metric)
                if model.encoding == encoding
                else None
                for label, (model, own) in entries.items()
            }
            grouped_bars(
                panel,
                list(entries),
                [encoding_series(encoding, encoding)],
                numbers,
                horizontal=True,
            )
        labels = [
            label if i in begins else model.label
            for i, (label, (model, _)) in enumerate(entries.items())
        ]
        panel.set_yticks(range(len(entries)), labels)
        for begin in begins[1:]:
            panel.axhline(begin - 0.5, color=GREY, linewidth=0.6)
        panel.set_xlim(0.0, 1.0)
        panel.set_xlabel(axis_label(metric))
    axes[0, 0].set_ylabel("data set: model")
    legend(figure, [encoding_series(encoding) for encoding in encodings], "bars")
    shown = pd.concat([own for _, own in entries.values()])
    caption(figure, [*interval_caption(shown, "Bars"), "Largest possible value: 0.95."])
    return figure
