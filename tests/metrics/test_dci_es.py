"""D, C, I, E, S in one call: what known representations must score."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from concept_audit.metrics import dci_es, disentanglement, explicitness, loss_capacity_curve
from concept_audit.metrics.dci_es import _best_capacities
from concept_audit.metrics.explicitness import shared_capacity_range
from concept_audit.metrics.probes.mlp import MlpProbes
from concept_audit.metrics.probes.random_forest import RandomForestProbes
from concept_audit.metrics.probes.rff import RffProbes

SIZES = (6, 6, 2, 3, 3, 40, 40)  # MPI3D
KINDS = tuple(
    "categorical" if categorical else "continuous" for categorical in (1, 1, 0, 0, 1, 0, 0)
)


def _labels(n, sizes=SIZES, seed=0):
    rng = np.random.default_rng(seed)
    factors = np.stack([rng.integers(0, q, n) for q in sizes], 1)
    return factors, factors / (np.array(sizes) - 1), rng


def test_labels_are_perfect_when_forests_see_all_codes():
    factors, z, _ = _labels(2000)
    probe = RandomForestProbes(n_trees=5, depths=(1, 4, 10, 16, 32), max_features=None)
    scores = dci_es(z, factors, KINDS, probe, factor_sizes=SIZES)
    assert pytest.approx(1, abs=1e-3) == scores.D
    assert pytest.approx(1, abs=1e-3) == scores.C
    assert scores.I > 0.99
    assert scores.E > 0.95
    assert scores.S == 1
    assert scores.importance == "gini"
    # Offered sqrt(L) codes at a split, classifiers give importance to codes that hold nothing.
    square = dci_es(
        z, factors, KINDS, RandomForestProbes(n_trees=5, depths=(1, 10)), factor_sizes=SIZES
    )
    assert 0.7 < square.D < scores.D


def test_noise_bounds_informativeness():
    """Bayes R2 of a uniform grid with noise of std 0.1, and the accuracy of the nearest value."""
    sizes = (6, 3, 40)
    factors, z, rng = _labels(6000, sizes)
    codes = z + 0.1 * rng.normal(size=z.shape)
    probe = RffProbes(features=(16, 64), sigma=0.3)
    scores = dci_es(
        codes, factors, ["categorical", "categorical", "continuous"], probe, factor_sizes=sizes
    )
    # Standard error of an accuracy over 1200 test rows: 0.013 at 0.735.
    assert scores.I_per_factor == pytest.approx([0.735, 0.992, 0.906], abs=0.03)
    assert pytest.approx(0.878, abs=0.02) == scores.I
    assert scores.D > 0.8


def test_linearly_mixed_labels_are_explicit_but_entangled():
    pytest.importorskip("torch")
    sizes = (3, 10, 20)
    factors, z, rng = _labels(3000, sizes, seed=7)
    W = 1 / 9 + rng.normal(scale=np.sqrt(0.001), size=(3, 3))
    codes = z @ W.T
    probe = MlpProbes(widths=(0, 6), learning_rate=5e-2, epochs=60)
    scores = dci_es(
        codes,
        factors,
        "continuous",
        probe,
        factor_sizes=sizes,
        standardize_codes=True,
        sage_rows=64,
    )
    assert scores.curve.losses[0].max() < 0.02
    assert scores.D < 0.2
    assert scores.E > 0.9
    assert scores.importance == "sage, exact"


@pytest.fixture(scope="module")
def small():
    factors, z, rng = _labels(400, (3, 4))
    return z + 0.05 * rng.normal(size=z.shape), factors


FOREST = RandomForestProbes(n_trees=5, depths=(1, 2, 4))


def test_range_is_shared_between_curves_and_named(small):
    codes, factors = small
    own = dci_es(codes, factors, "categorical", FOREST)
    assert own.capacity_range == (1, 4)
    assert any("own capacity range (1.0, 4.0)" in note for note in own.notes)
    deep = loss_capacity_curve(
        codes, factors, RandomForestProbes(n_trees=5, depths=(1, 8)), kinds="categorical"
    )
    shared = shared_capacity_range([own.curve, deep])
    assert shared == (1, 8)
    wide = dci_es(codes, factors, "categorical", FOREST, capacity_range=shared)
    assert wide.capacity_range == (1, 8)
    assert not any("capacity range" in note for note in wide.notes)
    assert pytest.approx(explicitness(own.curve, capacity_range=shared).mean) == wide.E
    assert wide.E > own.E


def test_scores_agree_with_their_parts(small):
    codes, factors = small
    scores = dci_es(codes, factors, "categorical", FOREST, n_seeds=2)
    assert scores.R_per_seed.shape == (2, 2, 2)
    assert pytest.approx(scores.R_per_seed.mean(axis=0)) == scores.R
    assert scores.per_seed["D"] == pytest.approx(
        [disentanglement(R).mean for R in scores.R_per_seed]
    )
    assert pytest.approx(scores.per_seed["D"].mean()) == scores.D
    assert scores.std["D"] == pytest.approx(scores.per_seed["D"].std())
    best = [scores.curve.per_seed[s, t].mean() for s, t in enumerate(scores.best_index)]
    assert scores.per_seed["I"] == pytest.approx(1 - np.array(best))
    assert pytest.approx(scores.I_per_factor.mean()) == scores.I
    assert (scores.I_chance_corrected <= scores.I_per_factor).all()
    assert set(scores.best_size) <= {1, 2, 4}
    again = dci_es(codes, factors, "categorical", FOREST, n_seeds=2)
    assert (again.R_per_seed == scores.R_per_seed).all()


def test_selection_on_validation_uses_other_rows(small):
    codes, factors = small
    scores = dci_es(codes, factors, "categorical", FOREST, select_on="validation")
    assert scores.select_on == "validation"
    with pytest.raises(ValueError, match="select_on must be 'test' or 'validation', got 'train'"):
        dci_es(codes, factors, "categorical", FOREST, select_on="train")


def test_one_factor_and_one_code_are_nan_with_a_reason(small):
    codes, factors = small
    one_factor = dci_es(codes, factors[:, :1], "categorical", FOREST)
    assert np.isnan(one_factor.D)
    assert "D needs at least two factors, got one" in one_factor.notes
    one_code = dci_es(codes[:, :1], factors, "categorical", FOREST)
    assert np.isnan(one_code.C)
    assert "C needs at least two codes, got one" in one_code.notes
    assert one_code.S == 2


def test_a_useless_representation_has_a_note(small):
    _, factors = small
    noise = np.random.default_rng(1).normal(size=(400, 3))
    scores = dci_es(noise, factors, "categorical", FOREST)
    assert scores.E > 0.8
    assert any("Read E together with I" in note for note in scores.notes)


def test_a_ladder_of_one_capacity_is_no_curve(small):
    codes, factors = small
    with pytest.raises(ValueError, match="curve has one point, which is no curve"):
        dci_es(codes, factors, "categorical", RandomForestProbes(n_trees=2, depths=(3,)))


def test_a_family_must_explain_itself(small):
    codes, factors = small

    class Silent(RandomForestProbes):
        def fit(self, data, seeds, *, device=None):
            import dataclasses

            return dataclasses.replace(super().fit(data, seeds), importances=None)

    with pytest.raises(TypeError, match="must return importances or probes, got neither"):
        dci_es(codes, factors, "categorical", Silent(n_trees=2, depths=(1, 2)))


def test_sampled_importances_above_twelve_codes(small):
    codes, factors = small
    wide = np.concatenate([codes, np.random.default_rng(0).normal(size=(400, 12))], axis=1)
    probe = RffProbes(features=(4, 8))
    scores = dci_es(wide, factors, "categorical", probe, standardize_codes=True)
    assert scores.importance == "sage, sampled"
    assert scores.R.shape == (14, 2)
    assert scores.R.sum(axis=0) == pytest.approx([1, 1])


def test_accepted_forms_give_equal_results(small):
    codes, factors = small
    base = dci_es(codes.astype(np.float32), factors, "categorical", FOREST)
    forms = [
        (codes.astype(np.float32).tolist(), factors.tolist()),
        (np.asfortranarray(codes.astype(np.float32)), factors.astype(np.uint8)),
    ]
    for x, z in forms:
        assert dci_es(x, z, "categorical", FOREST).D == base.D


def test_inputs_are_not_changed(small):
    codes, factors = small[0].copy(), small[1].copy()
    codes.setflags(write=False)
    factors.setflags(write=False)
    dci_es(codes, factors, "categorical", FOREST, standardize_codes=True)


def test_forests_and_features_need_no_torch():
    program = (
        "import sys\n"
        "import numpy as np\n"
        "from concept_audit.metrics import dci_es\n"
        "from concept_audit.metrics.probes.random_forest import RandomForestProbes\n"
        "from concept_audit.metrics.probes.rff import RffProbes\n"
        "z = np.random.default_rng(0).integers(0, 3, (80, 2))\n"
        "for p in (RandomForestProbes(n_trees=2, depths=(1, 2)), RffProbes(features=(2, 4))):\n"
        "    print(dci_es(z * 1.0, z, 'categorical', p).S, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1.0 False", "1.0 False"]


def test_tied_forests_give_the_importances_of_the_deepest():
    """Shallow forests predict easy factors by vote, while their importances are flat."""
    factors, z, rng = _labels(600, (2, 2, 2))
    codes = np.concatenate([z + 0.05 * rng.normal(size=z.shape), rng.normal(size=(600, 2))], 1)
    probe = RandomForestProbes(n_trees=20, depths=(1, 2, 8))
    ours = dci_es(codes, factors, "categorical", probe)
    first = dci_es(codes, factors, "categorical", probe, compat="reference")
    assert ours.I == first.I == 1
    assert (ours.best_size, first.best_size) == ((8,), (1,))
    assert first.D < 0.3 < 0.7 < ours.D
    assert any("1 of 1 seeds have several capacities" in note for note in ours.notes)
    assert not any("several capacities" in note for note in first.notes)
    np.testing.assert_array_equal(ours.curve.losses, first.curve.losses)


def test_probes_explained_by_sage_keep_the_smallest_of_tied_capacities():
    scores = np.array([[0.5, 1.0, 1.0 - 1e-15, 0.9]])
    assert _best_capacities(scores, largest=False) == ([1], 0)
    assert _best_capacities(scores, largest=True) == ([2], 1)


def test_compat_error_text(small):
    with pytest.raises(ValueError, match="compat must be None or 'reference', got 'paper'"):
        dci_es(*small, "categorical", FOREST, compat="paper")


def test_the_sampled_estimator_can_be_stopped_early(small):
    codes, factors = np.tile(small[0], (1, 7)), small[1]
    probe = RffProbes(features=(4, 8))
    options = {"sage_rows": 8, "sage_background": 2, "sage_threshold": 1e-9}
    scores = dci_es(codes, factors, ("continuous",) * 2, probe, sage_permutations=4, **options)
    assert scores.importance == "sage, sampled"  # that threshold is never met
    assert scores.R.sum(axis=0) == pytest.approx(1)
    with pytest.raises(ValueError, match="sage_permutations must be None or at least 2, got 1"):
        dci_es(codes, factors, ("continuous",) * 2, probe, sage_permutations=1)
