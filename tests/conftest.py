"""Shared fixtures: reference values and a switch that turns missing packages into failures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

# One thread per numerical library: two test processes share two cores.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")

REFERENCE = Path(__file__).parent / "reference"


@pytest.fixture(scope="session")
def reference():
    """Load `tests/reference/<name>_reference.json`."""

    def load(name: str) -> dict[str, Any]:
        return json.loads((REFERENCE / f"{name}_reference.json").read_text())

    return load


@pytest.fixture(scope="session")
def samples_dir() -> Path:
    """Folder of real sample images (see its README for sources and licences)."""
    return REFERENCE / "samples"
