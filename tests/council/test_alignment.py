from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concept_audit.council import (
    bradley_terry,
    chance_levels,
    consensus_table,
    inter_annotator_agreement,
    judge_agreement,
    labels_from_scores,
    permutation_baseline,
    position_bias_rate,
    ranking_recovery,
)


@pytest.fixture
def study(reference):
    return reference("council")["study"]


@pytest.fixture
def human(study):
    return [
        {
            "dataset": i["dataset"],
            "image_id": i["image_id"],
            "pair": pair.split("|"),
            "answers": raw,
        }
        for i in study["images"]
        for pair, raw in i["human"].items()
    ]


@pytest.fixture
def score_rows(study):
    return [
        {"dataset": i["dataset"], "image_id": i["image_id"], "model": m, "judge": j, "score": s}
        for i in study["images"]
        for j, scores in i["scores"].items()
        for m, s in scores.items()
    ]


def test_recovery_of_the_reference_study(study, human, score_rows):
    checked = 0
    for method, settings_ in study["expected"]["recovery"].items():
        predicted = labels_from_scores(score_rows, method=method)
        for name, groups in settings_.items():
            setting, _, unanimous = name.partition("_")
            got = ranking_recovery(
                human, predicted, setting=setting, unanimous=bool(unanimous), n_resamples=20
            )
            for group, want in groups.items():
                value = got.overall if group == "overall" else got.per_dataset[group]
                assert value.value == pytest.approx(want["value"], abs=1e-9), (method, name, group)
                assert (value.n_images, value.n_pairs) == (want["n_images"], want["n_pairs"])
                checked += 1
    assert checked == 7 * 4 * 3


def test_recovery_variants_of_the_reference_study(study, human, score_rows):
    for method, want in study["expected"]["recovery_variants"].items():
        predicted = labels_from_scores(score_rows, method=method)

        def recover(predicted=predicted, **options):
            return ranking_recovery(human, predicted, n_resamples=20, **options)

        assert recover().pooled_pairs == pytest.approx(want["strict_pooled_pairs"])
        assert recover(setting="weak").pooled_pairs == pytest.approx(want["weak_pooled_pairs"])
        assert recover().mean_of_datasets == pytest.approx(want["strict_mean_of_datasets"])
        assert recover(tie_credit=0.5).value == pytest.approx(want["strict_tie_half_credit"])
        for name in ("consensus_pairs", "all_pairs"):
            key = f"strict_image_filter_{name.replace('all', 'all_three')}"
            assert recover(image_filter=name).value == pytest.approx(want[key])


def test_consensus_table_of_the_reference_study(study, human):
    got = consensus_table(human)
    assert got.__dict__ == study["expected"]["consensus_table"]


def test_chance_levels(reference, study):
    want = study["expected"]["chance"]
    table = study["expected"]["consensus_table"]
    got = chance_levels(table["preference"], table["tie"])
    assert got.strict == want["strict"]
    assert got.weak == pytest.approx(want["weak_paper"])
    assert got.weak_given_human == pytest.approx(want["weak_given_human_marginals"])
    assert got.weak_ceiling_without_ties == pytest.approx(want["weak_ceiling_without_ties"])
    assert reference("council")["chance"]["weak_match"] == "59/169"
    paper = chance_levels(619, 172)
    assert round(100 * paper.weak, 1) == 34.9
    assert round(100 * paper.weak_given_human, 1) == 35.1
    assert round(100 * paper.weak_ceiling_without_ties, 1) == 78.3


def test_the_weak_chance_level_by_enumeration():
    orders = {tuple(sorted(set(s)).index(v) for v in s) for s in np.ndindex(3, 3, 3)}
    assert len(orders) == 13
    labels = [[np.sign(o[i] - o[j]) for i, j in ((0, 1), (0, 2), (1, 2))] for o in orders]
    match = np.mean([np.mean(np.equal(a, b)) for a in labels for b in labels])
    assert match == pytest.approx(59 / 169)


def test_the_permutation_baseline_of_a_judge_without_ties_is_one_half(human, score_rows):
    ordered = [
        {**row, "score": {"lf_cbm": 1, "vlg_cbm": 2, "cbm_suite": 3}[row["model"]]}
        for row in score_rows
    ]
    strict = permutation_baseline(human, labels_from_scores(ordered))
    assert strict == pytest.approx(0.5)
    tied = [{**row, "score": 4} for row in score_rows]
    assert permutation_baseline(human, labels_from_scores(tied)) == 0


def test_position_bias_of_the_reference_file(reference):
    case = reference("council")["position_bias"]
    got = position_bias_rate([*case["rows"], {**case["rows"][0], "swapped": None}])
    want = case["expected"]
    assert got.rate == want["rate_3way"]
    assert got.rate_4way == want["rate_4way"]
    assert got.rate_strict_flip == want["rate_strict_flip"]
    assert got.first_position_choices == want["first_position_choices"]
    assert got.second_position_choices == want["second_position_choices"]
    assert got.tie_choices == want["tie_choices"]
    assert (got.n_comparisons, got.n_missing) == (8, 1)


def test_agreement_of_the_reference_study(study, human):
    want = study["expected"]["agreement"]
    got = inter_annotator_agreement(human)
    assert got.alpha == pytest.approx(want["krippendorff_alpha_nominal"], abs=1e-9)
    assert got.fleiss_kappa == pytest.approx(want["fleiss_kappa"], abs=1e-9)
    assert (got.n_items, got.n_answers) == (21, 63)


def test_bradley_terry_of_the_reference_study(study, human):
    want = study["expected"]["agreement"]["bradley_terry_log_strength_ties_half"]
    got = bradley_terry(human)
    assert got == {name: pytest.approx(value, abs=1e-6) for name, value in want.items()}


