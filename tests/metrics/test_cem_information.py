"""Scores of concept embedding vectors: reference values, independence, undefined cases."""

from __future__ import annotations

import numpy as np
import pytest

from concept_audit.metrics import (
    alignment_leakage,
    concepts_task_information,
    interconcept_information,
    self_information,
)
from concept_audit.metrics.cem_information import information_matrix
from reference import inputs

OFF = ~np.eye(3, dtype=bool)
PARTS = {
    "pos_aligned": "positive_aligned",
    "pos_unaligned": "positive_unaligned",
    "neg_aligned": "negative_aligned",
    "neg_unaligned": "negative_unaligned",
}


def test_reference_values_with_exact_distances(reference):
    for row in reference("leakage")["cases"]["cem_like"]["rows"]:
        a = inputs.cem_like(row)
        inputs.verify(a["mix"], row["check_mix"])
        expected = row["corrected_kd_tree"]
        matrix = np.array(expected["I_cvec_cgt"])
        task = concepts_task_information(a["mix"], a["y"])
        np.testing.assert_allclose(task.per_concept, expected["CT_nmi_mix"], atol=1e-6)
        assert task.mean == pytest.approx(expected["I_CT"], abs=1e-6)
        between = interconcept_information(a["mix"], a["c"])
        np.testing.assert_allclose(between.matrix[OFF], matrix[OFF], atol=1e-6)
        assert between.mean == pytest.approx(expected["I_IC"], abs=1e-6)
        own = self_information(a["mix"], a["c"])
        np.testing.assert_allclose(own.per_concept, np.diag(matrix), atol=1e-6)
        assert own.mean == pytest.approx(expected["I_self"], abs=1e-6)
        alignment = alignment_leakage(a["pos"], a["neg"], a["c"], a["y"], subset="first")
        np.testing.assert_allclose(
            alignment.per_concept, expected["alignment_per_concept"], atol=1e-6
        )
        assert alignment.mean == pytest.approx(expected["alignment"], abs=1e-6)
        for key, name in PARTS.items():
            np.testing.assert_allclose(
                getattr(alignment, name), expected["alignment_parts"][key], atol=1e-6
            )
        drawn = alignment_leakage(a["pos"], a["neg"], a["c"], a["y"])
        assert drawn.mean == pytest.approx(expected["alignment"], abs=0.1)
        assert drawn.mean == alignment_leakage(a["pos"], a["neg"], a["c"], a["y"]).mean


def test_published_values_come_out_in_compatibility_mode(reference):
    for row in reference("leakage")["cases"]["cem_like"]["rows"]:
        a = inputs.cem_like(row)
        # above 15 dimensions the linear-algebra library decides the rounding
        tolerance = 0.05 if row["affected_by_rounding"] else 1e-6
        options = {"compat": "reference"}
        task = concepts_task_information(a["mix"], a["y"], **options)
        np.testing.assert_allclose(task.per_concept, row["CT_nmi_mix"], atol=tolerance)
        between = interconcept_information(a["mix"], a["c"], **options)
        published = np.array(row["I_cvec_cgt"])
        np.testing.assert_allclose(between.matrix[OFF], published[OFF], atol=tolerance)
        alignment = alignment_leakage(a["pos"], a["neg"], a["c"], a["y"], **options)
        assert alignment.mean == pytest.approx(
            row["alignment"]["CT_MI_alignment"][0], abs=tolerance
        )
        assert alignment.subset == "first"


def vectors(n: int = 400, d: int = 16, seed: int = 0) -> dict[str, np.ndarray]:
    return inputs.cem_like({"n": n, "d": d, "seed": seed, "leak": 0.5})


def test_all_labels_at_once_equal_one_at_a_time():
    a = vectors()
    everything = information_matrix(a["mix"], np.column_stack([a["c"], a["y"]]))
    task = concepts_task_information(a["mix"], a["y"])
    between = interconcept_information(a["mix"], a["c"])
    own = self_information(a["mix"], a["c"])
    np.testing.assert_allclose(everything[:, 3], task.per_concept, atol=1e-13)
    np.testing.assert_allclose(everything[:, :3][OFF], between.matrix[OFF], atol=1e-13)
    np.testing.assert_allclose(np.diag(everything), own.per_concept, atol=1e-13)


