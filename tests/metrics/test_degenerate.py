"""The documented table of degenerate cases, read row by row and executed.

Cases that are not built in `tests/metrics/degenerate/leakage.py` live beside it, one module an
area with `INPUTS: dict[case, dict[argument, array]]` and, where the arguments of a score have other
names, `CALLS: dict[score, callable(inputs, compat) -> result]`.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import concept_audit.metrics

DOCUMENT = Path(concept_audit.metrics.__file__).with_name("DEGENERATE.md")
AREAS = sorted(path.stem for path in (Path(__file__).parent / "degenerate").glob("[a-z]*.py"))
MODULES = [import_module(f"metrics.degenerate.{area}") for area in AREAS]
INPUTS: dict[str, dict[str, Any]] = {k: v for m in MODULES for k, v in m.INPUTS.items()}
CALLS: dict[str, Callable] = {k: v for m in MODULES for k, v in m.CALLS.items()}


def rows() -> list[tuple[str, str, str | None, str]]:
    """Case, score, compat and documented result of every line of the table."""
    found = []
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| ") or cells[0] == "case":
            continue
        case, score, default, reference = cells
        found.append((case, score, None, default))
        if reference != "-":
            found.append((case, score, "reference", reference))
    return found


def mean_of(result: Any) -> float:
    return float(getattr(result, "mean", result) if not isinstance(result, float) else result)


@pytest.mark.parametrize(("case", "score", "compat", "documented"), rows())
def test_row(case, score, compat, documented):
    inputs = {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in INPUTS[case].items()
    }

    def call() -> Any:
        return CALLS[score](inputs, compat)

    kind, _, words = documented.partition(": ")
    if kind == "error":
        with pytest.raises(ValueError, match=re.escape(words)):
            call()
        return
    if kind == "warns":
        with pytest.warns(UserWarning, match=re.escape(words)):
            result = call()
        assert math.isfinite(mean_of(result))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = call()
    mean = mean_of(result)
    if kind == "NaN":
        assert math.isnan(mean)
    elif kind == "NaN pairs":
        assert math.isfinite(mean)
        assert result.n_undefined_pairs == int(words)
        assert result.undefined
    elif kind == "NaN concepts":
        assert math.isfinite(mean)
        assert len(result.undefined) == int(words)
        assert np.isnan(result.per_concept).sum() == int(words)
    elif kind == "finite":
        assert math.isfinite(mean)
    else:
        assert mean == pytest.approx(float(kind), abs=1e-12)


def test_every_case_is_documented():
    assert {case for case, *_ in rows()} == set(INPUTS)