def test_bradley_terry_names_the_remedy_when_a_model_always_wins():
    human = [{"image_id": "i", "pair": ("a", "b"), "answers": ["A"] * 3}]
    with pytest.raises(ValueError, match=r"Pass regularisation=0\.01"):
        bradley_terry(human)
    assert bradley_terry(human, regularisation=0.01)["a"] > 0


def test_judge_agreement_against_scikit_learn(score_rows):
    from scipy.stats import spearmanr
    from sklearn.metrics import cohen_kappa_score

    got = judge_agreement(score_rows)
    columns = [[r["score"] for r in score_rows if r["judge"] == j] for j in got.judges]
    for i in range(5):
        for j in range(i):
            kappa = cohen_kappa_score(columns[i], columns[j], weights="quadratic")
            assert got.weighted_kappa[i, j] == pytest.approx(kappa)
            assert got.spearman[i, j] == pytest.approx(spearmanr(columns[i], columns[j])[0])
    assert 0 < got.alpha < 1
    assert got.n_items == 21


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_pair_order_and_row_order_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    human, predicted = [], []
    for image in range(4):
        for pair in pairs:
            base = {"dataset": "d", "image_id": image, "pair": pair}
            human.append(
                {**base, "consensus": rng.choice(["A", "B", "tie"]), "strength": "majority"}
            )
            predicted.append({**base, "label": rng.choice(["A", "B", "tie"])})
    flip = {"A": "B", "B": "A", "tie": "tie"}
    turned = [{**p, "pair": p["pair"][::-1], "label": flip[p["label"]]} for p in predicted]
    for setting in ("strict", "weak"):
        plain = ranking_recovery(human, predicted, setting=setting, n_resamples=5)
        other = ranking_recovery(human[::-1], turned[::-1], setting=setting, n_resamples=5)
        assert plain.value == pytest.approx(other.value, nan_ok=True)
        perfect = [{**h, "label": h["consensus"]} for h in human]
        best = ranking_recovery(human, perfect, setting=setting, n_resamples=5).value
        assert np.isnan(best) or best == 1


def test_better_judges_recover_more():
    # A noisy expert sees each model's quality with noise; people decide by the quality itself.
    rng = np.random.default_rng(0)
    models = ("a", "b", "c")
    human, quiet, loud = [], [], []
    for image in range(200):
        quality = dict(zip(models, rng.uniform(1, 9, 3), strict=True))
        for pair in (("a", "b"), ("a", "c"), ("b", "c")):
            better = "A" if quality[pair[0]] > quality[pair[1]] else "B"
            human.append({"image_id": image, "pair": pair, "answers": [better] * 3})
        for rows, noise in ((quiet, 0.5), (loud, 4.0)):
            rows += [
                {
                    "image_id": image,
                    "model": m,
                    "judge": "j",
                    "score": int(np.clip(np.rint(q + rng.normal(0, noise)), 1, 9)),
                }
                for m, q in quality.items()
            ]
    good = ranking_recovery(human, labels_from_scores(quiet), n_resamples=200)
    poor = ranking_recovery(human, labels_from_scores(loud), n_resamples=200)
    assert good.overall.low > poor.overall.high
    assert poor.value > permutation_baseline(human, labels_from_scores(loud))


ROW = {"image_id": 1, "pair": ("a", "b")}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ranking_recovery([], []), "human must hold at least one comparison"),
        (lambda: ranking_recovery([ROW], []), "needs `answers`, or `consensus` and `strength`"),
        (
            lambda: ranking_recovery([{**ROW, "answers": ["A"]}] * 2, []),
            "each comparison once",
        ),
        (
            lambda: ranking_recovery(
                [{**ROW, "answers": ["A"]}], [{**ROW, "image_id": 2, "label": "A"}]
            ),
            "predicted lacks 1 of 1 comparisons",
        ),
        (
            lambda: ranking_recovery([{**ROW, "answers": ["A"]}], [{**ROW, "label": "CBM1"}]),
            "'A', 'B', 'tie' or None, got 'CBM1'",
        ),
        (
            lambda: ranking_recovery(
                [{**ROW, "answers": ["A"]}], [{**ROW, "label": "A"}], setting="soft"
            ),
            "'strict' or 'weak', got 'soft'",
        ),
        (
            lambda: ranking_recovery(
                [{**ROW, "answers": ["A"]}], [{**ROW, "label": "A"}], image_filter="x"
            ),
            "image_filter must be",
        ),
        (lambda: ranking_recovery([{**ROW, "pair": "aa", "answers": ["A"]}], []), "two different"),
        (
            lambda: labels_from_scores([{**ROW, "judge": "j"}], method="k"),
            r"a judge \(j\), got 'k'",
        ),
        (lambda: chance_levels(0, 0), "not both 0"),
        (lambda: position_bias_rate([]), "labels in both orders, got 0"),
        (
            lambda: position_bias_rate(
                [{"first": "a", "second": "b", "forward": "A", "swapped": "CBM1"}]
            ),
            "got 'A'",
        ),
        (lambda: inter_annotator_agreement([{"answers": ["A"]}]), "at least two answers"),
        (
            lambda: judge_agreement([{"image_id": 1, "model": "a", "judge": "j", "score": 1}]),
            "at least two judges, got 1",
        ),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_missing_labels_count_as_misses_and_are_counted():
    got = ranking_recovery([{**ROW, "answers": ["A"] * 3}], [{**ROW, "label": None}], n_resamples=5)
    assert (got.value, got.n_missing) == (0, 1)
