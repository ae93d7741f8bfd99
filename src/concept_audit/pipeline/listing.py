"""`concept-audit list`: what can be named on the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from concept_audit.pipeline.plan import config_dir, options

__all__ = ["main"]

_GROUPS = {
    "experiment": "experiments (experiment=...)",
    "data": "datasets (data=...)",
    "model": "models (model=...)",
    "encoder": "encoders (encoder=...)",
    "evaluation": "evaluations (evaluation=[...])",
    "profile": "profiles (profile=...)",
    "trainer": "trainers (trainer=...)",
    "logger": "loggers (logger=...)",
    "hydra/launcher": "launchers (hydra/launcher=...)",
}


def _first_line(group: str, name: str) -> str:
    path = config_dir() / group / f"{name}.yaml"
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# ") and not line.startswith("# @"):
            return line[2:].split("   concept-audit")[0].split("   hydra/")[0].strip()
    return ""


def main(argv: Sequence[str]) -> int:
    """Print the names of each group with the first line of its file."""
    wanted = [text for text in argv if not text.startswith("-")]
    unknown = [name for name in wanted if name not in _GROUPS]
    if unknown or "--help" in argv or "-h" in argv:
        print(f"usage: concept-audit list [{' | '.join(_GROUPS)}]", file=sys.stderr)
        return 2 if unknown else 0
    for group in wanted or _GROUPS:
        print(f"\n{_GROUPS[group]}")
        for name in options(group):
            print(f"  {name:<52} {_first_line(group, name)}")
    return 0
