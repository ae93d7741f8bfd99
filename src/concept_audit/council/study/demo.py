"""A small drawn item set to try the study with: eight birds, three invented models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from concept_audit.council.explanations import Explanation, explain_contributions
from concept_audit.council.study.items import StudyItem, StudyText, items_of_image, write_items

__all__ = ["DEMO_DATASET", "write_demo"]

DEMO_DATASET = "drawn_birds"
_Colour = tuple[int, int, int]
_OUT_OF_PLACE = ("a steering wheel", "sandy beach", "striped fur", "four legs", "a red roof")


@dataclass(frozen=True)
class _Bird:
    """Looks of one species, and what a good explanation would say about it."""

    name: str
    back: _Colour
    belly: _Colour
    head: _Colour
    beak: _Colour
    crest: bool
    concepts: tuple[str, ...]  # the most telling first
    mistaken_for: str


_BIRDS = (
    _Bird(
        "Blue Jay",
        (66, 112, 176),
        (232, 234, 236),
        (80, 130, 196),
        (50, 50, 52),
        True,
        ("blue back and wings", "pointed crest", "white belly", "black beak", "long tail"),
        "Western Bluebird",
    ),
    _Bird(
        "Northern Cardinal",
        (178, 42, 40),
        (206, 66, 54),
        (190, 40, 38),
        (224, 118, 56),
        True,
        ("red plumage", "pointed crest", "thick orange beak", "long tail", "dark eye"),
        "Summer Tanager",
    ),
    _Bird(
        "American Goldfinch",
        (58, 54, 50),
        (240, 206, 58),
        (240, 206, 58),
        (226, 150, 84),
        False,
        ("yellow body", "black wings", "short conical beak", "small size", "notched tail"),
        "Yellow Warbler",
    ),
    _Bird(
        "American Robin",
        (98, 94, 92),
        (200, 98, 50),
        (58, 56, 58),
        (226, 178, 70),
        False,
        ("orange-red breast", "dark head", "grey back", "yellow beak", "round body"),
        "Orchard Oriole",
    ),
    _Bird(
        "Indigo Bunting",
        (44, 68, 150),
        (58, 92, 182),
        (36, 54, 140),
        (140, 142, 150),
        False,
        ("deep blue all over", "grey conical beak", "small size", "dark wings", "short tail"),
        "Blue Grosbeak",
    ),
    _Bird(
        "Baltimore Oriole",
        (40, 38, 40),
        (238, 140, 38),
        (36, 34, 36),
        (128, 136, 146),
        False,
        ("orange underside", "black head", "black back", "pointed grey beak", "slim body"),
        "American Redstart",
    ),
    _Bird(
        "Common Raven",
        (40, 42, 50),
        (48, 50, 60),
        (36, 38, 46),
        (30, 30, 34),
        False,
        ("black all over", "heavy black beak", "shaggy throat", "large size", "wedge-shaped tail"),
        "American Crow",
    ),
    _Bird(
        "Cedar Waxwing",
        (150, 124, 98),
        (222, 196, 120),
        (168, 128, 90),
        (44, 42, 44),
        True,
        ("pale yellow belly", "swept-back crest", "soft brown head", "black beak", "sleek plumage"),
        "Bohemian Waxwing",
    ),
)


def _draw(
    bird: _Bird, rng: np.random.Generator, *, width: int = 480, height: int = 360
) -> Image.Image:
    """Draw a bird on a branch, at twice the size for smooth edges."""
    scale = 2
    w, h = width * scale, height * scale
    top, bottom = np.array([176, 204, 222]), np.array([226, 232, 214])
    ramp = np.linspace(0, 1, h)[:, None, None]
    sky = np.broadcast_to(top * (1 - ramp) + bottom * ramp, (h, w, 3))
    picture = Image.fromarray(sky.astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    for _ in range(26):  # leaves out of focus
        x, y, r = (int(rng.integers(*span)) for span in ((0, w), (h // 2, h), (20, 70)))
        green = int(rng.integers(120, 170))
        draw.ellipse((x - r, y - r // 2, x + r, y + r // 2), fill=(green - 40, green, green - 50))
    draw.line((0, 0.83 * h, w, 0.77 * h), fill=(104, 80, 58), width=int(0.045 * h))

    def oval(cx: float, cy: float, rx: float, ry: float, colour: _Colour) -> None:
        draw.ellipse(((cx - rx) * h, (cy - ry) * h, (cx + rx) * h, (cy + ry) * h), fill=colour)

    def shape(points: Sequence[tuple[float, float]], colour: _Colour) -> None:
        draw.polygon([(x * h, y * h) for x, y in points], fill=colour)

    darker = tuple(int(0.72 * channel) for channel in bird.back)
    shape([(0.50, 0.52), (0.18, 0.86), (0.27, 0.91), (0.60, 0.66)], darker)  # type: ignore[arg-type]
    oval(0.68, 0.56, 0.25, 0.21, bird.back)
    oval(0.72, 0.61, 0.20, 0.155, bird.belly)
    for leg in (0.68 * h, 0.75 * h):
        draw.line((leg, 0.74 * h, leg, 0.80 * h), fill=(70, 58, 50), width=int(0.012 * h))
    if bird.crest:
        shape([(0.78, 0.27), (0.74, 0.10), (0.92, 0.24)], bird.head)
    shape([(0.98, 0.29), (1.10, 0.345), (0.98, 0.375)], bird.beak)
    oval(0.88, 0.33, 0.135, 0.13, bird.head)
    shape([(0.52, 0.47), (0.80, 0.50), (0.70, 0.62), (0.40, 0.72)], darker)  # type: ignore[arg-type]
    oval(0.925, 0.31, 0.022, 0.022, (250, 250, 248))
    oval(0.928, 0.31, 0.014, 0.014, (20, 20, 22))
    return picture.resize((width, height), Image.Resampling.LANCZOS)


def _explanations(
    bird: _Bird, others: Sequence[_Bird], rng: np.random.Generator
) -> dict[str, tuple[str, Explanation]]:
    """Three invented models: a careful one, a repetitive one, and one that is often wrong."""
    falling = np.array([0.42, 0.26, 0.16, 0.10, 0.06]) * rng.uniform(0.9, 1.1, size=5)
    flat = np.array([0.24, 0.23, 0.22, 0.19, 0.012]) * rng.uniform(0.95, 1.05, size=5)
    other = others[int(rng.integers(len(others)))]
    vague = (bird.concepts[0], "feathers", "a bird with feathers", "two wings", bird.concepts[-1])
    wild = tuple(rng.permutation(_OUT_OF_PLACE)[:3])
    confused = (wild[0], other.concepts[0], wild[1], bird.concepts[2], wild[2])
    return {
        "careful": (bird.name, explain_contributions(falling, bird.concepts)),
        "repetitive": (bird.name, explain_contributions(flat, vague)),
        "confused": (
            bird.mistaken_for,
            explain_contributions(
                falling[[0, 1, 2, 3, 4]], confused, negated=[False, False, True, False, False]
            ),
        ),
    }


def write_demo(folder: str | Path, *, seed: int = 0) -> Path:
    """Draw the images and write `items.jsonl` with 24 comparisons.

    Parameters
    ----------
    folder : is made; files in it of the same names are replaced
    seed : of leaves and weights

    Returns
    -------
    Path of `items.jsonl`.
    """
    root = Path(folder)
    (root / "images").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    items: list[StudyItem] = []
    for number, bird in enumerate(_BIRDS, start=1):
        name = f"images/{number:02d}.png"
        _draw(bird, rng).save(root / name, optimize=True)
        items += items_of_image(
            dataset=DEMO_DATASET,
            image_id=f"bird-{number:02d}",
            image=name,
            class_name=bird.name,
            explanations=_explanations(bird, [b for b in _BIRDS if b is not bird], rng),
        )
    return write_items(root, items, text=StudyText(organiser="An example with drawn birds"))
