"""From experiment files and overrides to cells: one resolved config for each training."""

from __future__ import annotations

import copy
import difflib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf, open_dict

from concept_audit.pipeline.schema import check_targets, register

__all__ = [
    "Cell",
    "Experiment",
    "check_overrides",
    "config_dir",
    "expand",
    "experiment_names",
    "hydra_ready",
    "load_experiment",
    "options",
]


_OF_EXPERIMENTS = ("experiment_name", "artefact", "evaluation")


@dataclass(frozen=True)
class Cell:
    """One training with its evaluations: a resolved config and the overrides that gave it."""

    config: dict[str, Any]
    overrides: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Short name for progress lines and error tables."""
        return " ".join(self.overrides) or "default"


@dataclass(frozen=True)
class Experiment:
    """One figure or table: its artefact, and the cells it needs."""

    name: str
    artefact: dict[str, Any]
    cells: tuple[Cell, ...] = field(default=())


def config_dir() -> Path:
    """Folder of the YAML files: the checkout's `configs/`, or the copy that a wheel carries."""
    here = Path(__file__).resolve()
    checkout = here.parents[3] / "configs"
    if (checkout / "run.yaml").is_file():
        return checkout
    packaged = here.parents[1] / "configs"
    if (packaged / "run.yaml").is_file():
        return packaged
    raise FileNotFoundError(
        f"No configs found at {checkout} or {packaged}. "
        "Reinstall with pip install --force-reinstall concept-audit."
    )


def options(group: str) -> list[str]:
    """Names of a config group, for example `options("data")`; sub-folders as `paper/stem`."""
    root = config_dir() / group
    return sorted(str(path.relative_to(root).with_suffix("")) for path in root.rglob("*.yaml"))


def experiment_names(paper: str | None = None) -> list[str]:
    """Names of the experiment files, `paper/stem`."""
    return [name for name in options("experiment") if paper is None or name.split("/")[0] == paper]


@contextmanager
def hydra_ready() -> Iterator[None]:
    """Hydra initialised on our configs; inside a running Hydra app this is a no-op."""
    register()
    if GlobalHydra.instance().is_initialized():
        yield
        return
    with initialize_config_dir(
        config_dir=str(config_dir()), version_base="1.3", job_name="concept_audit"
    ):
        yield


def _compose(overrides: Sequence[str]) -> DictConfig:
    try:
        return compose(config_name="run", overrides=list(overrides), return_hydra_config=True)
    except (ConfigCompositionException, HydraException) as error:
        raise ValueError(f"{error}\nOverrides: {' '.join(overrides)}") from error


def _groups() -> dict[str, list[str]]:
    root = config_dir()
    names = {
        str(path.parent.relative_to(root)) for path in root.rglob("*.yaml") if path.parent != root
    }
    names = {"experiment" if name.startswith("experiment") else name for name in names}
    return {name: options(name) for name in names}


def _nearest(word: str, known: Iterable[str]) -> str:
    known = sorted(set(known))
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    if close:
        return f"Nearest: {', '.join(close)}."
    return f"Known: {', '.join(known[:40])}."


