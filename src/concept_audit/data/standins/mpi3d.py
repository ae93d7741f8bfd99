"""MPI3D-Real imitated: a robot arm on a disc holds one of six shapes; same grid, ray cast.

Size, place and colours were set by eye and by the mean of 140 real images; it is a stand-in for the
pipeline, not a copy of the photographs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from concept_audit.data.factor_grids import FactorGrid
from concept_audit.data.standins.polytopes import (
    Camera,
    Solid,
    Sphere,
    Surface,
    cast,
    empty_surface,
    prism,
)
from concept_audit.store.atomic import atomic_path

__all__ = ["GENERATOR", "GRID", "geometry_of", "render", "write_official"]

GENERATOR = "mpi3d-raycast-2"
GRID = FactorGrid(
    names=(
        "object_colour",
        "object_shape",
        "object_size",
        "camera_height",
        "background_colour",
        "horizontal_axis",
        "vertical_axis",
    ),
    sizes=(6, 6, 2, 3, 3, 40, 40),
    # DCI-ES: size and camera height are regressed although they have two and three values.
    kinds=(
        "categorical",
        "categorical",
        "continuous",
        "continuous",
        "categorical",
        "continuous",
        "continuous",
    ),
)
_SIDE = 64
_OVERSAMPLING = 2
_FOCAL_PX = 80.0
_CAMERA_HEIGHTS = (2.6, 1.9, 1.1)  # top, centre, bottom
_CAMERA_DISTANCE = 2.6
# All cameras aim near the top of the pole, about which the object turns. So it stays in the frame
# at every position, where an aim at half the pole cuts it off at the two lower heights. And as in
# the real images the foot of the pole stands three quarters down the frame.
_TARGET = np.array([0.0, 0.0, 0.75])
_FLOOR_RADIUS, _RING_RADIUS = 2.9, 3.7
_POLE_RADIUS, _POLE_HEIGHT, _COLLAR_RADIUS, _COLLAR_HEIGHT = 0.085, 0.84, 0.17, 0.06
_POLE_TOP = np.array([0.0, 0.0, _POLE_HEIGHT])
_ARM_RADIUS, _ARM_LENGTH = 0.022, 0.52
_OBJECT_RADII = (0.10, 0.155)
_TAPER = 0.02
_LIGHT = np.array([-0.35, -0.55, 0.76]) / np.linalg.norm([-0.35, -0.55, 0.76])
_SHADE = (0.45, 0.55)  # ambient, light
# White, green, red, blue, brown, olive.
_OBJECT_RGB = np.array([
    [0.88, 0.95, 0.88], [0.05, 0.62, 0.12], [0.85, 0.12, 0.12],
    [0.10, 0.42, 0.75], [0.42, 0.26, 0.16], [0.45, 0.45, 0.16],
])  # fmt: skip
# Purple, sea green, salmon.
_RING_RGB = np.array([[0.36, 0.31, 0.58], [0.27, 0.44, 0.41], [0.47, 0.35, 0.34]])
_FLOOR_RGB = np.array([0.145, 0.205, 0.16])
_BACKDROP_RGB = np.array([0.035, 0.055, 0.042])
_METAL_RGB = np.array([0.06, 0.08, 0.065])
_POLE, _ARM, _OBJECT = range(3)


def _camera(height: int) -> Camera:
    position = np.array([0.0, -_CAMERA_DISTANCE, _CAMERA_HEIGHTS[height]])
    return Camera(position, _TARGET, _FOCAL_PX / _SIDE, _SIDE * _OVERSAMPLING)


def _lit(normal: NDArray[np.float64]) -> NDArray[np.float64]:
    ambient, light = _SHADE
    return ambient + light * np.clip(normal @ _LIGHT, 0, None)


@cache
def _stage(height: int) -> tuple[NDArray[np.float64], Surface, NDArray[np.float64]]:
    """Rays, surface and sub-pixel colours per background `(3, s, s, 3)` of what never moves."""
    camera = _camera(height)
    rays = camera.rays()
    with np.errstate(divide="ignore"):
        reach = np.where(rays[..., 2] < 0, -camera.position[2] / rays[..., 2], np.inf)
    ground = camera.position + np.where(np.isfinite(reach), reach, 0.0)[..., None] * rays
    radius = np.where(np.isfinite(reach), np.hypot(ground[..., 0], ground[..., 1]), np.inf)
    # Brighter towards the viewer, as under the lamp above the real camera.
    floor = _FLOOR_RGB * np.clip(1.0 - 0.12 * ground[..., 1:2], 0.6, 1.4)
    colours = np.empty((3, *radius.shape, 3))
    for background in range(3):
        rim = np.where((radius < _RING_RADIUS)[..., None], _RING_RGB[background], _BACKDROP_RGB)
        colours[background] = np.where((radius < _FLOOR_RADIUS)[..., None], floor, rim)
    surface = empty_surface(camera.side)
    up = np.array([0.0, 0.0, 1.0])
    parts = [
        prism(np.zeros(3), up, _POLE_HEIGHT, 12, _POLE_RADIUS, _POLE_RADIUS, part=_POLE),
        prism(np.zeros(3), up, _COLLAR_HEIGHT, 12, _COLLAR_RADIUS, _COLLAR_RADIUS, part=_POLE),
    ]
    cast(camera, rays, parts, surface)
    metal = _METAL_RGB * _lit(surface.normal)[..., None]
    colours = np.where((surface.part == _POLE)[None, ..., None], metal, colours)
    return rays, surface, colours


@cache
def _empty_stage(height: int) -> NDArray[np.uint8]:
    """Pictures `(3, 64, 64, 3)` of the stage without arm and object, one per background."""
    return _downsampled(_stage(height)[2])


def _downsampled(colours: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Mean of the sub-pixels, as 0..255."""
    *rest, lines, columns, channels = colours.shape
    n = _OVERSAMPLING
    blocks = colours.reshape(*rest, lines // n, n, columns // n, n, channels)
    return np.rint(np.clip(blocks.mean(axis=(-4, -2)), 0, 1) * 255).astype(np.uint8)


def _axis(horizontal: int, vertical: int) -> NDArray[np.float64]:
    """Unit vector from the top of the pole along the arm."""
    turn = np.pi * horizontal / 39
    lift = np.radians(-85 + 170 * vertical / 39)
    return np.array([np.sin(lift) * np.cos(turn), -np.sin(lift) * np.sin(turn), np.cos(lift)])


def _object(
    shape: int, radius: float, tip: NDArray[np.float64], axis: NDArray[np.float64]
) -> Solid | Sphere:
    """Cone, cube, cylinder, hexagonal prism, pyramid or sphere, one radius beyond the arm's tip."""
    if shape == 5:
        return Sphere(tip + radius * axis, radius, _OBJECT)
    sides = (20, 4, 16, 6, 4)[shape]
    top = _TAPER if shape in (0, 4) else radius
    return prism(tip, axis, 2 * radius, sides, radius, top, part=_OBJECT)


def _draw(
    shape: int, size: int, height: int, horizontal: int, vertical: int
) -> tuple[slice, slice, NDArray[np.int64], NDArray[np.float64]]:
    """Window of pixels that arm and object touch; part and shade of its sub-pixels."""
    camera = _camera(height)
    rays, stage, _ = _stage(height)
    axis = _axis(horizontal, vertical)
    parts = [
        prism(_POLE_TOP, axis, _ARM_LENGTH, 8, _ARM_RADIUS, _ARM_RADIUS, part=_ARM),
        _object(shape, _OBJECT_RADII[size], _POLE_TOP + _ARM_LENGTH * axis, axis),
    ]
    moving = Surface(stage.distance.copy(), stage.part.copy(), stage.normal.copy())
    lines, columns = cast(camera, rays, parts, moving)
    n = _OVERSAMPLING
    window = (
        slice(lines.start // n, -(-lines.stop // n)),
        slice(columns.start // n, -(-columns.stop // n)),
    )
    fine = tuple(slice(edge.start * n, edge.stop * n) for edge in window)
    return *window, moving.part[fine], _lit(moving.normal[fine])


def geometry_of(factors: NDArray[np.integer]) -> NDArray[np.int64]:
    """Number of the outline, 0..57599: images of one outline differ in two colours only."""
    moving = [1, 2, 3, 5, 6]
    sizes = tuple(GRID.sizes[i] for i in moving)
    return np.ravel_multi_index(tuple(np.asarray(factors)[:, moving].T), sizes).astype(np.int64)


def render(factors: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Images of the given factors.

    Parameters
    ----------
    factors : Int[ndarray, "n 7"]
        Indices of object colour, shape and size, camera height, background colour, horizontal and
        vertical axis.

    Returns
    -------
    UInt8[ndarray, "n 64 64 3"]
    """
    array = np.asarray(factors)
    GRID.rows_of(array)  # refuses indices outside the grid
    images = np.empty((len(array), _SIDE, _SIDE, 3), dtype=np.uint8)
    geometry = geometry_of(array)
    order = np.argsort(geometry, kind="stable")
    drawn_as, drawn = -1, None
    for row in order:
        colour, shape, size, height, background, horizontal, vertical = map(int, array[row])
        if drawn is None or geometry[row] != drawn_as:
            drawn_as, drawn = int(geometry[row]), _draw(shape, size, height, horizontal, vertical)
        lines, columns, part, shade = drawn
        images[row] = _empty_stage(height)[background]
        n = _OVERSAMPLING
        behind = _stage(height)[2][
            background, lines.start * n : lines.stop * n, columns.start * n : columns.stop * n
        ]
        palette = np.stack([_METAL_RGB, _METAL_RGB, _OBJECT_RGB[colour]])
        ahead = palette[np.maximum(part, 0)] * shade[..., None]
        picture = np.where((part > _POLE)[..., None], ahead, behind)
        images[row, lines, columns] = _downsampled(picture)
    return images


def write_official(path: str | Path, *, grid: FactorGrid = GRID, block: int = 4096) -> None:
    """Write the npz of the official file, `images` in grid order, without compression.

    A smaller `grid` takes the first values of each factor, for tests and demonstrations.
    """
    import zipfile

    header = {"descr": "|u1", "fortran_order": False, "shape": (grid.n_rows, _SIDE, _SIDE, 3)}
    with (
        atomic_path(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
        archive.open("images.npy", "w", force_zip64=True) as stream,
    ):
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, grid.n_rows, block):
            rows = np.arange(start, min(start + block, grid.n_rows))
            stream.write(render(grid.factors_of(rows)).tobytes())
