"""From models that others saved to the contributions of each prediction.

Every format fills the same table: what enters the final linear layer, and that layer. Files are
read as tensors only (`weights_only`, `allow_pickle=False`), so a model folder cannot run code. The
traps of each format stand beside the reader that avoids them.
"""

from __future__ import annotations

import csv
import json
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import as_labels, as_matrix, to_numpy
from concept_audit.council.explanations import Explanation, ExplanationMode, explain

__all__ = [
    "ActivationTable",
    "DecisionRow",
    "ImportedModel",
    "load_cbm_suite",
    "load_labo",
    "load_lf_cbm",
    "load_vlg_cbm",
    "read_decision_csv",
    "table_from_linear_cbm",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ActivationTable:
    """Activations of n images and the linear layer that reads them."""

    activations: Floats  # (n, k), as they enter the final layer
    weights: Floats  # (l, k)
    bias: Floats  # (l,)
    concept_names: tuple[str, ...]
    class_names: tuple[str, ...]
    y: NDArray[np.int64] | None = None  # annotated classes (n,)

    def __post_init__(self) -> None:
        n_classes, k = self.weights.shape
        if self.activations.ndim != 2 or self.activations.shape[1] != k:
            raise ValueError(
                f"activations must have shape (n, {k}) for weights {self.weights.shape}, "
                f"got {self.activations.shape}."
            )
        if self.bias.shape != (n_classes,):
            raise ValueError(f"bias must have shape ({n_classes},), got {self.bias.shape}.")
        if len(self.concept_names) != k:
            raise ValueError(f"concept_names must have {k} names, got {len(self.concept_names)}.")
        if len(self.class_names) != n_classes:
            raise ValueError(
                f"class_names must have {n_classes} names, got {len(self.class_names)}."
            )
        if self.y is not None and self.y.shape != (self.n_samples,):
            raise ValueError(f"y must have shape ({self.n_samples},), got {self.y.shape}.")

    @property
    def n_samples(self) -> int:
        """Number of images."""
        return int(self.activations.shape[0])

    @cached_property
    def logits(self) -> Floats:
        """Class logits (n, l)."""
        return np.asarray(self.activations @ self.weights.T + self.bias)

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """Predicted classes (n,)."""
        return np.asarray(self.logits.argmax(axis=1), dtype=np.int64)

    @property
    def accuracy(self) -> float:
        """Share of right predictions, in points (0 to 100); NaN without annotations."""
        return float("nan") if self.y is None else 100 * float(np.mean(self.predictions == self.y))

    def contributions(self, row: int) -> Floats:
        """Contributions (k,) to the predicted class of one image."""
        return np.asarray(self.activations[row] * self.weights[self.predictions[row]])

    def explain(self, row: int, *, mode: ExplanationMode = "literal") -> Explanation:
        """Explanation of one image's prediction, see `explain`."""
        head = self.weights[self.predictions[row]]
        return explain(self.activations[row], head, self.concept_names, mode=mode)

    def check_logits(self, logits: ArrayLike, *, tolerance: float = 1e-4) -> None:
        """Compare with logits that the model itself gave.

        Raises
        ------
        ValueError  when sum_j c_j + b differs by more than the tolerance, relative to the largest
            logit: then the contributions are not those of this model.
        """
        given = to_numpy("logits", logits)
        if given.shape != self.logits.shape:
            raise ValueError(f"logits must have shape {self.logits.shape}, got {given.shape}.")
        scale = max(float(np.abs(given).max(initial=0.0)), 1e-12)
        error = float(np.abs(given - self.logits).max(initial=0.0)) / scale
        if error > tolerance:
            raise ValueError(
                f"contributions and bias must add up to the model's logits within {tolerance:g}, "
                f"they are off by {error:.2g}. Check which values enter the final layer."
            )


@dataclass(frozen=True)
class ImportedModel:
    """A saved model without its backbone: features in, activations out."""

    source: str  # "lf_cbm", "vlg_cbm", ...
    concept_names: tuple[str, ...]
    weights: Floats
    bias: Floats
    project: Callable[[Floats], Floats]  # features (n, D) -> what enters the final layer (n, k)
    settings: dict[str, Any]  # what the folder says about its training

    def table(
        self, features: ArrayLike, class_names: Sequence[str], *, y: ArrayLike | None = None
    ) -> ActivationTable:
        """Activations of backbone features.

        Parameters
        ----------
        features : Float[ndarray, "n D"]   of the backbone the model was trained on
        class_names : in the order of the final layer; they come with the data set, not the folder
        y : Int[ndarray, "n"]
        """
        x = as_matrix("features", features, columns="D")
        try:
            activations = self.project(x)
        except ValueError as error:
            raise ValueError(f"features do not fit the {self.source} model: {error}.") from None
        labels = None if y is None else as_labels("y", y)
        return ActivationTable(
            activations, self.weights, self.bias, self.concept_names, tuple(class_names), labels
        )


def table_from_linear_cbm(
    bottleneck: ArrayLike,
    head: Any,
    concept_names: Sequence[str],
    class_names: Sequence[str],
    *,
    y: ArrayLike | None = None,
) -> ActivationTable:
    """Table of a concept bottleneck model of this package.

    Parameters
    ----------
    bottleneck : Float[ndarray, "n k"]   what the head reads
    head : a torch `Linear`, alone or as the only module with parameters of a container
    concept_names, class_names : names
    y : Int[ndarray, "n"]

    Raises
    ------
    ValueError  for a head with hidden layers, where activation times weight is no contribution, and
        for embedding bottlenecks (n, k, m) or (n, k m), which are not one number per concept.
    """
    c = to_numpy("bottleneck", bottleneck)
    k = len(concept_names)
    if c.ndim == 3 or (c.ndim == 2 and k and c.shape[1] != k and c.shape[1] % k == 0):
        raise ValueError(
            f"bottleneck must hold one number per concept, shape (n, {k}), got {c.shape}: concept "
            "embeddings (CEM) have no single contribution per concept. Train a model with "
            "head=linear on hard, soft or logit concepts."
        )
    modules = head.modules() if hasattr(head, "modules") else [head]
    layers = [m for m in modules if getattr(getattr(m, "weight", None), "ndim", 0) == 2]
    if len(layers) != 1:
        raise ValueError(
            f"head must be one linear layer, got {len(layers)} of them: behind hidden layers "
            "activation times weight is no contribution. Train with head=linear."
        )
    weights = as_matrix("head.weight", layers[0].weight)
    raw_bias = getattr(layers[0], "bias", None)
    bias = np.zeros(len(weights)) if raw_bias is None else to_numpy("head.bias", raw_bias)
    return ActivationTable(
        as_matrix("bottleneck", c),
        weights,
        np.asarray(bias, dtype=np.float64),
        tuple(concept_names),
        tuple(class_names),
        None if y is None else as_labels("y", y),
    )


def load_lf_cbm(folder: str | Path) -> ImportedModel:
    """Label-free CBM: `W_c.pt`, `proj_mean.pt`, `proj_std.pt`, `W_g.pt`, `b_g.pt`, `concepts.txt`.

    Its activations are z-scores, half of them negative: negated concepts are common.
    """
    root = Path(folder)
    projection = _matrix(root / "W_c.pt")
    mean, std = _vector(root / "proj_mean.pt"), _vector(root / "proj_std.pt")
    weights, bias = _matrix(root / "W_g.pt"), _vector(root / "b_g.pt")
    return ImportedModel(
        "lf_cbm",
        _names(root, len(projection)),
        weights,
        bias,
        lambda x: (x @ projection.T - mean) / std,
        _settings(root),
    )


def load_vlg_cbm(folder: str | Path, *, nec: int | None = None) -> ImportedModel:
    """VLG-CBM: `cbl.pt`, `train_concept_features_{mean,std}.pt`, `final.pt`, `concepts.txt`.

    Parameters
    ----------
    folder : the model's folder
    nec : take the head cut to this number of effective concepts, `W_g@NEC=n.pt`

    Notes
    -----
    Trap: the authors' script for single decisions loads the cut weights but keeps the bias of
    `final.pt`. The cut head has a bias of its own, `b_g@NEC=n.pt`, which is read here.
    """
    root = Path(folder)
    layers = _linear_layers(_state(root / "cbl.pt"), root / "cbl.pt", prefix="model.")
    mean = _vector(root / "train_concept_features_mean.pt")
    std = _vector(root / "train_concept_features_std.pt")
    if nec is None:
        final = _state(root / "final.pt")
        weights = as_matrix("weight", _entry(final, "weight", root / "final.pt"))
        bias = _flat(_entry(final, "bias", root / "final.pt"))
    else:
        weights = _matrix(root / f"W_g@NEC={nec}.pt")
        bias = _vector(root / f"b_g@NEC={nec}.pt")
    return ImportedModel(
        "vlg_cbm",
        _names(root, weights.shape[1]),
        weights,
        bias,
        lambda x: (_forward(layers, x) - mean) / std,
        _settings(root),
    )


def load_cbm_suite(folder: str | Path) -> ImportedModel:
    """CBM-Suite: `W_c.pt` (a state dict), `W_g.pt`, `b_g.pt`, `concepts.txt`.

    Notes
    -----
    Trap: its forward pass returns `(x - mean) / std` as concepts but feeds the final layer with
    the raw projection `x`. Contributions must use `x`, else they do not add up to the logit. The
    non-linearity stands before the concepts, so the final layer is linear.
    """
    root = Path(folder)
    layers = _linear_layers(_state(root / "W_c.pt"), root / "W_c.pt")
    weights, bias = _matrix(root / "W_g.pt"), _vector(root / "b_g.pt")
    return ImportedModel(
        "cbm_suite",
        _names(root, weights.shape[1]),
        weights,
        bias,
        lambda x: _forward(layers, x),
        _settings(root),
    )


def load_labo(
    checkpoint: str | Path,
    concept_features: str | Path,
    concepts: str | Path,
    *,
    select: str | Path | None = None,
    association: Literal["softmax", "relu", "tanh", "none"] = "softmax",
) -> ImportedModel:
    """LaBo and V2C-CBM: `asso_mat` of a Lightning checkpoint over CLIP concept features.

    Parameters
    ----------
    checkpoint : file whose `state_dict` holds `asso_mat` (l, k)
    concept_features : `concepts_feat_<clip>.pth` (K, D)
    concepts : `concepts_raw_selected.npy`, or a text file with one name per line
    select : `select_idx.pth`, rows of `concept_features` that were selected
    association : activation of the matrix; `softmax` over concepts is LaBo's default

    Notes
    -----
    The activation is image feature . concept feature, the weight 100 softmax(asso_mat).
    Contributions are dense and nearly equal, so the five shown weights are flat.
    """
    path = Path(checkpoint)
    state = _state(path)
    if "state_dict" in state:
        state = state["state_dict"]
    matrix = as_matrix("asso_mat", _entry(state, "asso_mat", path))
    text = as_matrix("concept_features", _load(Path(concept_features)), columns="D")
    if select is not None:
        text = text[to_numpy("select", _load(Path(select))).astype(int).reshape(-1)]
    if len(text) != matrix.shape[1]:
        raise ValueError(
            f"asso_mat {matrix.shape} needs {matrix.shape[1]} concept features, got {len(text)}. "
            "Give select_idx.pth as `select` when the features are those of all candidates."
        )
    names = _names_file(Path(concepts), matrix.shape[1])
    if association == "softmax":
        raised = np.exp(matrix - matrix.max(axis=1, keepdims=True))
        matrix = raised / raised.sum(axis=1, keepdims=True)
    elif association == "relu":
        matrix = np.maximum(matrix, 0)
    elif association == "tanh":
        matrix = np.tanh(matrix)
    elif association != "none":
        raise ValueError(f"association must be softmax, relu, tanh or none, got {association!r}.")
    return ImportedModel(
        "labo", names, 100 * matrix, np.zeros(len(matrix)), lambda x: x @ text.T, {}
    )


@dataclass(frozen=True)
class DecisionRow:
    """One line of a decision table: the five largest contributions of one image."""

    image_index: int  # position in the unshuffled validation set
    gt_class: str
    pred_class: str
    concept_names: tuple[str, ...]
    contributions: tuple[float, ...]
    negated: tuple[bool, ...]


def read_decision_csv(path: str | Path) -> list[DecisionRow]:
    """Decision table of VLG-CBM's script: `ground_truth, prediction, concept_i, contrib_i, ...`.

    The prefix `NOT ` of a concept becomes the flag `negated`.
    """
    file = Path(path)
    with file.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        columns = list(reader.fieldnames or [])
        count = sum(column.startswith("concept_") for column in columns)
        needed = ["ground_truth", "prediction", "image_idx"]
        needed += [
            f"{kind}_{i}" for i in range(1, max(count, 1) + 1) for kind in ("concept", "contrib")
        ]
        absent = [column for column in needed if column not in columns]
        if absent:
            raise ValueError(f"{file} lacks the columns {', '.join(absent)}; it has {columns}.")
        rows = []
        for record in reader:
            try:
                numbers = [float(record[f"contrib_{i}"]) for i in range(1, count + 1)]
                index = int(float(record["image_idx"]))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{file}, line {reader.line_num}: {error}.") from None
            if not all(math.isfinite(number) for number in numbers):
                raise ValueError(f"{file}, line {reader.line_num}: contributions must be finite.")
            names = [record[f"concept_{i}"] for i in range(1, count + 1)]
            rows.append(
                DecisionRow(
                    index,
                    record["ground_truth"],
                    record["prediction"],
                    tuple(name.removeprefix("NOT ") for name in names),
                    tuple(numbers),
                    tuple(name.startswith("NOT ") for name in names),
                )
            )
    return rows


def _load(path: Path) -> Any:
    """Tensors of a `.pt` file; anything that would run code is refused."""
    if not path.is_file():
        raise FileNotFoundError(f"the model folder lacks {path.name}: no file at {path}.")
    try:
        import torch
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "importers need PyTorch. Install it with: pip install 'concept-audit[torch]'"
        ) from None
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"{path} holds more than tensors, or is damaged ({reason[:120]}). It was not loaded. "
            "Save its state_dict alone, in a place where you trust the file."
        ) from None


