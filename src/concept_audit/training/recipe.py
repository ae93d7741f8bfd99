"""What is trained and how, in plain values: recipes, members, phases and results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

import torch

from concept_audit.data.base import ConceptDataset
from concept_audit.models.encoders import MLPSpec
from concept_audit.models.frozen import FrozenSpec, backbone_identity
from concept_audit.models.outputs import ModelSpec
from concept_audit.training.augmentation import AUGMENTATIONS

__all__ = [
    "FitResult",
    "Member",
    "Phase",
    "Progress",
    "Recipe",
    "diverged_message",
    "group_key",
    "identity",
    "initial_model",
    "phases_of",
]

Progress = Callable[[int, int, dict[str, float]], None]
"""Called after each epoch with its number (from 1), the number of epochs, and losses by member."""


@dataclass(frozen=True)
class Recipe:
    """Optimisation settings; the defaults are those of TabularToy (Leakage paper, appendix).

    Parameters
    ----------
    epochs, batch_size, optimiser, lr, momentum, weight_decay
        Joint training, and the encoder of sequential and independent training. `momentum` is
        Adam's beta1 or the momentum of SGD.
    head_epochs, head_optimiser, head_lr, head_momentum
        A head trained by itself: that of independent and sequential models, and reference heads.
        Adam at 1e-3 does not converge in 20 epochs, SGD at 0.1 does.
    checkpoint : {"best", "last"}
        Keep the weights of the lowest validation loss, or the last ones.
    early_stopping_patience : int, optional
        Stop after this many epochs without a lower validation loss (the authors' code: 15).
    plateau_patience : int, optional
        Multiply the learning rate by `plateau_factor` after more than this many epochs without a
        lower training loss (the authors' code: 10).
    lr_decay : float
        Factor on the learning rate after each epoch (DCI-ES code: 0.95 for VAEs).
    shuffle : bool
        Draw a new order of the training rows in each epoch.
    balanced_concepts : bool
        Weigh the positive class of each concept by its rarity.
    augmentation : str
        Of training images, one of `AUGMENTATIONS`.

    Raises
    ------
    ValueError
        On an unknown optimiser or checkpoint, or a value out of range.
    """

    epochs: int = 200
    batch_size: int = 512
    optimiser: str = "adam"
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 0.0
    head_epochs: int = 20
    head_optimiser: str = "sgd"
    head_lr: float = 0.1
    head_momentum: float = 0.9
    checkpoint: str = "best"
    early_stopping_patience: int | None = None
    plateau_patience: int | None = None
    plateau_factor: float = 0.1
    lr_decay: float = 1.0
    shuffle: bool = True
    balanced_concepts: bool = False
    augmentation: str = "none"

    def __post_init__(self) -> None:
        for label in ("optimiser", "head_optimiser"):
            _choice(label, getattr(self, label), ("adam", "sgd"))
        _choice("checkpoint", self.checkpoint, ("best", "last"))
        _choice("augmentation", self.augmentation, AUGMENTATIONS)
        for label in ("epochs", "batch_size", "head_epochs"):
            if getattr(self, label) < 1:
                raise ValueError(f"{label} must be at least 1, got {getattr(self, label)}.")
        for label in ("lr", "head_lr", "plateau_factor", "lr_decay"):
            if not getattr(self, label) > 0:
                raise ValueError(f"{label} must be above 0, got {getattr(self, label)}.")
        for label in ("momentum", "head_momentum"):
            if not 0 <= getattr(self, label) < 1:
                raise ValueError(f"{label} must lie in [0, 1), got {getattr(self, label)}.")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay}.")
        for label in ("early_stopping_patience", "plateau_patience"):
            value = getattr(self, label)
            if value is not None and value < 1:
                raise ValueError(f"{label} must be at least 1 or null, got {value}.")


@dataclass(frozen=True)
class Member:
    """One model to train: its description and what may differ between members of a bank.

    Parameters
    ----------
    spec : ModelSpec
        Description of the model.
    seed : int
        Seed of the weights, the order of rows, dropout and training interventions.
    lambda_concept : float
        Weight of the concept loss in joint training; the task loss has weight 1 (eq. 3).
    p_int : float
        Chance that a concept of a CEM is intervened on in a training batch.
    label : str
        Name in progress and messages.

    Raises
    ------
    ValueError
        On a negative weight or seed, a chance outside [0, 1], or a `p_int` for another model.
    """

    spec: ModelSpec
    seed: int = 0
    lambda_concept: float = 1.0
    p_int: float = 0.0
    label: str = ""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}.")
        if not self.lambda_concept >= 0:
            raise ValueError(f"lambda_concept must not be negative, got {self.lambda_concept}.")
        if not 0 <= self.p_int <= 1:
            raise ValueError(f"p_int must lie in [0, 1], got {self.p_int}.")
        if self.p_int and self.spec.family != "cem":
            raise ValueError(
                f"p_int is for concept embedding models, got {self.p_int} for a "
                f"{self.spec.family}. Leave it at 0."
            )

    def describe(self) -> dict[str, Any]:
        """Hyperparameters as a plain dictionary, for messages and checkpoints."""
        return {
            "family": self.spec.family,
            "spec": asdict(self.spec) if is_dataclass(self.spec) else {},
            "seed": self.seed,
            "lambda_concept": self.lambda_concept,
            "p_int": self.p_int,
        }


@dataclass(frozen=True)
class Phase:
    """One optimisation: which loss, for how long, and with which optimiser.

    `name` is ``joint`` (all weights, lambda L_c + L_y), ``encoder`` (L_c alone), ``head`` (L_y of a
    head on fixed inputs) or ``reconstruction`` (all weights of a VAE).
    """

    name: str
    epochs: int
    optimiser: str
    lr: float
    momentum: float
    weight_decay: float


@dataclass(frozen=True)
class FitResult:
    """A trained model.

    `state_dict` holds CPU tensors, empty if training failed; `history` one dictionary per epoch and
    phase; `best_epoch` the epoch (from 0) of the kept weights in the last phase;
    `concept_percentiles` (2, k) the 5th and 95th percentile of the training logits, None for a
    reference head; `seconds` wall time, in a bank the member's share; `failed` the reason, or None.
    """

    member: Member
    state_dict: dict[str, torch.Tensor] = field(repr=False)
    history: list[dict[str, Any]] = field(repr=False)
    best_epoch: int
    concept_percentiles: torch.Tensor | None
    seconds: float
    failed: str | None = None


def phases_of(spec: ModelSpec, recipe: Recipe) -> tuple[Phase, ...]:
    """Optimisations that train this kind of model, in order."""
    body = (recipe.epochs, recipe.optimiser, recipe.lr, recipe.momentum, recipe.weight_decay)
    head = Phase(
        "head", recipe.head_epochs, recipe.head_optimiser, recipe.head_lr, recipe.head_momentum, 0.0
    )
    if spec.family == "vae":
        return (Phase("reconstruction", *body),)
    if spec.training is None:
        return (head,)
    if spec.training == "joint":
        return (Phase("joint", *body),)
    return (Phase("encoder", *body), head)


def group_key(member: Member) -> str | None:
    """Members with equal keys may share one batched program on one dataset with one recipe.

    None for a model that trains more than MLPs: the bank cannot hold it, single training can.
    """
    encoder = getattr(member.spec, "encoder", None)
    if member.spec.family not in ("cbm", "cem", "reference_head"):
        return None
    if encoder is not None and not isinstance(encoder, MLPSpec | FrozenSpec):
        return None
    described = [member.describe()["spec"]]
    if isinstance(encoder, FrozenSpec):  # two backbones may be described by the same values
        described.append(backbone_identity(encoder.backbone, seed=encoder.backbone_seed))
    return f"{member.spec.family}:{_digest(described)}"


def identity(members: list[Member], dataset: ConceptDataset, recipe: Recipe) -> str:
    """Digest of everything that decides the numbers; a resume file must carry the same."""
    described = [member.describe() for member in members]
    return _digest([described, asdict(recipe), dataset.fingerprint()])


def initial_model(member: Member, dataset: ConceptDataset) -> torch.nn.Module:
    """Untrained model: weights are a function of the member's seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(member.seed)
        return member.spec.build(
            input_shape=dataset.input_shape,
            n_concepts=dataset.n_concepts,
            n_classes=dataset.n_classes,
        )


def diverged_message(member: Member, phase: str, epoch: int, step: int, loss: float) -> str:
    """Why a member failed: where, and with which hyperparameters."""
    return (
        f"the training loss became {loss} at step {step} (phase {phase!r}, epoch {epoch}) with "
        f"{json.dumps(member.describe(), sort_keys=True)}. Lower the learning rate or "
        "lambda_concept, or look for extreme inputs."
    )


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _choice(label: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{label} must be one of {choices}, got {value!r}.")
