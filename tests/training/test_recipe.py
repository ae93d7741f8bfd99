from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from concept_audit.models.cbm import CBMSpec
from concept_audit.models.cem import CEMSpec
from concept_audit.models.encoders import MLPSpec
from concept_audit.models.reference_head import ReferenceHeadSpec
from concept_audit.training.recipe import (
    Member,
    Recipe,
    group_key,
    identity,
    initial_model,
    phases_of,
)
from concept_audit.training.rules import EpochRules


class Convolutions:
    """An encoder that the bank cannot hold."""

    def build(self, input_shape, n_outputs):
        return torch.nn.LazyLinear(n_outputs)


def test_members_that_differ_in_seed_and_weights_share_a_group():
    keys = {group_key(Member(CBMSpec(), seed=s, lambda_concept=w)) for s in (0, 1) for w in (1, 5)}
    assert len(keys) == 1
    others = [CBMSpec(encoding="logit"), CBMSpec(head="mlp"), CBMSpec(concept_dropout=0.2),
              CBMSpec(encoder=MLPSpec(widths=(8,))), CEMSpec(), ReferenceHeadSpec()]  # fmt: skip
    assert len(keys | {group_key(Member(spec)) for spec in others}) == 7
    assert group_key(Member(CBMSpec(encoder=Convolutions()))) is None


def test_members_are_plain_values(toy):
    member = Member(CBMSpec(), seed=4, lambda_concept=0.5)
    assert json.loads(json.dumps(member.describe()))["spec"]["encoder"]["widths"] == [64, 64]
    assert len({member, Member(CBMSpec(), seed=4, lambda_concept=0.5)}) == 1
    known = identity([member], toy, Recipe())
    assert known != identity([member], toy, Recipe(lr=0.1))
    assert known != identity([Member(CBMSpec(), seed=5, lambda_concept=0.5)], toy, Recipe())


def test_initial_weights_follow_from_the_seed_alone(toy):
    torch.manual_seed(0)
    first = initial_model(Member(CBMSpec(), seed=3), toy).state_dict()
    torch.manual_seed(1)
    again = initial_model(Member(CBMSpec(), seed=3, lambda_concept=5), toy).state_dict()
    other = initial_model(Member(CBMSpec(), seed=4), toy).state_dict()
    assert torch.equal(first["head.weight"], again["head.weight"])
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_the_default_recipe_is_that_of_the_paper():
    recipe = Recipe()
    encoder, head = phases_of(CBMSpec(encoding="hard"), recipe)
    assert (encoder.name, encoder.epochs, encoder.optimiser, encoder.lr) == (
        "encoder", 200, "adam", 1e-3)  # fmt: skip
    assert (head.name, head.epochs, head.optimiser, head.lr, head.momentum) == (
        "head", 20, "sgd", 0.1, 0.9)  # fmt: skip
    assert phases_of(ReferenceHeadSpec(), recipe) == (head,)
    assert [phase.name for phase in phases_of(CEMSpec(), recipe)] == ["joint"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimiser": "lbfgs"}, r"optimiser must be one of \('adam', 'sgd'\), got 'lbfgs'"),
        ({"checkpoint": "first"}, "checkpoint must be one of"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"lr": 0.0}, r"lr must be above 0, got 0.0"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
        ({"weight_decay": -1.0}, r"weight_decay must not be negative, got -1.0"),
        ({"plateau_patience": 0}, "plateau_patience must be at least 1 or null, got 0"),
    ],
)
def test_wrong_recipes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed must not be negative, got -1"),
        ({"lambda_concept": -0.1}, r"lambda_concept must not be negative, got -0.1"),
        ({"lambda_concept": float("nan")}, "lambda_concept must not be negative, got nan"),
        ({"p_int": 0.5}, r"p_int is for concept embedding models, got 0.5 for a cbm"),
        ({"p_int": 1.5}, r"p_int must lie in \[0, 1\], got 1.5"),
    ],
)
def test_wrong_members_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Member(CBMSpec(), **options)


def test_the_plateau_schedule_is_that_of_torch():
    recipe = Recipe(plateau_patience=2, plateau_factor=0.5)
    phase = phases_of(CBMSpec(), recipe)[0]
    losses = np.random.default_rng(0).standard_normal((60, 3)) * 0.1 + 3
    losses -= 0.02 * np.arange(60)[:, None]
    rules, rates = EpochRules(3, phase, recipe), []
    for epoch, row in enumerate(losses):
        rules.update(epoch, row, row)
        rates.append(rules.lr.copy())
    for j in range(3):
        optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimiser, factor=0.5, patience=2, eps=0
        )
        optimiser.step()
        for epoch, loss in enumerate(losses[:, j]):
            schedule.step(loss)
            assert rates[epoch][j] == pytest.approx(optimiser.param_groups[0]["lr"])
    assert (rates[-1] < 1e-3).all()


def test_early_stopping_waits_for_its_patience():
    recipe = Recipe(early_stopping_patience=2)
    rules = EpochRules(2, phases_of(CBMSpec(), recipe)[0], recipe)
    stops = []
    for epoch, val in enumerate([[3, 3], [2, 4], [1, 5], [2, 5]]):
        rules.update(epoch, np.zeros(2), np.array(val, dtype=float))
        stops.append(rules.stopped.tolist())
    assert stops == [[False, False], [False, False], [False, True], [False, True]]
    assert rules.best_epoch.tolist() == [2, 0]
