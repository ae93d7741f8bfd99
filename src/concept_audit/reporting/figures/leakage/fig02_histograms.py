"""Figure 2: distribution of one learnt concept, split by the other concept and the task label.

Rows: scope "run", metric `concept_density`, target "c1|c2=0,y=1" (concept shown, then the cell),
step = centre of a bin of equal width, value = share of all test rows in this bin and cell; data
sets `*_two_concepts`; hard CBMs and soft ones at every `lambda_concept` present; lowest fold.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from concept_audit.reporting.figures.leakage._two_concepts import models_found
from concept_audit.reporting.panels import Series, grid, legend, panel_title
from concept_audit.reporting.selection import (
    interval_caption,
    lowest_fold,
    model_rows,
    select,
    setting_rows,
    settings,
)
from concept_audit.reporting.style import CLASS_COLOURS, caption, styled

__all__ = ["draw"]

_STEM = "fig02_histograms"
_HATCHES = ("", "////", "....", "xxxx")


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """Stacked histograms, a panel for each model."""
    selected = select(
        rows,
        _STEM,
        ["concept_density"],
        scope="run",
        encodings=("hard", "soft"),
        target=None,
        variants=("two_concepts",),
    )
    first = str(selected["target"].iloc[0]).partition("|")[0]
    selected = selected[selected["target"].str.startswith(f"{first}|")]
    cells = sorted({str(target).partition("|")[2] for target in selected["target"]})
    series = [
        Series(cell.replace("=", " = ").replace(",", ", "), colour, hatch=hatch)
        for cell, colour, hatch in zip(cells, CLASS_COLOURS, _HATCHES * len(cells), strict=False)
    ]
    shown, models = settings(selected), models_found(selected)
    figure, axes = grid(len(shown), len(models), width=2.4, height=2.0, sharey="row")
    for i, setting in enumerate(shown):
        for panel, model in zip(axes[i], models, strict=True):
            panel_title(panel, setting, model.label)
            part = lowest_fold(model_rows(setting_rows(selected, setting), model))
            _histogram(panel, part, first, cells, series)
            panel.set_xlabel(f"learnt concept {first} (probability)")
        axes[i, 0].set_ylabel("share of test rows\n(unitless)")
    legend(figure, series, "bars")
    caption(
        figure,
        [
            "One model per panel; bars are stacked and add up to 1.",
            *interval_caption(selected, "Bars")[1:],
        ],
    )
    return figure


def _histogram(
    axes: Axes, part: pd.DataFrame, first: str, cells: list[str], series: list[Series]
) -> None:
    """Stack the cells' bars on one panel."""
    if part.duplicated(["target", "step"]).any():
        raise ValueError(
            f"{_STEM}: several rows for one bin of {part['dataset'].iloc[0]}. "
            "Pass the rows of one run of this setting."
        )
    centres = np.sort(part["step"].astype(float).unique())
    width = float(np.diff(centres).min()) if len(centres) > 1 else 1.0
    bottom = np.zeros(len(centres))
    for cell, one in zip(cells, series, strict=True):
        shares = part[part["target"] == f"{first}|{cell}"].set_index("step")["value"]
        height = shares.reindex(centres).fillna(0.0).to_numpy(dtype=float)
        axes.bar(
            centres,
            height,
            width=width,
            bottom=bottom,
            color=one.face,
            edgecolor=one.colour,
            hatch=one.hatch,
            linewidth=0.4,
            label=one.label,
        )
        bottom = bottom + height
    axes.set_ylim(0.0, max(axes.get_ylim()[1], 1.05 * float(bottom.max())))  # the rows share it
