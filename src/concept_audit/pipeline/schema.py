"""The trunk of the configuration: which top-level keys exist, and what may be built."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

__all__ = ["RunConfig", "build", "check_targets", "register"]

# What a config may build: our own package, and of others only what a model or a score is made of.
_TRUSTED = (
    "concept_audit.",
    "torch.nn.",
    "torch.optim.",
    "torchvision.models.",
    "timm.create_model",
    "sklearn.ensemble.",
    "sklearn.linear_model.",
    "sklearn.neural_network.",
)
_TRUST_VARIABLE = "CONCEPT_AUDIT_TRUST"


@dataclass
class RunConfig:
    """Top-level keys of `configs/run.yaml`; any other key is refused at composition."""

    profile: Any = field(default_factory=dict)
    data: Any = field(default_factory=dict)
    recipe: Any = field(default_factory=dict)
    encoder: Any = field(default_factory=dict)
    head: Any = field(default_factory=dict)
    concept_output: Any = field(default_factory=dict)
    model: Any = field(default_factory=dict)
    evaluation: Any = field(default_factory=dict)
    trainer: Any = field(default_factory=dict)
    logger: Any = field(default_factory=dict)
    paths: Any = field(default_factory=dict)
    resume: Any = field(default_factory=dict)
    experiment_name: str | None = None
    artefact: Any = None
    lambda_concept: float = 1.0
    p_int: float = 0.25
    fold: int = 0
    seed: int = 0
    eval_seed: int = 0


def register() -> None:
    """Make the trunk known to Hydra under the name that `run.yaml` lists first."""
    ConfigStore.instance().store(name="schema", node=RunConfig)


def _trusted_prefixes() -> tuple[str, ...]:
    extra = os.environ.get(_TRUST_VARIABLE, "")
    return _TRUSTED + tuple(part.strip() for part in extra.split(",") if part.strip())


def check_targets(config: Any, where: str = "config") -> None:
    """Refuse any `_target_` outside the trusted prefixes, before anything is imported.

    Raises
    ------
    ValueError  naming the key, the target and the environment variable that admits more prefixes.
    """
    if isinstance(config, DictConfig):
        config = OmegaConf.to_container(config, resolve=True)
    if isinstance(config, dict):
        target = config.get("_target_")
        if target is not None and not any(
            str(target).startswith(prefix) for prefix in _trusted_prefixes()
        ):
            raise ValueError(
                f"{where}._target_ is {target!r}, which is outside the trusted prefixes "
                f"({', '.join(_trusted_prefixes())}). If you trust it, name its prefix in the "
                f"environment variable {_TRUST_VARIABLE}."
            )
        for key, value in config.items():
            check_targets(value, f"{where}.{key}")
    elif isinstance(config, list):
        for position, value in enumerate(config):
            check_targets(value, f"{where}[{position}]")


def build(config: Any, **kwargs: Any) -> Any:
    """`hydra.utils.instantiate` after `check_targets`.

    Raises
    ------
    Exception  what the built thing itself raises, without the frame that Hydra puts around it.
    """
    check_targets(config)
    try:
        return hydra.utils.instantiate(config, _convert_="all", **kwargs)
    except InstantiationException as error:
        if isinstance(error.__cause__, ValueError | OSError):
            raise error.__cause__ from None
        raise