def _flat_keys(node: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _flat_keys(value, f"{prefix}{key}.")


def check_overrides(overrides: Sequence[str]) -> None:
    """Refuse unknown groups, options and keys with the nearest match, before anything is composed.

    Raises
    ------
    ValueError  naming the override, the rule and the nearest names that exist.
    """
    groups = _groups()
    parser = OverridesParser.create()
    base_keys: set[str] | None = None
    for text in overrides:
        try:
            override = parser.parse_override(text)
        except HydraException as error:
            raise ValueError(
                f"Cannot read the override {text!r}: {error}. Write key=value."
            ) from None
        key = override.key_or_group
        if override.is_add() or override.is_delete() or key.startswith("hydra."):
            continue
        values = str(text.split("=", 1)[1]) if "=" in text else ""
        if key in groups:
            if values.startswith("[") or key.startswith("hydra/"):
                names = [part.strip() for part in values.strip("[]").split(",")]
            else:
                names = [part.strip() for part in values.split(",")]
            for name in names:
                if key.startswith("hydra/"):
                    break  # plugins add launchers of their own
                if name and name != "null" and name not in groups[key]:
                    raise ValueError(
                        f"{key}={name} is unknown. {_nearest(name, groups[key])} "
                        "`concept-audit list` shows all."
                    )
            continue
        if base_keys is None:
            with hydra_ready():
                chosen = [
                    item
                    for item in overrides
                    if item.split("=", 1)[0] in groups and "," not in item
                ]
                base = _compose(chosen)
            with open_dict(base):
                del base["hydra"]
            base_keys = set(_flat_keys(OmegaConf.to_container(base, resolve=False)))
        if key not in base_keys and key not in groups:
            raise ValueError(
                f"The key {key!r} is unknown. {_nearest(key, base_keys | set(groups))} "
                f"To add a new key on purpose write +{text}."
            )


@lru_cache(maxsize=4096)
def _composed(overrides: tuple[str, ...]) -> DictConfig:
    return _compose(overrides)


@lru_cache(maxsize=4096)
def _without_hydra(overrides: tuple[str, ...]) -> DictConfig:
    """The composed config less Hydra's own node, which is large and slow to copy."""
    config = _composed(overrides)
    kept = [str(key) for key in config if key != "hydra"]
    return OmegaConf.masked_copy(config, kept)


@lru_cache(maxsize=4096)
def _unresolved(overrides: tuple[str, ...]) -> dict[str, Any]:
    plain: Any = OmegaConf.to_container(_without_hydra(overrides), resolve=False)
    return dict(plain)


@lru_cache(maxsize=1024)
def _trained_alike(fixed: tuple[str, ...]) -> tuple[str, ...]:
    """The overrides without the experiment, if it changes only what is evaluated and drawn.

    Composing is slow, and the experiments of a paper share most of their models.
    """
    without = tuple(text for text in fixed if not text.startswith("experiment="))
    one, other = _unresolved(fixed), _unresolved(without)
    same = all(one[key] == other[key] for key in one if key not in _OF_EXPERIMENTS)
    return without if same else fixed


def _split(fixed: tuple[str, ...], swept: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Choices of config files, and plain values."""
    choices = _composed(fixed).hydra.runtime.choices
    chosen = [text for text in swept if text.split("=", 1)[0] in choices]
    return tuple(chosen), tuple(text for text in swept if text not in chosen)


@lru_cache(maxsize=16384)
def _resolved(overrides: tuple[str, ...], values: tuple[str, ...]) -> dict[str, Any]:
    """One config with plain values set and all interpolations replaced."""
    config = copy.deepcopy(_without_hydra(overrides))
    parser = OverridesParser.create()
    for text in values:
        override = parser.parse_override(text)
        OmegaConf.update(config, override.key_or_group, override.value(), merge=False)
    plain: Any = OmegaConf.to_container(config, resolve=True)
    check_targets(plain)
    return dict(plain)


@lru_cache(maxsize=1024)
def _own_part(shown: str, context: str) -> dict[str, Any]:
    """What an experiment sets, with its interpolations replaced from the keys in `context`."""
    config = OmegaConf.create({**json.loads(context), **json.loads(shown)})
    plain: Any = OmegaConf.to_container(config, resolve=True)
    own = {key: plain[key] for key in _OF_EXPERIMENTS}
    check_targets(own)
    return own


def _cell(fixed: tuple[str, ...], swept: Sequence[str]) -> Cell:
    """Resolve one cell; configs that differ in plain values only are composed once."""
    chosen, values = _split(fixed, swept)
    alike = _trained_alike(fixed)
    evaluated = _unresolved(alike)["evaluation"]
    if alike == fixed or _unresolved((*alike, *chosen))["evaluation"] != evaluated:
        return Cell(config=_resolved((*fixed, *chosen), values), overrides=tuple(swept))
    trained = _resolved((*alike, *chosen), values)
    shown = json.dumps({key: _unresolved(fixed)[key] for key in _OF_EXPERIMENTS})
    used = set(re.findall(r"\$\{(\w+)", shown)) & set(trained)
    context = json.dumps({key: trained[key] for key in sorted(used)})
    return Cell(config={**trained, **_own_part(shown, context)}, overrides=tuple(swept))


def expand(overrides: Sequence[str], cells: Sequence[Sequence[str]] | None = None) -> list[Cell]:
    """Cells of one command.

    Parameters
    ----------
    overrides : as on the command line, sweeps included
    cells : overrides of each cell where a sweeper has expanded them already

    Returns
    -------
    list of Cell in the order of the sweep; one cell when nothing is swept
    """
    with hydra_ready():
        parser = OverridesParser.create()
        parsed = parser.parse_overrides(list(overrides))
        fixed = tuple(str(item.input_line) for item in parsed if not item.is_sweep_override())
        if cells is None:
            swept = [item for item in parsed if item.is_sweep_override()]
            base = _composed(fixed)
            given = {item.key_or_group for item in parsed}
            params: Any = OmegaConf.to_container(base.hydra.sweeper, resolve=True)
            grid = params.get("params") or {}
            lines = [f"{key}={value}" for key, value in grid.items() if key not in given]
            sweeps = parser.parse_overrides(lines) + swept
            batches = BasicSweeper.split_arguments(sweeps, max_batch_size=None)
            cells = list(itertools.chain.from_iterable(batches)) if sweeps else [[]]
        return [_cell(fixed, [text for text in cell if text not in fixed]) for cell in cells]


def load_experiment(name: str, overrides: Sequence[str] = ()) -> Experiment:
    """One experiment with all its cells, narrowed by `overrides`."""
    if name not in experiment_names():
        raise ValueError(f"experiment={name} is unknown. {_nearest(name, experiment_names())}")
    with hydra_ready():
        line = (f"experiment={name}", *overrides)
        cells = expand(line)
        artefact = cells[0].config["artefact"]
    return Experiment(name=name, artefact=dict(artefact), cells=tuple(cells))
