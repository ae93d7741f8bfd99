"""What a council judges: explanations of all models on one balanced subset of each data set."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concept_audit.council.importers import ActivationTable, table_from_linear_cbm
from concept_audit.council.intake import items_from_table
from concept_audit.council.judges.base import JudgeImage, JudgeItem
from concept_audit.council.sparsity import (
    number_of_contributing_concepts,
    number_of_effective_concepts,
)
from concept_audit.council.subsets import SubsetManifest, choose_subset
from concept_audit.pipeline.predict import restore
from concept_audit.pipeline.resume import dataset_of
from concept_audit.pipeline.runs import StoredRun

__all__ = ["JudgedSet", "balanced_subset", "judged_set", "model_name"]

# DEVIATION: a few dozen test images a class cannot always keep every model within the paper's two
# points of its full accuracy, so wider bounds are tried in turn; the manifest states the one used.
_TOLERANCES = (2.0, 5.0, 10.0, 20.0, 100.0)
_SEEDS_TRIED = 300


@dataclass(frozen=True)
class JudgedSet:
    """Explanations of one data set."""

    name: str
    manifest: SubsetManifest
    rows: NDArray[np.int64]  # of the manifest's images in the test bundle
    tables: dict[str, ActivationTable]  # per model, of those rows
    items: list[JudgeItem]
    c: NDArray[np.int64]
    concept_names: tuple[str, ...]
    confidence: dict[tuple[str, str, str], float]  # probability of the annotated class
    entries: dict[str, dict[str, float]]  # model -> accuracy, nec, ncc95

    @property
    def image_ids(self) -> list[str]:
        """Names of the chosen images, in the order of `rows`."""
        return [image.image_id for image in self.manifest.images]


def model_name(run: StoredRun) -> str:
    """Name of a run's model on the board, such as `cbm_soft_lambda0.1`."""
    weight = run.identity["lambda_concept"]
    suffix = "" if weight is None else f"_lambda{weight:g}"
    return f"cbm_{run.encoding}{suffix}"


def balanced_subset(
    dataset: str,
    image_ids: Sequence[str],
    y: NDArray[np.int64],
    predictions: Mapping[str, NDArray[np.int64]],
    class_names: Sequence[str],
    *,
    n_images: int,
) -> SubsetManifest:
    """As many images of each class as fit into `n_images`, fair to every model.

    Where there are fewer classes than images, the images of a class are dealt into equal strata
    and one is drawn from each, by the rule of `choose_subset`.
    """
    labels, counts = np.unique(y, return_counts=True)
    per_class = int(max(1, min(n_images // len(labels), counts.min())))
    taken = min(len(labels), n_images)
    place = np.zeros(len(y), dtype=np.int64)
    for label in labels:
        members = np.flatnonzero(y == label)
        place[members] = np.random.default_rng(0).permutation(len(members)) % per_class
    strata = y * per_class + place
    n_strata = len(class_names) * per_class
    guesses = {
        model: np.where(guess == y, strata, (strata + 1) % max(n_strata, 2))
        for model, guess in predictions.items()
    }
    names = [name for name in class_names for _ in range(per_class)]
    for tolerance in _TOLERANCES:
        try:
            manifest = choose_subset(
                dataset,
                image_ids,
                strata,
                guesses,
                names,
                n_classes=taken * per_class,
                tolerance_points=tolerance,
                max_seeds=_SEEDS_TRIED,
            )
        except ValueError:
            if tolerance == _TOLERANCES[-1]:
                raise
            continue
        return replace(manifest, class_names=tuple(class_names))
    raise AssertionError("the last tolerance accepts every subset or raises")


def _picture(pixels: NDArray[Any]) -> JudgeImage:
    """PNG of an image as the data set holds it, `(H, W, 1 or 3)`, uint8."""
    from PIL import Image

    array = np.repeat(pixels, 3, axis=-1) if pixels.shape[-1] == 1 else pixels
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array, dtype=np.uint8)).save(buffer, format="PNG")
    return JudgeImage.from_bytes(buffer.getvalue())


def judged_set(name: str, runs: Sequence[StoredRun], n_images: int) -> JudgedSet:
    """Explanations of all models on one balanced subset."""
    whole: dict[str, ActivationTable] = {}
    for run in runs:
        arrays = run.arrays("test")
        table = table_from_linear_cbm(
            arrays["c_hat"],
            restore(run).head,
            run.concept_names,
            run.metadata["class_names"],
            y=arrays["y"],
        )
        table.check_logits(arrays["y_logits"], tolerance=1e-3)  # bundles are in single precision
        whole[model_name(run)] = table
    first = runs[0].arrays("test")
    index = np.asarray(first["index"])
    if any(not np.array_equal(run.arrays("test")["index"], index) for run in runs):
        raise ValueError(f"the runs on {name} must share their test images. Take one split seed.")
    ids = [f"{number:05d}" for number in index]
    y = np.asarray(first["y"], dtype=np.int64)
    manifest = balanced_subset(
        name,
        ids,
        y,
        {model: table.predictions for model, table in whole.items()},
        runs[0].metadata["class_names"],
        n_images=n_images,
    )
    place = {image: row for row, image in enumerate(ids)}
    rows = np.array([place[image.image_id] for image in manifest.images])
    pixels = dataset_of(runs[0].config).x[index[rows]]
    pictures = {
        image.image_id: _picture(array)
        for image, array in zip(manifest.images, pixels, strict=True)
    }
    manifest = replace(
        manifest,
        images=tuple(replace(i, sha256=pictures[i.image_id].sha256) for i in manifest.images),
    )
    tables, items, confidence, entries = {}, [], {}, {}
    for model, table in whole.items():
        part = replace(table, activations=table.activations[rows], y=y[rows])
        tables[model] = part
        chosen = [image.image_id for image in manifest.images]
        items += items_from_table(part, chosen, dataset=name, model=model, images=pictures)
        shifted = np.exp(part.logits - part.logits.max(axis=1, keepdims=True))
        probability = shifted / shifted.sum(axis=1, keepdims=True)
        for row, image in enumerate(chosen):
            confidence[name, image, model] = float(probability[row, y[rows[row]]])
        entries[model] = {
            "accuracy": table.accuracy,
            "nec": number_of_effective_concepts(table.weights),
            "ncc95": number_of_contributing_concepts(
                part.activations, part.weights, predicted_classes=part.predictions
            ),
        }
    return JudgedSet(
        name=name,
        manifest=manifest,
        rows=rows,
        tables=tables,
        items=items,
        c=np.asarray(first["c"], dtype=np.int64)[rows],
        concept_names=tuple(runs[0].concept_names),
        confidence=confidence,
        entries=entries,
    )
