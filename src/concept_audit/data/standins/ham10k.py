"""A miniature of HAM10000 in the official layout: drawn lesions on which each concept can be seen.

A lesion is a noisy ellipse on a skin tone; each of the 18 concepts is a drawing rule, and its
chance depends on the label. It exercises loader, lesion split and training; it is not dermatology.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from concept_audit.data.standins.miniature import ensure_folder, soft_background

__all__ = ["CONCEPT_MEANINGS", "GENERATOR", "ensure_miniature", "write_miniature"]

GENERATOR = "ham10k-miniature-1"
# Abbreviations of the annotated subset of Chanda et al. (Nature Communications, 2024).
CONCEPT_MEANINGS: dict[str, str] = {
    "TRBL": "thick reticular or branched lines",
    "GP": "grey patterns",
    "MS": "melanoma simulator",
    "BDG": "black dots or globules at the periphery",
    "ESA": "eccentric structureless area",
    "WLSA": "white lines or white structureless area",
    "APC": "asymmetric combination without melanoma criteria",
    "SPC": "symmetric combination",
    "PV": "polymorphous vessels",
    "PRL": "pseudopods or radial lines at part of the margin",
    "OPC": "one pattern, one colour",
    "PIF": "pigment in follicle openings",
    "PRLC": "pseudopods or radial lines around the whole margin",
    "PLR": "parallel lines on ridges",
    "PLF": "parallel lines in furrows",
    "PES": "pigment beyond a scar",
    "MVP": "monomorphic vessels",
    "PDES": "meaning not found",
}
# Chance of each concept in a benign and in a malignant lesion.
_CHANCES = {
    "TRBL": (0.10, 0.55), "GP": (0.10, 0.50), "MS": (0.25, 0.10), "BDG": (0.10, 0.45),
    "ESA": (0.12, 0.50), "WLSA": (0.10, 0.45), "APC": (0.35, 0.10), "SPC": (0.40, 0.08),
    "PV": (0.08, 0.40), "PRL": (0.06, 0.40), "OPC": (0.45, 0.08), "PIF": (0.10, 0.25),
    "PRLC": (0.20, 0.08), "PLR": (0.06, 0.20), "PLF": (0.20, 0.06), "PES": (0.08, 0.15),
    "MVP": (0.25, 0.08), "PDES": (0.15, 0.15),
}  # fmt: skip
_BENIGN_DX, _MALIGNANT_DX = ("nv", "bkl", "vasc", "df"), ("mel", "bcc", "akiec")
_COLUMNS = (
    "lesion_id", "image_id", "dx", "dx_type", "age", "sex", "localization", "dataset",
)  # fmt: skip
_FIRST_IMAGE = 24306


def _draw_lesion(
    present: set[str], size: tuple[int, int], draw: np.random.Generator
) -> Image.Image:
    width, height = size
    picture = soft_background(size, (205, 150, 130), (232, 188, 166), draw)
    canvas = ImageDraw.Draw(picture)
    unit = height / 100
    x, y = width / 2 + draw.normal(0, 3) * unit, height / 2 + draw.normal(0, 3) * unit
    angles = np.linspace(0, 2 * np.pi, 73)[:-1]
    wobble = np.zeros(len(angles))
    for k in range(2, 6):
        wobble += draw.normal(0, 0.06) * np.cos(k * angles + draw.uniform(0, 6.3))
    reach = (
        1 + wobble + (0.35 * np.clip(np.cos(angles - 0.8), 0, 1) ** 3 if "APC" in present else 0)
    )
    radius_x, radius_y = draw.uniform(26, 32) * unit, draw.uniform(22, 27) * unit
    outline = [
        (x + radius_x * r * np.cos(a), y + radius_y * r * np.sin(a))
        for r, a in zip(reach, angles, strict=True)
    ]
    plain = "OPC" in present
    colour = (150, 95, 60) if plain else (125, 75, 48)
    canvas.polygon(outline, fill=colour)
    if not plain:
        _ellipse(canvas, x - 6 * unit, y + 2 * unit, 11 * unit, 9 * unit, (95, 55, 36))
    picture = picture.filter(ImageFilter.GaussianBlur(0.8 * unit))
    canvas = ImageDraw.Draw(picture)
    line = max(1, round(0.9 * unit))

    def at(angle: float, share: float) -> tuple[float, float]:
        return x + share * radius_x * np.cos(angle), y + share * radius_y * np.sin(angle)

    if "SPC" in present:
        for share in (0.75, 0.45):
            box = (x - share * radius_x, y - share * radius_y, x + share * radius_x,
                   y + share * radius_y)  # fmt: skip
            canvas.ellipse(box, outline=(80, 45, 30), width=line + 1)
    if "ESA" in present:
        _ellipse(canvas, *at(-0.7, 0.55), 9 * unit, 7 * unit, (70, 40, 28))
    if "GP" in present:
        _ellipse(canvas, *at(2.5, 0.45), 8 * unit, 6 * unit, (118, 122, 138))
    if "WLSA" in present:
        _ellipse(canvas, *at(1.3, 0.5), 7 * unit, 5 * unit, (240, 228, 220))
    if "MS" in present:
        _ellipse(canvas, x, y, 6 * unit, 6 * unit, (25, 18, 18))
    if "TRBL" in present:
        for step in (-0.5, -0.2, 0.1, 0.4):
            canvas.line(
                (*at(np.pi + step, 0.9), *at(-step, 0.9)), fill=(45, 25, 18), width=line + 1
            )
            canvas.line(
                (*at(1.57 + step, 0.9), *at(-1.57 - step, 0.9)), fill=(45, 25, 18), width=line + 1
            )
    for name, colour_of, gap in (("PLR", (60, 35, 25), 5.0), ("PLF", (110, 70, 50), 9.0)):
        if name in present:
            for offset in np.arange(-18, 19, gap) * unit:
                slope = 0.0 if name == "PLR" else 6 * unit
                canvas.line(
                    (x + offset - slope, y - 17 * unit, x + offset + slope, y + 17 * unit),
                    fill=colour_of, width=line + (2 if name == "PLR" else 0),
                )  # fmt: skip
    for name, spread in (
        ("PRL", np.linspace(-0.6, 0.6, 6)),
        ("PRLC", np.linspace(0, 6.3, 27)[:-1]),
    ):
        if name in present:
            for angle in spread:
                canvas.line((*at(angle, 0.9), *at(angle, 1.3)), fill=(50, 28, 20), width=line + 1)
    if "BDG" in present:
        for angle in np.linspace(2.2, 5.2, 9):
            _ellipse(canvas, *at(angle, 1.02), 1.6 * unit, 1.6 * unit, (15, 12, 12))
    if "PIF" in present:
        for angle in np.linspace(0, 6.3, 8)[:-1]:
            _ellipse(canvas, *at(angle, 0.6), 2.2 * unit, 2.2 * unit, (225, 195, 165))
            _ellipse(canvas, *at(angle, 0.6), 1.0 * unit, 1.0 * unit, (90, 90, 95))
    if "PV" in present:
        for angle in (0.4, 1.9, 3.6, 5.0):
            points = [at(angle + 0.25 * i, 0.25 + 0.16 * (i % 3)) for i in range(4)]
            canvas.line([c for p in points for c in p], fill=(190, 30, 40), width=line)
    if "MVP" in present:
        for i in range(-2, 3):
            for j in range(-1, 2):
                _ellipse(canvas, x + 7 * i * unit, y + 8 * j * unit, unit, unit, (200, 40, 50))
    if "PES" in present:
        canvas.line(
            (x - 38 * unit, y - 6 * unit, x + 38 * unit, y + 8 * unit),
            fill=(238, 215, 205), width=line + 2,
        )  # fmt: skip
        _ellipse(canvas, *at(0.15, 1.35), 3 * unit, 2 * unit, (90, 50, 35))
    if "PDES" in present:
        _ellipse(canvas, *at(-2.2, 0.8), 4 * unit, 4 * unit, (214, 160, 120))
    return picture.rotate(
        draw.uniform(-25, 25), Image.Resampling.BILINEAR, fillcolor=(218, 168, 146)
    )


def _ellipse(
    canvas: ImageDraw.ImageDraw,
    x: float,
    y: float,
    radius_x: float,
    radius_y: float,
    fill: tuple[int, int, int],
) -> None:
    canvas.ellipse((x - radius_x, y - radius_y, x + radius_x, y + radius_y), fill=fill)


def _concepts(malignant: bool, draw: np.random.Generator) -> NDArray[np.bool_]:
    chances = np.array([pair[int(malignant)] for pair in _CHANCES.values()])
    return draw.uniform(size=len(chances)) < chances


def write_miniature(
    folder: str | Path,
    *,
    n_lesions: int = 420,
    size: tuple[int, int] = (160, 120),
    seed: int = 0,
) -> None:
    """Write the miniature: JPEG files in two part folders, the official CSV and ``concepts.csv``.

    Parameters
    ----------
    folder : an existing folder
    n_lesions : lesions; each has one to three images
    size : width and height of the pictures
    seed : of everything that is random
    """
    draw = np.random.default_rng(seed)
    root = Path(folder)
    parts = [root / f"HAM10000_images_part_{part}" for part in (1, 2)]
    for part in parts:
        part.mkdir()
    metadata: list[dict[str, object]] = []
    annotations: list[dict[str, object]] = []
    for lesion in range(n_lesions):
        malignant = bool(draw.uniform() < 0.4)
        diagnosis = str(draw.choice(_MALIGNANT_DX if malignant else _BENIGN_DX))
        concepts = dict(zip(CONCEPT_MEANINGS, _concepts(malignant, draw).tolist(), strict=True))
        for _ in range(int(draw.choice([1, 2, 3], p=[0.7, 0.2, 0.1]))):
            image = f"ISIC_{_FIRST_IMAGE + len(metadata):07d}"
            present = {name for name, there in concepts.items() if there}
            picture = _draw_lesion(present, size, draw)
            picture.save(parts[len(metadata) % 2] / f"{image}.jpg", quality=92)
            age = "" if not metadata else f"{5 * draw.integers(4, 17)}.0"
            metadata.append(dict(zip(_COLUMNS, (
                f"HAM_{lesion:07d}", image, diagnosis, "histo", age,
                str(draw.choice(["male", "female"])), "back", "drawn",
            ), strict=True)))  # fmt: skip
            annotations.append(
                {
                    "image_id": image,
                    "benign_malignant": "malignant" if malignant else "benign",
                    **{name: int(there) for name, there in concepts.items()},
                }
            )
    for name, rows in (("HAM10000_metadata.csv", metadata), ("concepts.csv", annotations)):
        with (root / name).open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def ensure_miniature(parent: str | Path) -> Path:
    """Folder with the miniature in its default form, drawn on the first call."""
    return ensure_folder(parent, GENERATOR, write_miniature)
