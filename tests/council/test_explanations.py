from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concept_audit.council import explain, explain_contributions


@pytest.mark.parametrize("mode", ["literal", "positive", "abs"])
def test_explanations_of_the_reference_file(reference, mode):
    for case in reference("council")["explanation_cases"]:
        got = explain(
            case["activations"], case["weights_of_predicted_class"], case["concepts"], mode=mode
        )
        want = case["expected"][mode]
        assert [(c.name, c.negated) for c in got.concepts] == [
            (c["concept"], c["negated"]) for c in want["kept"]
        ], case["case"]
        assert [c.weight for c in got.concepts] == pytest.approx(
            [c["weight"] for c in want["kept"]], abs=1e-9
        )
        assert got.displayed_sum == pytest.approx(want["displayed_sum"], abs=1e-9)


def test_a_negated_concept_reads_not():
    shown = explain([-2, 1], [-0.3, 0.3], ["grey wing", "red crown"]).concepts[0]
    assert shown.label() == "NOT grey wing"
    assert shown.label(render_negation=False) == "grey wing"


finite = st.floats(-1e6, 1e6).map(lambda v: 0.0 if abs(v) < 1e-6 else v)


@given(st.lists(finite, min_size=1, max_size=12), st.floats(1e-6, 1e6))
@settings(max_examples=100, deadline=None)
def test_positive_scaling_changes_nothing(contributions, factor):
    names = [f"c{j}" for j in range(len(contributions))]
    for mode in ("literal", "positive", "abs"):
        before = explain_contributions(contributions, names, mode=mode)
        after = explain_contributions(np.asarray(contributions) * factor, names, mode=mode)
        assert [c.name for c in before.concepts] == [c.name for c in after.concepts]
        assert [c.weight for c in before.concepts] == pytest.approx(
            [c.weight for c in after.concepts]
        )
        assert sum(abs(c.weight) for c in before.concepts) <= 1 + 1e-9
        assert len(before.concepts) <= 5


@pytest.mark.parametrize("scale", [1e-320, 1e300])
def test_extreme_sizes_keep_their_shares(scale):
    shown = explain_contributions(np.array([3.0, 1.0]) * scale, ["a", "b"]).concepts
    assert [c.weight for c in shown] == pytest.approx([0.75, 0.25], rel=1e-2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1], ["a", "b"]), r"must agree on k: got \(2,\) and \(1,\)"),
        (([1, 2], [1, 2], ["a"]), "one name per contribution: got 1 for 2"),
        (([1, np.nan], [1, 2], ["a", "b"]), "activations must be finite, got nan at concept 1"),
        (([1, 2], [1, 2], ["a", "a"]), "must differ, got 'a' 2 times"),
        (([[1]], [1], ["a"]), "one image at a time"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        explain(*arguments)


def test_an_unknown_mode_lists_the_modes():
    with pytest.raises(ValueError, match="literal, positive, abs, got 'signed'"):
        explain([1], [1], ["a"], mode="signed")
    with pytest.raises(ValueError, match="n_shown must be at least 1, got 0"):
        explain([1], [1], ["a"], n_shown=0)
    with pytest.raises(ValueError, match="one flag per contribution"):
        explain_contributions([1.0], ["a"], negated=[True, False])
