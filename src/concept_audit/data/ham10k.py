"""HAM10000: skin lesions, benign or malignant, with 18 concepts from a file of the user.

Official files: ``data/raw/ham10k/HAM10000_metadata.csv`` and the JPEG files in
``HAM10000_images_part_1/``, ``HAM10000_images_part_2/`` or ``images/`` (``concept-audit fetch
data=ham10k`` says how to get them). The concept annotations behind the Leakage paper have no public
source that we found; their names match the annotated subset of Chanda et al. (2024). Put them into
``data/raw/ham10k/concepts.csv`` with the columns ``image_id``, ``benign_malignant`` and one 0/1
column per concept. Without that file the set has task labels only.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from concept_audit.data.base import ConceptDataset
from concept_audit.data.files import DatasetFileError, raise_missing
from concept_audit.data.image_files import ImageFiles, decoded_images
from concept_audit.data.selection import check_choice
from concept_audit.data.standins import ham10k as standin_ham10k

__all__ = [
    "CONCEPT_MEANINGS",
    "CONCEPT_NAMES",
    "MALIGNANT",
    "ham10k",
    "read_concepts",
    "read_metadata",
]

CONCEPT_MEANINGS = standin_ham10k.CONCEPT_MEANINGS
CONCEPT_NAMES: tuple[str, ...] = tuple(CONCEPT_MEANINGS)
METADATA_NAME = "HAM10000_metadata.csv"
MALIGNANT = ("mel", "bcc", "akiec")
_BENIGN = ("nv", "bkl", "vasc", "df")
_CLASS_NAMES = ("benign", "malignant")
_IMAGE_FOLDERS = ("HAM10000_images_part_1", "HAM10000_images_part_2", "images")
_REMEDY = "Run: concept-audit fetch data=ham10k"
_SCHEMA = (
    "The file needs the columns image_id, benign_malignant (benign | malignant) and one column of "
    "0 and 1 per concept; name other concepts by concept_names."
)
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _table(path: Path, required: Sequence[str], remedy: str) -> list[dict[str, str]]:
    """Rows of a CSV file with at least the required columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            columns = [name.strip() for name in reader.fieldnames or []]
            missing = [name for name in required if name not in columns]
            if missing or len(set(columns)) != len(columns):
                raise DatasetFileError(
                    path,
                    expected=f"the columns {list(required)}, each once",
                    found=f"{columns}; missing {missing}",
                    remedy=remedy,
                )
            reader.fieldnames = columns
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DatasetFileError(
            path, expected="UTF-8 CSV", found=f"damage ({error})", remedy=remedy
        ) from None
    if not rows:
        raise DatasetFileError(path, expected="at least one row", found="none", remedy=remedy)
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():  # where csv puts what is too much or too little
            raise DatasetFileError(
                path,
                expected=f"{len(columns)} values in every line",
                found=f"{'more' if None in row else 'fewer'} in line {number}",
                remedy=remedy,
            )
    return rows


def _unique_ids(path: Path, rows: list[dict[str, str]], remedy: str) -> list[str]:
    ids = [(row["image_id"] or "").strip() for row in rows]
    seen: set[str] = set()
    for number, value in enumerate(ids, start=2):
        if not value or value in seen or Path(value).name != value:
            raise DatasetFileError(
                path,
                expected="a different plain image_id in every line",
                found=f"{value!r} in line {number}",
                remedy=remedy,
            )
        seen.add(value)
    return ids


def read_metadata(path: str | Path) -> tuple[list[str], list[str], NDArray[np.int64]]:
    """Image names, lesion names and labels (1 malignant: mel, bcc, akiec) of the official CSV.

    Raises
    ------
    DatasetFileError  on missing columns, repeated images or a diagnosis that is not one of seven.
    """
    file = Path(path)
    rows = _table(file, ("lesion_id", "image_id", "dx"), _REMEDY)
    ids = _unique_ids(file, rows, _REMEDY)
    labels = []
    for number, row in enumerate(rows, start=2):
        if not row["lesion_id"].strip():
            raise DatasetFileError(
                file,
                expected="a lesion_id in every line, by which the images are split",
                found=f"none in line {number}",
                remedy=_REMEDY,
            )
        diagnosis = (row["dx"] or "").strip()
        if diagnosis not in MALIGNANT + _BENIGN:
            raise DatasetFileError(
                file,
                expected=f"dx among {sorted(MALIGNANT + _BENIGN)}",
                found=f"{diagnosis!r} in line {number}",
                remedy=_REMEDY,
            )
        labels.append(int(diagnosis in MALIGNANT))
    return ids, [(row["lesion_id"] or "").strip() for row in rows], np.array(labels)


