"""Cars3D: 183 car models from 24 azimuths and 4 elevations, 64x64 (DCI-ES paper, section 6).

Official archive, unpacked: ``data/raw/cars3d/data/cars/`` with ``list.txt`` and one
``car_*_mesh.mat`` per type (``concept-audit fetch data=cars3d``). The packed form ``cars3d.npz``
of DCI-ES is read as well.
"""

from __future__ import annotations

import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concept_audit.data.base import ConceptDataset
from concept_audit.data.files import (
    DatasetFileError,
    file_stamp,
    raise_missing,
    read_npz_rows,
    rows_digest,
)
from concept_audit.data.selection import subset_rows
from concept_audit.data.standins import cars3d as standin_cars3d
from concept_audit.store.array_cache import cached_array

__all__ = ["CONCEPT_NAMES", "GRID", "PACKED_NAME", "cars3d", "read_folder"]

GRID = standin_cars3d.GRID
CONCEPT_NAMES = ("low_view", "azimuth_first_half", "azimuth_first_or_third_quarter")
PACKED_NAME = "cars3d.npz"
_FOLDERS = ("data/cars", "cars", ".")
_REMEDY = "Run: concept-audit fetch data=cars3d"
_SIDE = 64


def _type_names(folder: Path, n_types: int) -> list[str]:
    """Car types in the order of list.txt; sorted file names where there is none."""
    listed = folder / "list.txt"
    if listed.exists():
        try:
            names = listed.read_text(encoding="utf-8").split()
        except UnicodeDecodeError as error:
            raise DatasetFileError(
                listed, expected="UTF-8 text", found=f"damage ({error})", remedy=_REMEDY
            ) from None
    else:
        names = sorted(path.stem for path in folder.glob("car_*_mesh.mat"))
    odd = [name for name in names if Path(name).name != name or name.startswith(".")]
    if odd or len(set(names)) != len(names) or len(names) != n_types:
        raise DatasetFileError(
            listed if listed.exists() else folder,
            expected=f"{n_types} different car types, plain names",
            found=f"{len(names)} names, {len(set(names))} different, odd ones {odd[:3]}",
            remedy=_REMEDY,
        )
    return names


