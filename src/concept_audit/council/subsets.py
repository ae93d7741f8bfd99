"""The fixed images of a benchmark: one image for each of 100 classes, fair to every model.

CBX-Bench, section 3.1: 100 classes at random, one image each; the first seed is kept for which
every model's accuracy lies within two points of its accuracy on the full test set.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from concept_audit.arrays import as_labels, check_same_rows
from concept_audit.store.atomic import write_json

__all__ = ["SubsetImage", "SubsetManifest", "choose_subset", "first_fair_seed", "read_manifest"]

MANIFEST_VERSION = 1


@dataclass(frozen=True)
class SubsetImage:
    """One image of a subset."""

    image_id: str
    class_name: str
    sha256: str | None = None  # of the image file, where there is one


@dataclass(frozen=True)
class SubsetManifest:
    """Identity of a benchmark subset: the images, not the seed that found them."""

    dataset: str
    seed: int
    images: tuple[SubsetImage, ...]
    class_names: tuple[str, ...]  # every class a model may predict
    full_accuracy: dict[str, float] = field(default_factory=dict)  # in points, 0 to 100
    subset_accuracy: dict[str, float] = field(default_factory=dict)
    tolerance_points: float = 2.0
    version: int = MANIFEST_VERSION

    @property
    def sha256(self) -> str:
        """Hash of dataset, images and classes; seeds and accuracies do not enter."""
        content = [self.dataset, [asdict(image) for image in self.images], list(self.class_names)]
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def write(self, path: str | Path) -> None:
        """Write the manifest as JSON."""
        write_json(path, {**asdict(self), "sha256": self.sha256})


def read_manifest(path: str | Path) -> SubsetManifest:
    """Read a manifest and check it against the hash it carries.

    Raises
    ------
    ValueError  when the file is no manifest or was changed after it was written.
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        record: dict[str, Any] = json.loads(text)
        stated = record.pop("sha256")
        record["images"] = tuple(SubsetImage(**image) for image in record["images"])
        record["class_names"] = tuple(record["class_names"])
        manifest = SubsetManifest(**record)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is no subset manifest: {type(error).__name__} {error}.") from None
    if manifest.sha256 != stated:
        raise ValueError(
            f"{path} was changed: its content hashes to {manifest.sha256[:12]}, it states "
            f"{str(stated)[:12]}. Take the published manifest again."
        )
    return manifest


def _points(value: float | str | Fraction) -> Fraction:
    """Percentage points as the decimal number that was written, free of binary rounding."""
    return value if isinstance(value, Fraction) else Fraction(str(value))


def first_fair_seed(
    full_accuracy: Mapping[str, float | str | Fraction],
    candidates: Iterable[tuple[int, Mapping[str, float | str | Fraction]]],
    *,
    tolerance_points: float = 2.0,
) -> int:
    """First seed whose subset is within the tolerance for every model, bound included.

    Parameters
    ----------
    full_accuracy : accuracy of each model on the full test set, in points (0 to 100)
    candidates : pairs of seed and accuracy of each model on that seed's subset, in points
    tolerance_points : the paper's is 2

    Returns
    -------
    The seed.

    Raises
    ------
    ValueError  when none is accepted; the message names the nearest seed and the model that missed.
    """
    full = {model: _points(value) for model, value in full_accuracy.items()}
    if not full:
        raise ValueError("full_accuracy must name at least one model, got none.")
    bound = _points(tolerance_points)
    tried, nearest = 0, None
    for seed, accuracy in candidates:
        tried += 1
        gaps = {model: abs(_points(accuracy[model]) - value) for model, value in full.items()}
        model = max(gaps, key=lambda name: gaps[name])
        if gaps[model] <= bound:
            return seed
        if nearest is None or gaps[model] < nearest[1]:
            nearest = (seed, gaps[model], model)
    if nearest is None:
        raise ValueError("candidates must hold at least one seed, got none.")
    raise ValueError(
        f"no seed of {tried} keeps every model within {float(bound):g} points of its full "
        f"accuracy; the nearest is seed {nearest[0]}, where {nearest[2]} is off by "
        f"{float(nearest[1]):.2f}. "
        "Raise max_seeds or tolerance_points, or take more classes."
    )


