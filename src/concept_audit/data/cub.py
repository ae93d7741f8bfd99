"""CUB-200-2011: 11,788 birds of 200 species with binary attributes as concepts.

Official archive, unpacked: ``data/raw/cub/CUB_200_2011/`` and ``data/raw/cub/attributes.txt``
(``concept-audit fetch data=cub``). The concepts come from the official text files by our own
parser, never from pickles. Preparation after Koh et al. (2020): every image takes the majority
vector of its class on the training images; 112 attributes are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from concept_audit.data.base import ConceptDataset
from concept_audit.data.cub_attributes import ATTRIBUTE_NAMES, SELECTED_POSITIONS, group_of
from concept_audit.data.files import DatasetFileError, raise_missing
from concept_audit.data.image_files import ImageFiles, decoded_images
from concept_audit.data.selection import check_choice
from concept_audit.data.standins import cub as standin_cub

__all__ = ["CubTables", "class_majority", "cub", "frequent_attributes", "read_tables"]

_REMEDY = "Run: concept-audit fetch data=cub"
_NOT_VISIBLE = 1  # certainties.txt: 1 not visible, 2 guessing, 3 probably, 4 definitely
_MIN_CLASS_COUNT = 10  # Koh et al.: kept if the majority label of at least 10 classes


@dataclass(frozen=True)
class CubTables:
    """The official text files as arrays; rows are images in the order of images.txt.

    Attributes
    ----------
    paths : path of each image below ``images/``
    labels : class index from 0
    is_train : official split
    class_names : species, without the number
    attribute_names : in the order of attributes.txt
    present, certainty : (n, a) label 0 or 1 and certainty 1..4 of each attribute
    """

    paths: tuple[str, ...]
    labels: NDArray[np.int64]
    is_train: NDArray[np.bool_]
    class_names: tuple[str, ...]
    attribute_names: tuple[str, ...]
    present: NDArray[np.int8]
    certainty: NDArray[np.int8]


def _fault(path: Path, expected: str, found: str) -> DatasetFileError:
    return DatasetFileError(path, expected=expected, found=found, remedy=_REMEDY)


def _numbered(path: Path) -> list[str]:
    """Second fields of lines "<1, 2, 3 ...> <text>"."""
    if not path.exists():
        raise _fault(path, "a file of the official archive", "no file")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise _fault(path, "UTF-8 text", f"damage ({error})") from None
    values = []
    for number, line in enumerate((line for line in lines if line.strip()), start=1):
        first, _, rest = line.strip().partition(" ")
        if first != str(number) or not rest:
            raise _fault(path, f"'{number} <value>' as entry {number}", repr(line))
        values.append(rest)
    if not values:
        raise _fault(path, "at least one entry", "none")
    return values


def _integers(path: Path, n: int, low: int, high: int, why: str = "") -> NDArray[np.int64]:
    values = _numbered(path)
    numbers = np.array([int(v) if v.isdecimal() and len(v) < 10 else low - 1 for v in values])
    wrong = np.flatnonzero((numbers < low) | (numbers > high))
    if len(values) != n or len(wrong):
        found = f"{len(values)} entries"
        if len(wrong):
            found += f", {values[wrong[0]]!r} in entry {wrong[0] + 1}"
        raise _fault(path, f"{n} numbers from {low} to {high}{why}", found)
    return numbers


def _attributes(path: Path, n_images: int, n_attributes: int) -> tuple[NDArray[np.int8], ...]:
    """Labels and certainties `(n, a)`; some official lines have extra columns at the end."""
    if not path.exists():
        raise _fault(path, "a file of the official archive", "no file")
    if not path.stat().st_size:  # numpy makes a warning of it
        raise _fault(path, f"{n_images * n_attributes} lines", "an empty file")
    try:
        table = np.loadtxt(path, dtype=np.int64, usecols=(0, 1, 2, 3), ndmin=2, comments=None)
    except (ValueError, UnicodeDecodeError) as error:
        raise _fault(
            path, "lines '<image> <attribute> <0|1> <certainty> ...'", str(error)
        ) from None
    image, attribute, label, certainty = table.T
    for name, column, high, low in (
        ("image", image, n_images, 1),
        ("attribute", attribute, n_attributes, 1),
        ("label", label, 1, 0),
        ("certainty", certainty, 4, 1),
    ):
        wrong = np.flatnonzero((column < low) | (column > high))
        if len(wrong):
            raise _fault(
                path, f"{name} from {low} to {high}", f"{column[wrong[0]]} in line {wrong[0] + 1}"
            )
    cell = (image - 1) * n_attributes + attribute - 1
    seen = np.bincount(cell, minlength=n_images * n_attributes)
    if (seen != 1).any():
        first = int(np.flatnonzero(seen != 1)[0])
        raise _fault(
            path,
            f"one line for each of {n_images} x {n_attributes} image-attribute pairs",
            f"{int((seen == 0).sum())} missing and {int((seen > 1).sum())} repeated, first image "
            f"{first // n_attributes + 1}, attribute {first % n_attributes + 1}",
        )
    present = np.empty(n_images * n_attributes, dtype=np.int8)
    sure = np.empty_like(present)
    present[cell], sure[cell] = label, certainty
    return present.reshape(n_images, -1), sure.reshape(n_images, -1)


def read_tables(root: str | Path) -> CubTables:
    """Read the official text files below `root`.

    Raises
    ------
    DatasetMissingError  when there is no archive at all; the message names the fetch command.
    DatasetFileError  on a missing or inconsistent file: wrong counts, classes or attributes that do
    not exist, repeated images, a path that leads out of the folder.
    """
    folder = Path(root)
    base = folder if (folder / "images.txt").exists() else folder / "CUB_200_2011"
    if not (base / "images.txt").exists():
        raise_missing(base / "images.txt", "cub", standin="cub_standin")
    paths = _numbered(base / "images.txt")
    odd = [p for p in paths if PurePosixPath(p).is_absolute() or ".." in PurePosixPath(p).parts]
    if odd or len(set(paths)) != len(paths):
        wrong = odd or [path for path in paths if paths.count(path) > 1]
        raise _fault(base / "images.txt", "different paths inside images/", f"{wrong[0]!r}")
    classes = _numbered(base / "classes.txt")
    class_names = tuple(name.partition(".")[2] or name for name in classes)
    if len(set(class_names)) != len(class_names):
        repeated = next(name for name in class_names if class_names.count(name) > 1)
        raise _fault(base / "classes.txt", "different species", f"{repeated!r} twice")
    labels = _integers(
        base / "image_class_labels.txt", len(paths), 1, len(classes), " (as classes.txt has)"
    )
    labels -= 1
    is_train = _integers(base / "train_test_split.txt", len(paths), 0, 1) == 1
    places = (folder, base, base / "attributes")
    listed = next((p / "attributes.txt" for p in places if (p / "attributes.txt").exists()), None)
    if listed is None:
        raise _fault(
            folder / "attributes.txt",
            "attributes.txt beside CUB_200_2011/ or in its attributes/ folder",
            "no file in any of these places",
        )
    names = _numbered(listed)
    if len(set(names)) != len(names):
        raise _fault(
            listed, "different attribute names", f"{len(names) - len(set(names))} repeated"
        )
    present, certainty = _attributes(
        base / "attributes" / "image_attribute_labels.txt", len(paths), len(names)
    )
    return CubTables(
        paths=tuple(paths),
        labels=labels,
        is_train=is_train,
        class_names=class_names,
        attribute_names=tuple(names),
        present=present,
        certainty=certainty,
    )


def class_majority(tables: CubTables) -> NDArray[np.int64]:
    """Majority label `(classes, a)` on the official training images.

    Labels 0 with certainty "not visible" are left out; ties, and attributes without any counted
    label, count as 1 (Koh et al., 2020).
    """
    rows = np.flatnonzero(tables.is_train)
    present = tables.present[rows].astype(np.int64)
    absent = (1 - present) * (tables.certainty[rows] != _NOT_VISIBLE)
    shape = (len(tables.class_names), len(tables.attribute_names))
    ones, zeros = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    np.add.at(ones, tables.labels[rows], present)
    np.add.at(zeros, tables.labels[rows], absent)
    return (ones >= zeros).astype(np.int64)


def frequent_attributes(
    majority: NDArray[np.int64], *, min_class_count: int = _MIN_CLASS_COUNT
) -> NDArray[np.int64]:
    """Positions of the attributes that are 1 in at least `min_class_count` classes."""
    return np.flatnonzero(majority.sum(axis=0) >= min_class_count)


def _some(names: list[str]) -> str:
    """The first five of some names, and how many more there are."""
    shown = ", ".join(names[:5]) or "none"
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _selected(
    tables: CubTables,
    majority: NDArray[np.int64],
    selection: str,
    min_class_count: int,
    root: Path,
    *,
    standin: bool,
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Positions of the concepts, and a note where rule and published list differ."""
    by_rule = frequent_attributes(majority, min_class_count=min_class_count)
    if selection == "rule":
        if not len(by_rule):
            raise ValueError(
                f"min_class_count={min_class_count} leaves no attribute; the most frequent one is "
                f"present in {int(majority.sum(axis=0).max())} classes. Choose a smaller number."
            )
        return by_rule, ()
    if tables.attribute_names != ATTRIBUTE_NAMES:
        differing = next(
            (pair for pair in zip(tables.attribute_names, ATTRIBUTE_NAMES, strict=False)
             if pair[0] != pair[1]),
            (len(tables.attribute_names), len(ATTRIBUTE_NAMES)),
        )  # fmt: skip
        raise _fault(
            root / "attributes.txt",
            f"the 312 official attributes in order, for example {differing[1]!r}",
            f"{differing[0]!r}",
        )
    published = np.array(SELECTED_POSITIONS)
    lost = [ATTRIBUTE_NAMES[i] for i in np.setdiff1d(published, by_rule)]
    gained = [ATTRIBUTE_NAMES[i] for i in np.setdiff1d(by_rule, published)]
    if not lost and not gained:
        return published, ()
    difference = (
        f"the rule (majority in at least {min_class_count} classes) lacks {_some(lost)} of the "
        f"published 112 and adds {_some(gained)}"
    )
    if selection == "checked" and standin:
        raise ValueError(
            f"selection=checked is for the official files: {difference}, as the attributes of the "
            "drawn birds are made up. Use selection=rule or published for the stand-in."
        )
    if selection == "checked":
        raise _fault(
            root, "attribute files from which the rule gives the published 112", difference
        )
    return published, (f"Published selection used; {difference}.",)


