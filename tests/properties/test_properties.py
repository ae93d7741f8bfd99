"""Every public score against every property, with the verdict of the table."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import concept_audit.metrics
from properties import table

CASES = table.cases()
# Scores that are themselves checks of scores; their own tests are named.
NOT_IN_TABLE = {"check_metric": "tests/metrics/test_checking.py"}


def one_example(case: table.Case, wanted: list[str], seed: int) -> None:
    """Draw once, score once, and hold each promised property against that."""
    rng = np.random.default_rng(seed)
    arrays = case.draw(rng)
    kept = copy.deepcopy(arrays)
    expected = table.values_of(case, case.call(**arrays))
    for name, value in kept.items():
        if "inputs unchanged" in wanted and isinstance(value, np.ndarray):
            np.testing.assert_array_equal(arrays[name], value, err_msg=f"{name} was changed")
    for name in wanted:
        due = expected
        if name == "inputs unchanged":
            continue
        if name == "shard and merge":
            found = merged(case, arrays, in_order=True)
            if not isinstance(case.verdicts["row permutation"], table.DoesNotHold):
                compare(case, name, expected, merged(case, arrays, in_order=False))
        elif name == "seed repeatability":
            found = table.values_of(case, case.call(**arrays))
        else:
            changed = arrays
            if name in ("row permutation", "relabelling"):
                letters = {"n"} if name == "row permutation" else set(case.relabelled)
                changed, orders = table.reordered(case, arrays, letters, rng)
                assert orders, f"{case.name} has no axis to shuffle: say DoesNotHold and why"
                due = table.expected_after(case, expected, orders)
            elif name == "class relabelling":
                changed = table.renamed_classes(case, arrays, rng)
            elif name == "affine rescaling":
                changed = table.rescaled(case, arrays, rng)
            found = table.values_of(case, case.call(**changed))
        compare(case, name, due, found)


def compare(
    case: table.Case, name: str, due: dict[str, np.ndarray], found: dict[str, np.ndarray]
) -> None:
    """Hold what was found against what is due, within the verdict's tolerance."""
    assert set(found) == set(due)
    for key, value in due.items():
        np.testing.assert_allclose(
            found[key], value, rtol=0, atol=case.verdicts[name].tolerance,
            err_msg=f"{case.name}.{key} under {name}",
        )  # fmt: skip


def merged(case: table.Case, arrays: dict, *, in_order: bool) -> dict[str, np.ndarray]:
    """Numbers of the torchmetrics form, fed one half each and merged.

    `merge_state` puts the rows of the other before one's own: the second half takes in the first
    when the rows shall keep their order.
    """
    pytest.importorskip("torchmetrics")
    import torch

    from concept_audit.metrics import modules

    first, second = (getattr(modules, case.module)(**case.options) for _ in range(2))
    n = len(arrays[first.arrays[0]])
    for metric, part in ((first, slice(0, n // 2)), (second, slice(n // 2, n))):
        metric.update(*(torch.as_tensor(np.asarray(arrays[a])[part]) for a in metric.arrays))
    whole, other = (second, first) if in_order else (first, second)
    whole.merge_state(other)
    found = table.values_of(case, whole.result())
    logged = (type(whole).value,) if case.logged is None else case.logged
    np.testing.assert_allclose(  # what the class logs are those same numbers, in that order
        np.ravel(whole.compute()),
        np.concatenate([np.ravel(found[key]) for key in logged]),
        rtol=0, atol=1e-12,
    )  # fmt: skip
    return found


def run(case: table.Case, wanted: list[str], examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**32 - 1))
    def check(seed: int) -> None:
        one_example(case, wanted, seed)

    check()


def promised(case: table.Case) -> list[str]:
    return [
        name for name in table.PROPERTIES
        if not isinstance(case.verdicts[name], table.DoesNotHold)
    ]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_functions(case):
    run(case, [name for name in promised(case) if name != "shard and merge"], case.examples)


@pytest.mark.parametrize(
    "case", [case for case in CASES if "shard and merge" in promised(case)], ids=lambda c: c.name
)
def test_torchmetrics_forms(case):
    run(case, ["shard and merge"], 2 if case.examples <= 10 else 20)  # few where a fit is needed


def test_every_public_name_stands_in_the_table():
    rows = {case.name for case in CASES} | set(NOT_IN_TABLE)
    assert rows == set(concept_audit.metrics.__all__)


def test_names_stand_once_and_verdicts_are_complete():
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    for case in CASES:
        assert set(case.verdicts) == set(table.PROPERTIES), case.name
        for name, verdict in case.verdicts.items():
            if not isinstance(verdict, table.Exact):
                assert len(verdict.why) > 10, f"{case.name}: say why of {name!r}"
