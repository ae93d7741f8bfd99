"""Cross-run numbers against hand-worked cases."""

from __future__ import annotations

import numpy as np
import pytest

from concept_audit.pipeline.compare import compare
from concept_audit.store.results import rows_frame


def _row(metric, value, *, fold=0, encoding="soft", lam=1.0, repeat=None, **more):
    return {
        "run_key": f"{encoding}{lam}{fold}",
        "scope": "run",
        "dataset": "tabulartoy_d025",
        "standin": False,
        "model": "cbm",
        "encoding": encoding,
        "lambda_concept": lam,
        "head": "linear",
        "concept_output": "linear",
        "fold": fold,
        "repeat": repeat,
        "split": "test",
        "metric": metric,
        "target": "mean",
        "value": value,
        "unit": "1",
        "n_samples": 1000,
        **more,
    }


def test_means_use_one_number_per_training_and_a_t_interval():
    rows = [_row("ctl", value, fold=fold) for fold, value in enumerate([0.1, 0.2, 0.3])]
    rows += [_row("ctl", 99.0, fold=0, repeat=0)]  # single evaluations are not averaged again
    result = compare(rows_frame(rows))
    (mean,) = result[result["scope"] == "mean"].to_dict("records")
    assert mean["value"] == pytest.approx(0.2)
    assert mean["n_runs"] == 3
    # t(0.975, 2) = 4.3027, sd 0.1
    assert mean["high"] - mean["value"] == pytest.approx(4.302652729911275 * 0.1 / np.sqrt(3))


def test_trainings_of_other_settings_are_not_averaged_together():
    rows = [
        _row("ctl", value, fold=fold, encoder=encoder, setting=setting)
        for fold, value, encoder, setting in (
            (0, 0.1, "mlp_64_64", "a"),
            (1, 0.3, "mlp_64_64", "a"),
            (0, 0.7, "mlp_64_64", "b"),  # another recipe, which has no column of its own
            (0, 0.9, "conv4", "c"),
        )
    ]
    result = compare(rows_frame(rows))
    found = result[result["scope"] == "mean"].sort_values("value")
    assert found["value"].tolist() == pytest.approx([0.2, 0.7, 0.9])
    assert found["n_runs"].tolist() == [2, 1, 1]
    assert found["encoder"].tolist() == ["mlp_64_64", "mlp_64_64", "conv4"]


def test_an_undefined_score_is_left_out_and_counted():
    rows = [_row("concept_auc", value, fold=f) for f, value in enumerate([0.5, 0.7, np.nan])]
    result = compare(rows_frame(rows))
    (mean,) = result[result["scope"] == "mean"].to_dict("records")
    assert mean["value"] == pytest.approx(0.6)
    assert mean["note"] == "undefined in 1 of 3 runs"


def test_intervention_score_is_the_reference_less_the_intervened_accuracy():
    rows = [
        _row(
            "task_accuracy",
            value,
            model="reference_head",
            encoding=None,
            lambda_concept=None,
            fold=f,
        )
        for f, value in enumerate([1.0, 0.98])
    ]
    rows += [_row("intervened_task_accuracy", 0.69, low=0.68, high=0.70)]
    result = compare(rows_frame(rows), ["intervention_score"])
    score = result[(result["metric"] == "intervention_score") & (result["scope"] == "run")].iloc[0]
    assert score["value"] == pytest.approx(0.30)
    assert (score["low"], score["high"]) == (pytest.approx(0.29), pytest.approx(0.31))
    reference = result[
        (result["metric"] == "reference_task_accuracy") & (result["scope"] == "mean")
    ]
    assert reference["value"].item() == pytest.approx(0.99)


def test_correlation_of_classes_follows_a_line():
    rng = np.random.default_rng(0)
    rows = []
    for i, lam in enumerate([0.01, 0.1, 0.5, 1.0, 5.0, 10.0]):
        for encoding in ("soft", "logit"):
            for fold in range(5):
                noise = rng.normal(0, 1e-4)
                rows.append(_row("ctl", 0.1 * i + noise, encoding=encoding, lam=lam, fold=fold))
                rows.append(
                    _row(
                        "intervention_score",
                        0.05 * i + noise,
                        encoding=encoding,
                        lam=lam,
                        fold=fold,
                    )
                )
    result = compare(rows_frame(rows), ["correlations"])
    r = result[result["metric"] == "pearson_r"].iloc[0]
    assert r["target"] == "ctl~intervention_score"
    assert r["value"] > 0.999
    assert r["n_runs"] == 12
    assert result[result["metric"] == "pearson_p"]["value"].item() < 1e-6


def test_the_criterion_compares_logit_with_soft_models():
    rows = []
    for fold in range(5):
        for encoding, shift in (("soft", 0.0), ("logit", 0.3)):
            rows.append(_row("ctl", 0.01 * fold + shift, encoding=encoding, fold=fold))
            rows.append(_row("icl", 0.01 * fold + shift, encoding=encoding, fold=fold))
    result = compare(rows_frame(rows), ["leakage_criterion"])
    verdict = result[result["metric"] == "leakage_criterion"].iloc[0]
    assert verdict["value"] == 1.0
    assert "a leaks more than b" in verdict["note"]


def test_an_unknown_comparison_lists_the_known():
    with pytest.raises(ValueError, match=r"known: .*correlations"):
        compare(rows_frame([_row("ctl", 0.1)]), ["corelations"])
