"""Words and marks of the representations and probes that DCI-ES compares, in the order shown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from concept_audit.reporting.panels import Series
from concept_audit.reporting.style import tint

__all__ = [
    "PROBES",
    "order_representations",
    "probe_label",
    "representation_label",
    "representation_series",
]

# Name in the rows -> words; left to right as in the paper's Figure 1.
PROBES: dict[str, str] = {
    "mlp": "MLP probes",
    "rff": "random Fourier features",
    "random_forest": "random forests",
}
_LABELS: dict[str, str] = {
    "labels": "ground-truth labels",
    "noisy_labels": "noisy labels",
    "mixed_labels": "linearly mixed labels",
    "vae": "VAE",
    "beta_vae": "β-VAE",
    "resnet18_imagenet": "ResNet-18, ImageNet",
    "resnet18_random": "ResNet-18, random weights",
    "raw_pixels": "raw pixels",
}
_COLOURS = {
    "labels": "#4d4d4d",
    "noisy_labels": "#999933",
    "mixed_labels": "#cc79a7",
    "vae": "#0072b2",
    "beta_vae": "#56b4e9",
    "resnet18_imagenet": "#009e73",
    "resnet18_random": "#009e73",
    "raw_pixels": "#d55e00",
}
_MARKERS = {
    "labels": "o",
    "noisy_labels": "v",
    "mixed_labels": "^",
    "vae": "s",
    "beta_vae": "D",
    "resnet18_imagenet": "P",
    "resnet18_random": "P",
    "raw_pixels": "X",
}
# Shades of one colour for the sizes that the paper's comparison of sizes suggests.
_AE_COLOUR, _AE_MARKER = "#e69f00", "<"
_AE_SHADES = {5: (0.45, "*"), 10: (0.0, "<"), 50: (-0.35, ">")}
_AUTOENCODER = re.compile(r"autoencoder_(\d+)")
# Labels are drawn dashed: they are made from the factors, not learnt from images.
_FROM_FACTORS = ("labels", "noisy_labels", "mixed_labels")


def representation_label(name: str) -> str:
    """Words for a representation: `autoencoder_5` becomes "AE-5"; unknown names stay."""
    if match := _AUTOENCODER.fullmatch(name):
        return f"AE-{match[1]}"
    return _LABELS.get(name, name.replace("_", " "))


def representation_series(name: str) -> Series:
    """Colour, marker and line of a representation, the same in every figure."""
    colour, marker = _COLOURS.get(name, _AE_COLOUR), _MARKERS.get(name, _AE_MARKER)
    if match := _AUTOENCODER.fullmatch(name):
        shade, marker = _AE_SHADES.get(int(match[1]), (0.0, _AE_MARKER))
        colour = tint(colour, shade)
    return Series(
        representation_label(name),
        colour,
        marker,
        "--" if name in _FROM_FACTORS else "-",
    )


def order_representations(names: Iterable[str]) -> list[str]:
    """The names without repetition: labels, then learnt codes by size, then images."""
    known = list(_LABELS)

    def key(name: str) -> tuple[int, int, str]:
        if match := _AUTOENCODER.fullmatch(name):
            return known.index("beta_vae"), int(match[1]), name
        return (known.index(name) if name in known else len(known)), 0, name

    return sorted(set(names), key=key)


def probe_label(probe: str) -> str:
    """Words for a family of probes; unknown names stay."""
    return PROBES.get(probe, probe.replace("_", " "))