def choose_subset(
    dataset: str,
    image_ids: Sequence[str],
    y: ArrayLike,
    predictions: Mapping[str, ArrayLike],
    class_names: Sequence[str],
    *,
    n_classes: int = 100,
    tolerance_points: float = 2.0,
    max_seeds: int = 10_000,
    image_sha256: Mapping[str, str] | None = None,
) -> SubsetManifest:
    """Draw one image for each of `n_classes` classes so that no model is favoured.

    Parameters
    ----------
    dataset : name written into the manifest
    image_ids : n names of the test images, all different
    y : Int[ndarray, "n"]   annotated classes
    predictions : predicted classes `(n,)` per model; each model must pass the condition
    class_names : name per class index
    n_classes : the paper's is 100
    tolerance_points : largest allowed difference to the full accuracy, bound included
    max_seeds : seeds 0, 1, 2, ... tried; about twenty suffice for three models
    image_sha256 : hash of each image file, for the manifest

    Returns
    -------
    SubsetManifest of the first accepted seed.

    Raises
    ------
    ValueError  when too few classes have images, names repeat, or no seed is accepted.

    Notes
    -----
    CBX-Bench, section 3.1. The paper does not state generator or first seed: numpy's default one
    and 0 are ours. Accuracies are compared as exact fractions.
    """
    labels = as_labels("y", y)
    ids = np.asarray(list(image_ids), dtype=str)
    if len(set(ids.tolist())) != ids.size:
        raise ValueError("image_ids must all differ, got repeated names.")
    guesses = {name: as_labels(f"predictions[{name!r}]", p) for name, p in predictions.items()}
    check_same_rows(image_ids=ids, y=labels, **guesses)
    if not guesses:
        raise ValueError("predictions must hold at least one model, got none.")
    if labels.min() < 0 or labels.max() >= len(class_names):
        raise ValueError(
            f"class_names must name every class: y goes up to {labels.max()}, "
            f"got {len(class_names)} names."
        )
    members = {
        int(c): sorted(np.flatnonzero(labels == c), key=lambda i: ids[i]) for c in np.unique(labels)
    }
    if len(members) < n_classes:
        raise ValueError(
            f"n_classes must not exceed the {len(members)} classes with images, got {n_classes}."
        )
    correct = {name: guess == labels for name, guess in guesses.items()}
    full = {name: Fraction(100 * int(hit.sum()), hit.size) for name, hit in correct.items()}

    def draw(seed: int) -> list[int]:
        rng = np.random.default_rng(seed)
        classes = rng.choice(sorted(members), n_classes, replace=False)
        return [int(rng.choice(members[int(c)])) for c in classes]

    def accuracy(chosen: Sequence[int]) -> dict[str, Fraction]:
        return {
            name: Fraction(100 * int(hit[chosen].sum()), n_classes) for name, hit in correct.items()
        }

    seed = first_fair_seed(
        full,
        ((seed, accuracy(draw(seed))) for seed in range(max_seeds)),
        tolerance_points=tolerance_points,
    )
    chosen = draw(seed)
    hashes = image_sha256 or {}
    return SubsetManifest(
        dataset=dataset,
        seed=seed,
        images=tuple(
            SubsetImage(str(ids[i]), class_names[labels[i]], hashes.get(str(ids[i])))
            for i in chosen
        ),
        class_names=tuple(class_names),
        full_accuracy={name: float(value) for name, value in full.items()},
        subset_accuracy={name: float(value) for name, value in accuracy(chosen).items()},
        tolerance_points=tolerance_points,
    )
