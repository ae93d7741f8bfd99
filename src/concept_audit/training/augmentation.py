"""Random changes of training images, for whole batches on any device.

All random numbers of a batch are drawn first, on the CPU, as one row per image. So however a batch
is split over processes or devices, every image meets the same change.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["AUGMENTATIONS", "PARAMETERS", "augment", "draw_augmentation"]

AUGMENTATIONS = ("none", "jitter_crop_flip")
"""What may happen to training images; the second is what Koh et al. and the CEM code do to CUB."""

PARAMETERS = (
    "brightness",
    "saturation",
    "saturation_first",
    "top",
    "left",
    "height",
    "width",
    "flip",
)
"""Columns of the parameters: two factors, a flag, the crop in pixels, a flag."""

# Published loaders of CUB: ColorJitter(brightness=32/255, saturation=(0.5, 1.5)), then
# RandomResizedCrop with torchvision's defaults, then RandomHorizontalFlip.
_BRIGHTNESS = (1 - 32 / 255, 1 + 32 / 255)
_SATURATION = (0.5, 1.5)
_AREA_SHARE = (0.08, 1.0)
_ASPECT_RATIO = (3 / 4, 4 / 3)  # width over height
_TRIES = 10
_GREY = (0.2989, 0.587, 0.114)  # ITU-R BT.601, with torchvision's digits
_DRAWS = 2 * _TRIES + 6


def draw_augmentation(
    generator: np.random.Generator, n: int, size: tuple[int, int]
) -> Float32[np.ndarray, "n 8"]:
    """Random numbers of `n` images.

    Parameters
    ----------
    generator : numpy.random.Generator
        Advanced by the same number of draws per image, so two calls for a and b images give the
        rows of one call for a + b.
    n : int
        Number of images.
    size : (int, int)
        Height and width of the images in pixels.

    Returns
    -------
    Float32[ndarray, "n 8"] with the columns `PARAMETERS`. Brightness is uniform in 1 +- 32/255,
    saturation in [0.5, 1.5]; either may come first. The crop covers a uniform share in [0.08, 1]
    of the area at a log-uniform width to height in [3/4, 4/3]; after ten crops that do not fit, the
    largest central one of an allowed shape is taken. Both flags are 0 or 1 with equal chances.

    Raises
    ------
    ValueError
        On a negative `n` or a size below 1.
    """
    height, width = (int(edge) for edge in size)
    if n < 0 or min(height, width) < 1:
        raise ValueError(
            f"n must not be negative and size must be (height, width) of at least 1 pixel, got "
            f"n={n} and size={tuple(size)}."
        )
    draws = generator.random((n, _DRAWS))
    crop_height, crop_width = _crop_sizes(draws[:, : 2 * _TRIES], height, width)
    fits = crop_height > 0
    central = _central_crop(height, width)
    crop_height = np.where(fits, crop_height, central[0])
    crop_width = np.where(fits, crop_width, central[1])
    brightness, saturation, order, down, across, flip = draws[:, 2 * _TRIES :].T
    return np.stack(
        [
            _uniform(brightness, _BRIGHTNESS),
            _uniform(saturation, _SATURATION),
            order < 0.5,
            _offset(down, height - crop_height, fits),
            _offset(across, width - crop_width, fits),
            crop_height,
            crop_width,
            flip < 0.5,
        ],
        axis=1,
    ).astype(np.float32)


def _uniform(draws: NDArray[np.float64], limits: tuple[float, float]) -> NDArray[np.float64]:
    return limits[0] + (limits[1] - limits[0]) * draws


def _offset(
    draws: NDArray[np.float64], room: NDArray[np.float64], fits: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """First pixel of the crop: uniform in 0..room, or in the middle for the central crop."""
    return np.floor(np.where(fits, draws * (room + 1), room / 2))


def _crop_sizes(
    draws: NDArray[np.float64], height: int, width: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Height and width of the first crop that fits, 0 where none does."""
    area = height * width * _uniform(draws[:, :_TRIES], _AREA_SHARE)
    logarithms = (math.log(_ASPECT_RATIO[0]), math.log(_ASPECT_RATIO[1]))
    ratio = np.exp(_uniform(draws[:, _TRIES:], logarithms))
    heights, widths = np.rint(np.sqrt(area / ratio)), np.rint(np.sqrt(area * ratio))
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
    rows, first = np.arange(len(draws)), fits.argmax(axis=1)
    found = fits[rows, first]
    return heights[rows, first] * found, widths[rows, first] * found


