"""Cells from configs: grids, narrowing, nearest names."""

from __future__ import annotations

import pytest

from concept_audit.pipeline.plan import (
    check_overrides,
    expand,
    experiment_names,
    load_experiment,
    options,
)


def test_an_experiment_expands_to_its_grid():
    experiment = load_experiment("leakage/fig06_supervision", ["profile=smoke"])
    # 2 correlations x soft, logit x 2 outputs x 3 weights x 2 trainings
    assert len(experiment.cells) == 2 * 2 * 2 * 3 * 2
    assert experiment.artefact["draw"].endswith("fig06_supervision.draw")
    weights = {cell.config["model"]["lambda_concept"] for cell in experiment.cells}
    assert weights == {0.1, 1.0, 5.0}


def test_a_value_on_the_command_line_narrows_the_grid():
    cells = load_experiment(
        "leakage/fig06_supervision", ["profile=smoke", "lambda_concept=0.1", "fold=1"]
    ).cells
    assert len(cells) == 2 * 2 * 2
    assert {cell.config["model"]["lambda_concept"] for cell in cells} == {0.1}
    assert {cell.config["seed"] for cell in cells} == {1}


def test_a_free_sweep_takes_every_combination():
    cells = expand(["model=cbm_soft,cbm_logit", "lambda_concept=0.1,1", "profile=smoke"])
    found = {(c.config["model"]["spec"]["encoding"], c.config["lambda_concept"]) for c in cells}
    assert found == {("soft", 0.1), ("soft", 1), ("logit", 0.1), ("logit", 1)}


def test_profiles_change_sizes_and_nothing_else():
    (smoke,) = expand(["profile=smoke"])
    (embedded,) = expand(["profile=embedded"])
    assert embedded.config["recipe"]["epochs"] == 200
    assert embedded.config["data"]["n_samples"] == 10_000
    assert smoke.config["recipe"]["epochs"] < 20
    assert smoke.config["recipe"]["lr"] == embedded.config["recipe"]["lr"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("experiment=leakage/fig06_supervison", "Nearest: leakage/fig06_supervision"),
        ("lambda_concpt=1", "Nearest: lambda_concept"),
        ("data=tabulartoy_d25", "Nearest: tabulartoy_d025"),
        ("profile.repeat=2", "Nearest: profile.repeats"),
        ("model=cbm_softt,cem", "Nearest: cbm_soft"),
    ],
)
def test_a_misspelt_override_names_the_nearest_match(override, message):
    with pytest.raises(ValueError, match=message):
        check_overrides([override])


def test_what_exists_passes():
    check_overrides(["profile=smoke", "model=cbm_soft,cem", "recipe.lr=0.01", "+extra.key=1"])
    check_overrides(["experiment=leakage/tab02_correlations", "hydra/launcher=joblib"])


def test_an_unknown_top_level_key_is_refused_by_the_trunk():
    with pytest.raises(ValueError, match="lambda_concpt"):
        expand(["lambda_concpt=1"])


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_has_one_stem_in_three_places(name):
    experiment = load_experiment(name, ["profile=smoke", "fold=0"])
    paper, stem = name.split("/")
    target = experiment.artefact.get("draw") or experiment.artefact["build"]
    kind = "figures" if "draw" in experiment.artefact else "tables"
    assert target.split(".")[-3:-1] == [paper, stem]
    assert f".{kind}." in target
    assert experiment.artefact["paper"] == paper
    assert experiment.cells[0].config["experiment_name"] == name


def test_papers_of_experiments_are_known():
    from concept_audit.pipeline.reproduce import PAPERS

    assert {name.split("/")[0] for name in experiment_names()} <= set(PAPERS)
    assert options("profile") == ["embedded", "paper", "smoke"]


@pytest.mark.parametrize("name", ["leakage/fig02_histograms", "leakage/fig25_cem_interventions"])
def test_cells_shared_between_experiments_equal_those_composed_whole(name, monkeypatch):
    from concept_audit.pipeline import plan

    quick = load_experiment(name, ["profile=smoke"])
    monkeypatch.setattr(plan, "_trained_alike", lambda fixed: fixed)
    whole = load_experiment(name, ["profile=smoke"])
    assert quick == whole
