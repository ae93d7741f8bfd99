"""Augmentation of whole batches against torchvision on single images, and its random numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from concept_audit.training.augmentation import PARAMETERS, augment, draw_augmentation

COLUMN = {name: i for i, name in enumerate(PARAMETERS)}


def images_of(n: int, size: tuple[int, int], channels: int = 3) -> torch.Tensor:
    """Noise: neighbouring pixels differ as much as they can, which is hardest on positions."""
    values = np.random.default_rng(5).random((n, channels, *size))
    return torch.from_numpy(values)


def rows_of(n: int, size: tuple[int, int], seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(draw_augmentation(np.random.default_rng(seed), n, size))


def by_torchvision(image: torch.Tensor, row: torch.Tensor, *, antialias: bool) -> torch.Tensor:
    brightness, saturation, saturation_first, top, left, height, width, flip = row.tolist()
    if saturation_first:
        image = functional.adjust_saturation(image, saturation)
        image = functional.adjust_brightness(image, brightness)
    else:
        image = functional.adjust_brightness(image, brightness)
        image = functional.adjust_saturation(image, saturation)
    image = functional.resized_crop(
        image, int(top), int(left), int(height), int(width), list(image.shape[-2:]),
        antialias=antialias,
    )  # fmt: skip
    return functional.hflip(image) if flip else image


# float32: a position has four roundings of half a unit in 2**-23 of the edge, and neighbouring
# values differ by at most 1; both directions add up. float64: far below.
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2 * 2 * 60 * 2**-23), (torch.float64, 1e-12)]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_is_what_torchvision_makes_of_it(dtype, tolerance, channels):
    size = (44, 60)
    images, rows = images_of(40, size, channels).to(dtype), rows_of(40, size)
    for flag in ("saturation_first", "flip"):
        assert 5 < rows[:, COLUMN[flag]].sum() < 35  # both cases occur
    ours = augment(images, rows)
    assert ours.dtype == dtype
    assert ours.min() >= 0
    assert ours.max() <= 1
    for antialias in (False, True):  # nothing is made smaller, so it makes no difference
        theirs = [
            by_torchvision(image, row, antialias=antialias)
            for image, row in zip(images, rows, strict=True)
        ]
        # Torchvision's filter weights are float32 whatever the image is.
        slack = tolerance + (1e-6 if antialias else 0)
        torch.testing.assert_close(ours, torch.stack(theirs), rtol=0, atol=slack)


def test_nothing_to_change_changes_nothing():
    images = images_of(3, (17, 23))
    rows = torch.tensor([[1.0, 1, 0, 0, 0, 17, 23, 0], [1, 1, 1, 0, 0, 17, 23, 0]] * 2)[:3]
    torch.testing.assert_close(augment(images, rows), images, rtol=0, atol=1e-13)
    flipped = rows.clone()
    flipped[:, COLUMN["flip"]] = 1
    torch.testing.assert_close(augment(images, flipped), images.flip(3), rtol=0, atol=1e-13)


def test_a_hand_worked_image():
    # Brightness 1.5 clips 0.8 at 1; the crop of one pixel fills the picture.
    image = torch.tensor([[0.2, 0.8], [0.4, 0.6]]).expand(1, 3, 2, 2).clone()
    rows = torch.tensor([[1.5, 1.0, 0, 0, 1, 1, 1, 0]])
    torch.testing.assert_close(augment(image, rows), torch.ones(1, 3, 2, 2))
    # The left column, read at -1/4 (moved onto pixel 0), 1/4, ... downwards: weights 1, then 1/4.
    column = torch.tensor([[1.0, 1.0, 0, 0, 0, 1, 2, 1]])
    expected = torch.tensor([0.8, 0.2]).expand(1, 3, 2, 2)
    torch.testing.assert_close(augment(image, column), expected)
    # No saturation leaves the grey of pure red; it is less than 1, as the three weights add to.
    red = torch.zeros(1, 3, 2, 2)
    red[:, 0] = 1
    grey = augment(red, torch.tensor([[1.0, 0.0, 1, 0, 0, 2, 2, 0]]))
    torch.testing.assert_close(grey, torch.full((1, 3, 2, 2), 0.2989))


def test_the_order_of_brightness_and_saturation_matters():
    image = torch.tensor([0.9, 0.5, 0.1]).reshape(1, 3, 1, 1).expand(2, 3, 2, 2)
    rows = torch.tensor([[1.12, 1.5, 0, 0, 0, 2, 2, 0], [1.12, 1.5, 1, 0, 0, 2, 2, 0]])
    first, second = augment(image, rows)[:, :, 0, 0].tolist()
    grey = 0.2989 * 0.9 + 0.587 * 0.5 + 0.114 * 0.1
    # 1.12 * 0.9 is clipped before the grey is taken, or the saturated red is clipped first.
    bright_grey = 0.2989 * 1 + 0.587 * 0.56 + 0.114 * 0.112
    assert first[1] == pytest.approx(1.5 * 0.56 - 0.5 * bright_grey, abs=1e-6)
    assert second[1] == pytest.approx(1.12 * (1.5 * 0.5 - 0.5 * grey), abs=1e-6)
    assert abs(first[1] - second[1]) > 1e-3


def test_a_part_of_a_batch_sees_the_same_numbers():
    size = (32, 32)
    images, rows = images_of(12, size).float(), rows_of(12, size)
    whole = augment(images, rows)
    for part in (slice(0, 5), slice(3, 12, 4)):
        assert torch.equal(augment(images[part], rows[part]), whole[part])
    assert torch.equal(augment(images, rows), whole)
    generator = np.random.default_rng(0)
    in_two = [draw_augmentation(generator, n, size) for n in (5, 7)]
    np.testing.assert_array_equal(np.concatenate(in_two), rows.numpy())
    assert draw_augmentation(generator, 0, size).shape == (0, len(PARAMETERS))
    assert not np.array_equal(rows_of(12, size, seed=1), rows)


def test_the_images_stay_as_they_were():
    images = images_of(4, (16, 16)).float()
    before = images.clone()
    augment(images, rows_of(4, (16, 16)))
    assert torch.equal(images, before)


def largest_gap(first: np.ndarray, second: np.ndarray) -> float:
    """Largest distance of two empirical distribution functions."""
    points = np.concatenate([first, second])
    return float(
        np.abs(
            np.searchsorted(np.sort(first), points, side="right") / len(first)
            - np.searchsorted(np.sort(second), points, side="right") / len(second)
        ).max()
    )


@pytest.mark.parametrize("size", [(64, 64), (20, 90)], ids=["square", "wide"])
def test_factors_and_crops_are_distributed_as_torchvisions(size):
    n = 3000
    ours = draw_augmentation(np.random.default_rng(0), n, size)
    crop = v2.RandomResizedCrop(size)
    jitter = v2.ColorJitter(brightness=32 / 255, saturation=(0.5, 1.5))
    image = torch.zeros(3, *size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        crops = [crop.make_params([image]) for _ in range(n)]
        jitters = [jitter.make_params([image]) for _ in range(n)]
    theirs = {key: np.array([c[key] for c in crops]) for key in ("top", "left", "height", "width")}
    theirs["brightness"] = np.array([j["brightness_factor"] for j in jitters])
    theirs["saturation"] = np.array([j["saturation_factor"] for j in jitters])
    mine = {name: ours[:, COLUMN[name]].astype(np.float64) for name in theirs}
    for values in (mine, theirs):
        values["area"] = values["height"] * values["width"]
        values["shape"] = values["width"] / values["height"]
    # Two-sample Kolmogorov-Smirnov at one in a thousand.
    for name in theirs:
        assert largest_gap(mine[name], theirs[name]) < 1.95 * np.sqrt(2 / n), name
    central = (mine["height"] == size[0]) & (mine["width"] == round(size[0] * 4 / 3))
    central_there = (theirs["height"] == size[0]) & (theirs["width"] == round(size[0] * 4 / 3))
    if size[0] != size[1]:  # ten crops that do not fit are common here
        assert min(central.mean(), central_there.mean()) > 0.1
    # An image flipped, or saturated first, has an even chance: four standard errors.
    for flag in ("flip", "saturation_first"):
        assert abs(ours[:, COLUMN[flag]].mean() - 0.5) < 4 * 0.5 / np.sqrt(n)


def test_crops_stay_inside_and_factors_in_their_ranges():
    for size in ((1, 1), (2, 3), (299, 299), (50, 7)):
        rows = draw_augmentation(np.random.default_rng(1), 2000, size)
        assert rows.dtype == np.float32
        top, left, height, width = (
            rows[:, COLUMN[name]] for name in ("top", "left", "height", "width")
        )
        assert min(height.min(), width.min()) >= 1
        assert min(top.min(), left.min()) >= 0
        assert (top + height).max() <= size[0]
        assert (left + width).max() <= size[1]
        brightness = rows[:, COLUMN["brightness"]]
        assert 1 - 32 / 255 <= brightness.min() < brightness.max() <= np.float32(1 + 32 / 255)
        saturation = rows[:, COLUMN["saturation"]]
        assert 0.5 <= saturation.min() < saturation.max() <= 1.5


@pytest.mark.parametrize(
    ("size", "expected"),
    [((4, 400), (0, 197, 4, 5)), ((400, 4), (197, 0, 5, 4))],
    ids=["wide", "tall"],
)
def test_where_no_crop_fits_the_central_one_is_taken(size, expected):
    # 8 % of the area at 4:3 would be 9.8 pixels high. Four pixels allow 4 * 4/3, rounded.
    rows = draw_augmentation(np.random.default_rng(0), 50, size)
    columns = [COLUMN[name] for name in ("top", "left", "height", "width")]
    assert (rows[:, columns] == expected).all()


def test_what_does_not_fit_is_named():
    rows = rows_of(2, (8, 8))
    with pytest.raises(ValueError, match=r"\(n, 1 or 3, height, width\), got \(2, 8, 8, 3\)"):
        augment(torch.zeros(2, 8, 8, 3), rows)
    with pytest.raises(TypeError, match=r"got torch\.uint8\. Divide uint8 images by 255"):
        augment(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), rows)
    with pytest.raises(ValueError, match=r"shape \(3, 8\), one row per image, got \(2, 8\)"):
        augment(torch.zeros(3, 3, 8, 8), rows)
    generator = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"at least 1 pixel, got n=2 and size=\(0, 8\)"):
        draw_augmentation(generator, 2, (0, 8))
    with pytest.raises(ValueError, match=r"must not be negative .* got n=-1"):
        draw_augmentation(generator, -1, (8, 8))
