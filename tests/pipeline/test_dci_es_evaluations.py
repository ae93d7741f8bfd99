"""Rows of the DCI-ES evaluations against the metric called directly, and what is done to codes."""

from __future__ import annotations

import numpy as np
import pytest

from concept_audit.metrics.dci_es import dci_es
from concept_audit.metrics.probes.mlp import MlpProbes
from concept_audit.metrics.probes.random_forest import RandomForestProbes
from concept_audit.metrics.probes.rff import RffProbes
from concept_audit.pipeline.evaluations.dci_es import dci_es_mlp, dci_es_random_forest, dci_es_rff

SIZES, NAMES = (3, 5, 2), ("shape", "place", "light")
KINDS = ("categorical", "continuous", "continuous")
FOREST = {"n_trees": 5, "depths": [1, 3, 6], "max_features": None}


class Run:
    """Stands for a stored run: codes are made from random factors by a function."""

    def __init__(self, codes, *, model="labels", weights=None, n=(240, 40, 80), sizes=SIZES):
        rng = np.random.default_rng(0)
        self.identity = {"model": model, "dataset": "grid", "standin": True, "run_key": "k"}
        self.metadata = {
            "factor_names": list(NAMES[: len(sizes)]),
            "factor_sizes": list(sizes),
            "factor_kinds": list(KINDS[: len(sizes)]),
            "weights": weights,
        }
        self.parts = {}
        for split, rows in zip(("train", "val", "test"), n, strict=True):
            factors = np.stack([rng.integers(0, size, rows) for size in sizes], axis=1)
            self.parts[split] = {"factors": factors, "codes": codes(factors).astype(np.float32)}

    def arrays(self, split):
        return self.parts[split]


def labels(factors):
    return factors / (np.array(SIZES[: factors.shape[1]]) - 1)


def noisy(factors):
    return labels(factors) + np.random.default_rng(len(factors)).normal(0, 0.2, factors.shape)


def found(rows, metric, *, target="mean", repeat=None, step=None):
    values = [
        row["value"]
        for row in rows
        if (row["metric"], row["target"], row.get("repeat"), row.get("step"))
        == (metric, target, repeat, step)
    ]
    assert len(values) == 1, (metric, target, repeat, step, len(values))
    return values[0]


def direct(run, family, **options):
    return dci_es(
        run.parts["train"]["codes"],
        run.parts["train"]["factors"],
        KINDS,
        family,
        factor_sizes=SIZES,
        validation=(run.parts["val"]["codes"], run.parts["val"]["factors"]),
        test=(run.parts["test"]["codes"], run.parts["test"]["factors"]),
        **options,
    )


@pytest.mark.parametrize(
    ("evaluate", "options", "family", "more"),
    [
        (
            dci_es_random_forest,
            FOREST,
            RandomForestProbes(n_trees=5, depths=(1, 3, 6), max_features=None),
            {},
        ),
        (
            dci_es_mlp,
            {"width_factors": [0, 2], "learning_rate": 1e-2, "epochs": 5},
            MlpProbes(widths=(0, 6), learning_rate=1e-2, epochs=5),
            {"sage_rows": 16, "sage_background": 4, "standardize_codes": True},
        ),
        (
            dci_es_rff,
            {"features": [8, 16]},
            RffProbes(features=(8, 16)),
            {"sage_rows": 16, "sage_background": 4},
        ),
    ],
    ids=["random_forest", "mlp", "rff"],
)
def test_rows_are_the_numbers_of_the_metric(evaluate, options, family, more):
    run = Run(noisy)
    device = {} if evaluate is dci_es_random_forest else {"device": "cpu"}
    rows = evaluate(run, **options, **more, **device, repeats=2, seed=3)
    scores = direct(run, family, **more, n_seeds=2, seed=3)
    name = family.name
    for metric, letter in (
        ("disentanglement", "D"), ("completeness", "C"), ("informativeness", "I"),
    ):  # fmt: skip
        for repeat in (0, 1):
            assert found(rows, f"{metric}_{name}", repeat=repeat) == pytest.approx(
                scores.per_seed[letter][repeat]
            )
        assert found(rows, f"{metric}_{name}") == pytest.approx(getattr(scores, letter))
    for j, factor in enumerate(NAMES):
        assert found(rows, f"informativeness_{name}", target=factor) == pytest.approx(
            scores.I_per_factor[j]
        )
        assert found(rows, f"baseline_loss_{name}", target=factor) == scores.curve.baseline[j]
    for t, size in enumerate(scores.curve.sizes):
        assert found(rows, f"capacity_{name}", step=size) == scores.curve.capacities[t]
        losses = scores.curve.per_seed[:, t]
        assert found(rows, f"loss_{name}", step=size) == pytest.approx(losses.mean())
        assert found(rows, f"loss_{name}", step=size, target="place", repeat=1) == losses[1, 1]
        (mean,) = [
            row for row in rows
            if row["metric"] == f"loss_{name}" and row.get("step") == size
            and row["target"] == "mean" and row.get("repeat") is None
        ]  # fmt: skip
        assert mean["high"] - mean["value"] == pytest.approx(losses.mean(axis=1).std())
    assert {row["n_samples"] for row in rows} == {80}
    assert not any("capacity range" in (row.get("note") or "") for row in rows)