def read_concepts(
    path: str | Path, concept_names: Sequence[str] = CONCEPT_NAMES
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Image names, concepts `(n, k)` and labels of the user's CSV, checked cell by cell.

    Raises
    ------
    DatasetFileError  on missing columns, repeated images, or a cell that is neither 0 nor 1.
    """
    file = Path(path)
    rows = _table(file, ("image_id", "benign_malignant", *concept_names), _SCHEMA)
    ids = _unique_ids(file, rows, _SCHEMA)
    concepts = np.empty((len(rows), len(concept_names)), dtype=np.int64)
    labels = np.empty(len(rows), dtype=np.int64)
    truth = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}
    for number, row in enumerate(rows):
        label = (row["benign_malignant"] or "").strip().lower()
        if label not in _CLASS_NAMES:
            raise DatasetFileError(
                file,
                expected=f"benign_malignant among {list(_CLASS_NAMES)}",
                found=f"{label!r} in line {number + 2}",
                remedy=_SCHEMA,
            )
        labels[number] = _CLASS_NAMES.index(label)
        for position, name in enumerate(concept_names):
            value = truth.get((row[name] or "").strip().lower())
            if value is None:
                raise DatasetFileError(
                    file,
                    expected=f"0 or 1 in column {name!r}",
                    found=f"{row[name]!r} in line {number + 2} ({ids[number]})",
                    remedy=_SCHEMA,
                )
            concepts[number, position] = value
    return ids, concepts, labels


def _image_paths(root: Path, ids: Sequence[str]) -> list[Path]:
    """Files of the images; one that lies in none of the usual folders is an error."""
    folders = [root / name for name in _IMAGE_FOLDERS if (root / name).is_dir()] or [root]
    found: dict[str, Path] = {}
    for folder in folders:
        for path in folder.iterdir():
            if path.suffix.lower() in (".jpg", ".jpeg"):
                other = found.setdefault(path.stem, path)
                if other.stat().st_size != path.stat().st_size:
                    raise DatasetFileError(
                        path,
                        expected="one picture of each name",
                        found=f"another one in {other}",
                        remedy="Delete the wrong one.",
                    )
    missing = [name for name in ids if name not in found]
    if missing:
        raise DatasetFileError(
            root,
            expected=f"{len(ids)} images in {list(_IMAGE_FOLDERS)}",
            found=f"{len(missing)} missing, for example {missing[0]}.jpg",
            remedy=_REMEDY,
        )
    return [found[name] for name in ids]


def _splits(lesions: Sequence[str], by: str, split_seed: int) -> dict[str, NDArray[np.int64]]:
    """70/10/20 parts of the images; with ``lesion`` all images of a lesion fall into one part."""
    names = list(lesions) if by == "lesion" else [str(i) for i in range(len(lesions))]
    units, unit = np.unique(names, return_inverse=True)
    order = np.random.default_rng(split_seed).permutation(len(units))
    counts = np.bincount(unit)[order]
    reached = (np.cumsum(counts) - counts / 2) / counts.sum()
    part = np.empty(len(units), dtype=np.int64)
    part[order] = np.digitize(reached, [0.2, 0.3])
    of_image = part[unit]
    return {
        name: np.flatnonzero(of_image == i) for name, i in (("train", 2), ("val", 1), ("test", 0))
    }


def ham10k(
    *,
    data_dir: str | Path = "data",
    concept_file: str | Path | None = None,
    concept_names: Sequence[str] = CONCEPT_NAMES,
    standin: bool = False,
    split_by: Literal["lesion", "image"] = "lesion",
    n_concepts: int | None = None,
    image_size: int = 224,
    keep_decoded: bool = True,
    split_seed: int = 42,
    max_samples: int | None = None,
) -> ConceptDataset:
    """Load HAM10000 with benign or malignant as task and the annotated concepts of a CSV file.

    Parameters
    ----------
    data_dir : folder with ``raw/ham10k/`` (official files) and ``processed/`` (caches)
    concept_file : CSV with image_id, benign_malignant and concept columns; None looks for
        ``raw/ham10k/concepts.csv`` and, without it, gives task labels only
    concept_names : columns to use as concepts
    standin : a drawn miniature in the official layout, made on first use
    split_by : ``lesion`` keeps all images of a lesion in one split, since several images show the
        same lesion; ``image`` lets them fall apart, which leaks
    n_concepts : keep this many concepts, drawn with `split_seed`; None keeps all
    image_size : pixels along an edge, the centre square scaled
    keep_decoded : keep the decoded images under ``processed/`` (1.5 GB for all at 224 pixels)
    split_seed : of the 70/10/20 split
    max_samples : random part of the images; None keeps all

    Returns
    -------
    ConceptDataset with images `(n, image_size, image_size, 3)` uint8 and ImageNet normalisation.

    Raises
    ------
    DatasetMissingError  without the official files; the message names the fetch command.
    DatasetFileError  when a file is not what it should be.
    """
    check_choice("split_by", split_by, ("lesion", "image"))
    folder = Path(data_dir)
    root = folder / "raw" / "ham10k"
    if standin:
        root = standin_ham10k.ensure_miniature(folder / "processed" / "ham10k_standin")
    if not (root / METADATA_NAME).exists():
        raise_missing(root / METADATA_NAME, "ham10k", standin="ham10k_standin")
    ids, lesions, labels = read_metadata(root / METADATA_NAME)
    names = tuple(concept_names)
    listed = Path(concept_file) if concept_file is not None else root / "concepts.csv"
    notes: list[str] = []
    if listed.exists():
        wanted, c, y = read_concepts(listed, names)
        position = {name: i for i, name in enumerate(ids)}
        unknown = [name for name in wanted if name not in position]
        if unknown:
            raise DatasetFileError(
                listed,
                expected=f"images of {METADATA_NAME}",
                found=f"{len(unknown)} others, for example {unknown[0]!r}",
                remedy=_SCHEMA,
            )
        lesions = [lesions[position[name]] for name in wanted]
        ids = wanted
    elif concept_file is not None:
        raise DatasetFileError(
            listed, expected="a CSV of concept annotations", found="no file", remedy=_SCHEMA
        )
    else:
        c, y, names = np.zeros((len(ids), 0), dtype=np.int64), labels, ()
        notes.append("No concept annotations: task labels only (malignant = mel, bcc, akiec).")
    rows = np.arange(len(ids))
    if max_samples is not None and max_samples < len(rows):
        rows = np.sort(np.random.default_rng(split_seed).permutation(len(rows))[:max_samples])
    kept = _kept_concepts(len(names), n_concepts, split_seed)
    files = ImageFiles(
        _image_paths(root, [ids[row] for row in rows]), size=image_size, remedy=_REMEDY
    )
    images = decoded_images(files, folder / "processed" / "ham10k", keep=keep_decoded)
    parts = ["ham10k"] + ["incomplete"] * (n_concepts is not None) + ["standin"] * standin
    if standin:
        notes.append("Drawn miniature in the layout of HAM10000; no photograph.")
    return ConceptDataset(
        name="_".join(parts),
        x=images,
        c=c[rows][:, kept],
        y=y[rows],
        concept_names=tuple(names[i] for i in kept),
        class_names=_CLASS_NAMES,
        splits=_splits([lesions[row] for row in rows], split_by, split_seed),
        standin=standin,
        mean=_IMAGENET_MEAN,
        std=_IMAGENET_STD,
        notes=tuple(notes),
        content_digest=None if type(images) is np.ndarray else files.digest(),
    )


def _kept_concepts(available: int, n_concepts: int | None, seed: int) -> list[int]:
    """Columns of a random subset of the concepts, in their order."""
    if n_concepts is None:
        return list(range(available))
    if not 1 <= n_concepts <= available:
        raise ValueError(f"n_concepts must be 1..{available}, or null for all, got {n_concepts}.")
    return sorted(np.random.default_rng(seed).permutation(available)[:n_concepts].tolist())
