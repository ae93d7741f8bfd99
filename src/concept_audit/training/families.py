"""Which way a kind of model is trained by itself, and which arrays it gives afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from concept_audit.data.base import ConceptDataset
from concept_audit.models.randomness import stream
from concept_audit.models.representation_specs import FrozenEncoderSpec
from concept_audit.models.representations import module_codes
from concept_audit.training.features import ImageRows, features_of
from concept_audit.training.fitting import fit_single
from concept_audit.training.predict import build_model, load_state, predict
from concept_audit.training.recipe import FitResult, Member
from concept_audit.training.vae_module import fit_vae

__all__ = ["arrays_of", "fit_one"]

SplitArrays = Callable[[str], dict[str, Any]]


def fit_one(member: Member, dataset: ConceptDataset, **options: Any) -> FitResult:
    """Train one model the way of its family; arguments are those of `fit_single`.

    A representation without training comes back at once.
    """
    if member.spec.family == "representation":
        return FitResult(member, {}, [], -1, None, 0.0)
    train = fit_vae if member.spec.family == "vae" else fit_single
    return train(member, dataset, **options)


def arrays_of(
    result: FitResult,
    dataset: ConceptDataset,
    *,
    device: str = "cpu",
    folder: str | Path | None = None,
    announce: Callable[[str], None] | None = None,
) -> SplitArrays:
    """Function from a split to the arrays of its bundle.

    Parameters
    ----------
    result : FitResult
        A finished training.
    dataset : ConceptDataset
        The data.
    device : str
        Where to compute.
    folder, announce
        Of the features of a frozen encoder: where to keep them, and who is told about it; see
        `frozen_features`.

    Returns
    -------
    callable
        For concept models see `predict`. Representations give ``index`` (n,), ``y`` (n,),
        ``codes`` (n, L), for raw pixels as `ArrayBlocks`, and, where the dataset knows them,
        ``factors`` (n, K).

    Raises
    ------
    ValueError
        When the representation is made of factors or images and the dataset has none.
    """
    member = result.member
    spec: Any = member.spec
    if spec.family not in ("vae", "representation"):
        model = load_state(build_model(spec, dataset), result.state_dict)
        return lambda split: predict(model, dataset, split, device=device)
    codes = _codes_of(member, result.state_dict, dataset, device, folder, announce)

    def arrays(split: str) -> dict[str, Any]:
        rows = dataset.rows(split)
        found = {"index": rows, "y": dataset.y[rows], "codes": codes(split)}
        if dataset.factors is not None:
            found["factors"] = dataset.factors[rows]
        return found

    return arrays


def _codes_of(
    member: Member,
    state_dict: dict[str, torch.Tensor],
    dataset: ConceptDataset,
    device: str,
    folder: str | Path | None,
    announce: Callable[[str], None] | None,
) -> Callable[[str], Any]:
    """Function from a split to its codes (n, L)."""
    spec: Any = member.spec
    if getattr(spec, "reads", None) == "factors":
        if dataset.factors is None:
            raise ValueError(
                f"model {spec.name} is made of generating factors, and {dataset.name} has none. "
                "Use data=dsprites, shapes3d, mpi3d or cars3d."
            )
        whole = spec.codes(dataset.factors, dataset.factor_sizes, seed=member.seed)
        return lambda split: whole[dataset.rows(split)]
    if not dataset.is_image:
        raise ValueError(
            f"model {spec.name} reads images, and {dataset.name} has rows of shape "
            f"{dataset.input_shape}. Use an image set, for example data=shapes3d_standin."
        )
    if isinstance(spec, FrozenEncoderSpec):
        features, rows = features_of(
            dataset, spec.encoder, seed=member.seed, folder=folder, device=device, announce=announce
        )
        return lambda split: features[np.searchsorted(rows, dataset.rows(split))]
    if spec.family == "representation":
        return lambda split: spec.codes(
            ImageRows(dataset.x, dataset.rows(split)), seed=member.seed, device=device
        )
    model: Any = load_state(build_model(spec, dataset), state_dict).to(device)

    def encode(split: str) -> NDArray[Any]:
        draw = stream(member.seed, f"codes/{split}", 0)
        generator = torch.Generator().manual_seed(int(draw.integers(2**31)))
        return module_codes(
            ImageRows(dataset.x, dataset.rows(split)),
            lambda x: model.encode(x, code=spec.code, generator=generator),
            device=device,
        )

    return encode
