"""Cars3D imitated: 183 seeded parametric cars, seen from 24 azimuths and 4 elevations on white.

No official image was at hand to compare with: proportions and colours are set by eye.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from concept_audit.data.factor_grids import FactorGrid, groups_of_equal
from concept_audit.data.standins.polytopes import Camera, Solid, block, cast, empty_surface, prism
from concept_audit.store.atomic import atomic_path, write_text

__all__ = ["GENERATOR", "GRID", "render", "write_official"]

GENERATOR = "cars3d-raycast-1"
GRID = FactorGrid(
    names=("elevation", "azimuth", "object_type"),
    sizes=(4, 24, 183),
    kinds=("continuous", "continuous", "categorical"),  # DCI-ES regresses the azimuth too
)
_SEED = 1000  # type i is drawn from its own generator, seeded 1000 + i
_ELEVATIONS = np.radians([10.0, 20.0, 30.0, 40.0])
_AZIMUTH_STEP = np.radians(15.0)
_DISTANCE, _FOCAL = 5.2, 1.9
_KINDS = ("sedan", "hatchback", "van", "pickup", "sport")
_KIND_SHARES = (0.38, 0.22, 0.14, 0.10, 0.16)
_SHADE = (0.42, 0.38, 0.25)  # ambient, light, towards the viewer
_LIGHT = np.array([-0.4, -0.5, 0.77]) / np.linalg.norm([-0.4, -0.5, 0.77])
_PAINT, _GLASS, _TYRE, _HUB, _HEADLAMP, _TAIL_LAMP, _TRIM = range(7)
_FIXED_RGB = np.array([
    [0.0, 0.0, 0.0], [0.13, 0.15, 0.18], [0.09, 0.09, 0.10], [0.62, 0.62, 0.64],
    [0.95, 0.93, 0.80], [0.72, 0.08, 0.08], [0.22, 0.22, 0.24],
])  # fmt: skip
# Cabin as shares of the car's length, from rear (-1) to front (+1), and its height.
_CABINS = {
    "sedan": ((-0.72, 0.34), (0.22, 0.30)),
    "hatchback": ((-0.92, 0.36), (0.24, 0.32)),
    "van": ((-0.96, 0.66), (0.32, 0.40)),
    "pickup": ((-0.18, 0.46), (0.25, 0.32)),
    "sport": ((-0.66, 0.22), (0.14, 0.20)),
}


def _hexahedron(
    bottom: tuple[float, float, float, float], top: tuple[float, float, float, float], *, part: int
) -> Solid:
    """Slanted box; each end is (rear x, front x, half width, height)."""
    corners = [
        (x, side * half_width, z)
        for rear, front, half_width, z in (bottom, top)
        for x in (rear, front)
        for side in (-1, 1)
    ]
    return block(np.array(corners), part=part)


def _box(
    x: tuple[float, float], y: tuple[float, float], z: tuple[float, float], *, part: int
) -> Solid:
    """Box aligned with the axes."""
    return block(np.array([(i, j, k) for i in x for j in y for k in z]), part=part)


def _hsv(hue: float, saturation: float, value: float) -> NDArray[np.float64]:
    sector = (hue * 6 + np.array([5.0, 3.0, 1.0])) % 6
    return value * (1 - saturation * np.clip(np.minimum(sector, 4 - sector), 0, 1))


@lru_cache(maxsize=GRID.sizes[2])
def _car(car: int) -> tuple[tuple[Solid, ...], NDArray[np.float64]]:
    """Parts of a car type and the colour of each part number."""
    draw = np.random.default_rng(_SEED + car)
    kind = _KINDS[draw.choice(len(_KINDS), p=_KIND_SHARES)]
    length, width = draw.uniform(0.82, 1.02), draw.uniform(0.36, 0.43)
    body_height, clearance = draw.uniform(0.20, 0.27), draw.uniform(0.10, 0.15)
    (rear, front), heights = _CABINS[kind]
    rear, front = rear * length, (front + draw.uniform(-0.06, 0.06)) * length
    cabin_height = draw.uniform(*heights)
    windscreen, rear_window = draw.uniform(0.15, 0.40), draw.uniform(0.03, 0.30)
    if kind in ("van", "pickup", "hatchback"):
        rear_window = min(rear_window, 0.12)
    if kind == "van":
        windscreen = min(windscreen, 0.25)
    wheel = draw.uniform(0.14, 0.20)
    colours = _FIXED_RGB.copy()
    colours[_PAINT] = _hsv(draw.uniform(), draw.choice([0.05, 0.75, 0.9]), draw.uniform(0.35, 0.95))
    belt = clearance + body_height
    roof = belt + cabin_height
    nose, tail = draw.uniform(0.02, 0.12), draw.uniform(0.0, 0.08)
    parts = [
        _hexahedron(
            (-length + 0.03, length - 0.03, width * 0.94, clearance),
            (-length, length, width, clearance + 0.55 * body_height),
            part=_PAINT,
        ),
        _hexahedron(
            (-length, length, width, clearance + 0.55 * body_height),
            (-length + tail, length - nose, width * 0.93, belt),
            part=_PAINT,
        ),
        _hexahedron(
            (rear, front, width * 0.90, belt),
            (rear + rear_window, front - windscreen, width * 0.74, roof - 0.03),
            part=_GLASS,
        ),
        _hexahedron(
            (rear + rear_window, front - windscreen, width * 0.75, roof - 0.03),
            (rear + rear_window + 0.03, front - windscreen - 0.03, width * 0.70, roof),
            part=_PAINT,
        ),
    ]
    if kind == "pickup":  # side walls of the bed
        for side in (-1.0, 1.0):
            walls = (side * width * 0.80, side * width * 0.95)
            parts.append(_box((-length + 0.02, rear), walls, (belt, belt + 0.09), part=_PAINT))
    for x in (-0.62 * length, 0.62 * length):
        for side in (-1.0, 1.0):
            outward = np.array([0.0, side, 0.0])
            hub = np.array([x, side * width, wheel])
            parts.append(prism(hub - 0.12 * outward, outward, 0.14, 14, wheel, wheel, part=_TYRE))
            parts.append(prism(hub, outward, 0.03, 14, 0.55 * wheel, 0.5 * wheel, part=_HUB))
    lamp_z = clearance + 0.62 * body_height
    lamp_heights = (lamp_z - 0.035, lamp_z + 0.035)
    ends = ((length - 0.10, length + 0.012), (-length - 0.012, -length + 0.10))
    for side in (-1.0, 1.0):
        lamp = (side * 0.70 * width - 0.09, side * 0.70 * width + 0.09)
        for end, part in zip(ends, (_HEADLAMP, _TAIL_LAMP), strict=True):
            parts.append(_box(end, lamp, lamp_heights, part=part))
    grille = (clearance + 0.20 * body_height, clearance + 0.42 * body_height)
    parts.append(_box(ends[0], (-0.45 * width, 0.45 * width), grille, part=_TRIM))
    return tuple(parts), colours


def _camera(elevation: int, azimuth: int, side: int) -> Camera:
    height, turn = _ELEVATIONS[elevation], azimuth * _AZIMUTH_STEP
    position = _DISTANCE * np.array([
        np.cos(height) * np.cos(turn), np.cos(height) * np.sin(turn), np.sin(height)
    ])  # fmt: skip
    target = np.array([0.0, 0.0, 0.25])
    return Camera(position + target, target, _FOCAL, side)


def render(
    factors: NDArray[np.integer], *, side: int = 64, oversampling: int = 2
) -> NDArray[np.uint8]:
    """Images of the given factors.

    Parameters
    ----------
    factors : Int[ndarray, "n 3"]
        Indices of elevation, azimuth and object type.
    side : pixels along an edge; the official originals have 128, training uses 64
    oversampling : sub-pixels per pixel and direction

    Returns
    -------
    UInt8[ndarray, "n side side 3"]
    """
    array = np.asarray(factors)
    GRID.rows_of(array)  # refuses indices outside the grid
    images = np.empty((len(array), side, side, 3), dtype=np.uint8)
    views = np.ravel_multi_index(tuple(array[:, :2].T), GRID.sizes[:2])
    for rows in groups_of_equal(views):
        camera = _camera(int(array[rows[0], 0]), int(array[rows[0], 1]), side * oversampling)
        rays = camera.rays()
        for row in rows:
            parts, colours = _car(int(array[row, 2]))
            surface = empty_surface(camera.side)
            cast(camera, rays, parts, surface)
            facing = -(surface.normal * rays).sum(axis=2)
            ambient, lit, towards = _SHADE
            shade = ambient + lit * np.clip(surface.normal @ _LIGHT, 0, None)
            shade += towards * np.clip(facing, 0, None)
            painted = colours[np.maximum(surface.part, 0)] * shade[..., None]
            painted = np.where((surface.part >= 0)[..., None], np.clip(painted, 0, 1), 1.0)
            blocks = painted.reshape(side, oversampling, side, oversampling, 3)
            images[row] = np.rint(blocks.mean(axis=(1, 3)) * 255)
    return images


def write_official(folder: str | Path, *, n_types: int, side: int = 128) -> None:
    """Write the first car types in the official layout: ``list.txt`` and one .mat file per type.

    Each file holds `im` (side, side, 3, 24, 4): height, width, channel, azimuth, elevation.
    """
    from scipy.io import savemat

    names = [f"car_{car + 1:03d}_mesh" for car in range(n_types)]
    for car, name in enumerate(names):
        factors = np.stack(
            np.meshgrid(np.arange(4), np.arange(24), [car], indexing="ij"), axis=-1
        ).reshape(-1, 3)
        images = render(factors, side=side, oversampling=1)
        stacked = images.reshape(4, 24, side, side, 3).transpose(2, 3, 4, 1, 0)
        with atomic_path(Path(folder) / f"{name}.mat") as temporary, temporary.open("wb") as stream:
            savemat(stream, {"im": stacked}, do_compression=True)
    write_text(Path(folder) / "list.txt", "\n".join(names) + "\n")
