"""Stand-ins against real sample images, at the closeness measured when they were fitted."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from concept_audit.data.standins import dsprites, shapes3d


def tiles(sheet: np.ndarray, columns: int) -> np.ndarray:
    """Cut a sheet of 64-pixel tiles, left to right and top to bottom."""
    rows = sheet.shape[0] // 64
    grid = sheet.reshape(rows, 64, columns, 64, -1).swapaxes(1, 2)
    return grid.reshape(rows * columns, 64, 64, -1)


def table(path) -> np.ndarray:
    return np.loadtxt(path, delimiter=",", skiprows=1)


@pytest.mark.parametrize(("shape", "bit_identical"), [(0, 0.9), (1, 0.6), (2, 0.8)])
def test_dsprites_overlap_with_real_frames(samples_dir, shape, bit_identical):
    sheet = np.asarray(Image.open(samples_dir / "dsprites_320.png").convert("L")) > 127
    factors = table(samples_dir / "dsprites_320.csv")[:, 1:].astype(int)
    chosen = factors[:, 0] == shape
    real = tiles(sheet, 32)[chosen][..., 0]
    drawn = dsprites.render(factors[chosen]).astype(bool)
    overlap = (real & drawn).sum(axis=(1, 2)) / (real | drawn).sum(axis=(1, 2))
    assert overlap.min() >= 0.98
    assert overlap.mean() >= 0.997
    assert (overlap == 1).mean() >= bit_identical


def test_first_and_last_orientation_are_one_image_as_in_the_official_set():
    factors = np.array([[s, 3, o, 8, 9] for s in range(3) for o in (0, 39)])
    images = dsprites.render(factors)
    np.testing.assert_array_equal(images[0::2], images[1::2])


def test_dsprites_positions_run_left_to_right_and_top_to_bottom():
    first, right, down = dsprites.render(
        np.array([[0, 0, 0, 0, 0], [0, 0, 0, 31, 0], [0, 0, 0, 0, 31]])
    )
    rows, columns = np.nonzero(first)
    assert rows.mean() < 20
    assert columns.mean() < 20
    assert np.nonzero(right)[1].mean() > 40
    assert np.nonzero(down)[0].mean() > 40


def test_shapes3d_differs_little_from_real_images(samples_dir):
    sheet = np.asarray(Image.open(samples_dir / "shapes3d_50.png").convert("RGB"))
    factors = table(samples_dir / "shapes3d_50.csv")[:, 1:7].astype(int)
    error = np.abs(tiles(sheet, 10).astype(int) - shapes3d.render(factors))
    assert error.mean() / 255 <= 0.045
    assert (error.max(axis=-1) <= 26).mean() >= 0.75


@pytest.mark.parametrize("module", [dsprites, shapes3d])
def test_drawing_does_not_depend_on_order_or_company(module):
    rows = np.random.default_rng(0).choice(module.GRID.n_rows, size=12, replace=False)
    factors = module.GRID.factors_of(rows)
    together = module.render(factors)
    np.testing.assert_array_equal(module.render(factors[::-1])[::-1], together)
    np.testing.assert_array_equal(module.render(factors[3:4])[0], together[3])
    assert module.render(factors[:0]).shape == (0, *together.shape[1:])


@pytest.mark.parametrize("module", [dsprites, shapes3d])
def test_a_factor_outside_the_grid_is_named(module):
    factors = np.zeros((2, len(module.GRID.sizes)), dtype=int)
    factors[1, 1] = 99
    with pytest.raises(ValueError, match=rf"'{module.GRID.names[1]}' must hold indices 0\.\."):
        module.render(factors)
    with pytest.raises(ValueError, match="factors must have shape"):
        module.render(factors[:, :2])
