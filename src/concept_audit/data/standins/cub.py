"""A miniature of CUB-200-2011 in the official layout: drawn birds whose attributes can be seen.

Each class draws a prototype, one value for each of the 28 attribute groups; each image changes a
group with probability 0.1. It exercises loader, rule and training; it does not look like
photographs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from concept_audit.data.cub_attributes import ATTRIBUTE_NAMES, group_of
from concept_audit.data.standins.miniature import ensure_folder, soft_background

__all__ = ["GENERATOR", "ensure_miniature", "write_miniature"]

GENERATOR = "cub-miniature-2"
_GROUPS = tuple(dict.fromkeys(map(group_of, ATTRIBUTE_NAMES)))
_MEMBERS = {
    group: tuple(i for i, name in enumerate(ATTRIBUTE_NAMES) if group_of(name) == group)
    for group in _GROUPS
}
_FLIP = 0.1  # chance that an image departs from its class in one group
_RGB = {
    "blue": (50, 90, 200), "brown": (110, 70, 40), "iridescent": (40, 150, 140),
    "purple": (120, 50, 150), "rufous": (170, 80, 40), "grey": (130, 130, 135),
    "yellow": (235, 215, 50), "olive": (110, 115, 50), "green": (60, 150, 60),
    "pink": (240, 150, 180), "orange": (240, 140, 40), "black": (25, 25, 28),
    "white": (245, 245, 240), "red": (205, 40, 40), "buff": (220, 190, 140),
}  # fmt: skip
# How far tail, head without bill, crest and foot reach from the middle of the body. The middle
# square of a picture, all that a loader keeps of it, is _UNITS wide for a bird of scale 1, so that
# the largest one, of scale 1.12 * 1.05, lies inside.
_TAIL_REACH, _HEAD_REACH = 30.0, 22.0
_CREST_REACH, _FOOT_REACH = 24.0, 20.0
_UNITS = 79.0
_BILL_REACH = {"shorter_than_head": 5.0, "about_the_same_as_head": 9.0, "longer_than_head": 13.0}
_BODY_SCALES = {"very_small": 0.62, "small": 0.74, "medium": 0.86, "large": 1.0, "very_large": 1.12}


def _values(chosen: dict[str, int]) -> dict[str, str]:
    """Group (without `has_`) to value."""
    return {
        group.removeprefix("has_"): ATTRIBUTE_NAMES[position].partition("::")[2]
        for group, position in chosen.items()
    }


def _pattern(
    canvas: ImageDraw.ImageDraw,
    box: tuple[float, float, float, float],
    pattern: str,
    unit: float,
) -> None:
    """Spots, stripes or patches over a part."""
    left, top, right, bottom = box
    dark = (40, 35, 30)
    if pattern == "spotted":
        for i in range(3):
            for j in range(2):
                x = left + (right - left) * (0.25 + 0.25 * i)
                y = top + (bottom - top) * (0.35 + 0.3 * j)
                canvas.ellipse((x - unit, y - unit, x + unit, y + unit), fill=dark)
    elif pattern == "striped":
        for i in range(4):
            x = left + (right - left) * (0.2 + 0.2 * i)
            y = (top + bottom) / 2
            half = (bottom - top) * 0.28
            canvas.line((x, y - half, x - unit, y + half), fill=dark, width=max(1, round(unit)))
    elif pattern == "multi-colored":
        middle = (left + right) / 2
        quarter = (bottom - top) * 0.25
        canvas.ellipse(
            (middle - unit, top + quarter, right - 2 * unit, bottom - quarter), fill=(235, 215, 50)
        )


def _placed(
    length: int, side: int, before: float, after: float, draw: np.random.Generator
) -> float:
    """Place with `before` and `after` pixels around it in the middle `side` of `length` pixels."""
    free = (side - 2 - before - after) / 2  # on either side, one pixel of the rim aside
    return (length + before - after) / 2 + draw.uniform(-1, 1) * min(free, 0.05 * side)


def _draw_bird(
    values: dict[str, str], size: tuple[int, int], draw: np.random.Generator
) -> Image.Image:
    """Side view of a bird, head to the right or, by chance, to the left."""
    width, height = size
    low, high = [((60, 90, 50), (150, 175, 120)), ((140, 170, 200), (205, 220, 235))][
        int(draw.integers(2))
    ]
    picture = soft_background(size, low, high, draw)
    canvas = ImageDraw.Draw(picture)
    scale = _BODY_SCALES[values["size"].partition("_(")[0]] * draw.uniform(0.95, 1.05)
    side = min(size)
    unit = side / _UNITS * scale
    bill = _BILL_REACH[values["bill_length"]]
    x = _placed(width, side, _TAIL_REACH * unit, (_HEAD_REACH + bill) * unit, draw)
    y = _placed(height, side, _CREST_REACH * unit, _FOOT_REACH * unit, draw)

    def ellipse(cx: float, cy: float, rx: float, ry: float, colour: str) -> tuple[float, ...]:
        box = (
            x + (cx - rx) * unit,
            y + (cy - ry) * unit,
            x + (cx + rx) * unit,
            y + (cy + ry) * unit,
        )
        canvas.ellipse(box, fill=_RGB[colour])
        return box

    def polygon(points: list[tuple[float, float]], colour: str) -> None:
        canvas.polygon([(x + px * unit, y + py * unit) for px, py in points], fill=_RGB[colour])

    for leg in (-3, 3):
        canvas.line(
            (x + leg * unit, y + 9 * unit, x + leg * unit, y + 20 * unit),
            fill=_RGB[values["leg_color"]], width=max(2, round(1.4 * unit)),
        )  # fmt: skip
    fork = {"forked_tail": -6.0, "notched_tail": -3.0, "pointed_tail": 4.0}
    notch = fork.get(values["tail_shape"], 0.0)
    spread = 7.0 if values["tail_shape"] == "fan-shaped_tail" else 4.0
    tail = [(-14, -4), (-26, -spread - 3), (-26 - notch, -2), (-26, spread - 2), (-13, 3)]
    polygon(tail, values["upper_tail_color"])
    polygon([(-14, 2), (-24, 2), (-22, 5), (-12, 6)], values["under_tail_color"])
    _pattern(canvas, (x - 26 * unit, y - 6 * unit, x - 14 * unit, y + 4 * unit),
             values["tail_pattern"], unit)  # fmt: skip
    ellipse(0, -1, 17, 11, values["back_color"])
    belly = ellipse(1, 3, 14, 7.5, values["belly_color"])
    _pattern(canvas, belly, values["belly_pattern"], 0.8 * unit)  # type: ignore[arg-type]
    breast = ellipse(11, 0, 6.5, 7.5, values["breast_color"])
    _pattern(canvas, breast, values["breast_pattern"], 0.8 * unit)  # type: ignore[arg-type]
    long_wing = 15.0 if values["wing_shape"] == "long-wings" else 11.5
    wing = ellipse(-5, -3, long_wing, 5.5, values["wing_color"])
    _pattern(canvas, wing, values["wing_pattern"], unit)  # type: ignore[arg-type]
    ellipse(13, -9, 6.5, 6.5, values["nape_color"])
    ellipse(16, -12, 7.5, 7, values["forehead_color"])
    ellipse(14.5, -15.5, 6.5, 3.6, values["crown_color"])
    ellipse(17.5, -6.5, 4.6, 2.8, values["throat_color"])
    if values["head_pattern"] == "crested":
        polygon([(11, -17), (5, -24), (17, -19)], values["crown_color"])
    if values["head_pattern"] in ("eyeline", "masked", "eyebrow"):
        thick = {"masked": 3.0, "eyeline": 1.2, "eyebrow": 1.2}[values["head_pattern"]]
        line_y = -15.5 if values["head_pattern"] == "eyebrow" else -12.5
        canvas.line(
            (x + 11 * unit, y + line_y * unit, x + 22 * unit, y + line_y * unit),
            fill=(20, 20, 20), width=max(1, round(thick * unit)),
        )  # fmt: skip
    if values["head_pattern"] == "eyering":
        ellipse(18, -12.5, 2.8, 2.8, "white")
    ellipse(18, -12.5, 1.7, 1.7, values["eye_color"])
    thickness = {"cone": 3.4, "hooked": 2.6, "hooked_seabird": 3.0, "needle": 0.9, "dagger": 1.8}
    half = thickness.get(values["bill_shape"], 2.2)
    droop = 2.5 if values["bill_shape"].startswith(("hooked", "curved")) else 0.0
    polygon(
        [(22, -11 - half), (_HEAD_REACH + bill, -10.5 + droop), (22, -10 + half)],
        values["bill_color"],
    )
    flipped = draw.uniform() < 0.5
    return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flipped else picture


def _prototypes(
    n_classes: int, values_per_group: int, draw: np.random.Generator
) -> list[dict[str, int]]:
    """One value per group and class; few values per group, so that classes share attributes."""
    palette = {
        group: draw.permutation(_MEMBERS[group])[:values_per_group].tolist() for group in _GROUPS
    }
    return [
        {group: int(draw.choice(palette[group])) for group in _GROUPS} for _ in range(n_classes)
    ]


def write_miniature(
    folder: str | Path,
    *,
    n_classes: int = 20,
    images_per_class: int = 30,
    size: tuple[int, int] = (160, 128),
    values_per_group: int = 4,
    seed: int = 0,
) -> None:
    """Write the miniature: images, all text files of the archive, and ``attributes.txt`` beside it.

    Parameters
    ----------
    folder : an existing folder; gets ``attributes.txt`` and ``CUB_200_2011/``
    n_classes, images_per_class : half of each class is training, half test
    size : width and height of the pictures
    values_per_group : how many values of an attribute group occur
    seed : of everything that is random
    """
    draw = np.random.default_rng(seed)
    prototypes = _prototypes(n_classes, values_per_group, draw)
    base = Path(folder) / "CUB_200_2011"
    (base / "attributes").mkdir(parents=True)
    (base / "parts").mkdir()
    classes = [f"{i + 1:03d}.Drawn_Bird_{i + 1:02d}" for i in range(n_classes)]
    lines: dict[str, list[str]] = {
        name: [] for name in ("images", "image_class_labels", "train_test_split", "bounding_boxes")
    }
    attribute_lines: list[str] = []
    present = np.zeros((n_classes, images_per_class, len(ATTRIBUTE_NAMES)), dtype=np.int64)
    for number, name in enumerate(classes):
        (base / "images" / name).mkdir(parents=True)
        for which in range(images_per_class):
            chosen = dict(prototypes[number])
            for group in _GROUPS:
                if draw.uniform() < _FLIP:
                    chosen[group] = int(draw.choice(_MEMBERS[group]))
            present[number, which, list(chosen.values())] = 1
            image = number * images_per_class + which + 1
            path = f"{name}/Drawn_Bird_{number + 1:02d}_{which + 1:04d}.jpg"
            _draw_bird(_values(chosen), size, draw).save(base / "images" / path, quality=92)
            lines["images"].append(f"{image} {path}")
            lines["image_class_labels"].append(f"{image} {number + 1}")
            lines["train_test_split"].append(f"{image} {1 - which % 2}")
            lines["bounding_boxes"].append(f"{image} 0.0 0.0 {size[0]:.1f} {size[1]:.1f}")
            attribute_lines += _attribute_lines(image, present[number, which], draw)
    # As in the official file, some lines carry extra columns; readers must stop after the fourth.
    attribute_lines[2] = attribute_lines[2].rsplit(" ", 1)[0] + " 0 1.0900"
    for name, content in lines.items():
        _write(base / f"{name}.txt", content)
    _write(base / "classes.txt", [f"{i + 1} {name}" for i, name in enumerate(classes)])
    _write(base / "attributes" / "image_attribute_labels.txt", attribute_lines)
    _write(base / "attributes" / "certainties.txt",
           ["1 not visible", "2 guessing", "3 probably", "4 definitely"])  # fmt: skip
    _write(base / "attributes" / "class_attribute_labels_continuous.txt",
           [" ".join(f"{100 * v:.2f}" for v in row) for row in present.mean(axis=1)])  # fmt: skip
    _write(base / "parts" / "parts.txt", ["1 back", "2 beak"])
    names = [f"{i + 1} {name}" for i, name in enumerate(ATTRIBUTE_NAMES)]
    _write(Path(folder) / "attributes.txt", names)


def _attribute_lines(
    image: int, present: NDArray[np.int64], draw: np.random.Generator
) -> list[str]:
    certainty = draw.choice([1, 2, 3, 4], p=[0.05, 0.1, 0.25, 0.6], size=len(present))
    certainty = np.where(present == 1, np.maximum(certainty, 2), certainty)
    return [
        f"{image} {position + 1} {label} {sure} 1.5"
        for position, (label, sure) in enumerate(zip(present, certainty, strict=True))
    ]


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def ensure_miniature(parent: str | Path) -> Path:
    """Folder with the miniature in its default form, drawn on the first call."""
    return ensure_folder(parent, GENERATOR, partial(write_miniature))
