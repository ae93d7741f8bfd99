"""3dshapes drawn by an analytic ray caster whose constants were fitted to 50 official images.

The outline of everything depends on scale, shape and orientation alone: 480 maps of regions and
shades. The three hues only colour the regions, so an image is a sum of three looked-up layers.
Missing against the official images: the faint texture of wall and floor, and a highlight on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from concept_audit.data.factor_grids import FactorGrid, groups_of_equal
from concept_audit.store.atomic import atomic_path

__all__ = ["GENERATOR", "GRID", "geometry_of", "labels", "render", "write_official"]

GENERATOR = "shapes3d-raycast-1"
GRID = FactorGrid(
    names=("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation"),
    sizes=(10, 10, 10, 8, 4, 15),
    # DCI-ES: the hues are classes, scale and orientation are regressed.
    kinds=("categorical", "categorical", "categorical", "continuous", "categorical", "continuous"),
)
_SIDE = 64
_OVERSAMPLING = 2  # sub-pixels per side; `_layers` adds two and two
_SCALES = np.linspace(0.75, 1.25, 8)
_DEGREES = np.linspace(-30.0, 30.0, 15)
# The unit is half the width of the room; the camera orbits the origin, where the object stands.
_WALL_HEIGHT = 0.578
_CAMERA_DISTANCE, _CAMERA_HEIGHT, _CAMERA_PITCH = 0.985, 0.291, 0.0379
_FOCAL_PX = 82.1
_LIGHT = (-0.584, 1.0, 0.397)  # right, up, towards the viewer: it goes with the camera
_CUBE_HALF_EDGE = 0.143
_CYLINDER_RADIUS, _CYLINDER_HEIGHT = 0.134, 0.287
_SPHERE_RADIUS = 0.144
_CAPSULE_RADIUS, _CAPSULE_HEIGHT = 0.108, 0.443
_SHADE_FLOOR, _SHADE_SHADOW, _SHADE_BACK, _SHADE_SIDE = 1.04, 0.38, 1.0, 0.67
_SHADE_OBJECT = (0.75, 0.12, 0.16)  # ambient, light, towards the viewer
_SKY_RGB = np.array([153, 226, 249], dtype=np.uint8)
_SKY, _FLOOR, _WALL, _OBJECT = range(4)


@dataclass(frozen=True)
class _Rays:
    """Origins and directions of rays; a distance is infinite for a miss."""

    origin: NDArray[np.float64]  # (3,) or (r, 3)
    direction: NDArray[np.float64]  # (r, 3)

    def at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points at the given distances."""
        return self.origin + distance[:, None] * self.direction


def _hue_colours() -> NDArray[np.float64]:
    """Fully saturated colours of the ten hues 0, 0.1 ... 0.9, RGB in [0, 1]."""
    sector = np.arange(10)[:, None] * 0.6 + np.array([5.0, 3.0, 1.0])
    sector %= 6
    return 1 - np.clip(np.minimum(sector, 4 - sector), 0, 1)


