"""Photographs on disk as an array of images: decoded when asked for, kept decoded if wanted."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concept_audit.data.files import DatasetFileError
from concept_audit.data.selection import check_choice
from concept_audit.store.array_cache import cached_rows

__all__ = ["ImageFiles", "decoded_images"]

_ROWS_PER_BLOCK = 64  # pictures decoded at a time: 17 MB at 299 pixels
_MAX_PIXELS = 64_000_000  # larger pictures are refused before they are unpacked


class ImageFiles:
    """Image files that behave like an array `(n, size, size, 3)` of uint8, read on access.

    Parameters
    ----------
    paths : one file per row
    size : pixels along an edge
    crop : ``scaled`` brings the shorter edge to `size` and takes the centre square; ``centre``
        takes the middle `size` pixels of the picture as it is, on black where it is smaller
    remedy : sentence for the error message of a bad file
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        size: int,
        crop: Literal["scaled", "centre"] = "scaled",
        remedy: str,
    ) -> None:
        check_choice("crop", crop, ("scaled", "centre"))
        if size < 8:
            raise ValueError(f"image_size must be at least 8 pixels, got {size}.")
        self.paths = list(paths)
        self.size = size
        self.crop = crop
        self.remedy = remedy
        self.dtype = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape as an array would have it."""
        return (len(self.paths), self.size, self.size, 3)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: ArrayLike) -> NDArray[np.uint8]:
        index = np.atleast_1d(np.arange(len(self.paths))[rows])  # type: ignore[index]
        images = [self._read(self.paths[row]) for row in index]
        return np.stack(images) if images else np.empty((0, *self.shape[1:]), np.uint8)

    def _read(self, path: Path) -> NDArray[np.uint8]:
        from PIL import Image, ImageOps, UnidentifiedImageError

        try:
            with Image.open(path) as opened:
                if opened.width * opened.height > _MAX_PIXELS:
                    raise DatasetFileError(
                        path,
                        expected=f"at most {_MAX_PIXELS} pixels",
                        found=f"{opened.width} x {opened.height}",
                        remedy=self.remedy,
                    )
                picture = opened.convert("RGB")
        except FileNotFoundError:
            raise DatasetFileError(
                path, expected="an image that the index lists", found="no file", remedy=self.remedy
            ) from None
        except DatasetFileError:
            raise
        except (
            UnidentifiedImageError,
            OSError,
            SyntaxError,
            EOFError,
            ValueError,
            LookupError,
            struct.error,
            zlib.error,
            Image.DecompressionBombError,
        ) as error:
            raise DatasetFileError(
                path, expected="a whole image", found=f"damage ({error})", remedy=self.remedy
            ) from error
        square = (self.size, self.size)
        if self.crop == "scaled":
            return np.asarray(ImageOps.fit(picture, square, Image.Resampling.BILINEAR))
        left, top = (picture.width - self.size) // 2, (picture.height - self.size) // 2
        return np.asarray(picture.crop((left, top, left + self.size, top + self.size)))

    def times(self) -> str:
        """Hash of the files' modification times, which differ from machine to machine."""
        known = [path.stat().st_mtime_ns if path.exists() else -1 for path in self.paths]
        return sha256(repr(known).encode()).hexdigest()[:16]

    def digest(self) -> str:
        """Hash of names and sizes of the files and of how they are cut; no file is read."""
        described = [
            [path.parent.name, path.name, path.stat().st_size if path.exists() else -1]
            for path in self.paths
        ]
        return sha256(repr([described, self.size, self.crop]).encode()).hexdigest()


def decoded_images(files: ImageFiles, folder: str | Path, *, keep: bool) -> Any:
    """Images of `files`: decoded once into a cached array with `keep`, else on every access.

    A picture that was replaced since, or an array that was damaged, has them decoded again.
    """
    if not keep:
        return files
    return cached_rows(
        folder,
        {"decoded": files.digest(), "times": files.times()},
        files.__getitem__,
        shape=files.shape,
        rows_per_block=_ROWS_PER_BLOCK,
    )
