"""Figure 1: loss-capacity curves of all representations, by probe and data set.

Rows: scope "run" with empty `repeat` (mean over probe seeds of one trained representation, lowest
fold), metrics `loss_<probe>`, target "mean", step = size of the probe, low and high one standard
deviation away; `capacity_<probe>` of the same model and step gives the place on the x axis.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from concept_audit.reporting.panels import curve, grid, legend, panel_title
from concept_audit.reporting.representations import (
    PROBES,
    order_representations,
    probe_label,
    representation_label,
    representation_series,
)
from concept_audit.reporting.selection import (
    Setting,
    counted,
    number,
    select,
    setting_rows,
    settings,
)
from concept_audit.reporting.style import STANDIN_NOTE, caption, parse_dataset, styled

__all__ = ["draw"]

_STEM = "fig01_loss_capacity"
_X_LABELS = {
    "mlp": "log(1 + parameters beyond linear probe)",
    "rff": "random features m (number, log scale)",
    "random_forest": "maximum depth (splits)",
}
_WORST = 1.25  # a constant has about 1; worse probes would squeeze the others
_DATASETS = ("mpi3d", "cars3d")  # the paper's order


@styled
def draw(rows: pd.DataFrame) -> Figure:
    """A row of panels for each data set, a column for each family of probes."""
    metrics = [f"{kind}_{probe}" for probe in PROBES for kind in ("loss", "capacity")]
    selected = select(rows, _STEM, metrics, scope="run", encodings=())
    losses = selected[selected["metric"].str.startswith("loss_")]
    shown = sorted(settings(losses), key=_paper_order)
    probes = [probe for probe in PROBES if f"loss_{probe}" in set(losses["metric"])]
    models = order_representations(losses["model"])
    figure, axes = grid(len(shown), len(probes), width=2.9, height=2.2, sharey="row")
    for setting, line in zip(shown, axes, strict=True):
        part = setting_rows(selected, setting)
        for probe, panel in zip(probes, line, strict=True):
            panel_title(panel, setting, probe_label(probe))
            for model in models:
                _curve(panel, part[part["model"] == model], probe, model)
            if probe == "rff":
                _feature_ticks(panel, part)
            elif probe == "random_forest":
                panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
            if setting is shown[-1]:
                panel.set_xlabel(_X_LABELS[probe])
        line[0].set_ylabel("test loss, mean over factors\n(1 − accuracy or 1 − R², unitless)")
        line[0].set_ylim(0, min(_WORST, line[0].get_ylim()[1]))  # shared by the row
    legend(figure, [representation_series(model) for model in models], "lines")
    caption(figure, _sentences(losses))
    return figure


def _paper_order(setting: Setting) -> tuple[int, str]:
    family = parse_dataset(setting.dataset).family
    return (_DATASETS.index(family) if family in _DATASETS else len(_DATASETS)), setting.dataset


def _curve(axes: Axes, rows: pd.DataFrame, probe: str, model: str) -> None:
    """Mean loss of one representation over the capacities of its probes."""
    points = []
    for step in sorted({float(v) for v in rows.loc[rows["metric"] == f"loss_{probe}", "step"]}):
        place = number(rows, metric=f"capacity_{probe}", step=step)
        loss = number(rows, metric=f"loss_{probe}", step=step)
        if place is not None:
            points.append((place.value, loss))
    # Sizes of one capacity keep their order, as the score takes them.
    curve(axes, sorted(points, key=lambda point: point[0]), representation_series(model))


def _feature_ticks(axes: Axes, rows: pd.DataFrame) -> None:
    """Numbers of features at their places on the logarithmic axis."""
    found = rows[rows["metric"] == "capacity_rff"].drop_duplicates("step").sort_values("step")
    axes.xaxis.set_major_locator(FixedLocator(found["value"].tolist()))
    axes.xaxis.set_minor_locator(NullLocator())
    words = [f"{step:g}" for step in found["step"]]
    if len(words) > 8:  # every second power of two has room
        words = [word if i % 3 == 0 else "" for i, word in enumerate(words)]
    axes.xaxis.set_major_formatter(FixedFormatter(words))


def _sentences(rows: pd.DataFrame) -> list[str]:
    """What lines and bands are, and what was done to single representations."""
    what = f"Lines: mean over fits of the probes ({counted(rows)})"
    if rows["low"].notna().any():
        what += "; bands: one standard deviation"
    sentences = [what + "."]
    if (rows["value"] > _WORST).any():
        sentences.append(
            f"Losses above {_WORST:g}, worse than a constant's, lie outside the panels."
        )
    for model in order_representations(rows["model"]):
        notes = {
            sentence
            for note in rows.loc[rows["model"] == model, "note"]
            for sentence in note.split("; ")
            if sentence
        }
        if notes:
            label = representation_label(model)
            sentences.append(f"{label[0].upper()}{label[1:]}: {'; '.join(sorted(notes))}.")
    if any(parse_dataset(name).standin for name in set(rows["dataset"])):
        sentences.append(STANDIN_NOTE)
    return sentences