def _state(path: Path) -> dict[str, Any]:
    loaded = _load(path)
    if not isinstance(loaded, dict):
        raise ValueError(f"{path} must hold a state dict, got {type(loaded).__name__}.")
    return loaded


def _entry(state: dict[str, Any], key: str, path: Path) -> Any:
    if key not in state:
        raise ValueError(f"{path} lacks {key!r}; it holds {', '.join(sorted(state))[:200]}.")
    return state[key]


def _matrix(path: Path) -> Floats:
    return as_matrix(path.name, _load(path))


def _flat(value: Any) -> Floats:
    """Vector of a tensor of shape (k,), (1, k) or a scalar, which then stands for all."""
    array = np.asarray(to_numpy("tensor", value), dtype=np.float64)
    return array.reshape(-1) if array.ndim else array


def _vector(path: Path) -> Floats:
    return _flat(_load(path))


def _linear_layers(
    state: dict[str, Any], path: Path, *, prefix: str = ""
) -> list[tuple[Floats, Floats]]:
    """Weights and biases of `0.weight`, `2.weight`, ... in order; ReLU stands between them."""
    numbers = sorted(
        int(key.removeprefix(prefix).split(".")[0])
        for key in state
        if key.startswith(prefix) and key.endswith(".weight")
    )
    if not numbers:
        raise ValueError(f"{path} holds no linear layer {prefix}0.weight; keys: {sorted(state)}.")
    layers = []
    for number in numbers:
        weight = as_matrix(f"{prefix}{number}.weight", state[f"{prefix}{number}.weight"])
        bias = state.get(f"{prefix}{number}.bias")
        layers.append((weight, np.zeros(len(weight)) if bias is None else _flat(bias)))
    return layers


