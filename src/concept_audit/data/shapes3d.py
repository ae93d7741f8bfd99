"""3dshapes(gamma): one coloured object in a coloured room, six binary concepts, twelve classes.

Official file: ``data/raw/shapes3d/3dshapes.h5`` (``concept-audit fetch data=shapes3d``).
Concepts, task and gamma follow the Leakage paper, appendix A.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from concept_audit.data.base import ConceptDataset
from concept_audit.data.factor_grids import (
    ChainedRule,
    FactorGrid,
    draw_rule_tables,
    keep_rows,
    reindexed_factors,
)
from concept_audit.data.files import (
    DatasetFileError,
    file_stamp,
    raise_missing,
    read_h5_rows,
    rows_digest,
)
from concept_audit.data.selection import check_choice, check_gamma, subset_rows
from concept_audit.data.splits import three_way_split
from concept_audit.data.standins import shapes3d as standin_shapes3d
from concept_audit.data.tasks import SHAPES3D_CLASSES, remove_concepts, shapes3d_task
from concept_audit.store.array_cache import cached_array, cached_rows, mapped_digest

__all__ = ["CONCEPT_NAMES", "FILE_NAME", "GRID", "read_images", "shapes3d"]

FILE_NAME = "3dshapes.h5"
GRID = standin_shapes3d.GRID
CONCEPT_NAMES = (
    "floor_hue_low",
    "wall_hue_low",
    "object_hue_low",
    "small",
    "cube_or_cylinder",
    "orientation_low",
)
MAX_GAMMA = 5
_REMEDY = "Run: concept-audit fetch data=shapes3d"
_CUTS = (5, 5, 5, 4, 2, 7)  # concept i is 1 where factor i is below
_INCOMPLETE_REMOVES = (
    2,
    3,
)  # object hue and scale: best accuracy 0.650, nearest to the paper's 0.655
# Leakage paper, appendix A: five chained rules, one more with each step of gamma.
_RULES = (
    ChainedRule(given=0, restricted=1, cut=5, pool=7, kept=5, offset=3),
    ChainedRule(given=1, restricted=2, cut=5, pool=7, kept=5, offset=3),
    ChainedRule(given=2, restricted=3, cut=5, pool=6, kept=4, offset=2),
    ChainedRule(given=3, restricted=4, cut=4, pool=3, kept=2, offset=1),
    ChainedRule(given=4, restricted=5, cut=2, pool=9, kept=7, offset=6),
)


def _kept_values(gamma: int) -> list[range]:
    """Values of each factor: every step of gamma opens one more factor."""
    hues = [range(10) if gamma >= step else range(0, 10, 2) for step in (1, 2, 3)]
    orientation = range(15) if gamma >= 5 else range(0, 15, 2 if gamma == 4 else 4)
    return [*hues, range(8), range(4), orientation]


def _rows(gamma: int, rule_seed: int) -> NDArray[np.int64]:
    tables = draw_rule_tables(GRID, _RULES, seed=rule_seed)
    return keep_rows(GRID, _kept_values(gamma), _RULES[:gamma], tables[:gamma])


def read_images(
    path: str | Path, rows: NDArray[np.int64], *, grid: FactorGrid = GRID
) -> NDArray[np.uint8]:
    """Chosen images `(n, 64, 64, 3)` of the official h5, after a check of the factor order.

    Raises
    ------
    DatasetFileError  on a damaged file, other shapes or a different factor order.
    """
    labels = read_h5_rows(path, "labels", rows, shape=(grid.n_rows, 6), kinds="f", remedy=_REMEDY)
    expected = standin_shapes3d.labels(grid.factors_of(rows))
    if not np.isfinite(labels).all():
        raise DatasetFileError(
            path,
            expected="finite labels",
            found=f"{int(np.isnan(labels).sum())} NaN",
            remedy=_REMEDY,
        )
    # Compared by rank: the sizes of hue and scale steps are not part of the file's contract.
    renumbered, _ = reindexed_factors(labels.round(6))
    wanted, _ = reindexed_factors(expected.round(6))
    wrong = np.flatnonzero((renumbered != wanted).any(axis=1))
    if len(wrong):
        first = int(wrong[0])
        raise DatasetFileError(
            path,
            expected=f"labels near {expected[first].round(3).tolist()} in row {int(rows[first])} "
            f"({', '.join(grid.names)}; orientation fastest)",
            found=f"{labels[first].round(3).tolist()}, and {len(wrong)} of {len(rows)} rows differ",
            remedy=_REMEDY,
        )
    return read_h5_rows(
        path, "images", rows, shape=(grid.n_rows, 64, 64, 3), kinds="u", remedy=_REMEDY
    )


def _images(data_dir: Path, rows: NDArray[np.int64], standin: bool) -> NDArray[np.uint8]:
    if standin:
        return cached_rows(
            data_dir / "processed" / "shapes3d_standin",
            {"generator": standin_shapes3d.GENERATOR, "rows": rows_digest(rows)},
            lambda some: standin_shapes3d.render(GRID.factors_of(rows[some])),
            shape=(len(rows), 64, 64, 3),
            group=standin_shapes3d.geometry_of(GRID.factors_of(rows)),
        )
    path = data_dir / "raw" / "shapes3d" / FILE_NAME
    if not path.exists():
        raise_missing(path, "shapes3d", standin="shapes3d_standin")
    return cached_array(
        data_dir / "processed" / "shapes3d",
        {"file": file_stamp(path), "rows": rows_digest(rows)},
        lambda: read_images(path, rows),
    )


def shapes3d(
    *,
    data_dir: str | Path = "data",
    gamma: int | None = 0,
    scheme: Literal["corrected", "published"] = "corrected",
    variant: Literal["complete", "incomplete", "nonlinear"] = "complete",
    standin: bool = False,
    rule_seed: int = 87,
    split_seed: int = 42,
    max_samples: int | None = None,
) -> ConceptDataset:
    """Load 3dshapes with the concepts and the task of the Leakage paper.

    Parameters
    ----------
    data_dir : folder with ``raw/shapes3d/`` (official file) and ``processed/`` (caches)
    gamma : 0..5, how strongly the concepts depend on each other; None keeps the whole factor grid
        (480,000 images) for disentanglement scores
    scheme : ``corrected`` splits by `split_seed`; ``published`` splits by seed 87 as the authors'
        code does (which also reads in an unseeded order, so its exact split cannot be had again).
        Images, concepts and labels agree between the two.
    variant : ``incomplete`` leaves out object hue and scale, ``nonlinear`` changes the task
    standin : draw the images instead of reading the official file
    rule_seed, split_seed : seeds of the restrictions and of the split; independent of training
    max_samples : random part of the images, drawn with `split_seed`; None keeps all

    Returns
    -------
    ConceptDataset with images `(n, 64, 64, 3)` uint8; `factors` are renumbered over the values that
    occur.

    Raises
    ------
    DatasetMissingError  without the official file; the message names the fetch command.
    DatasetFileError  when the file is not the official one.
    ValueError  on a gamma, scheme or variant that does not exist.
    """
    check_gamma(gamma, MAX_GAMMA)
    check_choice("scheme", scheme, ("corrected", "published"))
    check_choice("variant", variant, ("complete", "incomplete", "nonlinear"))
    rows = np.arange(GRID.n_rows) if gamma is None else _rows(gamma, rule_seed)
    rows = subset_rows(rows, max_samples, seed=split_seed)
    raw = GRID.factors_of(rows)
    c = (raw < np.array(_CUTS)).astype(np.int64)
    y = shapes3d_task(c, nonlinear=variant == "nonlinear")
    names: tuple[str, ...] = CONCEPT_NAMES
    if variant == "incomplete":
        c, names = remove_concepts(c, names, _INCOMPLETE_REMOVES)
    factors, sizes = reindexed_factors(raw)
    images = _images(Path(data_dir), rows, standin)
    parts = ["shapes3d", "full" if gamma is None else f"g{gamma}"]
    parts += [scheme] if scheme == "published" else []
    parts += [variant] if variant != "complete" else []
    parts += ["standin"] if standin else []
    return ConceptDataset(
        name="_".join(parts),
        x=images,
        c=c,
        y=y,
        concept_names=names,
        class_names=tuple(f"class_{i}" for i in range(SHAPES3D_CLASSES)),
        splits=three_way_split(
            len(rows), val=0.1, test=0.2, split_seed=87 if scheme == "published" else split_seed
        ),
        standin=standin,
        factors=factors,
        factor_names=GRID.names,
        factor_sizes=sizes,
        factor_kinds=GRID.kinds,
        notes=(
            ("Drawn stand-in for 3dshapes; without wall and floor texture.",) if standin else ()
        ),
        content_digest=mapped_digest(
            images, standin_shapes3d.GENERATOR if standin else "official", rows_digest(rows)
        ),
    )