def _kept_groups(
    positions: NDArray[np.int64], names: tuple[str, ...], n_groups: int | None, seed: int
) -> NDArray[np.int64]:
    """Positions in a random choice of attribute groups, for incomplete concept sets."""
    groups = sorted({group_of(names[i]) for i in positions})
    if n_groups is None:
        return positions
    if not 1 <= n_groups <= len(groups):
        raise ValueError(f"n_groups must be 1..{len(groups)}, or null for all, got {n_groups}.")
    order = np.random.default_rng(seed).permutation(len(groups))
    kept = {groups[i] for i in order[:n_groups]}
    return np.array([i for i in positions if group_of(names[i]) in kept])


def cub(
    *,
    data_dir: str | Path = "data",
    standin: bool = False,
    selection: Literal["published", "checked", "rule"] = "published",
    min_class_count: int = _MIN_CLASS_COUNT,
    labels: Literal["class", "image"] = "class",
    n_groups: int | None = None,
    image_size: int = 299,
    crop: Literal["scaled", "centre"] = "centre",
    keep_decoded: bool = True,
    split_seed: int = 42,
    max_samples: int | None = None,
) -> ConceptDataset:
    """Load CUB-200-2011 with attributes as concepts and the species as task.

    Parameters
    ----------
    data_dir : folder with ``raw/cub/`` (official archive, unpacked) and ``processed/`` (caches)
    standin : a drawn miniature in the official layout, made on first use
    selection : ``published`` keeps the 112 attributes of Koh et al. and notes where the rule gives
        others; ``checked`` raises then; ``rule`` keeps what the rule gives
    min_class_count : of the rule
    labels : ``class`` gives every image the majority vector of its class; ``image`` keeps each
        image's own annotation
    n_groups : keep this many attribute groups, drawn with `split_seed`; None keeps all 28
    image_size, crop : centre 299 pixels as in the CEM code; the Leakage paper does not say
    keep_decoded : keep the decoded images under ``processed/`` (3.2 GB at 299 pixels)
    split_seed : draws 20 % of the official training images, sorted, for validation
    max_samples : first part of a seeded permutation of the images; None keeps all

    Returns
    -------
    ConceptDataset with images `(n, image_size, image_size, 3)` uint8, groups of concepts by
    attribute name, normalised by mean 0.5 and standard deviation 2 as in the CEM code.

    Raises
    ------
    DatasetMissingError  without the archive; the message names the fetch command.
    DatasetFileError  when a file is missing, damaged or not the official one.
    """
    check_choice("selection", selection, ("published", "checked", "rule"))
    check_choice("labels", labels, ("class", "image"))
    folder = Path(data_dir)
    root = folder / "raw" / "cub"
    if standin:
        root = standin_cub.ensure_miniature(folder / "processed" / "cub_standin")
    tables = read_tables(root)
    majority = class_majority(tables)
    positions, notes = _selected(
        tables, majority, selection, min_class_count, root, standin=standin
    )
    positions = _kept_groups(positions, tables.attribute_names, n_groups, split_seed)
    rows = np.arange(len(tables.paths))
    if max_samples is not None and max_samples < len(rows):
        rows = np.sort(np.random.default_rng(split_seed).permutation(len(rows))[:max_samples])
    y = tables.labels[rows]
    c = majority[y] if labels == "class" else tables.present[rows].astype(np.int64)
    names = tuple(tables.attribute_names[i] for i in positions)
    base = root if (root / "images.txt").exists() else root / "CUB_200_2011"
    files = ImageFiles(
        [base / "images" / tables.paths[row] for row in rows],
        size=image_size,
        crop=crop,
        remedy=_REMEDY,
    )
    suffix = [] if n_groups is None else ["incomplete"]
    images = decoded_images(files, folder / "processed" / "cub", keep=keep_decoded)
    return ConceptDataset(
        name="_".join(["cub", *suffix, *(["standin"] if standin else [])]),
        x=images,
        c=c[:, positions],
        y=y,
        concept_names=names,
        concept_groups={
            group: tuple(i for i, name in enumerate(names) if group_of(name) == group)
            for group in dict.fromkeys(map(group_of, names))
        },
        class_names=tables.class_names,
        splits=_splits(tables, rows, split_seed),
        standin=standin,
        mean=(0.5, 0.5, 0.5),
        std=(2.0, 2.0, 2.0),
        notes=(
            *notes,
            *(
                ("Drawn miniature in the layout of CUB-200-2011; no photograph.",)
                if standin
                else ()
            ),
        ),
        content_digest=None if type(images) is np.ndarray else files.digest(),
    )


def _splits(
    tables: CubTables, rows: NDArray[np.int64], split_seed: int
) -> dict[str, NDArray[np.int64]]:
    """Official test images; 20 % of the official training images, sorted, for validation."""
    official = np.flatnonzero(tables.is_train[rows])
    ordered = official[np.argsort([tables.paths[rows[i]] for i in official], kind="stable")]
    shuffled = np.random.default_rng(split_seed).permutation(ordered)
    n_val = int(0.2 * len(ordered))
    return {
        "train": np.sort(shuffled[n_val:]),
        "val": np.sort(shuffled[:n_val]),
        "test": np.flatnonzero(~tables.is_train[rows]),
    }
