"""From a trained model to files: checkpoint, bundles of every split, manifest, status; and back."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import nn

from concept_audit.data.base import ConceptDataset
from concept_audit.models.frozen import FrozenSpec
from concept_audit.pipeline.resume import KeyedCell, dataset_of
from concept_audit.pipeline.runs import SPLITS, StoredRun
from concept_audit.pipeline.schema import build
from concept_audit.store.atomic import atomic_path, file_sha256, write_text
from concept_audit.store.bundle import write_bundle
from concept_audit.store.layout import OutputLayout
from concept_audit.store.manifest import finish_manifest, write_manifest
from concept_audit.store.status import mark_done
from concept_audit.training.families import arrays_of
from concept_audit.training.features import FeatureDataset, with_features
from concept_audit.training.predict import load_state
from concept_audit.training.recipe import FitResult

__all__ = ["inputs_of", "read_checkpoint", "restore", "write_run"]


def inputs_of(config: Mapping[str, Any], spec: Any, *, device: str = "cpu") -> ConceptDataset:
    """The dataset that a model reads.

    Parameters
    ----------
    config : resolved config of the run
    spec : description of the model
    device : where to compute features

    Returns
    -------
    The dataset of the config, or, where the model's encoder is frozen, features in the place of its
    images. They are computed once and kept under ``processed/codes`` of the data folder.
    """
    dataset = dataset_of(config)
    encoder = getattr(spec, "encoder", None)
    if spec.family == "representation" or not isinstance(encoder, FrozenSpec):
        return dataset
    return with_features(
        dataset, encoder, folder=_codes_dir(config), device=device, announce=_announce
    )


def _codes_dir(config: Mapping[str, Any]) -> Path:
    return Path(config["paths"]["data_dir"]) / "processed" / "codes"


def _announce(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _identity(item: KeyedCell, spec: Any, dataset: ConceptDataset) -> dict[str, Any]:
    """Columns that every row of the run repeats; settings that play no part stay empty."""
    config = item.cell.config
    model = config["model"]
    encoder = getattr(spec, "encoder", None)
    supervised = spec.family in ("cbm", "cem") and spec.encoding != "hard"
    return {
        "run_key": item.key,
        "dataset": dataset.name,
        "standin": dataset.standin,
        "model": getattr(spec, "name", spec.family),
        "encoding": spec.encoding,
        "lambda_concept": float(model["lambda_concept"]) if supervised else None,
        "p_int": float(model["p_int"]) if "p_int" in model else None,
        "head": getattr(spec, "head", None),
        "concept_output": getattr(spec, "concept_output", None),
        "encoder": None if encoder is None else getattr(encoder, "label", type(encoder).__name__),
        "setting": item.setting,
        "fold": int(config["seed"]),
    }


def _weights_in(node: Any) -> str | None:
    """What the encoder started from, as the run's key names it: `random`, `imagenet` or a hash."""
    if not isinstance(node, Mapping):
        return None
    if isinstance(node.get("weights"), str):
        return str(node["weights"])
    return next((found for found in map(_weights_in, node.values()) if found), None)


def write_run(
    layout: OutputLayout,
    item: KeyedCell,
    dataset: ConceptDataset,
    result: FitResult,
    manifest: dict[str, Any],
    *,
    device: str = "cpu",
) -> None:
    """Write all files of a finished training; `status.json` comes last and makes it count.

    `dataset` is what the model was trained on, see `inputs_of`.
    """
    key, config = item.key, item.cell.config
    spec = result.member.spec
    arrays = arrays_of(
        result, dataset, device=device, folder=_codes_dir(config), announce=_announce
    )
    checkpoint = {
        "state_dict": result.state_dict,
        "history": result.history,
        "best_epoch": result.best_epoch,
        "input_shape": list(dataset.input_shape),
        "n_concepts": dataset.n_concepts,
        "n_classes": dataset.n_classes,
    }
    if isinstance(dataset, FeatureDataset):  # with the encoder's weights: all to read a new image
        checkpoint["feature_shift"] = torch.from_numpy(dataset.shift)
        checkpoint["feature_scale"] = torch.from_numpy(dataset.scale)
    with atomic_path(layout.checkpoint_path(key)) as temporary:
        torch.save(checkpoint, temporary)
    metadata = {
        "run_key": key,
        "identity": _identity(item, spec, dataset),
        "encoding": "hard" if spec.family == "reference_head" else spec.encoding,
        "concept_names": list(dataset.concept_names),
        "concept_groups": {name: list(ids) for name, ids in dataset.concept_groups.items()},
        "class_names": list(dataset.class_names),
        "factor_names": list(dataset.factor_names),
        "factor_sizes": list(dataset.factor_sizes),
        "factor_kinds": list(dataset.factor_kinds),
        "weights": _weights_in(item.parts["config"]["model"]),
        "standin": dataset.standin,
        "notes": list(dataset.notes),
        "dataset_fingerprint": item.parts["dataset"],
    }
    files = [layout.checkpoint_path(key)]
    for split in SPLITS:
        path = layout.bundle_path(key, split)
        outputs = arrays(split)
        write_bundle(path, outputs, {**metadata, "split": split, "arrays": sorted(outputs)})
        files.append(path)
    write_text(layout.config_path(key), OmegaConf.to_yaml(OmegaConf.create(config)))
    finish_manifest(
        manifest,
        outputs={path.name: file_sha256(path) for path in files},
        best_epoch=result.best_epoch,
        train_seconds=result.seconds,
    )
    write_manifest(layout.manifest_path(key), manifest)
    mark_done(layout.run_dir(key), files)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint; it holds tensors and plain values and cannot run code."""
    checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return checkpoint


def restore(run: StoredRun) -> nn.Module:
    """The trained model of a run, ready to evaluate.

    All weights come from the checkpoint, so a file of pretrained ones need not be there any more.
    Of a model with a frozen encoder it is the trained part, which reads features.
    """
    checkpoint = read_checkpoint(run.layout.checkpoint_path(run.key))
    spec = build(_without_pretrained(run.config["model"]["spec"]))
    model: nn.Module = spec.build(
        input_shape=tuple(checkpoint["input_shape"]),
        n_concepts=checkpoint["n_concepts"],
        n_classes=checkpoint["n_classes"],
    )
    return load_state(model, checkpoint["state_dict"])


def _without_pretrained(node: Any) -> Any:
    """Description of a model whose encoders start from random weights."""
    if isinstance(node, Mapping):
        return {
            key: "random"
            if key == "weights" and isinstance(value, str)
            else _without_pretrained(value)
            for key, value in node.items()
        }
    return [_without_pretrained(value) for value in node] if isinstance(node, list) else node
