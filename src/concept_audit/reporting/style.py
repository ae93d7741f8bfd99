"""One look for every figure: colours, sizes, words on axes, and a writer with repeatable bytes.

Figures are built from `matplotlib.figure.Figure` without pyplot, so nothing is kept in a global
list and no display is needed. `styled` puts a drawing function inside the style, and `save` writes
PDF, PNG and SVG that are equal byte by byte for equal rows (no dates, fixed SVG identifiers).
"""

from __future__ import annotations

import functools
import io
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import matplotlib.colors
from matplotlib.figure import Figure

from concept_audit.store.atomic import write_bytes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = [
    "CLASS_COLOURS",
    "CLASS_MARKERS",
    "ENCODING_COLOURS",
    "ENCODING_MARKERS",
    "GREY",
    "STANDIN_NOTE",
    "DatasetName",
    "axis_label",
    "caption",
    "dataset_label",
    "mark_standin",
    "metric_label",
    "parse_dataset",
    "ramp",
    "save",
    "style_context",
    "styled",
    "tint",
]

# Okabe and Ito's colours, distinguishable with every common colour-vision deficiency.
ENCODING_COLOURS: dict[str, str] = {
    "hard": "#4d4d4d",
    "soft": "#0072b2",
    "logit": "#d55e00",
    "cem": "#009e73",
}
ENCODING_MARKERS: dict[str, str] = {"hard": "s", "soft": "o", "logit": "^", "cem": "D"}
GREY = "#8a8a8a"
# Classes: Okabe and Ito first, then darker and lighter relatives; markers repeat the distinction.
CLASS_COLOURS: tuple[str, ...] = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#4d4d4d",
    "#332288",
    "#999933",
    "#882255",
    "#bbbbbb",
)
CLASS_MARKERS: tuple[str, ...] = ("o", "^", "s", "D", "v", "P", "X", "*", "<", ">", "h", "d")

STANDIN_NOTE = (
    "Stand-in: drawn images in place of the original data set; not comparable with the paper."
)

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib, so widths are the same everywhere
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 0.7,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "text.hinting": "none",  # widths of words then scale with the resolution, and layouts hold
    "svg.hashsalt": "concept_audit",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}
_DOTS_PER_INCH = 160

_METRIC_LABELS: dict[str, tuple[str, str]] = {
    "accuracy": ("accuracy", "share of test rows, unitless"),
    "alignment_leakage": ("alignment I(align)", "MI / H(y), unitless"),
    "completeness": ("completeness C", "unitless"),
    "concept_accuracy": ("concept accuracy", "share of test rows"),
    "concept_density": ("share of test rows", "unitless"),
    "concepts_task_information": ("concepts-task I(CT)", "MI / H(y), unitless"),
    "ctl": ("CTL", "MI / H(y), unitless"),
    "disentanglement": ("disentanglement D", "unitless"),
    "downstream_performance": ("downstream performance", "mean accuracy and R², unitless"),
    "explicitness": ("explicitness E", "unitless"),
    "icl": ("ICL", "MI / √(H H), unitless"),
    "informativeness": ("informativeness I", "unitless"),
    "interconcept_information": ("interconcept I(IC)", "MI / H(c), unitless"),
    "interconcept_information_true": ("true interconcept MI", "MI / √(H H), unitless"),
    "intervention_accuracy": ("task accuracy", "share of test rows"),
    "intervention_score": ("intervention score S_int", "accuracy difference, unitless"),
    "loss": ("test loss", "1 − accuracy or 1 − R², unitless"),
    "nis": ("NIS, niche removed", "area under AUC curve, unitless"),
    "nis_reference": ("NIS, as published", "area under AUC curve, unitless"),
    "ois": ("OIS, trained heads", "AUC distance, unitless"),
    "ois_reference": ("OIS, reference settings", "AUC distance, unitless"),
    "self_information": ("self I(self)", "MI / H(c), unitless"),
    "size": ("size S", "codes per factor, unitless"),
    "task_accuracy": ("task accuracy", "share of test rows"),
}
_FAMILIES: dict[str, tuple[str, str]] = {
    "tabulartoy": ("TabularToy", "δ"),
    "dsprites": ("dSprites", "γ"),
    "shapes3d": ("3dshapes", "γ"),
    "cub": ("CUB", ""),
    "ham10k": ("HAM10K", ""),
    "mpi3d": ("MPI3D", ""),
    "cars3d": ("Cars3D", ""),
}
_VARIANTS = {
    "": "",
    "incomplete": "incomplete concepts",
    "nonlinear": "nonlinear task",
    "two_concepts": "two concepts",
}
_BASE_PARAMETER = {"tabulartoy": "d025", "dsprites": "g0", "shapes3d": "g0"}


@dataclass(frozen=True)
class DatasetName:
    """Parts of a data set's name: `tabulartoy_d025_incomplete` and the like.

    Attributes
    ----------
    family : first word, e.g. "tabulartoy"
    parameter : "d025", "g4", or "" where the family has none; the base value where it is left out
    variant : "", "incomplete", "nonlinear", "two_concepts", or any other rest of the name
    standin : whether the name says that it is a stand-in
    """

    family: str
    parameter: str
    variant: str
    standin: bool

    @property
    def value(self) -> str:
        """Dependence of the concepts as a number: "0.25" for d025, "4" for g4, "" for none."""
        digits = self.parameter[1:]
        return f"{digits[0]}.{digits[1:]}" if self.parameter.startswith("d") else digits


