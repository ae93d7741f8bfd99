"""Pictures of one trained model: reconstructions, latent traversals, losses per epoch.

Panels are placed in inches, since images should have the same size in every picture and touch no
label; a picture grows with what it shows.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from concept_audit.reporting.style import style_context

__all__ = [
    "LossCurve",
    "Predictions",
    "Reconstructions",
    "Traversals",
    "draw_history",
    "draw_predictions",
    "draw_reconstructions",
    "draw_traversals",
    "readable",
]

_CELL = 0.78  # side of an image, inches
_GAP = 0.06
_MARGIN = 0.12
_LINE = 0.135  # height of a line of small text
_SMALL = 7.0
_MOST_PANELS = 3  # of the history in one row
_MARK = "#d55e00"  # Okabe and Ito's vermilion: what is the example's own, or kept
_TRAIN, _VAL = "#0072b2", "#e69f00"


@dataclass(frozen=True)
class Reconstructions:
    """Images beside what an autoencoder makes of them.

    Attributes
    ----------
    images, reconstructions : Float[ndarray, "n H W C"]
        In [0, 1], with one or three channels.
    differences : Float[ndarray, "n H W"]
        Absolute difference, mean over the channels.
    cross_entropy, excess : Float[ndarray, "n"]
        Of each image's pixels, in nats, and by how much it exceeds that of a perfect copy, which is
        0 only where all pixels are black or white.
    kl : Float[ndarray, "n"] or None
        KL of each image's posterior in nats; None for a plain autoencoder.
    """

    images: NDArray[Any]
    reconstructions: NDArray[Any]
    differences: NDArray[Any]
    cross_entropy: NDArray[Any]
    excess: NDArray[Any]
    kl: NDArray[Any] | None


@dataclass(frozen=True)
class Traversals:
    """What an image becomes when one latent at a time takes other values.

    Attributes
    ----------
    example, reconstruction : Float[ndarray, "H W C"]
        The image that all rows start from, in [0, 1].
    images : Float[ndarray, "L S H W C"]
        Decoded codes; rows in the order in which they are drawn.
    values : Float[ndarray, "L S"]
        Values of the moved latents.
    percentiles : Float[ndarray, "S"]
        Which percentile of a latent's codes each column is.
    latents : Int[ndarray, "L"]
        Index of each row's latent in the code, from 0.
    importance : Float[ndarray, "L"]
        What the rows are ordered by.
    importance_label : str
        How a value of it is written, a format such as ``KL {:.2f} nats``.
    nearest : Int[ndarray, "L"]
        Column whose value is nearest to the example's own code.
    """

    example: NDArray[Any]
    reconstruction: NDArray[Any]
    images: NDArray[Any]
    values: NDArray[Any]
    percentiles: NDArray[Any]
    latents: NDArray[np.int64]
    importance: NDArray[Any]
    importance_label: str
    nearest: NDArray[np.int64]


@dataclass(frozen=True)
class Predictions:
    """Some samples with annotated and predicted classes and concepts.

    Attributes
    ----------
    images : Float[ndarray, "n H W C"] or None
        In [0, 1]; None for tables.
    classes, predicted_classes : tuple of str
        Names of the classes of each sample.
    task_accuracy : float
        Share of the split's rows whose class is right.
    concept_names : tuple of str
        Concepts in the order in which they are drawn.
    concept_accuracy : Float[ndarray, "k"]
        Share of the split's rows on which each is right.
    annotated : Int[ndarray, "n k"]
        0 or 1.
    probabilities : Float[ndarray, "n k"]
        Predicted probability that a concept is present.
    wrong : Bool[ndarray, "n k"]
        Whether probability and annotation fall on different sides of one half.
    """

    images: NDArray[Any] | None
    classes: tuple[str, ...]
    predicted_classes: tuple[str, ...]
    task_accuracy: float
    concept_names: tuple[str, ...]
    concept_accuracy: NDArray[Any]
    annotated: NDArray[np.int64]
    probabilities: NDArray[Any]
    wrong: NDArray[np.bool_]


@dataclass(frozen=True)
class LossCurve:
    """One loss in one phase of a training.

    Attributes
    ----------
    phase, name, unit : str
        For the panel's title and axis.
    epochs : Int[ndarray, "E"]
        From 1.
    train, val : Float[ndarray, "E"]
        Loss of each epoch.
    kept_epoch : int
        Epoch whose weights were kept.
    """

    phase: str
    name: str
    unit: str
    epochs: NDArray[np.int64]
    train: NDArray[Any]
    val: NDArray[Any]
    kept_epoch: int


class _Sheet:
    """A figure with a heading, whose panels are placed in inches from below the heading."""

    def __init__(self, width: float, height: float, title: str, sentences: Sequence[str]) -> None:
        self.width = max(width, 4.6)
        titles = textwrap.wrap(title, int(self.width * 11.5))
        lines = textwrap.wrap(" ".join(sentences), int(self.width * 17))
        self.top = _MARGIN + 0.18 * len(titles) + _LINE * len(lines) + 0.1
        self.height = self.top + height
        self.figure = Figure(figsize=(self.width, self.height))
        self.text(_MARGIN, _MARGIN - self.top, "\n".join(titles), size=9.5, weight="bold")
        below = _MARGIN + 0.18 * len(titles) - self.top
        self.text(_MARGIN, below, "\n".join(lines), color="#444444")

    def text(
        self, left: float, top: float, words: str, *, size: float = _SMALL, **options: Any
    ) -> None:
        """Words at a place, from their upper left corner unless told otherwise."""
        places = {"ha": "left", "va": "top", "linespacing": 1.25, **options}
        x, y = left / self.width, 1 - (self.top + top) / self.height
        self.figure.text(x, y, words, fontsize=size, parse_math=False, **places)

    def panel(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes at a place."""
        bottom = 1 - (self.top + top + height) / self.height
        return self.figure.add_axes(
            (left / self.width, bottom, width / self.width, height / self.height)
        )

    def image(
        self, left: float, top: float, image: NDArray[Any], *, marked: bool = False, cmap: str = ""
    ) -> Axes:
        """An image `(H, W, C)`, or a map `(H, W)`, at a place, framed."""
        axes = self.panel(left, top, _CELL, _CELL)
        plain = image[..., 0] if image.ndim == 3 and image.shape[-1] == 1 else image
        axes.imshow(
            plain, cmap=cmap or "gray", vmin=0.0, vmax=1.0, interpolation="nearest", aspect="auto"
        )
        axes.grid(False)
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set(visible=True, color=_MARK if marked else "#bbbbbb")
            spine.set_linewidth(2.0 if marked else 0.5)
        return axes


