"""The contact sheet of a dataset: one picture by which a person can judge it."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from concept_audit.data.base import ConceptDataset
from concept_audit.reporting.pictures import readable

__all__ = ["concept_correlations", "contact_sheet", "example_rows"]

_COLUMNS, _LINES = 8, 3
_WIDTH = 30  # characters of a line above an image
_MOST_CLASSES = 40  # beyond this the bars carry no names
_FEW_CLASSES = 3  # up to this their names lie flat below the bars
_MOST_NAMED, _MOST_NUMBERED = 60, 8  # concepts named at the map, and with numbers in its cells
_SPLIT_COLOURS = {"train": "#33638d", "val": "#d9a441", "test": "#8a8a8a"}


def example_rows(dataset: ConceptDataset, n_examples: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Rows of all splits that show as many different classes as possible, in class order."""
    rows = np.random.default_rng(seed).permutation(np.concatenate(list(dataset.splits.values())))
    turn = np.empty(len(rows), dtype=np.int64)
    for value in np.unique(dataset.y[rows]):
        members = np.flatnonzero(dataset.y[rows] == value)
        turn[members] = np.arange(len(members))
    chosen = rows[np.argsort(turn, kind="stable")][:n_examples]
    return chosen[np.argsort(dataset.y[chosen], kind="stable")]


