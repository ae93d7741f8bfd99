"""From a trained state to arrays under the names of the bundle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from concept_audit.data.base import ConceptDataset
from concept_audit.models.arithmetic import matrix_products
from concept_audit.models.outputs import ModelSpec
from concept_audit.training.batches import rows_per_pass, to_inputs

__all__ = [
    "build_model",
    "head_callable",
    "load_state",
    "predict",
    "training_percentiles",
]


def build_model(spec: ModelSpec, dataset: ConceptDataset) -> nn.Module:
    """Model with the sizes of `dataset`, to be filled by `load_state`."""
    with torch.random.fork_rng(devices=[]):
        return spec.build(
            input_shape=dataset.input_shape,
            n_concepts=dataset.n_concepts,
            n_classes=dataset.n_classes,
        )


def load_state(model: nn.Module, state_dict: dict[str, torch.Tensor]) -> nn.Module:
    """`model` with these weights, in evaluation mode; missing or surplus names raise."""
    model.load_state_dict(state_dict, strict=True)
    return model.eval()


def predict(
    model: nn.Module,
    dataset: ConceptDataset,
    split: str,
    *,
    batch_size: int | None = None,
    device: str | torch.device = "cpu",
) -> dict[str, NDArray[Any]]:
    """Outputs of `model` on a split.

    Parameters
    ----------
    model : nn.Module
        A trained model; it is put into evaluation mode.
    dataset : ConceptDataset
        The data.
    split : str
        ``train``, ``val`` or ``test``.
    batch_size : int, optional
        Rows per forward pass; by default as many as fit a few GB of activations.
    device : str or torch.device
        Where to compute.

    Returns
    -------
    dict of ndarray
        ``index`` (n,), ``y`` (n,), ``c`` (n, k), ``y_logits`` (n, l), ``c_logits`` (n, k),
        ``c_hat`` (n, k) as the head reads it; CEMs add ``c_pos``, ``c_neg``, ``c_mix`` (n, k, m).
    """
    rows = dataset.rows(split)
    batch_size = rows_per_pass(dataset) if batch_size is None else batch_size
    model = model.to(device).eval()
    parts: dict[str, list[NDArray[Any]]] = {}
    # Scores are of float32 models, whatever the training allowed itself.
    with torch.inference_mode(), matrix_products():
        for start in range(0, len(rows), batch_size):
            block = rows[start : start + batch_size]
            x = to_inputs(dataset, block, device)
            output = model(x, torch.from_numpy(dataset.c[block]).to(device))
            for name, value in output._asdict().items():
                if value is not None and name != "bottleneck":
                    parts.setdefault(name, []).append(value.float().cpu().numpy())
    arrays = {name: np.concatenate(blocks) for name, blocks in parts.items()}
    return {"index": rows, "y": dataset.y[rows], "c": dataset.c[rows], **arrays}


def training_percentiles(
    model: nn.Module, dataset: ConceptDataset, *, device: str | torch.device = "cpu"
) -> torch.Tensor:
    """5th and 95th percentile (2, k) of each concept's logits over the training split.

    They stand for false and true when a logit model is intervened on (Leakage paper, section 4).
    """
    c_logits = predict(model, dataset, "train", device=device)["c_logits"]
    return torch.from_numpy(np.percentile(c_logits, [5, 95], axis=0).astype(np.float32))


def head_callable(
    model: nn.Module, *, device: str | torch.device = "cpu"
) -> Callable[[NDArray[Any]], NDArray[np.float32]]:
    """Head of `model` as a function of arrays, for interventions.

    Parameters
    ----------
    model : nn.Module
        A trained model with a `head`.
    device : str or torch.device
        Where to compute.

    Returns
    -------
    callable
        From a bottleneck ``(n, k)`` (CBM) or ``(n, k*m)``, concept-major (CEM), to ``(n, l)``.
    """
    head: nn.Module = model.get_submodule("head").to(device).eval()

    def apply(bottleneck: NDArray[Any]) -> NDArray[np.float32]:
        with torch.inference_mode(), matrix_products():
            values = torch.as_tensor(np.asarray(bottleneck, dtype=np.float32), device=device)
            logits: NDArray[np.float32] = head(values).float().cpu().numpy()
        return logits

    return apply
