"""What the README tells a user to type works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from concept_audit.pipeline.entry import VERBS
from concept_audit.pipeline.plan import check_overrides

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)
# Blocks that stand on their own begin with their imports and read nothing under outputs/.
WHOLE = [code for code in PYTHON if code.startswith("import numpy") and "outputs/" not in code]
COMMANDS = sorted(
    {
        match.strip().split("#")[0].split("  ")[0].strip("` ")
        for match in re.findall(r"(?:^|`)(concept-audit [a-z].*?)(?:`|$)", README, re.M)
    }
)


@pytest.mark.parametrize("code", WHOLE, ids=range(len(WHOLE)))
def test_python_blocks_run(code, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_there_are_python_blocks():
    assert len(WHOLE) >= 2


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_name_what_exists(command):
    _, verb, *arguments = shlex.split(command)
    assert verb in VERBS
    if verb in ("run", "reproduce"):
        check_overrides([text for text in arguments if "=" in text and "<" not in text])


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z_]+)(?: [a-z_]+)*:", makefile, re.M))
    targets |= set(re.findall(r"^[a-z_]+ ([a-z_]+):", makefile, re.M))
    for command in re.findall(r"(?:^|`)make ([a-z_ ]+)", README, re.M):
        for name in command.split():
            assert name in targets, name