def draw_reconstructions(
    shown: Reconstructions, *, title: str, sentences: Sequence[str] = ()
) -> Figure:
    """Rows of originals, reconstructions and absolute differences, with the losses of each image.

    Parameters
    ----------
    shown : Reconstructions
        What to draw.
    title, sentences
        The first line of the picture, and what stands below it.
    """
    labels = ["original", "reconstruction", "|difference|\nwhite 0, black 1"]
    rows = [shown.images, shown.reconstructions, shown.differences]
    left, step, n = 1.3, _CELL + _GAP, len(shown.images)
    figures = [("cross-entropy", shown.cross_entropy), ("above perfect", shown.excess)]
    figures += [] if shown.kl is None else [("KL", shown.kl)]
    height = 3 * step + _LINE * len(figures) + _MARGIN
    with style_context():
        sheet = _Sheet(left + n * step + _MARGIN, height, title, sentences)
        for line, (label, images) in enumerate(zip(labels, rows, strict=True)):
            middle = line * step + _CELL / 2
            sheet.text(left - 0.08, middle, label, ha="right", va="center")
            for column, image in enumerate(images):
                cmap = "gray_r" if image.ndim == 2 else ""
                axes = sheet.image(left + column * step, line * step, image, cmap=cmap)
                axes.set_gid(f"{label.partition(chr(10))[0]} {column}")
        for line, (label, values) in enumerate(figures):
            top = 3 * step + line * _LINE
            sheet.text(left - 0.08, top, f"{label} (nats)", ha="right")
            for column, value in enumerate(values):
                middle = left + column * step + _CELL / 2
                sheet.text(middle, top, f"{value:.1f}", ha="center")
        return sheet.figure


