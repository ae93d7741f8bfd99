from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concept_audit.council import parse_preference, parse_score
from concept_audit.council.parsing import PREFERENCES


def test_score_replies_of_the_reference_file(reference):
    cases = reference("council")["score_parse_cases"]
    assert len(cases) == 24
    for case in cases:
        parsed = parse_score(case["text"], scale_max=case["scale_max"])
        assert (parsed.score, parsed.status) == (case["score"], case["status"]), case


def test_pairwise_replies_of_the_reference_file(reference):
    for case in reference("council")["pairwise_parse_cases"]:
        parsed = parse_preference(case["text"])
        assert (parsed.label, parsed.status) == (case["label"], case["status"]), case


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("7", 7),
        ("Score: 7", 7),
        ("I see 3 birds, so 8", None),
        ("10", None),
        ("0", None),
        ("7.5", None),
        ("", None),
        ("<think>4</think> 6", 6),
        ("I refuse", None),
        ("7/9", None),
        ("７", None),
        ("7.", None),
        ("-3", None),
        ("+7", 7),
    ],
)
def test_replies_that_other_parsers_misread(text, score):
    assert parse_score(text).score == score


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"score": 9, "score": 3}', "failed:ambiguous"),
        ('{"score": 9, "Score": 3}', "failed:ambiguous"),
        ('{"score": 12} {"score": 5}', "failed:ambiguous"),
        ('<think>I would say {"score": 5}', "failed:empty"),
        ("my rating is score: 7 of 9", "failed:missing"),
        ('{"score": [7]}', "failed:not_integer"),
        ('{"score": NaN}', "failed:not_integer"),
        ('{"score": 1e999}', "failed:not_integer"),
        ('{"score": ' + "9" * 6000 + "}", "failed:not_integer"),
        ("{" * 100_000, "failed:missing"),
        ("[" * 100_000, "failed:missing"),
        ('{"score": "٧"}', "failed:not_integer"),
    ],
)
def test_hostile_replies_stay_missing(text, status):
    parsed = parse_score(text)
    assert (parsed.score, parsed.status) == (None, status)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('plan</think>\n{"reasoning": "x", "score": 6}', 6),
        ('<|channel>thought\nscore 2\n<channel|>{"reasoning": "x", "score": 6}', 6),
        ("{'reasoning': 'x', 'score': 6}", 6),
        ('```\n{"score": 4}\n```', 4),
        ("Score = 3", 3),
    ],
)
def test_repairs(text, score):
    parsed = parse_score(text)
    assert (parsed.score, parsed.status) == (score, "repaired")


def test_reasoning_is_kept():
    assert parse_score('{"reasoning": "red crown", "score": 5}').reasoning == "red crown"


def test_a_scale_needs_two_steps():
    with pytest.raises(ValueError, match="scale_max must be at least 2, got 1"):
        parse_score("1", scale_max=1)


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_gives_a_score_in_range_or_none(text):
    parsed = parse_score(text, scale_max=5)
    assert parsed.score is None or 1 <= parsed.score <= 5
    assert (parsed.score is None) == parsed.status.startswith("failed:")
    assert parse_preference(text).label in (None, *PREFERENCES)


@given(
    st.text(max_size=80),
    st.integers(-20, 20)
    | st.floats(allow_nan=False)
    | st.none()
    | st.booleans()
    | st.text(max_size=5),
    st.sampled_from(["{}", "```json\n{}\n```", "Here: {} .", "<think>hm</think>{}"]),
)
@settings(max_examples=200, deadline=None)
def test_wrapping_never_changes_the_score(reasoning, value, wrapper):
    record = json.dumps({"reasoning": reasoning, "score": value})
    inner = parse_score(record)
    wrapped = parse_score(wrapper.replace("{}", record))
    if not any(token in reasoning for token in ("think>", "<|", "|>")):
        assert wrapped.score == inner.score
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 9:
        assert inner.score in (value, None)


@given(st.sampled_from(PREFERENCES), st.text(max_size=40))
@settings(max_examples=50, deadline=None)
def test_preferences_round_trip(label, reasoning):
    parsed = parse_preference(json.dumps({"reasoning": reasoning, "preferred_cbm": label}))
    if "think>" not in reasoning and "channel" not in reasoning:
        assert (parsed.label, parsed.status) == (label, "ok")
