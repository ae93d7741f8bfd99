"""dSprites(gamma): white sprites on black, five binary concepts, eight classes.

Official file: ``data/raw/dsprites/dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz``
(``concept-audit fetch data=dsprites``). Concepts, task and gamma follow the Leakage paper,
appendix A.
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
    read_npz_rows,
    rows_digest,
)
from concept_audit.data.selection import check_choice, check_gamma, subset_rows
from concept_audit.data.splits import every_eighth_split
from concept_audit.data.standins import dsprites as standin_dsprites
from concept_audit.data.tasks import DSPRITES_CLASSES, dsprites_task, remove_concepts
from concept_audit.store.array_cache import cached_array, cached_rows, mapped_digest

__all__ = ["CONCEPT_NAMES", "FILE_NAME", "GRID", "dsprites", "read_images"]

FILE_NAME = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
GRID = standin_dsprites.GRID
CONCEPT_NAMES = ("square_or_ellipse", "small", "first_half_turn", "left", "upper")
MAX_GAMMA = 4
_REMEDY = "Run: concept-audit fetch data=dsprites"
_CUTS = (2, 3, 20, 16, 16)  # concept i is 1 where factor i is below
_PUBLISHED_POSITION_CUT = 15  # label cut of the authors' code, one below the concept's
_INCOMPLETE_REMOVES = (3, 4)  # both positions: best accuracy 0.750, nearest to the paper's 0.749
# Leakage paper, appendix A: four chained rules, one more with each step of gamma.
_RULES = (
    ChainedRule(given=0, restricted=1, cut=2, pool=4, kept=3, offset=2),
    ChainedRule(given=1, restricted=2, cut=3, pool=30, kept=20, offset=10),
    ChainedRule(given=2, restricted=3, cut=20, pool=20, kept=16, offset=12),
    ChainedRule(given=3, restricted=4, cut=16, pool=20, kept=16, offset=12),
)


def _kept_values(gamma: int) -> list[range]:
    """Values of each factor: every step of gamma opens one more factor."""
    return [
        range(3),
        range(6) if gamma >= 1 else range(0, 6, 2),
        range(0, 40, 2) if gamma >= 2 else range(0, 40, 4),
        range(32) if gamma >= 3 else range(0, 32, 2),
        range(32) if gamma >= 4 else range(0, 32, 2),
    ]


def _rows(gamma: int, scheme: str, rule_seed: int) -> NDArray[np.int64]:
    """Rows of the official grid that belong to dSprites(gamma)."""
    rules = list(_RULES)
    if scheme == "published":
        rules[3] = ChainedRule(given=3, restricted=4, cut=15, pool=20, kept=16, offset=12)
    tables = draw_rule_tables(GRID, rules, seed=rule_seed)
    if scheme == "published":
        # The authors' code looks up a heart's shape index, not its scale: all hearts stay or all
        # go.
        tables[0][2, :] = tables[0][2, 2]
    return keep_rows(GRID, _kept_values(gamma), rules[:gamma], tables[:gamma])


def _concepts(factors: NDArray[np.int64]) -> NDArray[np.int64]:
    return (factors < np.array(_CUTS)).astype(np.int64)


def read_images(
    path: str | Path, rows: NDArray[np.int64], *, grid: FactorGrid = GRID
) -> NDArray[np.uint8]:
    """Chosen images of the official npz, `(n, 64, 64)` of 0 and 1; the factor order is checked.

    Neither `metadata`, whose reading would run pickled code, nor any other array is touched.

    Raises
    ------
    DatasetFileError  on a damaged file, other shapes, a different factor order or pixels beyond 0
    and 1.
    """
    classes = read_npz_rows(
        path, "latents_classes", rows, shape=(grid.n_rows, 6), kinds="iu", remedy=_REMEDY
    )
    wrong = np.flatnonzero((classes[:, 1:] != grid.factors_of(rows)).any(axis=1))
    if len(wrong):
        first = int(wrong[0])
        raise DatasetFileError(
            path,
            expected=f"factors {grid.factors_of(rows[first : first + 1])[0].tolist()} in row "
            f"{int(rows[first])} (shape, scale, orientation, x, y; y fastest)",
            found=f"{classes[first, 1:].tolist()}, and {len(wrong)} of {len(rows)} rows differ",
            remedy=_REMEDY,
        )
    images = read_npz_rows(
        path, "imgs", rows, shape=(grid.n_rows, 64, 64), kinds="u", remedy=_REMEDY
    )
    if images.max(initial=0) > 1:
        raise DatasetFileError(
            path,
            expected="pixels 0 and 1",
            found=f"values up to {int(images.max())}",
            remedy=_REMEDY,
        )
    return images


def _images(data_dir: Path, rows: NDArray[np.int64], standin: bool) -> NDArray[np.uint8]:
    """Images `(n, 64, 64, 1)` of 0 and 255, so that division by 255 gives the official 0 and 1."""
    if standin:
        return cached_rows(
            data_dir / "processed" / "dsprites_standin",
            {"generator": standin_dsprites.GENERATOR, "rows": rows_digest(rows)},
            lambda some: _white(standin_dsprites.render(GRID.factors_of(rows[some]))),
            shape=(len(rows), 64, 64, 1),
        )
    path = data_dir / "raw" / "dsprites" / FILE_NAME
    if not path.exists():
        raise_missing(path, "dsprites", standin="dsprites_standin")
    return cached_array(
        data_dir / "processed" / "dsprites",
        {"file": file_stamp(path), "rows": rows_digest(rows)},
        lambda: _white(read_images(path, rows)),
    )


def _white(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pixels 0 and 255 in place of 0 and 1, with a channel axis."""
    images *= np.uint8(255)
    return images[..., None]