def _forward(layers: Sequence[tuple[Floats, Floats]], x: Floats) -> Floats:
    for position, (weight, bias) in enumerate(layers):
        x = (np.maximum(x, 0) if position else x) @ weight.T + bias
    return x


def _names(root: Path, k: int) -> tuple[str, ...]:
    return _names_file(root / "concepts.txt", k)


def _names_file(path: Path, k: int) -> tuple[str, ...]:
    """Concept names, one per line or as a numpy array of strings; there must be k."""
    if not path.is_file():
        raise FileNotFoundError(f"the model folder lacks {path.name}: no file at {path}.")
    if path.suffix == ".npy":
        try:
            array = np.load(path, allow_pickle=False)
        except ValueError:
            raise ValueError(
                f"{path} holds Python objects, which could run code. It was not loaded. "
                "Save the names as a text file, one per line."
            ) from None
        names = [str(name) for name in array.reshape(-1)]
    else:
        names = path.read_text(encoding="utf-8").split("\n")
        names = names[:-1] if names[-1] == "" else names
        names = [name.rstrip("\r") for name in names]
    if len(names) != k:
        raise ValueError(f"{path} must have {k} names, one per concept, got {len(names)}.")
    return tuple(names)


def _settings(root: Path) -> dict[str, Any]:
    """JSON of `args.txt`, where it is there."""
    path = root / "args.txt"
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} must hold JSON: {error}.") from None
    return settings if isinstance(settings, dict) else {}