def _first_positive(
    near: NDArray[np.float64], far: NDArray[np.float64], valid: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Entry distance where the interval is real and in front of the origin."""
    hit = np.where(near > 1e-6, near, far)
    return np.where(valid & (hit > 1e-6), hit, np.inf)


def _quadratic(
    a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Both roots of a t^2 + 2 b t + c, and where they are real."""
    discriminant = b * b - a * c
    real = (discriminant >= 0) & (a > 1e-12)
    root = np.sqrt(np.where(real, discriminant, 0.0))
    safe = np.where(a > 1e-12, a, 1.0)
    return (-b - root) / safe, (-b + root) / safe, real


def _hit_box(rays: _Rays, half: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cube on the floor, aligned with the room."""
    low, high = np.array([-half, -half, 0.0]), np.array([half, half, 2 * half])
    with np.errstate(divide="ignore", invalid="ignore"):
        first = (low - rays.origin) / rays.direction
        second = (high - rays.origin) / rays.direction
    near, far = np.fmin(first, second), np.fmax(first, second)
    axis = np.argmax(near, axis=1)
    rows = np.arange(len(axis))
    normal = np.zeros_like(rays.direction)
    normal[rows, axis] = -np.sign(rays.direction[rows, axis])
    entry, leave = near.max(axis=1), far.min(axis=1)
    return _first_positive(entry, leave, entry <= leave), normal


def _hit_sphere(
    rays: _Rays, radius: float, height: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sphere around a point of the vertical axis."""
    offset = rays.origin - np.array([0.0, 0.0, height])
    near, far, real = _quadratic(
        (rays.direction**2).sum(axis=1),
        (offset * rays.direction).sum(axis=-1),
        (offset**2).sum(axis=-1) - radius**2,
    )
    hit = _first_positive(near, far, real)
    point = rays.at(np.where(np.isfinite(hit), hit, 0.0)) - np.array([0.0, 0.0, height])
    return hit, point / radius


def _hit_tube(
    rays: _Rays, radius: float, bottom: float, top: float, *, lid: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Upright cylinder wall, closed by a lid on top if asked."""
    flat = rays.direction[:, :2]
    start = np.broadcast_to(rays.origin, rays.direction.shape)[:, :2]
    near, _, real = _quadratic(
        (flat**2).sum(axis=1), (start * flat).sum(axis=1), (start**2).sum(axis=1) - radius**2
    )
    hit = np.where(real & (near > 1e-6), near, np.inf)
    point = rays.at(np.where(np.isfinite(hit), hit, 0.0))
    hit = np.where((point[:, 2] >= bottom) & (point[:, 2] <= top), hit, np.inf)
    normal = point / radius
    normal[:, 2] = 0.0
    if lid:
        start_z = np.broadcast_to(rays.origin, rays.direction.shape)[:, 2]
        with np.errstate(divide="ignore", invalid="ignore"):
            above = (top - start_z) / rays.direction[:, 2]
        above = np.where(np.isfinite(above), above, -1.0)
        on_lid = (above > 1e-6) & ((rays.at(above)[:, :2] ** 2).sum(axis=1) <= radius**2)
        closer = on_lid & (above < hit)
        hit = np.where(closer, above, hit)
        normal = np.where(closer[:, None], [0.0, 0.0, 1.0], normal)
    return hit, normal


def _hit_object(
    rays: _Rays, shape: int, scale: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distance to the object and its outward normal there."""
    if shape == 0:
        return _hit_box(rays, _CUBE_HALF_EDGE * scale)
    if shape == 1:
        return _hit_tube(rays, _CYLINDER_RADIUS * scale, 0.0, _CYLINDER_HEIGHT * scale, lid=True)
    if shape == 2:
        return _hit_sphere(rays, _SPHERE_RADIUS * scale, _SPHERE_RADIUS * scale)
    radius, height = _CAPSULE_RADIUS * scale, _CAPSULE_HEIGHT * scale
    parts = (
        _hit_tube(rays, radius, radius, height - radius, lid=False),
        _hit_sphere(rays, radius, height - radius),
        _hit_sphere(rays, radius, radius),
    )
    hits = np.stack([hit for hit, _ in parts])
    nearest = hits.argmin(axis=0)
    rows = np.arange(hits.shape[1])
    return hits[nearest, rows], np.stack([normal for _, normal in parts])[nearest, rows]


def _camera(degrees: float) -> tuple[_Rays, NDArray[np.float64], NDArray[np.float64]]:
    """Rays of all sub-pixels, direction to the viewer and direction to the light."""
    angle = np.radians(degrees)
    right = np.array([np.cos(angle), np.sin(angle), 0.0])
    back = np.array([np.sin(angle), -np.cos(angle), 0.0])  # horizontally towards the viewer
    up = np.array([0.0, 0.0, 1.0])
    pitch = _CAMERA_PITCH
    forward = -back * np.cos(pitch) - up * np.sin(pitch)
    top = up * np.cos(pitch) - back * np.sin(pitch)
    n = _SIDE * _OVERSAMPLING
    offsets = ((np.arange(n) + 0.5) / _OVERSAMPLING - _SIDE / 2) / _FOCAL_PX
    columns, lines = np.meshgrid(offsets, offsets)
    direction = forward + columns.ravel()[:, None] * right - lines.ravel()[:, None] * top
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    light = _LIGHT[0] * right + _LIGHT[1] * up + _LIGHT[2] * back
    origin = _CAMERA_DISTANCE * back + _CAMERA_HEIGHT * up
    return _Rays(origin, direction), -direction, light / np.linalg.norm(light)


def _regions(
    shape: int, scale: float, degrees: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Region and shade of every sub-pixel."""
    rays, to_viewer, light = _camera(degrees)
    with np.errstate(divide="ignore"):
        to_floor = np.where(
            rays.direction[:, 2] < 0, -rays.origin[2] / rays.direction[:, 2], np.inf
        )
        to_back = np.where(
            rays.direction[:, 1] > 0, (1 - rays.origin[1]) / rays.direction[:, 1], np.inf
        )
        to_side = (np.sign(rays.direction[:, 0]) - rays.origin[0]) / rays.direction[:, 0]
    to_side = np.where(np.isfinite(to_side), to_side, np.inf)
    to_wall = np.minimum(to_back, to_side)
    on_floor = to_floor < to_wall
    wall_top = rays.at(to_wall)[:, 2]
    region = np.where(on_floor, _FLOOR, np.where(wall_top <= _WALL_HEIGHT, _WALL, _SKY))
    shade = np.where(to_back < to_side, _SHADE_BACK, _SHADE_SIDE)
    floor_points = rays.at(np.where(on_floor, to_floor, 0.0))
    in_shadow = np.isfinite(
        _hit_object(_Rays(floor_points, np.broadcast_to(light, floor_points.shape)), shape, scale)[
            0
        ]
    )
    shade = np.where(on_floor, np.where(in_shadow, _SHADE_SHADOW, _SHADE_FLOOR), shade)
    hit, normal = _hit_object(rays, shape, scale)
    on_object = hit < np.where(on_floor, to_floor, to_wall)
    ambient, lit, facing = _SHADE_OBJECT
    object_shade = (
        ambient
        + lit * np.clip(normal @ light, 0, None)
        + facing * np.clip((normal * to_viewer).sum(axis=1), 0, None)
    )
    return np.where(on_object, _OBJECT, region), np.where(on_object, object_shade, shade)


def _layers(shape: int, scale: float, degrees: float) -> NDArray[np.uint16]:
    """Sums of sub-pixel colours `(4, 10, 64, 64, 3)` per region and hue; 0 off the region."""
    region, shade = _regions(shape, scale, degrees)
    hues = _hue_colours()[:, None, :]
    layers = np.empty((4, 10, _SIDE, _SIDE, 3), dtype=np.uint16)
    for which in range(4):
        there = np.flatnonzero(region == which)
        pixels = np.zeros((10, len(region), 3), dtype=np.uint16)
        if which == _SKY:
            pixels[:, there] = _SKY_RGB
        else:
            lit = np.minimum(shade[there, None] * hues, 1.0)
            pixels[:, there] = np.rint(lit * 255).astype(np.uint16)
        blocks = pixels.reshape(10, _SIDE, _OVERSAMPLING, _SIDE, _OVERSAMPLING, 3)
        pairs = blocks[:, :, 0] + blocks[:, :, 1]
        layers[which] = pairs[:, :, :, 0] + pairs[:, :, :, 1]
    return layers


def geometry_of(factors: NDArray[np.integer]) -> NDArray[np.int64]:
    """Number of the outline, 0..479: images of one outline differ in their hues only."""
    return np.ravel_multi_index(tuple(np.asarray(factors)[:, 3:].T), GRID.sizes[3:]).astype(
        np.int64
    )


def render(factors: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Images of the given factors.

    Parameters
    ----------
    factors : Int[ndarray, "n 6"]
        Indices of floor hue, wall hue, object hue, scale, shape and orientation.

    Returns
    -------
    UInt8[ndarray, "n 64 64 3"]
    """
    array = np.asarray(factors)
    GRID.rows_of(array)  # refuses indices outside the grid
    images = np.empty((len(array), _SIDE, _SIDE, 3), dtype=np.uint8)
    geometry = geometry_of(array)
    half = _OVERSAMPLING**2 // 2
    for rows in groups_of_equal(geometry):
        scale, shape, orientation = (int(value) for value in array[rows[0], 3:])
        layers = _layers(shape, _SCALES[scale], _DEGREES[orientation])
        for row in rows:
            floor, wall, hue = array[row, :3]
            total = layers[_SKY, 0] + layers[_FLOOR, floor]
            total += layers[_WALL, wall]
            total += layers[_OBJECT, hue]
            total += half
            images[row] = total // _OVERSAMPLING**2
    return images


def labels(factors: NDArray[np.integer]) -> NDArray[np.float64]:
    """Official factor values `(n, 6)`: hues 0..0.9, scale 0.75..1.25, shape, degrees -30..30."""
    array = np.asarray(factors)
    return np.stack(
        [
            *(array[:, :3].T / 10.0),
            _SCALES[array[:, 3]],
            array[:, 4].astype(np.float64),
            _DEGREES[array[:, 5]],
        ],
        axis=1,
    )


def write_official(path: str | Path, *, grid: FactorGrid = GRID, block: int = 48_000) -> None:
    """Write the h5 of the official file: `images` and `labels`, block by block.

    A smaller `grid` takes the first values of each factor, for tests and demonstrations.
    """
    import h5py

    with atomic_path(path) as temporary, h5py.File(temporary, "w") as file:
        images = file.create_dataset(
            "images", (grid.n_rows, _SIDE, _SIDE, 3), dtype="u1", compression="gzip",
            compression_opts=1, chunks=(min(64, grid.n_rows), _SIDE, _SIDE, 3),
        )  # fmt: skip
        for start in range(0, grid.n_rows, block):
            stop = min(start + block, grid.n_rows)
            images[start:stop] = render(grid.factors_of(np.arange(start, stop)))
        file["labels"] = labels(grid.factors_of(np.arange(grid.n_rows)))
