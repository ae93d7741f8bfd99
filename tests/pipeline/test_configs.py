"""Every YAML file composes, and every `_target_` takes the keywords that it is given."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import hydra
import pytest

from concept_audit.pipeline.plan import config_dir, expand, options

FILES = sorted(config_dir().rglob("*.yaml"))


def _targets(node: Any, where: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = []
    if isinstance(node, dict):
        if "_target_" in node:
            found.append((where, node))
        for key, value in node.items():
            found += _targets(value, f"{where}.{key}")
    elif isinstance(node, list):
        for value in node:
            found += _targets(value, where)
    return found


def _bind(config: dict[str, Any]) -> None:
    for where, node in _targets(config):
        target = hydra.utils.get_object(node["_target_"])
        signature = inspect.signature(target)
        keywords = {key for key in node if not key.startswith("_")}
        if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            continue
        unknown = keywords - set(signature.parameters)
        assert not unknown, f"{where}: {node['_target_']} takes no {sorted(unknown)}"


@pytest.mark.parametrize("group", ["data", "model", "encoder", "concept_output", "head"])
def test_every_choice_of_a_group_composes_and_binds(group):
    names = options(group)
    assert names
    for name in names:
        (cell,) = expand([f"{group}={name}", "profile=smoke"])
        _bind({key: cell.config[key] for key in ("data", "model", "recipe")})


def test_every_evaluation_composes_and_binds():
    names = options("evaluation")
    (cell,) = expand([f"evaluation=[{','.join(names)}]"])
    for name in names:
        node = cell.config["evaluation"][name]
        function = hydra.utils.get_method(node["_target_"])
        options_ = {key: value for key, value in node.items() if key != "_target_"}
        inspect.signature(function).bind(None, **options_)


@pytest.mark.parametrize("group", ["trainer", "logger", "profile", "recipe"])
def test_every_other_choice_composes(group):
    for name in options(group):
        if group != "recipe" or "/" not in name:
            expand([f"{group}={name}"])


@pytest.mark.parametrize("path", FILES, ids=[str(f.relative_to(config_dir())) for f in FILES])
def test_every_file_says_what_it_is_and_how_to_run_it(path: Path):
    lines = [line for line in path.read_text().splitlines() if not line.startswith("# @")]
    assert lines[0].startswith("# "), "first line: what it is"
    head = "\n".join(lines[:4])
    assert path.parent.name in ("profile", "paths", "launcher") or "concept-audit " in head, (
        "the first lines say how to run it"
    )


def test_autoencoders_of_several_sizes_have_names_of_their_own():
    cells = expand(["data=shapes3d_standin", "model=autoencoder", "model.spec.n_latents=5,10,20"])
    names = [cell.config["model"]["spec"]["name"] for cell in cells]
    assert names == ["autoencoder_5", "autoencoder_10", "autoencoder_20"]
