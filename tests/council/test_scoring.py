from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concept_audit.council import (
    benchmark_scores,
    consensus,
    majority_label,
    normalised_score,
    ranks,
    score_sum_council,
    vote_majority_council,
)


def study_rows(study, *, extra=True):
    rows = [
        {"dataset": i["dataset"], "image_id": i["image_id"], "model": m, "judge": j, "score": s}
        for i in study["images"]
        for j, scores in i["scores"].items()
        for m, s in scores.items()
    ]
    homes = {i["image_id"]: i["dataset"] for i in study["images"]}
    if extra:
        rows += [
            {"dataset": homes[i], "image_id": i, "model": m, "judge": j, "score": s}
            for m, images in study["extra_models_scores"].items()
            for i, scores in images.items()
            for j, s in scores.items()
        ]
    return rows


def test_consensus_of_the_reference_file(reference):
    for case in reference("council")["consensus_cases"]:
        got = consensus(case["raw"])
        assert (got.label, got.strength) == (case["label"], case["strength"]), case


def test_votes_of_the_reference_file(reference):
    for case in reference("council")["vote_cases"]:
        assert majority_label(case["labels"]) == case["expected"], case


def test_normalisation_of_the_reference_file(reference):
    for case in reference("council")["normalisation_cases"]:
        judges, rest = case["judges"], case["sum"] - case["judges"]
        scores = []
        for left in range(judges, 0, -1):
            step = min(case["scale_max"] - 1, rest)
            scores.append(1 + step)
            rest -= step
            assert left
        assert normalised_score(scores, scale_max=case["scale_max"]) == pytest.approx(
            case["normalized"], abs=1e-9
        )


def test_labels_of_the_reference_study(reference):
    study = reference("council")["study"]
    images = {i["image_id"]: i for i in study["images"]}
    for item in study["expected"]["items"]:
        scores = images[item["image_id"]]["scores"]
        assert score_sum_council(scores).label(*item["pair"]) == item["labels"]["score_sum"]
        assert vote_majority_council(scores).label(*item["pair"]) == item["labels"]["vote_majority"]
        for judge, row in scores.items():
            assert score_sum_council({judge: row}).label(*item["pair"]) == item["labels"][judge]


def test_arrays_and_tables_agree(reference):
    study = reference("council")["study"]
    array = np.array(
        [
            [[i["scores"][j][m] for m in study["cbms"]] for i in study["images"]]
            for j in study["judges"]
        ]
    )
    assert array.shape == (5, 7, 3)
    for council in (score_sum_council, vote_majority_council):
        whole = council(array)
        for row, image in enumerate(study["images"]):
            assert list(whole.labels[row]) == list(council(image["scores"]).labels)


def test_benchmark_scores_of_the_reference_study(reference):
    study = reference("council")["study"]
    result = benchmark_scores(study_rows(study), n_resamples=200)
    expected = study["expected"]["cbx"]
    for entry in expected["per_image"]:
        dataset = next(i["dataset"] for i in study["images"] if i["image_id"] == entry["image_id"])
        key = (dataset, entry["image_id"], entry["model"])
        assert result.per_item[key] == pytest.approx(entry["normalized"], abs=1e-9)
    for model, values in expected["scores"].items():
        for dataset, value in values.items():
            got = result.get(model, dataset)
            assert got.value == (None if value is None else pytest.approx(value, abs=1e-9))
            assert got.rank == expected["ranks"][dataset][model]
    partial = result.get("cabm")
    assert (partial.value, partial.low, partial.p_first) == (None, None, None)
    assert (partial.n_images, partial.n_expected) == (4, 7)
    assert partial.partial == pytest.approx(0.83125)


def test_ranks_of_the_reference_file(reference):
    for case in reference("council")["rank_cases"]:
        assert ranks(case["scores"]) == case["expected"]


score_arrays = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).integers(1, 10, size=(5, 4, 3))
)


@given(score_arrays, st.permutations(range(5)))
@settings(max_examples=60, deadline=None)
def test_councils_do_not_depend_on_judge_order(scores, order):
    for council in (score_sum_council, vote_majority_council):
        assert (council(scores).labels == council(scores[list(order)]).labels).all()
    assert np.allclose(normalised_score(scores), normalised_score(scores[list(order)]))


@given(score_arrays)
@settings(max_examples=60, deadline=None)
def test_swapping_models_flips_labels(scores):
    flip = {"A": "B", "B": "A", "tie": "tie"}
    for council in (score_sum_council, vote_majority_council):
        forward = council(scores[..., :2]).labels[:, 0]
        backward = council(scores[..., 1::-1]).labels[:, 0]
        assert [flip[label] for label in forward] == list(backward)


@given(score_arrays)
@settings(max_examples=60, deadline=None)
def test_sum_labels_are_transitive(scores):
    for ab, ac, bc in score_sum_council(scores).labels:
        if ab == bc and ab != "tie":
            assert ac == ab


