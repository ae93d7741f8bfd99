"""A member of a bank ends where it would have ended alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from concept_audit.data.base import ConceptDataset
from concept_audit.models.cbm import CBMSpec
from concept_audit.models.cem import CEMSpec
from concept_audit.models.encoders import MLPSpec
from concept_audit.models.reference_head import ReferenceHeadSpec
from concept_audit.training import bank as bank_module
from concept_audit.training.bank import train_bank
from concept_audit.training.fitting import fit_single
from concept_audit.training.recipe import FitResult, Member, Recipe

# Products over the stack add their terms in another order: float32 rounding, which a few dozen
# optimiser steps may enlarge. Losses are of order 1.
TOLERANCE = 2e-5

SPECS = {
    "soft": CBMSpec(),
    "logit with leaky output and dropout": CBMSpec(
        encoding="logit", concept_output="leaky_relu", concept_dropout=0.2
    ),
    "soft with the code's encoder": CBMSpec(
        encoder=MLPSpec(widths=(16, 16, 16), layer_norm=True), head="mlp"
    ),
    "hard": CBMSpec(encoding="hard", concept_dropout=0.2),
    "sequential": CBMSpec(training="sequential", head="mlp"),
    "cem": CEMSpec(),
    "reference head": ReferenceHeadSpec(),
    "reference mlp": ReferenceHeadSpec(head="mlp"),
}


def members_of(spec) -> list[Member]:
    members = [Member(spec, seed=s, lambda_concept=w) for s in (0, 3) for w in (0.1, 5.0)]
    if spec.family == "cem":
        members[1:3] = [dataclasses.replace(member, p_int=0.5) for member in members[1:3]]
    return members


def assert_same(ours: FitResult, alone: FitResult, tolerance: float) -> None:
    assert ours.failed is None
    assert alone.failed is None
    assert ours.best_epoch == alone.best_epoch
    assert len(ours.history) == len(alone.history)
    for a, b in zip(ours.history, alone.history, strict=True):
        assert a.keys() == b.keys()
        assert (a["phase"], a["epoch"], a["lr"]) == (b["phase"], b["epoch"], b["lr"])
        for name in a.keys() - {"phase"}:
            assert abs(a[name] - b[name]) <= tolerance * max(1.0, abs(b[name])), (name, a, b)
    assert ours.state_dict.keys() == alone.state_dict.keys()
    for name, value in alone.state_dict.items():
        error = (ours.state_dict[name] - value).abs().nan_to_num().max()
        # a difference in the weights of a thousandth of one step of Adam at lr 5e-3 and below
        assert error <= 50 * tolerance, (name, error)
    if alone.concept_percentiles is None:
        assert ours.concept_percentiles is None
    else:
        assert torch.allclose(ours.concept_percentiles, alone.concept_percentiles, atol=1e-3)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_bank_gives_what_single_training_gives(toy, short, spec, monkeypatch):
    monkeypatch.setattr(bank_module, "CHUNK", 3)  # two chunks
    members = members_of(spec)
    results = train_bank(members, toy, recipe=short)
    assert [ours.member for ours in results] == members
    for i in (1, 3):  # one of each chunk
        assert_same(results[i], fit_single(members[i], toy, recipe=short), TOLERANCE)


def test_early_stopping_and_schedules_are_each_members_own(toy):
    recipe = Recipe(
        epochs=30,
        batch_size=128,
        lr=0.05,
        early_stopping_patience=3,
        plateau_patience=1,
        balanced_concepts=True,
    )
    members = [Member(CBMSpec(), seed=s, lambda_concept=w) for s in (0, 1) for w in (0.1, 2.0)]
    results = train_bank(members, toy, recipe=recipe)
    lengths = [len(result.history) for result in results]
    assert len(set(lengths)) > 1, "members were to stop at different epochs"
    assert max(lengths) < 30
    assert len({row["lr"] for result in results for row in result.history}) > 1
    for member, ours in zip(members, results, strict=True):
        # a large step size makes rounding grow faster
        assert_same(ours, fit_single(member, toy, recipe=recipe), 50 * TOLERANCE)


@pytest.mark.parametrize("train", [train_bank, lambda m, d, **o: [fit_single(m[0], d, **o)]])
def test_the_kept_weights_are_those_of_the_best_epoch(toy, short, train):
    best = train([Member(CBMSpec())], toy, recipe=dataclasses.replace(short, lr=0.1, epochs=6))[0]
    last = train(
        [Member(CBMSpec())],
        toy,
        recipe=dataclasses.replace(short, lr=0.1, epochs=6, checkpoint="last"),
    )[0]
    losses = [row["val_loss"] for row in best.history]
    assert best.best_epoch == int(np.argmin(losses)) < 5
    assert last.best_epoch == 5
    assert not torch.equal(best.state_dict["head.weight"], last.state_dict["head.weight"])
    until = train(
        [Member(CBMSpec())],
        toy,
        recipe=dataclasses.replace(short, lr=0.1, epochs=best.best_epoch + 1, checkpoint="last"),
    )[0]
    assert torch.equal(best.state_dict["head.weight"], until.state_dict["head.weight"])


def test_two_calls_give_the_same_digits_and_leave_the_global_state_alone(toy, short):
    members = members_of(SPECS["logit with leaky output and dropout"])
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, second = train_bank(members, toy, recipe=short), train_bank(members, toy, recipe=short)
    alone = [fit_single(members[0], toy, recipe=short) for _ in range(2)]
    assert torch.equal(before, torch.get_rng_state())
    for a, b in [*zip(first, second, strict=True), alone]:
        assert a.history == b.history
        assert all(torch.equal(a.state_dict[name], b.state_dict[name]) for name in a.state_dict)


@pytest.mark.parametrize(
    "train", [train_bank, lambda m, d, **o: [fit_single(i, d, **o) for i in m]]
)
def test_a_diverging_member_fails_by_name_and_the_others_go_on(toy, short, train):
    members = [Member(CBMSpec(), lambda_concept=w) for w in (1.0, 1e39, 5.0)]
    results = train(members, toy, recipe=short)
    assert [result.failed is None for result in results] == [True, False, True]
    message = results[1].failed
    assert message.startswith("the training loss became inf at step 0 (phase 'joint', epoch 0)")
    assert '"lambda_concept": 1e+39' in message
    assert '"seed": 0' in message
    assert "Lower the learning rate" in message
    assert results[1].state_dict == {}
    healthy = train([members[0], members[2]], toy, recipe=short)
    assert results[0].history == healthy[0].history
    assert results[2].history == healthy[1].history


def test_divergence_in_the_middle_names_its_step(toy):
    recipe = Recipe(epochs=50, batch_size=128, optimiser="sgd", lr=1e6, momentum=0.0)
    member = Member(CBMSpec(encoding="logit"))
    ours = train_bank([member], toy, recipe=recipe)[0]
    alone = fit_single(member, toy, recipe=recipe)
    assert ours.failed is not None
    assert ours.failed == alone.failed


def test_constant_concepts_are_named_and_stay_finite(short):
    generator = np.random.default_rng(0)
    c = generator.integers(0, 2, (300, 4))
    c[:, 1], c[:, 3] = 0, 1
    dataset = ConceptDataset(
        name="constant",
        x=generator.standard_normal((300, 5)).astype(np.float32),
        c=c,
        y=c[:, 0],
        concept_names=("a", "never", "b", "always"),
        class_names=("0", "1"),
        splits={"train": np.arange(200), "val": np.arange(200, 300)},
    )
    recipe = dataclasses.replace(short, balanced_concepts=True, epochs=3)
    member = Member(CBMSpec())
    with pytest.warns(UserWarning, match="concepts never, always take one value only"):
        ours = train_bank([member], dataset, recipe=recipe)[0]
    with pytest.warns(UserWarning, match="concepts never, always take one value only"):
        alone = fit_single(member, dataset, recipe=recipe)
    assert_same(ours, alone, TOLERANCE)


def test_progress_counts_over_all_phases(toy, short):
    seen = []
    members = [Member(SPECS["hard"], seed=s, label=f"m{s}") for s in range(2)]
    train_bank(members, toy, recipe=short, progress=lambda *call: seen.append(call))
    assert [(epoch, total) for epoch, total, _ in seen] == [(i, 7) for i in range(1, 8)]
    assert set(seen[0][2]) == {"m0", "m1"}
    alone = []
    fit_single(members[0], toy, recipe=short, progress=lambda *call: alone.append(call))
    assert [call[:2] for call in alone] == [call[:2] for call in seen]
    assert all(abs(a[2]["m0"] - b[2]["m0"]) < 1e-5 for a, b in zip(alone, seen, strict=True))


def test_members_that_cannot_share_a_program_are_refused(toy, short):
    with pytest.raises(ValueError, match="members must share one group_key"):
        train_bank([Member(CBMSpec()), Member(CEMSpec())], toy, recipe=short)
    with pytest.raises(ValueError, match="for 0 members"):
        train_bank([], toy, recipe=short)