def dsprites(
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
    """Load dSprites with the concepts and the task of the Leakage paper.

    Parameters
    ----------
    data_dir : folder with ``raw/dsprites/`` (official file) and ``processed/`` (caches)
    gamma : 0..4, how strongly the concepts depend on each other; None keeps the whole factor grid
        (737,280 images) for disentanglement scores
    scheme : ``corrected`` labels from the concepts and restricts hearts by their scale;
        ``published`` follows the authors' code, where hearts stay or go as a block and the label
        cuts positions one value earlier than the concept, so that y is no function of c from gamma
        3 on. The authors' random sets were drawn without a seed, so neither scheme gives their
        exact images.
    variant : ``incomplete`` leaves out both position concepts, ``nonlinear`` changes the task
    standin : draw the images instead of reading the official file
    rule_seed, split_seed : seeds of the restrictions and of the split; independent of training
    max_samples : random part of the images, drawn with `split_seed`; None keeps all

    Returns
    -------
    ConceptDataset with images `(n, 64, 64, 1)` uint8 of 0 and 255; `factors` are renumbered over
    the values that occur.

    Raises
    ------
    DatasetMissingError  without the official file; the message names the fetch command.
    DatasetFileError  when the file is not the official one.
    ValueError  on a gamma, scheme or variant that does not exist.
    """
    check_gamma(gamma, MAX_GAMMA)
    check_choice("scheme", scheme, ("corrected", "published"))
    check_choice("variant", variant, ("complete", "incomplete", "nonlinear"))
    rows = np.arange(GRID.n_rows) if gamma is None else _rows(gamma, scheme, rule_seed)
    rows = subset_rows(rows, max_samples, seed=split_seed)
    raw = GRID.factors_of(rows)
    c = _concepts(raw)
    label_concepts = c
    if scheme == "published":
        label_concepts = c.copy()
        label_concepts[:, 3:] = raw[:, 3:] < _PUBLISHED_POSITION_CUT
    y = dsprites_task(label_concepts, nonlinear=variant == "nonlinear")
    names: tuple[str, ...] = CONCEPT_NAMES
    if variant == "incomplete":
        c, names = remove_concepts(c, names, _INCOMPLETE_REMOVES)
    factors, sizes = reindexed_factors(raw)
    images = _images(Path(data_dir), rows, standin)
    parts = ["dsprites", "full" if gamma is None else f"g{gamma}"]
    parts += [scheme] if scheme == "published" else []
    parts += [variant] if variant != "complete" else []
    parts += ["standin"] if standin else []
    return ConceptDataset(
        name="_".join(parts),
        x=images,
        c=c,
        y=y,
        concept_names=names,
        class_names=tuple(f"class_{i}" for i in range(DSPRITES_CLASSES)),
        splits=every_eighth_split(len(rows), split_seed=split_seed),
        standin=standin,
        factors=factors,
        factor_names=GRID.names,
        factor_sizes=sizes,
        factor_kinds=GRID.kinds,
        notes=("Drawn stand-in for dSprites; nearly pixel-exact.",) if standin else (),
        content_digest=mapped_digest(
            images, standin_dsprites.GENERATOR if standin else "official", rows_digest(rows)
        ),
    )