def test_a_missing_score_stays_missing():
    scores = [[3, 9], [5, None], [4, 4]]
    result = score_sum_council(scores)
    assert list(result.labels) == ["B"]
    assert list(result.n_valid) == [2]
    assert np.isnan(result.sums[1])
    assert score_sum_council([[None, 4]]).labels[0] is None
    assert np.isnan(normalised_score([3, None]))
    assert list(vote_majority_council([[9, 1], [None, 9], [4, 4]]).labels) == ["tie"]


def rows_of(scores):
    return [
        {"dataset": "d", "image_id": str(i), "model": m, "judge": j, "score": s}
        for i, image in enumerate(scores)
        for m, judges in image.items()
        for j, s in judges.items()
    ]


def test_an_incomplete_item_is_left_out_unless_asked():
    rows = rows_of([{"a": {"j": 9, "k": 1}}, {"a": {"j": 5, "k": None}}])
    refused = benchmark_scores(rows, n_resamples=10)
    assert refused.incomplete == (("d", "1", "a"),)
    assert refused.get("a", "d").value is None
    assert refused.get("a", "d").partial == 0.5
    scaled = benchmark_scores(rows, n_resamples=10, incomplete="scale")
    assert scaled.get("a", "d").value == 0.5
    assert scaled.incomplete == (("d", "1", "a"),)


def test_coverage_is_that_of_the_manifest():
    rows = rows_of([{"a": {"j": 9}, "b": {"j": 5}}])
    images = {"d": ["0", "1"], "e": ["7"]}
    entry = benchmark_scores(rows, images=images, n_resamples=5).get("a", "d")
    assert (entry.value, entry.n_images, entry.n_expected, entry.partial) == (None, 1, 2, 1.0)
    assert benchmark_scores(rows, images=images, n_resamples=5).get("a").n_expected == 3
    assert benchmark_scores(rows, images={"d": ["0"]}, n_resamples=5).get("a").rank == 1
    with pytest.raises(ValueError, match="d lacks 1, first '0'"):
        benchmark_scores(rows, images={"d": ["1"]}, n_resamples=5)


def test_intervals_cover_a_known_mean():
    # Coverage of the mean of 100 uniform grades: 95 % nominal, 200 trials, 3 standard errors.
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        grades = rng.integers(1, 10, size=100)
        rows = rows_of([{"m": {"j": int(g)}} for g in grades])
        entry = benchmark_scores(rows, n_resamples=300, seed=trial).get("m")
        hits += entry.low <= 0.5 <= entry.high
    assert abs(hits / 200 - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 200)


def test_the_same_seed_gives_the_same_digits(reference):
    rows = study_rows(reference("council")["study"])
    assert benchmark_scores(rows, n_resamples=50) == benchmark_scores(rows, n_resamples=50)


def test_p_better_favours_the_better_model():
    rng = np.random.default_rng(3)
    rows = rows_of(
        [
            {"good": {"j": int(rng.integers(5, 10))}, "bad": {"j": int(rng.integers(1, 6))}}
            for _ in range(50)
        ]
    )
    result = benchmark_scores(rows, n_resamples=200)
    assert result.p_better[("overall", "good", "bad")] > 0.99
    assert result.get("good").p_first > 0.99


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: consensus([]), "at least one answer"),
        (lambda: consensus(["C"]), "got 'C'"),
        (lambda: majority_label([]), "at least one vote"),
        (lambda: score_sum_council([1, 2]), r"\(J, m\) or \(J, n, m\), judges first, got \(2,\)"),
        (lambda: score_sum_council([[1]]), "at least two models, got 1"),
        (lambda: score_sum_council([[1.5, 2]]), "must be integers, NaN where missing, got 1.5"),
        (lambda: normalised_score([0, 5]), r"must lie in 1..9, got 0 to 5. A missing score is NaN"),
        (lambda: normalised_score(5), "judges on the first axis"),
        (lambda: benchmark_scores([]), "at least one score"),
        (lambda: benchmark_scores(rows_of([{"a": {"j": 1}}]) * 2), "one score per item and judge"),
        (
            lambda: benchmark_scores(rows_of([{"a": {"j": 1}}]), judges=["x"]),
            "no score of the judges x",
        ),
        (
            lambda: benchmark_scores(rows_of([{"a": {"j": 1}}]), incomplete="zero"),
            "'refuse' or 'scale', got 'zero'",
        ),
        (
            lambda: benchmark_scores(
                [{**r, "protocol_id": p} for p in "xy" for r in rows_of([{"a": {p: 1}}])]
            ),
            "one protocol, got x, y",
        ),
        (
            lambda: score_sum_council({"j": {"a": 1, "b": 2}}).label("a", "c"),
            "no pair of 'a' and 'c'",
        ),
        (lambda: score_sum_council(np.ones((1, 2, 2))).label(0, 1), "reads one image"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_unknown_model_is_named():
    with pytest.raises(KeyError, match="no score of model 'b'"):
        benchmark_scores(rows_of([{"a": {"j": 1}}]), n_resamples=2).get("b")
