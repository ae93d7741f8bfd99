"""Features of a frozen encoder in the place of images: computed once, kept by content."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concept_audit.data.base import ConceptDataset
from concept_audit.models.frozen import (
    Backbone,
    FrozenSpec,
    backbone_identity,
    backbone_in_words,
    frozen_features,
    standardised,
)

__all__ = ["FeatureDataset", "ImageRows", "features_of", "with_features"]

_ROWS_PER_BLOCK = 1024


class ImageRows:
    """Some rows of a dataset's images, read when they are asked for."""

    def __init__(self, images: Any, rows: NDArray[np.int64]) -> None:
        self._images, self._rows = images, rows
        self.shape = (len(rows), *images.shape[1:])
        self.dtype = images.dtype

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(self._images[self._rows[positions]])


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class FeatureDataset(ConceptDataset):
    """A dataset whose inputs `x` (n, d) are standardised features of its images.

    Parameters
    ----------
    shift, scale : Float32[ndarray, "d"]
        What standardised them: ``x = (features - shift) / scale``. A model trained on `x` needs
        them to read a new image.
    """

    shift: NDArray[np.float32]
    scale: NDArray[np.float32]


def features_of(
    dataset: ConceptDataset,
    backbone: Backbone,
    *,
    seed: int = 0,
    folder: str | Path | None = None,
    device: str = "cpu",
    announce: Callable[[str], None] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features of the images that belong to a split, and the rows of the dataset they belong to.

    Parameters
    ----------
    dataset : ConceptDataset
        Images with splits. Two sets of the same images share features, whatever their concepts.
    backbone, seed, folder, device, announce
        As in `frozen_features`.

    Returns
    -------
    Float32[ndarray, "used d"] and Int[ndarray, "used"], in ascending order.

    Raises
    ------
    ValueError
        When the dataset holds no images.
    """
    if not dataset.is_image:
        raise ValueError(
            f"a frozen {backbone_in_words(backbone, seed=seed)} reads images, and {dataset.name} "
            f"has rows of shape {dataset.input_shape}. Use encoder=mlp, or an image set, for "
            "example data=cub_standin."
        )
    rows = np.sort(np.concatenate(list(dataset.splits.values())))
    features = frozen_features(
        ImageRows(dataset.x, rows),
        backbone,
        seed=seed,
        folder=folder,
        content="" if folder is None else _images_digest(dataset, rows),
        device=device,
        announce=None if announce is None else lambda line: announce(f"{dataset.name}: {line}"),
    )
    return features, rows


def with_features(
    dataset: ConceptDataset,
    encoder: FrozenSpec,
    *,
    folder: str | Path | None = None,
    device: str = "cpu",
    announce: Callable[[str], None] | None = None,
) -> FeatureDataset:
    """The dataset that a model with a frozen encoder is trained on.

    Parameters
    ----------
    dataset : ConceptDataset
        Images with splits.
    encoder : FrozenSpec
        The encoder; its backbone gives the features.
    folder, device, announce
        As in `frozen_features`.

    Returns
    -------
    FeatureDataset
        The same names, concepts, labels, splits and factors; `x` the features, standardised by the
        training split; a note that names the encoder and its weights. Rows outside the splits are
        0, nobody reads them.

    Raises
    ------
    ValueError
        When the dataset holds no images.
    """
    backbone, seed = encoder.backbone, encoder.backbone_seed
    features, rows = features_of(
        dataset, backbone, seed=seed, folder=folder, device=device, announce=announce
    )
    x, shift, scale = standardised(features, np.searchsorted(rows, dataset.rows("train")))
    if len(rows) < dataset.n_samples:
        whole = np.zeros((dataset.n_samples, x.shape[1]), dtype=np.float32)
        whole[rows] = x
        x = whole
    identity = json.dumps(backbone_identity(backbone, seed=seed), sort_keys=True)
    known = {f.name: getattr(dataset, f.name) for f in dataclasses.fields(ConceptDataset)}
    note = (
        f"Inputs are features of a frozen {backbone_in_words(backbone, seed=seed)}, of images "
        "without augmentation, standardised over the training split."
    )
    return FeatureDataset(
        **{
            **known,
            "x": x,
            "mean": None,
            "std": None,
            "notes": (*dataset.notes, note),
            # Stands for x: the images with their splits, and what was made of them.
            "content_digest": hashlib.sha256(
                f"{dataset.fingerprint()} {identity}".encode()
            ).hexdigest(),
        },
        shift=shift,
        scale=scale,
    )


def _images_digest(dataset: ConceptDataset, rows: NDArray[np.int64]) -> str:
    """Hash of the images in these rows, by the dataset's own digest where it has one."""
    shape = [int(size) for size in dataset.x.shape]
    described = [shape, str(dataset.x.dtype), dataset.content_digest]
    digest = hashlib.sha256(json.dumps(described).encode())
    digest.update(rows.tobytes())
    if dataset.content_digest is None:
        for start in range(0, len(rows), _ROWS_PER_BLOCK):
            block = np.asarray(dataset.x[rows[start : start + _ROWS_PER_BLOCK]])
            digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()