def test_independent_vectors_tell_nothing():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((1500, 2, 16))
    c = rng.integers(0, 2, (1500, 2))
    assert concepts_task_information(noise, c[:, 0]).mean < 0.03
    assert interconcept_information(noise, c).mean < 0.03
    assert self_information(noise, c).mean < 0.03
    assert abs(alignment_leakage(noise, noise[::-1], c, rng.integers(0, 2, 1500)).mean) < 0.06


def test_torch_device_gives_the_same_numbers():
    pytest.importorskip("torch")
    a = vectors()
    for score, arrays in (
        (concepts_task_information, (a["mix"], a["y"])),
        (interconcept_information, (a["mix"], a["c"])),
        (self_information, (a["mix"], a["c"])),
        (alignment_leakage, (a["pos"], a["neg"], a["c"], a["y"])),
    ):
        here, there = score(*arrays), score(*arrays, device="cpu")
        np.testing.assert_allclose(here.per_concept, there.per_concept, atol=1e-12)


@pytest.mark.gpu
def test_gpu_gives_the_same_numbers():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    a = vectors(2000)
    here = concepts_task_information(a["mix"], a["y"])
    there = concepts_task_information(torch.tensor(a["mix"], device="cuda"), a["y"])
    np.testing.assert_allclose(here.per_concept, there.per_concept, atol=1e-9)


def test_constant_concepts_and_vectors():
    a = vectors()
    c = a["c"].copy()
    c[:, 1] = 1
    between = interconcept_information(a["mix"], c)
    assert np.isnan(between.matrix[:, 1]).all()
    assert between.n_undefined_pairs == 2
    assert between.undefined == ("concept 1 is constant in c: its entropy is zero",)
    assert np.isfinite(between.mean)
    own = self_information(a["mix"], c)
    np.testing.assert_array_equal(np.isnan(own.per_concept), [False, True, False])
    alignment = alignment_leakage(a["pos"], a["neg"], c, a["y"])
    assert alignment.undefined == ("concept 1: constant in c",)
    assert np.isnan(alignment.per_concept[1])
    assert np.isfinite(alignment.mean)
    flat = a["mix"].copy()
    flat[:, 0] = 0.25
    assert concepts_task_information(flat, a["y"]).per_concept[0] == 0.0
    everything_constant = np.ones_like(c)
    assert np.isnan(self_information(a["mix"], everything_constant).mean)
    assert np.isnan(interconcept_information(a["mix"], everything_constant).mean)
    assert np.isnan(alignment_leakage(a["pos"], a["neg"], everything_constant, a["y"]).mean)


def test_alignment_says_why_a_concept_is_left_out():
    a = vectors(200)
    y = a["c"][:, 0].astype(int)  # the label is the concept: one class on each side
    result = alignment_leakage(a["pos"], a["neg"], a["c"], y)
    assert "y has a single class" in result.undefined[0]
    unique = np.arange(200)
    result = alignment_leakage(a["pos"], a["neg"], a["c"], unique)
    assert "no class of y occurs twice" in result.undefined[0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: concepts_task_information(a["mix"][:, 0], a["y"]), "concept-major"),
        (lambda a: concepts_task_information(a["mix"], a["y"] * 0), "two classes"),
        (lambda a: concepts_task_information(a["mix"][:4], a["y"][:4]), "at least 5 samples"),
        (lambda a: concepts_task_information(a["mix"], np.arange(60)), "60 distinct labels"),
        (lambda a: interconcept_information(a["mix"], a["c"][:, :2]), "number of concepts k"),
        (lambda a: interconcept_information(a["mix"][:, :1], a["c"][:, :1]), "two concepts"),
        (lambda a: self_information(a["mix"][:50], a["c"]), "agree on the number of rows"),
        (lambda a: self_information(a["mix"] * np.nan, a["c"]), "vectors must be finite"),
        (lambda a: alignment_leakage(a["pos"], a["neg"][:, :2], a["c"], a["y"]), "must agree on"),
        (lambda a: alignment_leakage(a["pos"], a["neg"], 2 * a["c"], a["y"]), "c must hold 0 or 1"),
        (lambda a: alignment_leakage(a["pos"], a["neg"], a["c"], a["y"] * 0), "two classes"),
        (lambda a: alignment_leakage(a["pos"], a["neg"], a["c"][:, :2], a["y"]), "concepts k"),
        (
            lambda a: alignment_leakage(a["pos"], a["neg"], a["c"], a["y"], subset="last"),
            "subset must be 'random' or 'first', got 'last'",
        ),
    ],
)  # fmt: skip
def test_messages(call, words):
    with pytest.raises(ValueError, match=words):
        call(vectors(60, 3))
