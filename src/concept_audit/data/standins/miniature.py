"""Drawn folders in an official layout: written beside, then renamed, so none is half there."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

__all__ = ["ensure_folder", "soft_background"]


def ensure_folder(parent: str | Path, key: str, write: Callable[[Path], None]) -> Path:
    """Folder below `parent` that belongs to `key`; `write` fills it on the first call.

    Parameters
    ----------
    parent : where the folders of all keys lie
    key : generator, constants and seed, as text
    write : fills an empty folder

    Returns
    -------
    Path of the complete folder.
    """
    target = Path(parent) / sha256(key.encode()).hexdigest()[:16]
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.partial")
    draft.mkdir()
    try:
        write(draft)
        os.rename(draft, target)
    except FileExistsError:
        pass  # another process finished the same folder first
    except OSError:
        if not target.exists():
            raise
    finally:
        if draft.exists():
            shutil.rmtree(draft)
    return target


def soft_background(
    size: tuple[int, int], low: tuple[int, ...], high: tuple[int, ...], draw: np.random.Generator
) -> Image.Image:
    """Blurred random patches between two colours, `size` is (width, height)."""
    width, height = size
    coarse: NDArray[np.float64] = draw.uniform(size=(6, 8, 1))
    colours = np.array(low) + coarse * (np.array(high) - np.array(low))
    patches = Image.fromarray(colours.round().astype(np.uint8))
    smooth = patches.resize((width, height), Image.Resampling.BICUBIC)
    return smooth.filter(ImageFilter.GaussianBlur(max(width, height) / 60))
