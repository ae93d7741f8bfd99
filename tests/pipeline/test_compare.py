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


def _curve(key, losses, capacities, *, model, dataset="mpi3d_standin", baseline=1.0):
    """Rows of one run with one factor and one fit of its probes."""
    shared = {"run_key": key, "model": model, "dataset": dataset, "encoding": None}
    shared |= {"lambda_concept": None, "head": None, "concept_output": None}
    rows = []
    for size, (loss, capacity) in enumerate(zip(losses, capacities, strict=True)):
        rows.append(_row("loss_mlp", loss, repeat=0, target="shape", step=size, **shared))
        rows.append(_row("loss_mlp", loss, repeat=0, step=size, **shared))
        rows.append(_row("capacity_mlp", capacity, step=size, **shared))
    rows.append(_row("baseline_loss_mlp", baseline, target="shape", **shared))
    return rows


def test_explicitness_is_taken_over_the_capacities_of_all_representations():
    # Range 0 .. 4, baseline 1, so the triangle has area 2.
    # a: 1, 0.5, 0 at 0, 1, 2, then flat: area 0.75 + 0.25 = 1, E = 1 - 1/2.
    # b: 0.8, 0.4 at 2, 4: area (0.4 + 0) / 2 * 2 = 0.4 above its own minimum, E = 1 - 0.4/2.
    rows = _curve("a", [1.0, 0.5, 0.0], [0.0, 1.0, 2.0], model="vae")
    rows += _curve("b", [0.8, 0.4], [2.0, 4.0], model="raw_pixels")
    result = compare(rows_frame(rows), ["explicitness"])
    found = result[(result["metric"] == "explicitness_mlp") & (result["scope"] == "run")]
    found = found[found["repeat"].isna() & (found["target"] == "mean")].set_index("run_key")
    assert found.loc["a", "value"] == pytest.approx(0.5)
    assert found.loc["b", "value"] == pytest.approx(0.8)
    assert found["step"].isna().all()
    # Alone, a has the range 0 .. 2 and a triangle of area 1.
    alone = compare(rows_frame(rows[:10]), ["explicitness"])
    alone = alone[(alone["metric"] == "explicitness_mlp") & (alone["target"] == "mean")]
    assert alone["value"].tolist() == pytest.approx([0.0] * len(alone))
    # Another data set has a range of its own.
    rows += _curve("c", [1.0, 0.5, 0.0], [0.0, 1.0, 2.0], model="vae", dataset="cars3d_standin")
    result = compare(rows_frame(rows), ["explicitness"])
    one = result[(result["metric"] == "explicitness_mlp") & (result["run_key"] == "c")]
    assert one["value"].tolist() == pytest.approx([0.0] * len(one))


def test_explicitness_of_a_useless_representation_comes_with_its_warning():
    rows = _curve("a", [1.0, 1.0], [0.0, 2.0], model="vae")
    rows = [{**row, "note": "the encoder is random"} for row in rows]
    rows += _curve("b", [0.5, 0.4], [0.0, 0.0], model="raw_pixels")
    result = compare(rows_frame(rows), ["explicitness"])
    found = result[(result["metric"] == "explicitness_mlp") & (result["scope"] == "run")]
    found = found[found["repeat"].isna() & (found["target"] == "mean")].set_index("run_key")
    assert found.loc["a", "value"] == 1.0
    assert found.loc["a", "note"].startswith("the encoder is random; E = 1.00")
    assert "a representation that holds nothing has E = 1" in found.loc["a", "note"]
    assert "no probe of this ladder has more parameters" in found.loc["b", "note"]


def test_explicitness_without_a_range_of_capacities_is_undefined():
    rows = _curve("a", [0.9, 0.8], [0.0, 0.0], model="vae")
    result = compare(rows_frame(rows), ["explicitness"])
    found = result[(result["metric"] == "explicitness_mlp") & (result["scope"] == "run")]
    assert found["value"].isna().all()
    assert found["note"].str.startswith("undefined: all probes").all()