def concept_correlations(c: NDArray[np.int64]) -> NDArray[np.float64]:
    """Correlation of each pair of concepts `(k, k)`; NaN where a concept never varies."""
    centred = c - c.mean(axis=0)
    spread = np.sqrt((centred**2).mean(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (centred.T @ centred / len(c)) / np.outer(spread, spread)


def _title(dataset: ConceptDataset, row: int) -> str:
    """Class, and the first two concepts that are present; what is cut off ends in an ellipsis."""
    present = [dataset.concept_names[i] for i in np.flatnonzero(dataset.c[row])]
    concepts = ", ".join(map(readable, present[:2]))
    concepts = concepts or ("none present" if dataset.n_concepts else "no concepts")
    lines = textwrap.wrap(concepts, _WIDTH, max_lines=2, placeholder="…")
    lines[-1] += f" +{len(present) - 2}" if len(present) > 2 else ""
    name = readable(dataset.class_names[dataset.y[row]])
    return "\n".join([*textwrap.wrap(name, _WIDTH, max_lines=2, placeholder="…"), *lines])


def _draw_examples(figure: Any, dataset: ConceptDataset) -> None:
    rows = example_rows(dataset, _COLUMNS * _LINES)
    if not dataset.is_image:
        _draw_features(figure, dataset)
        return
    images = np.asarray(dataset.x[rows])
    panels = figure.subplots(_LINES, _COLUMNS, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    for panel, row, image in zip(panels, rows, images, strict=False):
        gray = image.shape[-1] == 1
        panel.imshow(image[..., 0] if gray else image, cmap="gray" if gray else None,
                     vmin=0, vmax=255, interpolation="nearest")  # fmt: skip
        panel.set_axis_on()
        panel.set_xticks([])
        panel.set_yticks([])
        panel.spines[:].set(color="#bbbbbb", linewidth=0.5)  # else white images have no edge
        panel.set_title(_title(dataset, int(row)), fontsize=6, parse_math=False)


def _draw_features(figure: Any, dataset: ConceptDataset) -> None:
    """Histograms of the input features by class, for tables."""
    n_features = min(dataset.input_shape[0], _COLUMNS)
    panels = figure.subplots(1, n_features, squeeze=False).ravel()
    values = np.asarray(dataset.x[dataset.rows("train")])
    labels = dataset.y[dataset.rows("train")]
    for feature, panel in enumerate(panels):
        groups = [values[labels == label, feature] for label in range(dataset.n_classes)]
        panel.hist(
            groups, bins=30, stacked=True, label=[readable(name) for name in dataset.class_names]
        )
        panel.set_title(f"feature {feature + 1}", fontsize=7)
        panel.tick_params(labelsize=6)
    panels[0].set_ylabel("training rows, stacked", fontsize=7)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, ncol=8, loc="outside upper center", frameon=False)


def _draw_balance(axes: Axes, dataset: ConceptDataset) -> None:
    """Share of each class, side by side for the splits."""
    positions = np.arange(dataset.n_classes)
    width = 0.8 / len(dataset.splits)
    for place, (split, rows) in enumerate(dataset.splits.items()):
        shares = np.bincount(dataset.y[rows], minlength=dataset.n_classes) / len(rows)
        axes.bar(
            positions + (place - (len(dataset.splits) - 1) / 2) * width, shares, width,
            color=_SPLIT_COLOURS.get(split, "#555555"), label=f"{split}, {len(rows)} rows",
        )  # fmt: skip
    axes.set_title("Share of each class", fontsize=8)
    axes.set_ylim(top=1.15 * axes.get_ylim()[1])  # room for the legend
    axes.legend(fontsize=6, frameon=False, ncol=len(dataset.splits), loc="upper center")
    axes.tick_params(labelsize=6)
    if dataset.n_classes <= _MOST_CLASSES:
        names = [readable(name) for name in dataset.class_names]
        if dataset.n_classes <= _FEW_CLASSES:
            axes.set_xticks(positions, [textwrap.fill(n, 25) for n in names], parse_math=False)
        else:
            axes.set_xticks(positions, names, rotation=90, parse_math=False)
    else:
        axes.set_xlabel(f"{dataset.n_classes} classes in the order of their index", fontsize=6)


def _draw_correlations(figure: Any, axes: Axes, dataset: ConceptDataset) -> None:
    if not dataset.n_concepts:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no concept annotations", ha="center", va="center", fontsize=8)
        return
    correlations = concept_correlations(dataset.c)
    picture = axes.imshow(correlations, cmap="RdBu_r", vmin=-1, vmax=1)
    axes.set_title(f"Correlation of the {dataset.n_concepts} concepts", fontsize=8)
    if dataset.n_concepts <= _MOST_NAMED:
        size = max(2.5, min(7.0, 150 / dataset.n_concepts))
        names = [readable(name) for name in dataset.concept_names]
        axes.set_yticks(np.arange(dataset.n_concepts), names, fontsize=size, parse_math=False)
        # Names below the map as well would squeeze both lower panels.
        axes.set_xticks([])
        axes.set_xlabel("columns in the order of the rows", fontsize=6)
    else:
        axes.tick_params(labelsize=6)
        axes.set_xlabel("index of the concept", fontsize=6)
        axes.set_ylabel("index of the concept", fontsize=6)
    if dataset.n_concepts <= _MOST_NUMBERED:
        for (line, column), value in np.ndenumerate(correlations):
            colour = "white" if abs(value) > 0.6 else "black"
            words = (
                "–"
                if np.isnan(value)
                else f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")
            )
            axes.text(column, line, words, ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(picture, ax=axes, fraction=0.046).ax.tick_params(labelsize=6)


def contact_sheet(dataset: ConceptDataset, *, name: str = "") -> Figure:
    """Examples with class and concepts, class balance per split, and concept correlations.

    `name`, what the user asked for, stands first in the heading where the dataset has another one.
    """
    figure = Figure(figsize=(13, 9.5), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    parts: Any = figure.subfigures(2, 1, height_ratios=[1.15, 1.0])
    upper, lower = parts
    _draw_examples(upper, dataset)
    balance, correlations = lower.subplots(1, 2, width_ratios=[1.2, 1.0])
    _draw_balance(balance, dataset)
    _draw_correlations(lower, correlations, dataset)
    heading = dataset.name if name in ("", dataset.name) else f"{name} ({dataset.name})"
    title = f"{heading}: {dataset.n_samples} rows, {dataset.n_concepts} concepts"
    title += ", STAND-IN" if dataset.standin else ""
    notes = [line for note in dataset.notes for line in textwrap.wrap(note, 150)]
    figure.suptitle("\n".join([title, *notes]), fontsize=10, parse_math=False)
    return figure
