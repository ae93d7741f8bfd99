"""What a small network is and how it is trained: plain data, no torch at import."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concept_audit.arrays import to_numpy

__all__ = [
    "Network",
    "NetworkWeights",
    "OutputKind",
    "Training",
    "check_targets",
    "import_torch",
    "initial_weights",
    "validation_score",
]

OutputKind = Literal["categorical", "continuous", "binary"]
_KINDS: tuple[OutputKind, ...] = ("categorical", "continuous", "binary")


def import_torch(purpose: str) -> Any:
    """Torch, or an error that names the extra which brings it."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs torch, which is not installed. "
            "Install it with: pip install 'concept-audit[torch]'."
        ) from error
    return torch


@dataclass(frozen=True)
class Network:
    """One multi-layer perceptron to train.

    Parameters
    ----------
    target : index into `targets`
    hidden : widths of its ReLU layers; `()` is a linear model
    kind : "categorical" (softmax cross entropy), "continuous" (squared error) or "binary"
        (sigmoid cross entropy, averaged over outputs)
    n_outputs : classes of a categorical target, columns of any other
    source : index into `inputs`
    seed : of the initial weights; equal seed and shape give equal initial weights
    group : networks of one group keep the weights of the same epoch, the one with the best mean
        validation score; None stands for a group of its own
    n_inputs : read only the first columns of the (transformed) source; None reads all
    """

    target: int = 0
    hidden: tuple[int, ...] = ()
    kind: OutputKind = "categorical"
    n_outputs: int = 1
    source: int = 0
    seed: int = 0
    group: Hashable = None
    n_inputs: int | None = None


@dataclass(frozen=True)
class Training:
    """How all networks of one call are trained.

    The learning rate is multiplied by `gamma` at each of `milestones` (shares of the epochs).
    `order_seed` draws one order of rows per epoch, shared by all networks. `init="torch"` is the
    default of `torch.nn.Linear`, `"glorot"` the default of Keras (uniform, zero bias).
    `evaluations` is the number of epochs, evenly spaced and ending with the last, after which the
    validation score is taken; None takes it after each.
    """

    epochs: int = 10
    batch_size: int = 128
    learning_rate: float = 2e-4
    weight_decay: float = 0.0
    milestones: tuple[float, ...] = (0.4, 0.8)
    gamma: float = 0.1
    epsilon: float = 1e-8
    init: Literal["torch", "glorot"] = "torch"
    order_seed: int = 0
    evaluations: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}.")
        if self.init not in ("torch", "glorot"):
            raise ValueError(f"init must be 'torch' or 'glorot', got {self.init!r}.")

    def learning_rate_at(self, epoch: int) -> float:
        """Learning rate of an epoch, counted from 0."""
        passed = sum(epoch >= int(share * self.epochs) for share in self.milestones)
        return self.learning_rate * self.gamma**passed

    def evaluated(self) -> set[int]:
        """Epochs after which the validation score is taken; the last is always one of them."""
        count = self.epochs if self.evaluations is None else min(self.evaluations, self.epochs)
        return set(
            np.linspace(self.epochs - 1, 0, count, endpoint=count == self.epochs).astype(int)
        )


@dataclass(frozen=True)
class NetworkWeights:
    """One trained network as arrays: `layers` holds (weight (in, out), bias (out,)) in order."""

    kind: OutputKind
    layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]

    @property
    def n_parameters(self) -> int:
        """Weights and biases together."""
        return sum(weight.size + bias.size for weight, bias in self.layers)

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Probabilities (categorical, binary) or values (continuous), `(n, n_outputs)`."""
        hidden = np.asarray(x, dtype=np.float32)
        for weight, bias in self.layers[:-1]:
            hidden = np.maximum(hidden @ weight + bias, 0)
        weight, bias = self.layers[-1]
        return self.activate(hidden @ weight + bias)

    def activate(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Turn the last layer's values into predictions."""
        if self.kind == "categorical":
            shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
            return shifted / shifted.sum(axis=-1, keepdims=True)
        if self.kind == "binary":
            return (0.5 * (1 + np.tanh(0.5 * logits))).astype(np.float32)
        return logits


def initial_weights(torch: Any, net: Network, n_inputs: int, init: str) -> list[tuple[Any, Any]]:
    """Weights as drawn by `torch.nn.Linear` or by Keras, from the network's own seed."""
    generator = torch.Generator().manual_seed(int(net.seed))
    layers = []
    sizes = [n_inputs, *net.hidden, net.n_outputs]
    for fan_in, fan_out in itertools.pairwise(sizes):
        glorot = init == "glorot"
        bound = math.sqrt(6 / (fan_in + fan_out)) if glorot else 1 / math.sqrt(fan_in)
        weight = (torch.rand(fan_out, fan_in, generator=generator) * 2 - 1) * bound
        bias = (torch.rand(fan_out, generator=generator) * 2 - 1) * (0 if glorot else bound)
        layers.append((weight.T, bias))
    return layers


def check_targets(
    targets: Sequence[ArrayLike], networks: Sequence[Network], n: int, n_sources: int, name: str
) -> list[NDArray[Any]]:
    """Targets in the form the losses need; the networks' indices and sizes must fit them."""
    kinds: dict[int, OutputKind] = {}
    for i, net in enumerate(networks):
        if net.kind not in _KINDS:
            raise ValueError(f"networks[{i}].kind must be one of {_KINDS}, got {net.kind!r}.")
        if not 0 <= net.target < len(targets) or not 0 <= net.source < n_sources:
            raise ValueError(
                f"networks[{i}] reads source {net.source} and target {net.target}, "
                f"but there are {n_sources} inputs and {len(targets)} {name}."
            )
        if kinds.setdefault(net.target, net.kind) != net.kind:
            raise ValueError(
                f"{name}[{net.target}] is used as {kinds[net.target]} and as {net.kind}; "
                "pass it twice, once for each kind."
            )
    checked: list[NDArray[Any]] = []
    for j, target in enumerate(targets):
        array = to_numpy(f"{name}[{j}]", target)
        if array.shape[0] != n:
            raise ValueError(
                f"{name}[{j}] must have {n} rows like the inputs, got {array.shape[0]}."
            )
        if kinds.get(j) == "categorical":
            checked.append(np.ascontiguousarray(array.reshape(n), dtype=np.int64))
        else:
            checked.append(np.ascontiguousarray(array.reshape(n, -1), dtype=np.float64))
    for i, net in enumerate(networks):
        array = checked[net.target]
        if net.kind == "categorical":
            if array.min() < 0 or array.max() >= net.n_outputs:
                raise ValueError(
                    f"{name}[{net.target}] must hold classes 0 to {net.n_outputs - 1} (n_outputs "
                    f"of networks[{i}] is {net.n_outputs}), got {array.min()} to {array.max()}."
                )
        elif array.shape[1] != net.n_outputs:
            raise ValueError(
                f"networks[{i}].n_outputs is {net.n_outputs}, but {name}[{net.target}] has "
                f"{array.shape[1]} columns."
            )
    return checked


def validation_score(network: Network, prediction: NDArray[Any], target: NDArray[Any]) -> float:
    """Validation score, higher is better: accuracy, or R2 with the sample's own variance."""
    if network.kind == "categorical":
        return float(np.mean(prediction.argmax(axis=1) == target))
    if network.kind == "binary":
        return float(np.mean((prediction > 0) == (target > 0.5)))
    return float(1 - np.mean((prediction - target) ** 2) / max(float(target.var()), 1e-12))