def test_forests_read_true_labels():
    rows = dci_es_random_forest(Run(labels), **FOREST, repeats=1)
    assert found(rows, "informativeness_random_forest") > 0.99
    assert found(rows, "disentanglement_random_forest") > 0.99
    assert found(rows, "completeness_random_forest") > 0.99
    assert found(rows, "size_random_forest") == 1.0
    assert (
        found(rows, "loss_random_forest", step=6) < 0.01 < found(rows, "loss_random_forest", step=1)
    )


def test_the_largest_of_tied_capacities_is_noted():
    rows = dci_es_random_forest(Run(labels), **FOREST, repeats=1)
    (note,) = {row["note"] for row in rows if row["metric"] == "disentanglement_random_forest"}
    assert "several capacities with the best score" in note
    assert {row["note"] for row in rows if row["metric"].startswith("loss")} == {None}


def test_sizes_of_one_capacity_stay_apart():
    # 40 classes from 3 codes: the narrow MLP has fewer parameters than the linear probe.
    run = Run(lambda z: np.repeat(z, 3, axis=1) / 39.0, sizes=(40,), n=(400, 60, 60))
    rows = dci_es_mlp(
        run, width_factors=[0, 2, 4, 64], epochs=1, sage_rows=4, sage_background=2,
        repeats=2, device="cpu",
    )  # fmt: skip
    capacities = [found(rows, "capacity_mlp", step=size) for size in (0, 2, 4, 64)]
    assert capacities[:2] == [0.0, 0.0] < capacities[2:]
    for size in (0, 2, 4, 64):
        single = [found(rows, "loss_mlp", step=size, repeat=repeat) for repeat in (0, 1)]
        assert found(rows, "loss_mlp", step=size) == pytest.approx(np.mean(single))


def test_a_stated_number_of_rows_is_drawn_by_the_seed():
    run = Run(noisy)
    options = {**FOREST, "repeats": 1, "rows": 50}
    rows = dci_es_random_forest(run, **options, seed=0)
    assert {row["n_samples"] for row in rows} == {50}
    assert all("fitted on 50 of 240 training rows" in row["note"] for row in rows)
    again = dci_es_random_forest(run, **options, seed=0)
    other = dci_es_random_forest(run, **options, seed=1)
    values = [[row["value"] for row in each] for each in (rows, again, other)]
    assert values[0] == values[1] != values[2]