def parse_dataset(name: str) -> DatasetName:
    """Split a data set's name into family, parameter, variant and stand-in mark."""
    words = [word for word in name.split("_") if word != "standin"]
    standin = len(words) != len(name.split("_"))
    family, rest = words[0], words[1:]
    parameter = next((w for w in rest if re.fullmatch(r"d\d{2,}|g\d+", w)), None)
    rest = [word for word in rest if word != parameter]
    return DatasetName(
        family=family,
        parameter=parameter if parameter is not None else _BASE_PARAMETER.get(family, ""),
        variant="_".join(rest),
        standin=standin,
    )


def dataset_label(name: str, *, variant: bool = True) -> str:
    """Words for a data set: `tabulartoy_d025` becomes "TabularToy (δ = 0.25)".

    Parameters
    ----------
    name : name of the data set as in the rows
    variant : whether to add the variant ("incomplete concepts") after a comma

    Returns
    -------
    str, with " [stand-in]" at the end where the name ends in `_standin`.
    """
    parts = parse_dataset(name)
    label, symbol = _FAMILIES.get(parts.family, (parts.family, ""))
    if symbol and parts.parameter:
        label += f" ({symbol} = {parts.value})"
    if variant and parts.variant:
        label += ", " + _VARIANTS.get(parts.variant, parts.variant.replace("_", " "))
    return label + (" [stand-in]" if parts.standin else "")


def metric_label(metric: str) -> str:
    """Short words for a metric's name in the rows; an unknown name is shown as it is."""
    return _METRIC_LABELS.get(metric, (metric.replace("_", " "), ""))[0]


def axis_label(metric: str) -> str:
    """Words for an axis: the metric and, in a second line, its unit."""
    label, unit = _METRIC_LABELS.get(metric, (metric.replace("_", " "), "unitless"))
    return f"{label}\n({unit})"


def tint(colour: str, amount: float) -> str:
    """Mix `colour` with white (`amount` > 0) or black (`amount` < 0); |amount| <= 1."""
    other = (1.0, 1.0, 1.0) if amount > 0 else (0.0, 0.0, 0.0)
    share = abs(amount)
    red, green, blue = (
        (1 - share) * a + share * b for a, b in zip(_rgb(colour), other, strict=True)
    )
    return matplotlib.colors.to_hex((red, green, blue))


def ramp(colour: str, n: int) -> list[str]:
    """`n` shades of a colour from light to dark, all readable on white; one shade is the colour."""
    if n == 1:
        return [colour]
    return [tint(colour, 0.5 - 0.95 * i / (n - 1)) for i in range(n)]


def _rgb(colour: str) -> tuple[float, float, float]:
    """Red, green and blue in [0, 1]."""
    return matplotlib.colors.to_rgb(colour)


@contextmanager
def style_context() -> Iterator[None]:
    """Use our settings and nobody else's matplotlibrc for as long as the block runs."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


def styled(draw: Callable[[pd.DataFrame], Figure]) -> Callable[[pd.DataFrame], Figure]:
    """Run a drawing function inside the style."""

    @functools.wraps(draw)
    def wrapper(rows: pd.DataFrame) -> Figure:
        with style_context():
            return draw(rows)

    return wrapper


def caption(figure: Figure, sentences: Sequence[str]) -> None:
    """Small lines under the figure: what the marks are, the kind of interval, n, stand-ins."""
    text = " ".join(sentences)
    width = int(figure.get_figwidth() * 19)  # characters of 6.5 points that fit into an inch
    figure.supxlabel(
        "\n".join(textwrap.wrap(text, width)), fontsize=6.5, x=0.01, ha="left", color="#555555"
    )


def mark_standin(axes: Axes) -> None:
    """Write STAND-IN in pale letters behind the data of a panel."""
    axes.text(
        0.5,
        0.5,
        "STAND-IN",
        transform=axes.transAxes,
        ha="center",
        va="center",
        rotation=20,
        fontsize=20,
        fontweight="bold",
        color="#eeeeee",
        zorder=0.1,
        gid="standin",
    )


def save(figure: Figure, path: str | Path) -> tuple[Path, Path, Path]:
    """Write a figure as PDF, PNG and SVG and release it.

    Parameters
    ----------
    figure : the figure; it is emptied afterwards, so draw again rather than saving twice
    path : file name without suffix, e.g. `outputs/figures/leakage/fig06_supervision`

    Returns
    -------
    The three paths written. Files are replaced whole; equal figures give equal bytes.

    Raises
    ------
    ValueError  if the path ends in one of the three suffixes.
    """
    stem = Path(path)
    metadata: dict[str, dict[str, str | None]] = {
        ".pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
        ".png": {"Software": None},
        ".svg": {"Date": None, "Creator": None},
    }
    if stem.suffix in metadata:
        raise ValueError(
            f"path is a name without suffix, got {str(path)!r}. "
            f"Leave {stem.suffix!r} out: PDF, PNG and SVG are all written."
        )
    written = []
    with style_context():
        figure.set_dpi(_DOTS_PER_INCH)
        # Lay out once, and once more since labels move with their ticks; then keep the places.
        for _ in range(2):
            engine = figure.get_layout_engine()
            if engine is not None:
                engine.execute(figure)
        figure.set_layout_engine("none")
        for suffix, entries in metadata.items():
            target = stem.with_name(stem.name + suffix)
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix[1:], dpi=_DOTS_PER_INCH, metadata=entries)
            write_bytes(target, buffer.getvalue())
            written.append(target)
    figure.clear()
    return written[0], written[1], written[2]
