"""Figure 15: normalised mutual information between annotated concepts of the training sets.

Rows: scope "run", metric `interconcept_information_true`, target "c1|c2" (one order is enough, the
diagonal may be left out), split "train". It is a property of the data, so equal rows of several
models are taken once.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from concept_audit.reporting.panels import grid, heatmap
from concept_audit.reporting.selection import interval_caption, lowest_fold, select
from concept_audit.reporting.selection import order_settings as order
from concept_audit.reporting.style import caption, styled

__all__ = ["draw"]

_STEM = "fig15_true_interconcept"


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """Heatmaps on one scale from 0 to 0.5."""
    selected = select(
        rows,
        _STEM,
        ["interconcept_information_true"],
        scope="run",
        encodings=(),
        target=None,
        split="train",
    ).assign(concept_output="linear")
    shown = order((dataset, "linear") for dataset in set(selected["dataset"]))
    n_columns = min(4, len(shown))
    n_rows = -(-len(shown) // n_columns)
    figure, axes = grid(n_rows, n_columns, width=2.2, height=2.2, extra=(0.9, 0.4))
    for panel in axes.flat[len(shown) :]:
        panel.remove()
    panels = list(axes.flat[: len(shown)])
    for panel, setting in zip(panels, shown, strict=True):
        matrix, names = _matrix(selected[selected["dataset"] == setting.dataset])
        image = heatmap(panel, matrix, names, low=0.0, high=0.5)
        panel.set_title(
            setting.label, color="#8c510a" if "[stand-in]" in setting.label else "black"
        )
        panel.set_xlabel("concept")
        panel.set_ylabel("concept")
    bar = figure.colorbar(image, ax=panels, shrink=0.8, extend="max")
    bar.set_label("I(c_i, c_j) / √(H(c_i) H(c_j)), unitless")
    caption(
        figure,
        [
            "Plug-in estimates on the training sets; the diagonal is left out.",
            *interval_caption(selected, "")[1:],
        ],
    )
    return figure


def _matrix(rows: pd.DataFrame) -> tuple[np.ndarray, list[str]]:
    """Symmetric matrix with an empty diagonal, and the concepts' names in order of appearance."""
    rows = lowest_fold(rows).drop_duplicates(["target", "value"])
    if rows.duplicated("target").any():
        raise ValueError(
            f"{_STEM}: different values for one pair of {rows['dataset'].iloc[0]}. "
            "Pass rows of one preparation of this data set."
        )
    pairs = [str(target).split("|", 1) for target in rows["target"]]
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    place = {name: i for i, name in enumerate(names)}
    matrix = np.full((len(names), len(names)), np.nan)
    for (a, b), value in zip(pairs, rows["value"], strict=True):
        if a != b:
            matrix[place[a], place[b]] = matrix[place[b], place[a]] = float(value)
    return matrix, names
