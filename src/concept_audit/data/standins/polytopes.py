"""A small ray caster for convex solids and spheres, shared by the drawn arms and cars.

A solid is cast only at the pixels inside the bounding box of its projection, which keeps a picture
of a dozen parts at a few milliseconds in plain numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Camera", "Solid", "Sphere", "Surface", "block", "cast", "empty_surface", "prism"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Solid:
    """Convex polytope: points p with normals @ p <= offsets.

    Attributes
    ----------
    normals, offsets : (f, 3) unit outward normals and (f,) distances of the faces
    corners : (v, 3) vertices, for the bounding box
    part : number under which its pixels are found again
    """

    normals: Array
    offsets: Array
    corners: Array
    part: int


@dataclass(frozen=True)
class Sphere:
    """Ball with `centre`, `radius` and `part` number."""

    centre: Array
    radius: float
    part: int


@dataclass(frozen=True)
class Camera:
    """Pinhole camera at `position` looking at `target`; z is up.

    Attributes
    ----------
    focal : focal length in units of `side`
    side : pixels along an edge of the square picture (sub-pixels, when oversampled)
    """

    position: Array
    target: Array
    focal: float
    side: int

    @property
    def axes(self) -> Array:
        """Rows: right, down, forward."""
        forward = self.target - self.position
        forward = forward / np.linalg.norm(forward)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        return np.stack([right, np.cross(forward, right), forward])

    def rays(self) -> Array:
        """Unit directions `(side, side, 3)` through the pixel centres."""
        offsets = ((np.arange(self.side) + 0.5) / self.side - 0.5) / self.focal
        right, down, forward = self.axes
        direction = forward + offsets[None, :, None] * right + offsets[:, None, None] * down
        return direction / np.linalg.norm(direction, axis=2, keepdims=True)

    def box(self, points: Array) -> tuple[slice, slice]:
        """Lines and columns that hold the projection of the points; empty outside the picture."""
        seen = (points - self.position) @ self.axes.T
        depth = np.maximum(seen[:, 2], 1e-3)
        pixels = (seen[:, :2] / depth[:, None] * self.focal + 0.5) * self.side
        low = np.clip(np.floor(pixels.min(axis=0)), 0, self.side).astype(int)
        high = np.clip(np.ceil(pixels.max(axis=0)) + 1, 0, self.side).astype(int)
        return slice(low[1], high[1]), slice(low[0], high[0])


@dataclass(frozen=True)
class Surface:
    """What each pixel sees: distance (infinite for nothing), part (-1) and outward normal."""

    distance: Array
    part: NDArray[np.int64]
    normal: Array


def empty_surface(side: int) -> Surface:
    """A picture that sees nothing yet."""
    return Surface(
        np.full((side, side), np.inf), np.full((side, side), -1), np.zeros((side, side, 3))
    )


def _frame(axis: Array) -> tuple[Array, Array, Array]:
    """Unit axis and two unit vectors at right angles to it."""
    axis = axis / np.linalg.norm(axis)
    other = np.array([0.0, 0.0, 1.0]) if abs(axis[2]) < 0.9 else np.array([1.0, 0.0, 0.0])
    first = np.cross(other, axis)
    first /= np.linalg.norm(first)
    return axis, first, np.cross(axis, first)


def prism(
    base: Array, axis: Array, length: float, sides: int, bottom: float, top: float, *, part: int
) -> Solid:
    """Regular prism, pyramid or cone stump along `axis`; `bottom` and `top` are corner radii."""
    axis, first, second = _frame(np.asarray(axis, dtype=np.float64))
    corner_angles = 2 * np.pi * (np.arange(sides) + 0.5) / sides
    face_angles = 2 * np.pi * np.arange(sides) / sides
    ring = np.cos(corner_angles)[:, None] * first + np.sin(corner_angles)[:, None] * second
    corners = np.concatenate([base + bottom * ring, base + length * axis + top * ring])
    inner = np.cos(np.pi / sides)  # a face is nearer to the axis than a corner
    slope = (bottom - top) * inner / length
    outward = np.cos(face_angles)[:, None] * first + np.sin(face_angles)[:, None] * second
    normals = outward + slope * axis
    offsets = normals @ base + bottom * inner
    norm = np.sqrt(1 + slope**2)
    return Solid(
        np.concatenate([normals / norm, [axis, -axis]]),
        np.concatenate([offsets / norm, [axis @ base + length, -(axis @ base)]]),
        corners,
        part,
    )


def block(corners: Array, *, part: int) -> Solid:
    """Convex hull of a few corners, for boxes with slanted faces."""
    from scipy.spatial import ConvexHull

    equations = np.unique(ConvexHull(corners).equations.round(9), axis=0)
    return Solid(equations[:, :3], -equations[:, 3], np.asarray(corners), part)


def _cast_solid(solid: Solid, origin: Array, rays: Array) -> tuple[Array, Array]:
    """Entry distance and normal for rays `(r, 3)` from outside the solid."""
    towards = rays @ solid.normals.T
    room = solid.offsets - solid.normals @ origin
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = room / towards
    entering = np.where(towards < 0, crossing, -np.inf)
    face = entering.argmax(axis=1)
    entry = entering[np.arange(len(face)), face]
    leave = np.where(towards > 0, crossing, np.inf).min(axis=1)
    outside = ((towards == 0) & (room < 0)).any(axis=1)
    hit = (entry <= leave) & (entry > 1e-9) & ~outside
    return np.where(hit, entry, np.inf), solid.normals[face]


def _cast_sphere(sphere: Sphere, origin: Array, rays: Array) -> tuple[Array, Array]:
    offset = origin - sphere.centre
    along = rays @ offset
    discriminant = along**2 - (offset @ offset - sphere.radius**2)
    distance = -along - np.sqrt(np.maximum(discriminant, 0.0))
    hit = (discriminant >= 0) & (distance > 1e-9)
    distance = np.where(hit, distance, np.inf)
    point = origin + np.where(hit, distance, 0.0)[:, None] * rays
    return distance, (point - sphere.centre) / sphere.radius


def cast(
    camera: Camera, rays: Array, parts: Sequence[Solid | Sphere], surface: Surface
) -> tuple[slice, slice]:
    """Draw the parts into `surface`, nearest first, and return the lines and columns they touch."""
    touched: list[tuple[slice, slice]] = []
    for part in parts:
        if isinstance(part, Sphere):
            reach = part.radius * 1.2  # the outline of a near ball is wider than its radius
            corners = part.centre + reach * _CUBE
        else:
            corners = part.corners
        lines, columns = camera.box(corners)
        window = rays[lines, columns]
        if window.size == 0:
            continue
        flat = window.reshape(-1, 3)
        if isinstance(part, Sphere):
            distance, normal = _cast_sphere(part, camera.position, flat)
        else:
            distance, normal = _cast_solid(part, camera.position, flat)
        shape = window.shape[:2]
        nearer = distance.reshape(shape) < surface.distance[lines, columns]
        surface.distance[lines, columns][nearer] = distance.reshape(shape)[nearer]
        surface.part[lines, columns][nearer] = part.part
        surface.normal[lines, columns][nearer] = normal.reshape(*shape, 3)[nearer]
        touched.append((lines, columns))
    if not touched:
        return slice(0, 0), slice(0, 0)
    return (
        slice(min(t[0].start for t in touched), max(t[0].stop for t in touched)),
        slice(min(t[1].start for t in touched), max(t[1].stop for t in touched)),
    )


_CUBE = np.stack(np.meshgrid([-1.0, 1.0], [-1.0, 1.0], [-1.0, 1.0]), axis=-1).reshape(-1, 3)