def test_raw_pixels_are_pooled_and_say_so():
    def pixels(factors):
        images = np.zeros((len(factors), 1, 8, 8))
        images[:, 0, :, :] = labels(factors)[:, 1, None, None]
        images[:, 0, ::2] += 0.5  # vanishes in the mean over blocks of four
        images[:, 0, 1::2] -= 0.5
        return images.reshape(len(factors), -1)

    run = Run(pixels, model="raw_pixels")
    rows = dci_es_random_forest(run, **FOREST, repeats=1, pixel_grid=4, wide=10)
    assert found(rows, "size_random_forest") == 3 / 64  # L before pooling
    note = next(row["note"] for row in rows if row["metric"] == "informativeness_random_forest")
    assert "pixels are averaged over blocks to 4 x 4" in note
    assert "16 codes, of which sqrt(L) are offered at a split" in note
    assert found(rows, "informativeness_random_forest", target="place") > 0.99
    with pytest.raises(ValueError, match=r"pixel_grid must divide the 8 pixels of a side, got 3"):
        dci_es_random_forest(run, **FOREST, repeats=1, pixel_grid=3)
    odd = Run(lambda z: np.zeros((len(z), 10)), model="raw_pixels")
    with pytest.raises(ValueError, match=r"square images .* got L = 10"):
        dci_es_random_forest(odd, **FOREST, repeats=1)


def test_sage_of_pixels_is_by_place_over_all_channels():
    from concept_audit.pipeline.evaluations.dci_es import _Data

    run = Run(lambda z: np.zeros((len(z), 3 * 64 * 64)), model="raw_pixels", n=(4, 4, 4))
    full = _Data(run, rows=None, pixel_grid=None, seed=0).groups.reshape(3, 64, 64)
    assert full.max() == 255
    assert (full == full[0]).all()
    assert len(np.unique(full[0, :4, :4])) == 1 < len(np.unique(full[0, :5, :4]))
    pooled = _Data(run, rows=None, pixel_grid=16, seed=0).groups.reshape(3, 16, 16)
    assert (pooled[0].ravel() == np.arange(256)).all()


def test_random_encoders_do_not_pass_for_imagenet():
    rows = dci_es_random_forest(
        Run(noisy, model="resnet18_imagenet", weights="random"), **FOREST, repeats=1
    )
    assert {row["model"] for row in rows} == {"resnet18_random"}
    assert all("ImageNet weights were not found" in row["note"] for row in rows)
    rows = dci_es_random_forest(
        Run(noisy, model="resnet18_imagenet", weights="imagenet"), **FOREST, repeats=1
    )
    assert {row["model"] for row in rows} == {"resnet18_imagenet"}


def test_capacity_can_be_chosen_on_validation_rows():
    with pytest.raises(ValueError, match=r"select_on must be 'test' or 'val', got 'train'"):
        dci_es_random_forest(Run(noisy), **FOREST, repeats=1, select_on="train")
    run = Run(noisy)
    rows = dci_es_random_forest(run, **FOREST, repeats=1, select_on="val")
    family = RandomForestProbes(n_trees=5, depths=(1, 3, 6), max_features=None)
    scores = direct(run, family, select_on="validation")
    assert found(rows, "informativeness_random_forest") == pytest.approx(scores.I)
    assert found(rows, "best_size_random_forest", repeat=0) == scores.best_size[0]


def test_few_orders_of_many_codes_are_noted():
    rows = dci_es_rff(
        Run(lambda z: np.tile(labels(z), 22)), features=[4, 8], sage_permutations=4, sage_rows=8,
        sage_background=2, repeats=1, device="cpu",
    )  # fmt: skip
    note = next(row["note"] for row in rows if row["metric"] == "disentanglement_rff")
    assert "SAGE values of 66 codes from 4 orders at most" in note


def test_two_fits_give_no_interval_and_three_do():
    def interval(repeats):
        rows = dci_es_random_forest(Run(noisy), **FOREST, repeats=repeats)
        (row,) = [
            row for row in rows
            if row["metric"] == "completeness_random_forest" and row["target"] == "mean"
            and row.get("repeat") is None
        ]  # fmt: skip
        assert row["n_runs"] == repeats
        return row.get("low"), row.get("high")

    assert interval(2) == (None, None)
    low, high = interval(3)
    assert low < high