def _read_mat(path: Path) -> NDArray[np.uint8]:
    """Images `(elevation, azimuth, 128, 128, 3)` of one type."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    if not path.exists():
        raise DatasetFileError(
            path, expected="the file of a type in list.txt", found="no file", remedy=_REMEDY
        )
    try:
        images = loadmat(path, variable_names=["im"]).get("im")
    except (
        MatReadError,
        ValueError,
        TypeError,
        LookupError,
        EOFError,
        OSError,
        NotImplementedError,  # the HDF5 format of MATLAB 7.3
        struct.error,
        zlib.error,
    ) as error:
        raise DatasetFileError(
            path, expected="a MATLAB file", found=f"damage ({error})", remedy=_REMEDY
        ) from error
    shape = (128, 128, 3, *reversed(GRID.sizes[:2]))
    if images is None or images.shape != shape or images.dtype != np.uint8:
        found = "no 'im'" if images is None else f"shape {images.shape}, dtype {images.dtype}"
        raise DatasetFileError(
            path,
            expected=f"'im' of shape {shape} uint8: height, width, channel, azimuth, elevation",
            found=found,
            remedy=_REMEDY,
        )
    return images.transpose(4, 3, 0, 1, 2)


def read_folder(folder: str | Path, *, n_types: int = GRID.sizes[2]) -> NDArray[np.uint8]:
    """All images of the official folder, `(4 * 24 * n_types, 64, 64, 3)`, the type fastest.

    Reduced from 128 to 64 pixels by a Lanczos filter, as the common loaders do.

    Raises
    ------
    DatasetFileError  on a missing, damaged or differently shaped file; the message names it.
    """
    from PIL import Image

    path = Path(folder)
    images = np.empty((4, 24, n_types, _SIDE, _SIDE, 3), dtype=np.uint8)
    for position, name in enumerate(_type_names(path, n_types)):
        for elevation, row in enumerate(_read_mat(path / f"{name}.mat")):
            for azimuth, picture in enumerate(row):
                small = Image.fromarray(np.ascontiguousarray(picture))
                small = small.resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
                images[elevation, azimuth, position] = np.asarray(small)
    return images.reshape(-1, _SIDE, _SIDE, 3)


def _images(folder: Path, rows: NDArray[np.int64]) -> NDArray[Any]:
    raw = folder / "raw" / "cars3d"
    packed = raw / PACKED_NAME
    cache = folder / "processed" / "cars3d"
    if packed.exists():
        key = {"file": file_stamp(packed), "rows": rows_digest(rows)}
        shape = (GRID.n_rows, _SIDE, _SIDE, 3)
        return cached_array(
            cache,
            key,
            lambda: read_npz_rows(packed, "imgs", rows, shape=shape, kinds="u", remedy=_REMEDY),
        )
    for place in _FOLDERS:
        files = sorted((raw / place).glob("car_*_mesh.mat"))
        if files:
            listed = raw / place / "list.txt"
            stamps = [file_stamp(path) for path in [*files, *([listed] if listed.exists() else [])]]
            whole = cached_array(cache, {"files": stamps}, partial(read_folder, raw / place))
            return whole if len(rows) == len(whole) else whole[rows]
    raise_missing(raw / _FOLDERS[0], "cars3d", standin="cars3d_standin")


def cars3d(
    *,
    data_dir: str | Path = "data",
    standin: bool = False,
    split_seed: int = 42,
    max_samples: int | None = None,
) -> ConceptDataset:
    """Load Cars3D with its three factors.

    Parameters
    ----------
    data_dir : folder with ``raw/cars3d/`` (official files) and ``processed/`` (caches)
    standin : draw the cars instead of reading the official files
    split_seed : seed of the test split (20 %); validation takes 10 % of the rest with the next
        seed, which gives 12,648 / 1,406 / 3,514 images as in DCI-ES
    max_samples : random part of the 17,568 images, drawn with `split_seed`; None keeps all

    Returns
    -------
    ConceptDataset with images `(n, 64, 64, 3)` uint8. The factors are the paper's; the three binary
    concepts and the task ``4 c1 + 2 c2 + c3`` are ours, so that concept models can be trained on
    this set too.

    Raises
    ------
    DatasetMissingError  without the official files; the message names the fetch command.
    DatasetFileError  when a file is not the official one.
    """
    from sklearn.model_selection import train_test_split

    rows = subset_rows(np.arange(GRID.n_rows), max_samples, seed=split_seed)
    folder = Path(data_dir)
    if standin:
        images = cached_array(
            folder / "processed" / "cars3d_standin",
            {"generator": standin_cars3d.GENERATOR, "rows": rows_digest(rows)},
            lambda: standin_cars3d.render(GRID.factors_of(rows)),
        )
    else:
        images = _images(folder, rows)
    factors = GRID.factors_of(rows)
    elevation, azimuth, _ = factors.T
    c = np.stack([elevation < 2, azimuth < 12, (azimuth // 6) % 2 == 0], axis=1).astype(np.int64)
    rest, test = train_test_split(np.arange(len(rows)), test_size=0.2, random_state=split_seed)
    train, val = train_test_split(rest, test_size=0.1, random_state=split_seed + 1)
    return ConceptDataset(
        name="cars3d_standin" if standin else "cars3d",
        x=images,
        c=c,
        y=4 * c[:, 0] + 2 * c[:, 1] + c[:, 2],
        concept_names=CONCEPT_NAMES,
        class_names=tuple(f"class_{i}" for i in range(8)),
        splits={"train": train, "val": val, "test": test},
        standin=standin,
        factors=factors,
        factor_names=GRID.names,
        factor_sizes=GRID.sizes,
        factor_kinds=GRID.kinds,
        notes=(
            "Binary concepts and task are our own choice, not a paper's.",
            *(
                ("Drawn stand-in for Cars3D: parametric cars, not the real models.",)
                if standin
                else ()
            ),
        ),
    )