def _central_crop(height: int, width: int) -> tuple[int, int]:
    """Height and width of the largest crop whose shape is allowed."""
    narrowest, widest = _ASPECT_RATIO
    if width / height < narrowest:
        return round(width / narrowest), width
    if width / height > widest:
        return height, round(height * widest)
    return height, width


def augment(
    images: Float[Tensor, "n channels height width"], parameters: Float[Tensor, "n 8"]
) -> Float[Tensor, "n channels height width"]:
    """Images with changed brightness and saturation, cropped, resized to their size and flipped.

    Parameters
    ----------
    images : Float[Tensor, "n C H W"]
        Values in [0, 1], not normalised, with one or three channels (of one channel the saturation
        stays as it is).
    parameters : Float[Tensor, "n 8"]
        Rows of `draw_augmentation` for this size, on any device.

    Returns
    -------
    Float[Tensor, "n C H W"], new, in [0, 1], on the images' device.

    Raises
    ------
    TypeError
        On images that are not float32 or float64.
    ValueError
        When shapes do not fit together.

    Notes
    -----
    Per image these are torchvision's `adjust_brightness`, `adjust_saturation` (in the drawn order),
    `resized_crop` and `hflip` on tensors, to rounding: positions in float32 are exact to about
    1e-7 of the edge, which moves a value by at most that many pixels' worth of contrast. A crop is
    never larger than what it is resized to, so antialiasing would change nothing.

    DEVIATION: the published loaders crop the original photograph and round to 8 bits after each
    step; here the crop is taken from the stored picture of fixed size, and nothing is rounded.
    """
    _check(images, parameters)
    columns = parameters.to(device=images.device, dtype=images.dtype).unbind(1)
    brightness, saturation, saturation_first, top, left, height, width, flip = columns
    images = _jittered(images, brightness, saturation, saturation_first > 0.5)
    n, _, n_lines, n_columns = images.shape
    down = _positions(n_lines, top, height)
    across = _positions(n_columns, left, width)
    across = torch.where((flip > 0.5)[:, None], across.flip(1), across)
    grid = torch.stack(
        [
            across[:, None, :].expand(n, n_lines, n_columns),
            down[:, :, None].expand(n, n_lines, n_columns),
        ],
        dim=-1,
    )
    sampled = nn.functional.grid_sample(
        images, grid, mode="bilinear", padding_mode="border", align_corners=False
    )
    return sampled.clamp_(0, 1)  # weights of a mean may add up to 1 and a rounding error


def _jittered(images: Tensor, brightness: Tensor, saturation: Tensor, swapped: Tensor) -> Tensor:
    """Brightness and saturation; a step is colour * image + (share of grey) * its grey version."""
    if images.shape[1] == 1:
        saturation = torch.ones_like(saturation)
    nothing = torch.zeros_like(brightness)
    bright, saturated = (brightness, nothing), (saturation, 1 - saturation)
    for early, late in ((bright, saturated), (saturated, bright)):
        colour, grey = (
            torch.where(swapped, second, first)[:, None, None, None]
            for first, second in zip(early, late, strict=True)
        )
        images = (images * colour).addcmul_(_grey(images), grey).clamp_(0, 1)
    return images


def _grey(images: Tensor) -> Tensor:
    """Grey version, one channel."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return (red * _GREY[0]).add_(green, alpha=_GREY[1]).add_(blue, alpha=_GREY[2])


def _positions(n_pixels: int, start: Tensor, length: Tensor) -> Tensor:
    """Where each of `n_pixels` is read along an edge of the crop, in -1..1 of the whole edge.

    Positions beyond the centres of the crop's outer pixels move onto them, so that nothing outside
    the crop is seen.
    """
    centres = torch.arange(n_pixels, device=start.device, dtype=start.dtype) + 0.5
    inside = (centres * (length / n_pixels)[:, None] - 0.5).clamp_min(0)
    pixels = torch.minimum(inside, (length - 1)[:, None]) + start[:, None]
    return (2 * pixels + 1) / n_pixels - 1


def _check(images: Tensor, parameters: Tensor) -> None:
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            f"images must have shape (n, 1 or 3, height, width), got {tuple(images.shape)}. "
            "Channels come first."
        )
    if images.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"images must be float32 or float64 in [0, 1], got {images.dtype}. Divide uint8 images "
            "by 255, and go to half precision afterwards."
        )
    if parameters.shape != (len(images), len(PARAMETERS)):
        raise ValueError(
            f"parameters must have shape ({len(images)}, {len(PARAMETERS)}), one row per image, "
            f"got {tuple(parameters.shape)}. Take the rows of this part of the batch."
        )
