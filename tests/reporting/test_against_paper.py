"""Verdicts follow the stated rules."""

from __future__ import annotations

import math

import pytest

from concept_audit.reporting.against_paper import (
    VERDICT_RULES,
    Measured,
    Printed,
    Verdict,
    count_verdicts,
    judge,
    judge_share,
)

NAN = math.nan


@pytest.mark.parametrize(
    ("metric", "ours", "paper", "verdict"),
    [
        # nothing to hold against each other
        ("ctl", None, Printed(0.1), "not run"),
        ("ctl", Measured(NAN), Printed(0.1), "not run"),
        ("ctl", None, None, "not run"),
        ("ctl", Measured(0.1, standin=True), Printed(0.1), "stand-in"),
        ("ctl", Measured(0.1, standin=True), None, "stand-in"),
        ("ctl", Measured(0.1), None, "paper's value unknown"),
        ("ctl", Measured(0.1), Printed(NAN), "paper's value unknown"),
        # intervals
        ("ctl", Measured(0.5, 0.2, 0.8), Printed(0.2), "within interval"),
        ("ctl", Measured(0.5, 0.2, 0.8), Printed(0.1, 0.0, 0.2), "within interval"),
        ("task_accuracy", Measured(0.9904, 0.9903, 0.9905), Printed(0.990), "same order"),
        (
            "task_accuracy",
            Measured(0.9904, 0.9903, 0.9905),
            Printed(0.990, resolution=0.0005),
            "within interval",
        ),
        ("task_accuracy", Measured(1.0), Printed(1.0), "within interval"),
        # accuracies
        ("concept_f1", Measured(0.970), Printed(0.990), "same order"),
        ("task_auc", Measured(0.96), Printed(0.99), "differs"),
        # scores
        ("intervention_score", Measured(0.349), Printed(0.301), "same order"),
        ("intervention_score", Measured(0.04), Printed(0.0), "same order"),
        ("intervention_score", Measured(0.36), Printed(0.674), "same order"),
        ("intervention_score", Measured(0.0), Printed(0.301), "differs"),
        ("alignment_leakage", Measured(-0.2), Printed(0.2), "differs"),
    ],
)
def test_judge(metric: str, ours: Measured | None, paper: Printed | None, verdict: str):
    assert judge(metric, ours, paper) == verdict


@pytest.mark.parametrize(
    ("ours", "ours_p", "paper", "paper_p", "verdict"),
    [
        (0.9, 0.001, 0.5, 0.01, "same order"),
        (0.9, 0.2, 0.5, 0.01, "differs"),
        (0.3, 0.2, 0.5, 0.11, "same order"),
        (-0.9, 0.001, 0.5, 0.01, "differs"),
        (0.9, None, 0.5, 0.01, "same order"),
    ],
)
def test_correlations(ours, ours_p, paper, paper_p, verdict: str):
    found = judge("pearson_r", Measured(ours), Printed(paper), ours_p=ours_p, paper_p=paper_p)
    assert found == verdict


def test_p_values_are_compared_by_side():
    assert judge("pearson_p", Measured(4e-4), Printed(3.4e-3)) == "same order"
    assert judge("pearson_p", Measured(0.06), Printed(0.049)) == "differs"


def test_every_verdict_has_a_rule():
    assert set(VERDICT_RULES) == set(Verdict)


def test_claims():
    assert [judge_share(*case) for case in ((3, 3), (1, 3), (0, 3), (0, 0))] == [
        "holds",
        "holds in part",
        "does not hold",
        "not run",
    ]
    assert judge_share(3, 3, standin=True) == "stand-in"
    assert judge_share(0, 0, standin=True) == "not run"
    with pytest.raises(ValueError, match="between 0 and total, got 4 of 3"):
        judge_share(4, 3)


def test_counts_keep_the_order_of_the_verdicts():
    counts = count_verdicts(["differs", "not run", "differs", "within interval"])
    assert list(counts.items()) == [
        (Verdict.WITHIN_INTERVAL, 1),
        (Verdict.DIFFERS, 2),
        (Verdict.NOT_RUN, 1),
    ]