def draw_traversals(shown: Traversals, *, title: str, sentences: Sequence[str] = ()) -> Figure:
    """One row per latent, the values from low to high; the example stands at the left.

    Parameters
    ----------
    shown : Traversals
        What to draw.
    title, sentences
        The first line of the picture, and what stands below it.
    """
    n_rows, n_steps = shown.values.shape
    step, head = _CELL + _GAP, 2 * _LINE + 0.06
    labels_at = _MARGIN + _CELL + 0.25
    left = labels_at + 1.05
    # The example and its reconstruction stand below each other, with a line of text over each.
    height = max(head + n_rows * step, 2 * (head + step)) + _MARGIN
    with style_context():
        sheet = _Sheet(left + n_steps * step + _MARGIN, height, title, sentences)
        pairs = (
            ("example", shown.example, True),
            ("reconstructed", shown.reconstruction, False),
        )
        for place, (label, image, marked) in enumerate(pairs):
            top = place * (head + step) + head
            sheet.text(_MARGIN + _CELL / 2, top - 0.04, label, ha="center", va="bottom")
            sheet.image(_MARGIN, top, image, marked=marked).set_gid(label)
        middle = left + (n_steps * step - _GAP) / 2
        sheet.text(middle, 0.0, "percentile of the latent's codes", ha="center")
        for column, percentile in enumerate(shown.percentiles):
            at = left + column * step + _CELL / 2
            sheet.text(at, _LINE + 0.02, f"{percentile:.3g} %", ha="center")
        for row in range(n_rows):
            top = head + row * step
            low, high = shown.values[row, 0], shown.values[row, -1]
            words = [
                f"latent {shown.latents[row]}",
                shown.importance_label.format(shown.importance[row]),
                _range(low, high),
            ]
            sheet.text(labels_at, top + _CELL / 2, "\n".join(words), va="center")
            for column in range(n_steps):
                own = bool(shown.nearest[row] == column)
                image = shown.images[row, column]
                axes = sheet.image(left + column * step, top, image, marked=own)
                axes.set_gid(f"latent {shown.latents[row]} step {column}")
        return sheet.figure


