"""MPI3D-Real: photographs of a robot arm, seven factors in a full grid (DCI-ES paper, section 6).

Official file: ``data/raw/mpi3d/mpi3d_real.npz``, 12.7 GB (``concept-audit fetch data=mpi3d``). It
is mapped, not read: only the images that are used come into memory.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concept_audit.data.base import ConceptDataset
from concept_audit.data.factor_grids import FactorGrid
from concept_audit.data.files import file_stamp, map_npz_array, raise_missing, rows_digest
from concept_audit.data.selection import subset_rows
from concept_audit.data.standins import mpi3d as standin_mpi3d
from concept_audit.store.array_cache import cached_array, cached_rows

__all__ = ["CONCEPT_NAMES", "FILE_NAME", "GRID", "map_images", "mpi3d"]

FILE_NAME = "mpi3d_real.npz"
GRID = standin_mpi3d.GRID
CONCEPT_NAMES = (
    "white_green_or_red",
    "cone_cube_or_cylinder",
    "small",
    "camera_high",
    "purple_background",
    "horizontal_axis_low",
    "vertical_axis_low",
)
_CUTS = (3, 3, 1, 1, 1, 20, 20)  # concept i is 1 where factor i is below
_REMEDY = "Run: concept-audit fetch data=mpi3d"
_FINGERPRINT_IMAGES = 2048  # evenly spaced images that stand for the content of the mapped file


def map_images(
    path: str | Path, unpacked_dir: str | Path, *, grid: FactorGrid = GRID
) -> NDArray[np.uint8]:
    """Memory map `(n, 64, 64, 3)` of the official images; row numbers follow the factor grid.

    Raises
    ------
    DatasetFileError  on a damaged file or another shape: the toy and realistic versions have fewer
    shapes and colours.
    """
    return map_npz_array(
        path,
        "images",
        shape=(grid.n_rows, 64, 64, 3),
        kinds="u",
        remedy=_REMEDY,
        unpacked_dir=unpacked_dir,
    )


def _content_digest(images: NDArray[np.uint8]) -> str:
    """Hash of evenly spaced images: reading all 12.7 GB at every start would take minutes."""
    rows = np.linspace(0, len(images) - 1, min(len(images), _FINGERPRINT_IMAGES)).astype(np.int64)
    return sha256(np.ascontiguousarray(images[rows]).tobytes()).hexdigest()


def _splits(n: int, test: float, split_seed: int) -> dict[str, NDArray[np.int64]]:
    """Seeded permutation into train and test, then 5 % of train for validation (DCI-ES paper)."""
    if not 0 < test < 1:
        raise ValueError(f"test must be a share between 0 and 1, got {test}.")
    from sklearn.model_selection import train_test_split

    order = np.random.default_rng(split_seed).permutation(n)
    n_train = round(n * (1 - test))
    train, val = train_test_split(order[:n_train], test_size=0.05, random_state=split_seed)
    return {"train": train, "val": val, "test": order[n_train:]}


def mpi3d(
    *,
    data_dir: str | Path = "data",
    standin: bool = False,
    test: float = 0.7,
    split_seed: int = 42,
    max_samples: int | None = None,
) -> ConceptDataset:
    """Load MPI3D-Real with its seven factors.

    Parameters
    ----------
    data_dir : folder with ``raw/mpi3d/`` (official file) and ``processed/`` (caches)
    standin : draw the images instead of reading the official file
    test : share of test images; DCI-ES uses 0.7, which leaves 295,488 training images of the grid
    split_seed : seed of the split; independent of training
    max_samples : random part of the 1,036,800 images, drawn with `split_seed`; None keeps all

    Returns
    -------
    ConceptDataset with images `(n, 64, 64, 3)` uint8. The factors are the paper's; the seven binary
    concepts (lower half of each factor) and the task ``4 c_shape + 2 c_colour + c_size`` are ours,
    so that concept models can be trained on this set too.

    Raises
    ------
    DatasetMissingError  without the official file; the message names the fetch command.
    DatasetFileError  when the file is not the official one.
    """
    rows = subset_rows(np.arange(GRID.n_rows), max_samples, seed=split_seed)
    folder = Path(data_dir)
    digest = None
    images: Any
    if standin:
        images = cached_rows(
            folder / "processed" / "mpi3d_standin",
            {"generator": standin_mpi3d.GENERATOR, "rows": rows_digest(rows)},
            lambda some: standin_mpi3d.render(GRID.factors_of(rows[some])),
            shape=(len(rows), 64, 64, 3),
            group=standin_mpi3d.geometry_of(GRID.factors_of(rows)),
        )
    else:
        path = folder / "raw" / "mpi3d" / FILE_NAME
        if not path.exists():
            raise_missing(path, "mpi3d", standin="mpi3d_standin")
        mapped = map_images(path, folder / "processed" / "mpi3d")
        if max_samples is None:
            images = mapped
        else:
            images = cached_array(
                folder / "processed" / "mpi3d",
                {"file": file_stamp(path), "rows": rows_digest(rows)},
                lambda: mapped[rows],
            )
    if isinstance(images, np.memmap):
        digest = _content_digest(images)
    raw = GRID.factors_of(rows)
    c = (raw < np.array(_CUTS)).astype(np.int64)
    return ConceptDataset(
        name="mpi3d_standin" if standin else "mpi3d",
        x=images,
        c=c,
        y=4 * c[:, 1] + 2 * c[:, 0] + c[:, 2],
        concept_names=CONCEPT_NAMES,
        class_names=tuple(f"class_{i}" for i in range(8)),
        splits=_splits(len(rows), test, split_seed),
        standin=standin,
        factors=raw,
        factor_names=GRID.names,
        factor_sizes=GRID.sizes,
        factor_kinds=GRID.kinds,
        notes=(
            "Binary concepts and task are our own choice, not a paper's.",
            *(
                ("Drawn stand-in for MPI3D-Real; like it in layout, not in texture.",)
                if standin
                else ()
            ),
        ),
        content_digest=digest,
    )
