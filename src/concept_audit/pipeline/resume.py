"""What a run is called: keys from the resolved config, the data and the code that it used."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from concept_audit.data.base import ConceptDataset
from concept_audit.pipeline.plan import Cell
from concept_audit.pipeline.schema import build
from concept_audit.store.keys import (
    KEY_EXCLUSIONS,
    canonical_json,
    code_digest,
    evaluation_key,
    keyed_config,
    run_key,
    targets_of,
)

__all__ = ["FIT_VERSION", "KeyedCell", "cell_key", "dataset_of", "key_of_evaluation"]

FIT_VERSION = 2  # bundles name their arrays
EVALUATE_VERSION = 1

# Values that reach a run only through the leaves that interpolate them, where they are hashed. So a
# reference head, which has no concept weight, is trained once for a whole grid of weights.
_SWEPT = ("lambda_concept", "p_int", "fold", "head", "concept_output", "encoder", "eval_seed")
_TRAINER = ("precision", "tf32", "micro_batches")  # the part of the hardware that moves numbers
_PLACES = ("root", "cache_dir")  # where files lie is not what they are; the fingerprint is
# An edit here moves no number.
_NO_NUMBERS = ("concept_audit.store",)
_FIT_MODULES = ("concept_audit.training.bank", "concept_audit.training.families")


@dataclass(frozen=True)
class KeyedCell:
    """A cell with its name on disk."""

    cell: Cell
    key: str
    parts: dict[str, Any]

    @property
    def setting(self) -> str:
        """8 hex digits of the config less the seed: trainings of one setting share them."""
        config = {name: value for name, value in self.parts["config"].items() if name != "seed"}
        return hashlib.sha256(canonical_json(config).encode()).hexdigest()[:8]


@lru_cache(maxsize=64)
def _dataset(canonical: str) -> ConceptDataset:
    import json

    dataset: ConceptDataset = build(json.loads(canonical))
    return dataset


def dataset_of(config: Mapping[str, Any]) -> ConceptDataset:
    """The dataset of a resolved config; built once for each process."""
    return _dataset(canonical_json(config["data"]))


@lru_cache(maxsize=1024)
def _digest(modules: tuple[str, ...]) -> str:
    return code_digest(modules, exclude=_NO_NUMBERS)


def _code(mode: str, modules: tuple[str, ...]) -> str:
    if mode == "digest":
        return _digest(tuple(sorted(set(modules))))
    if mode in ("version", "ignore"):
        return mode
    raise ValueError(f"resume.code must be digest, version or ignore, got {mode!r}.")


def _with_contents(node: Any) -> Any:
    """Config of a model with pretrained weights named by what they are, not by where they lie.

    `auto` means what this machine has; once weights are fetched it names another run. A path stands
    for the content of its file.
    """
    if isinstance(node, Mapping):
        named = {key: _with_contents(value) for key, value in node.items()}
        given = node.get("weights")
        if "_target_" in node and isinstance(given, str):
            from concept_audit.models.pretrained import weights_content

            named["weights"] = weights_content(getattr(build(node), "weights", given))
        return named
    return [_with_contents(value) for value in node] if isinstance(node, list) else node


def cell_key(cell: Cell) -> KeyedCell:
    """Name of a run: 16 hex digits of everything that moves its numbers."""
    config = cell.config
    kept = keyed_config(config, (*KEY_EXCLUSIONS, *_SWEPT))
    kept["data"] = {key: value for key, value in config["data"].items() if key not in _PLACES}
    trainer = config["trainer"]
    kept["trainer"] = {key: trainer[key] for key in _TRAINER}
    if trainer["devices"] != 1 and not trainer["sync_batchnorm"]:
        kept["trainer"]["devices"] = trainer["devices"]  # batch norm sees each one's part
    kept["model"] = _with_contents(config["model"])
    parts = {
        "config": kept,
        "dataset": dataset_of(config).fingerprint(),
        "stage_version": FIT_VERSION,
        "code": _code(config["resume"]["code"], (*_FIT_MODULES, *targets_of(kept))),
    }
    return KeyedCell(cell=cell, key=run_key(parts), parts=parts)


def key_of_evaluation(
    key: str, bundles: Mapping[str, str], evaluation: Mapping[str, Any], mode: str = "digest"
) -> str:
    """Name of one evaluation of one run; touching a metric changes this and not the run's key."""
    return evaluation_key(
        {
            "run_key": key,
            "bundles": dict(bundles),
            "evaluation": dict(evaluation),
            "stage_version": EVALUATE_VERSION,
            "code": _code(mode, targets_of(evaluation)),
        }
    )