def _range(low: float, high: float) -> str:
    """Words for the values of a latent; one that no image moves stays where it is."""
    ends = [f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−") for value in (low, high)]
    return f"stays at {ends[0]}" if ends[0] == ends[1] else " to ".join(ends)


def readable(name: str) -> str:
    """A name of a concept or class in words: `has_wing_color::blue` becomes "wing color: blue"."""
    return name.removeprefix("has_").replace("::", ": ").replace("_", " ")


def _short(name: str, width: int) -> str:
    """A name of a concept or class in readable words, cut in the middle if it is long."""
    words = readable(name)
    keep = (width - 1) // 2
    return words if len(words) <= width else f"{words[:keep]}…{words[-keep:]}"


def draw_predictions(shown: Predictions, *, title: str, sentences: Sequence[str] = ()) -> Figure:
    """Samples with their classes above, and a map of concepts by samples below.

    Parameters
    ----------
    shown : Predictions
        What to draw.
    title, sentences
        The first line of the picture, and what stands below it.
    """
    n, k = shown.probabilities.shape
    labels = [
        f"{_short(name, 32)}  {accuracy:.0%}"
        for name, accuracy in zip(shown.concept_names, shown.concept_accuracy, strict=True)
    ]
    classes = [
        [textwrap.wrap(_short(name, 28), 14)[:2] for name in names]
        for names in (shown.classes, shown.predicted_classes)
    ]
    tall = _LINE * max(len(lines) for names in classes for lines in names) + 0.05
    left, wide, row = max(1.05, 0.15 + 0.066 * max(map(len, labels))), 0.9, 0.17
    above = 0.0 if shown.images is None else _CELL + _GAP
    table = above + 2 * tall + 0.05
    with style_context():
        sheet = _Sheet(left + n * wide + _MARGIN, table + k * row + _MARGIN, title, sentences)
        for line, label in enumerate(("class", "predicted class")):
            sheet.text(left - 0.08, above + line * tall, label, ha="right")
        for column in range(n):
            middle = left + (column + 0.5) * wide
            if shown.images is not None:
                axes = sheet.image(middle - _CELL / 2, 0.0, shown.images[column])
                axes.set_gid(f"sample {column}")
            right = shown.classes[column] == shown.predicted_classes[column]
            for line, names in enumerate(classes):
                colour = _MARK if line and not right else "black"
                words, at = "\n".join(names[column]), above + line * tall
                sheet.text(middle, at, words, ha="center", size=6.0, color=colour)
        axes = sheet.panel(left, table, n * wide, k * row)
        axes.set_gid("concepts")
        axes.imshow(shown.probabilities.T, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
        axes.grid(False)
        axes.set_xticks(np.arange(n + 1) - 0.5, [])
        axes.set_yticks(np.arange(k), labels, fontsize=_SMALL, parse_math=False)
        axes.tick_params(length=0)
        for edge in np.arange(1, n) - 0.5:
            axes.axvline(edge, color="white", linewidth=2.0)
        options: dict[str, Any] = {"linestyle": "none", "markersize": 4.0}
        columns, lines = np.nonzero(shown.annotated == 1)
        axes.plot(columns, lines, "o", color="black", label="annotated", **options)
        columns, lines = np.nonzero(shown.wrong)
        ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgewidth": 1.2}
        axes.plot(
            columns,
            lines,
            "s",
            color=_MARK,
            label="wrong",
            **{**options, **ring, "markersize": 8.0},
        )
        axes.set_xlim(-0.5, n - 0.5)
        axes.set_ylim(k - 0.5, -0.5)
        return sheet.figure


def draw_history(
    curves: Sequence[LossCurve], *, title: str, sentences: Sequence[str] = ()
) -> Figure:
    """Losses per epoch, the kept epoch marked: up to three panels in a row, more by phase.

    Parameters
    ----------
    curves : sequence of LossCurve
        Panels in reading order; those of a phase stand together.
    title, sentences
        The first line of the picture, and what stands below it.
    """
    phases = list(dict.fromkeys(curve.phase for curve in curves))
    rows = [[curve for curve in curves if curve.phase == phase] for phase in phases]
    if len(curves) <= _MOST_PANELS:
        rows = [list(curves)]
    n_columns = max(map(len, rows))
    wide, high, left, below = 2.3, 1.45, 0.72, 0.75
    with style_context():
        width = n_columns * (left + wide) + _MARGIN
        sheet = _Sheet(width, len(rows) * (high + below) + 0.08, title, sentences)
        for line, row in enumerate(rows):
            for column, curve in enumerate(row):
                name = f"{curve.phase}: {curve.name}" if len(phases) > 1 else curve.name
                left_edge = left + column * (wide + left)
                axes = sheet.panel(left_edge, 0.2 + line * (high + below), wide, high)
                _draw_losses(axes, curve, name)
        # No panel has the same free corner, so what the lines mean is said once, below them all.
        sheet.figure.legend(
            handles=sheet.figure.axes[0].get_lines(),
            loc="lower left",
            bbox_to_anchor=(left / sheet.width, 0.0),
            ncol=3,
            fontsize=_SMALL,
            borderaxespad=0.4,
            borderpad=0.0,
        )
        return sheet.figure


def _epoch_ticks(epochs: NDArray[np.int64]) -> list[int]:
    """The first epoch, and round numbers beyond it that leave room for it."""
    first, last = int(epochs[0]), int(epochs[-1])
    steps = MaxNLocator(nbins=6, integer=True, min_n_ticks=1).tick_values(first, last)
    gap = steps[1] - steps[0] if len(steps) > 1 else 1
    return [first, *(int(step) for step in steps if first + gap / 2 <= step <= last)]


def _draw_losses(axes: Axes, curve: LossCurve, name: str) -> None:
    marker = "o" if len(curve.epochs) < 30 else ""
    options: dict[str, Any] = {"marker": marker, "markersize": 2.5}
    axes.plot(curve.epochs, curve.train, color=_TRAIN, label="training", **options)
    axes.plot(curve.epochs, curve.val, color=_VAL, linestyle="--", label="validation", **options)
    axes.axvline(curve.kept_epoch, color=_MARK, linewidth=1.0, label="kept epoch", zorder=1)
    axes.set_title(name, loc="left")
    axes.set_title(f"epoch {curve.kept_epoch} kept", loc="right", fontsize=_SMALL, color=_MARK)
    axes.set_xlabel("epoch")
    axes.set_xticks(_epoch_ticks(curve.epochs))
    both = np.concatenate([curve.train, curve.val])
    positive = both[np.isfinite(both)]
    logarithmic = len(positive) > 0 and positive.min() > 0 and positive.max() > 30 * positive.min()
    if logarithmic:
        axes.set_yscale("log")
    axes.set_ylabel(curve.unit + (", log scale" if logarithmic else ""))
    axes.margins(x=0.05)
    if len(curve.epochs) == 1:
        axes.set_xlim(curve.epochs[0] - 0.5, curve.epochs[0] + 0.5)
