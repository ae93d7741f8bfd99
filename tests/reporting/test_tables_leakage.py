"""Tables of the leakage paper: the right row of ours beside each number of theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from concept_audit.reporting.paper_values import read_paper_values
from concept_audit.reporting.tables import unprinted
from concept_audit.reporting.tables.leakage import (
    tab01_pairs,
    tab02_correlations,
    tab03_reference_accuracies,
)
from concept_audit.reporting.tables.matching import COMPARISON_COLUMNS, base_dataset, find
from concept_audit.store.results import rows_frame

LEAKAGE = Path(__file__).parents[2] / "data" / "paper_values" / "leakage.csv"


@pytest.fixture(scope="module")
def values():
    return read_paper_values(LEAKAGE)


def mean(metric: str, value: float, **change):
    base = {
        "scope": "mean",
        "dataset": "tabulartoy_d025",
        "standin": False,
        "model": "cbm",
        "encoding": "logit",
        "lambda_concept": 5.0,
        "head": "linear",
        "concept_output": "leaky_relu",
        "split": "test",
        "metric": metric,
        "target": "mean",
        "value": value,
        "low": value - 0.01,
        "high": value + 0.01,
        "n_runs": 5,
    }
    return {**base, **change}


def cell(table: pd.DataFrame, row: str, column: str) -> pd.Series:
    found = table[(table["row"] == row) & (table["column"] == column)]
    assert len(found) == 1
    return found.iloc[0]


TOY = "TabularToy(0.25), logit, lambda 5"


def pair_rows():
    wrong = {"scope": "run", "repeat": None, "low": None, "high": None, "n_runs": None}
    return rows_frame(
        [
            mean("intervention_score", 0.349),
            mean("intervention_score", 0.06, concept_output="linear"),
            mean("concept_accuracy", 0.994),
            mean("concept_accuracy", 0.5, split="val"),
            mean("concept_balanced_accuracy", 0.995),
            mean("concept_accuracy", 0.6, lambda_concept=1.0),
            mean("misclassified_configuration", 0.11, target="001", run_key="a", **wrong),
            mean("misclassified_configuration", 0.12, target="001", run_key="b", **wrong),
            mean("misclassified_configuration", 0.10, target="010", run_key="a", **wrong),
            mean("intervention_score", 0.2, dataset="dsprites_g0_standin", standin=True,
                 concept_output="linear", head="mlp"),
        ]
    )  # fmt: skip


def test_table_1(values):
    table = tab01_pairs.build(pair_rows(), values)
    assert tuple(table.columns) == COMPARISON_COLUMNS
    assert len(table) == 42
    s_int = cell(table, TOY, "S_int")
    assert (s_int["ours"], s_int["paper"], s_int["beside"], s_int["n"]) == (0.349, 0.301, 0.06, 5)
    assert s_int["difference"] == pytest.approx(0.048)
    assert s_int["verdict"] == "same order"
    assert s_int["note"] == (
        "with all concepts set right, heads are wrong on 001 (0.120 of the test rows, 2 trainings)"
        ", 010 (0.100 of the test rows, 1 training)"
    )
    assert cell(table, TOY, "c_acc")["ours"] == 0.994
    assert "balanced accuracy" in cell(table, TOY, "c_AUC")["note"]
    assert (cell(table, TOY, "y_AUC")[["verdict", "note"]] == ["not run", ""]).all()


def test_table_1_of_other_data(values):
    table = tab01_pairs.build(pair_rows(), values)
    standin = cell(table, "dSprites(0), logit, lambda 5", "S_int")
    assert (standin["ours"], standin["verdict"]) == (0.2, "stand-in")
    assert cell(table, "3dshapes(0), soft, lambda 0.1", "S_int")["verdict"] == "not run"


def test_table_1_without_rows_is_not_run(values):
    assert set(tab01_pairs.build(rows_frame([]), values)["verdict"]) == {"not run"}


def test_table_1_needs_readable_models(values):
    broken = values.assign(model="soft")
    with pytest.raises(ValueError, match=r"model of Table 1 must read .* got 'soft'"):
        tab01_pairs.build(pair_rows(), broken)


def test_table_2(values):
    def row(metric, score, value, **change):
        shared = {"scope": "comparison", "target": f"{score}~intervention_score", "split": None,
                  "n_runs": 12, "low": None, "high": None, "model": None, "encoding": None,
                  "lambda_concept": None, "head": None, "note": "12 classes of models"}  # fmt: skip
        return mean(metric, value, **{**shared, **change})

    rows = rows_frame(
        [
            row("pearson_r", "ctl", 0.86),
            row("pearson_p", "ctl", 4e-4),
            row("pearson_r", "ctl", 0.82, concept_output="linear"),
            row("pearson_r", "icl", 0.79),
            row("pearson_p", "icl", 0.3),
            row("pearson_r", "ois", 0.1),
            row("pearson_r", "ois_reference", 0.49),
        ]
    )
    table = tab02_correlations.build(rows, values)
    assert len(table) == 48
    ctl = cell(table, "TabularToy(0.25)", "CTL r")
    assert (ctl["ours"], ctl["beside"], ctl["n"]) == (0.86, 0.82, 12)
    assert (ctl["verdict"], ctl["note"]) == ("same order", "12 classes of models")
    # the paper's is significant, ours is not
    assert cell(table, "TabularToy(0.25)", "ICL r")["verdict"] == "differs"
    assert cell(table, "TabularToy(0.25)", "OIS r")["verdict"] == "within interval"
    assert cell(table, "CUB", "CTL r")["verdict"] == "not run"


def test_table_3(values):
    head = {"model": "reference_head", "encoding": None, "lambda_concept": None,
            "concept_output": None}  # fmt: skip
    rows = rows_frame(
        [
            mean("reference_task_accuracy", 1.0, **head),
            mean("task_accuracy", 0.79, dataset="tabulartoy_incomplete", **head),
            mean("task_accuracy", 0.687, dataset="tabulartoy_nonlinear", **head),
            mean("task_accuracy", 1.0, dataset="dsprites_g0", **{**head, "head": "mlp"}),
            mean("task_accuracy", 0.8, dataset="dsprites_g0", **head),
        ]
    )
    table = tab03_reference_accuracies.build(rows, values)
    assert len(table) == 18
    toy = table[table["row"] == "TabularToy(0.25)"].set_index("column")
    assert toy["ours"].to_dict() == {
        "complete": 1.0,
        "incomplete": 0.79,
        "well-specified": 1.0,
        "misspecified": 0.687,
    }
    assert set(toy["verdict"]) == {"within interval"}
    assert toy["paper_low"]["incomplete"] == 0.786
    sprites = table[table["row"] == "dSprites(0)"].set_index("column")
    assert sprites["ours"]["complete"] == 1.0
    assert sprites["ours"]["well-specified"] == 0.8


def test_dataset_names():
    names = ["tabulartoy_d025", "tabulartoy_d075", "shapes3d_g0_standin", "dsprites_g4", "cub"]
    assert [base_dataset(name) for name in names] == [
        "tabulartoy",
        "tabulartoy_d075",
        "shapes3d",
        "dsprites_g4",
        "cub",
    ]


def test_two_answers_are_an_error():
    rows = rows_frame([mean("ctl", 0.1), mean("ctl", 0.2, head="mlp")])
    with pytest.raises(ValueError, match=r"2 rows answer to .*: they differ in head, value"):
        find(rows, metric="ctl")
    assert find(rows, metric="icl") is None
    assert find(rows, metric="ctl", head="mlp")["value"] == 0.2  # type: ignore[index]


def test_numbers_behind_a_figure(values):
    rows = rows_frame(
        [
            mean("ctl", 0.3),
            mean("ctl", 0.9, n_runs=1, lambda_concept=0.5),
            mean("ctl", 0.4, lambda_concept=1.0),
            mean("icl", 0.1),
            mean("icl", 0.1, encoding="soft", concept_output="linear", lambda_concept=0.1),
            mean("ctl", 0.3, target="c1"),
            mean("ctl", 0.2, dataset="dsprites_g0_standin", standin=True),
        ]
    )
    table = unprinted.build(rows, values, "fig06_supervision")
    assert table[["row", "column", "ours", "verdict"]].to_numpy().tolist() == [
        ["dSprites(0) (stand-in), logit CBM, lambda 5, LeakyReLU output", "ctl", 0.2, "stand-in"],
        ["TabularToy(0.25), logit CBM, lambda 1, LeakyReLU output", "ctl", 0.4,
         "paper's value unknown"],
        ["TabularToy(0.25), logit CBM, lambda 5, LeakyReLU output", "ctl", 0.3,
         "paper's value unknown"],
        ["TabularToy(0.25), logit CBM, lambda 5, LeakyReLU output", "icl", 0.1,
         "paper's value unknown"],
        ["TabularToy(0.25), soft CBM, lambda 0.1", "icl", 0.1, "paper's value unknown"],
    ]  # fmt: skip
    assert table["paper"].isna().all()
    assert "no numbers in the text" in table["source"][0]


def test_numbers_behind_a_figure_of_single_models(values):
    run = {"scope": "run", "repeat": None, "run_key": "a"}
    rows = rows_frame(
        [
            mean("intervention_accuracy", 0.7, step=0, target="random", **run),
            mean("intervention_accuracy", 0.9, step=2, target="random", **run),
            mean("intervention_accuracy", 0.8, step=2, target="random", **{**run, "repeat": 0}),
        ]
    )
    table = unprinted.build(rows, values, "fig03_interventions")
    assert table["column"].tolist() == [
        "intervention_accuracy after 0",
        "intervention_accuracy after 2",
    ]
    assert np.allclose(table["ours"], [0.7, 0.9])


def test_clouds_have_no_numbers(values):
    rows = rows_frame([mean("projection_1", 0.7, step=0, target="c1")])
    assert unprinted.build(rows, values, "fig09_projection_by_task").empty
