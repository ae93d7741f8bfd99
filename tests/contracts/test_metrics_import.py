"""`import concept_audit.metrics` costs milliseconds and loads nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import concept_audit.metrics

HEAVY = (
    "torch", "hydra", "omegaconf", "pytorch_lightning", "lightning", "wandb", "pandas",
    "matplotlib", "sklearn", "numba", "transformers",
)  # fmt: skip


def in_a_fresh_interpreter(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip().splitlines()[-1]


def test_import_is_light():
    code = (
        "import json, sys, time; start = time.process_time(); import concept_audit.metrics; "
        "seconds = time.process_time() - start; "
        f"print(json.dumps([seconds, [m for m in {HEAVY!r} if m in sys.modules]]))"
    )
    seconds, loaded = json.loads(in_a_fresh_interpreter(code))
    assert loaded == []
    assert seconds < 1.0


def test_discrete_scores_need_neither_numba_nor_scikit_learn_nor_torch():
    code = (
        "import json, sys; from concept_audit.metrics import concepts_task_leakage; "
        "concepts_task_leakage([[0], [1], [0], [1]], [[0], [1], [0], [1]], [0, 1, 1, 0]); "
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    assert json.loads(in_a_fresh_interpreter(code)) == []


def test_a_name_shared_with_a_module_is_the_function_whichever_came_first():
    code = (
        "import concept_audit.metrics.disentanglement; import concept_audit.metrics as m; "
        "print(type(m.disentanglement).__name__)"
    )
    assert in_a_fresh_interpreter(code) == "function"


def test_every_public_name_loads():
    for name in concept_audit.metrics.__all__:
        assert callable(getattr(concept_audit.metrics, name)), name
        assert name in dir(concept_audit.metrics)


def test_unknown_name():
    with pytest.raises(AttributeError, match="Did you mean 'concepts_task_leakage'"):
        getattr(concept_audit.metrics, "concept_task_leakage")  # noqa: B009
