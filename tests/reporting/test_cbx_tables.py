"""Tables of CBX-Bench: ours beside the paper's, stand-ins never compared."""

from __future__ import annotations

from importlib import import_module

import pytest

from concept_audit.pipeline.artefacts import paper_values
from concept_audit.reporting.tables.cbx._beside import model_label
from concept_audit.reporting.tables.matching import COMPARISON_COLUMNS
from concept_audit.store.results import rows_frame

PAPER = paper_values("cbx")
SHARED = {"paper": "cbx", "scope": "comparison", "target": "mean", "standin": True}


def _row(metric, value, dataset="overall", model=None, **more):
    return {**SHARED, "metric": metric, "value": value, "dataset": dataset, "model": model, **more}


ROWS = rows_frame(
    [
        _row("n_items", 300, "cub_standin"),
        _row("n_items", 60, "ham10k_standin"),
        _row("consensus_items", 80, n_samples=100, note="synthetic labels"),
        _row("recovery_strict", 61.0, model="score_sum scale=9", low=50.0, high=70.0, n_samples=40),
        _row("recovery_strict", 55.0, "cub_standin", "embedding scale=9"),
        _row("recovery_strict", 50.0, model="chance", n_samples=120),
        _row("recovery_weak", 58.0, model="best_judge", note="annotation scale=5"),
        _row("recovery_weak_unanimous", 66.0, model="score_sum scale=9"),
        _row("recovery_strict_unanimous", 70.0, "cub_standin", "vote_majority scale=9"),
        _row("cbx_score", 0.61, "cub_standin", "cbm_soft_lambda0.1", n_samples=100),
        _row("task_accuracy", 48.0, "cub_standin", "cbm_soft_lambda0.1"),
        _row("cbx_rank", 1.0, "cub_standin", "cbm_hard"),
        _row("score_sum_low", 5),
        _row("position_bias", 12.0, model="lowest_judge", n_samples=300),
        _row("position_bias", 12.0, model="annotation_even", n_samples=300),
    ]
)


def _table(stem, rows=ROWS):
    return import_module(f"concept_audit.reporting.tables.cbx.{stem}").build(rows, PAPER)


STEMS = (
    "tab01_design", "tab02_consensus", "tab03_strict_recovery", "tab04_weak_recovery",
    "tab05_unanimous", "tab06_scores", "tab07_position_bias",
)  # fmt: skip


@pytest.mark.parametrize("stem", STEMS)
def test_a_table_holds_every_line_of_the_paper_once(stem):
    table = _table(stem)
    of_paper = PAPER[PAPER["artefact"] == stem]
    assert list(table.columns) == list(COMPARISON_COLUMNS)
    assert list(table["row"][: len(of_paper)]) == list(of_paper["row"])
    assert set(table.loc[table["ours"].notna(), "verdict"]) == {"stand-in"}
    assert set(table.loc[table["ours"].isna(), "verdict"]) == {"not run"}


@pytest.mark.parametrize("stem", STEMS)
def test_without_rows_nothing_was_run(stem):
    table = _table(stem, ROWS.iloc[:0])
    assert table["ours"].isna().all()
    assert len(table) == (PAPER["artefact"] == stem).sum()


@pytest.mark.parametrize(
    ("stem", "row", "column", "ours", "paper", "note"),
    [
        ("tab01_design", "CUB-200", "items", 300, 300, ""),
        ("tab02_consensus", "all data sets", "consensus, items", 80, 791,
         "100 comparisons; synthetic labels"),
        ("tab03_strict_recovery", "score-sum council, 1-9", "overall", 61, 70.7, "40 images"),
        ("tab03_strict_recovery", "chance", "overall", 50, 50, "120 comparisons"),
        ("tab04_weak_recovery", "best single judge", "overall", 58, 57.5, "annotation scale=5"),
        ("tab05_unanimous", "score-sum council, 1-9", "ties included", 66, 75.6, ""),
        ("tab06_scores", "range of the five-judge sum", "low", 5, 5, ""),
        ("tab07_position_bias", "least of the judges", "disagreement", 12, 17.2,
         "300 comparisons"),
    ],
)  # fmt: skip
def test_ours_stands_beside_the_papers_number(stem, row, column, ours, paper, note):
    table = _table(stem)
    (line,) = table[(table["row"] == row) & (table["column"] == column)].to_dict("records")
    assert (line["ours"], line["paper"], line["note"]) == (ours, paper, note)


@pytest.mark.parametrize(
    ("stem", "row", "column"),
    [
        ("tab01_design", "HAM10K (stand-in)", "items"),
        ("tab03_strict_recovery", "embedding judge, 1-9", "CUB (stand-in)"),
        ("tab05_unanimous", "vote-majority council, 1-9, CUB (stand-in)", "CBM-only"),
        ("tab06_scores", "soft CBM, lambda 0.1", "CUB (stand-in), score"),
        ("tab06_scores", "soft CBM, lambda 0.1", "CUB (stand-in), accuracy"),
        ("tab06_scores", "hard CBM", "CUB (stand-in), rank by score"),
        ("tab07_position_bias", "annotation even", "disagreement"),
    ],
)
def test_what_the_paper_does_not_have_follows(stem, row, column):
    table = _table(stem)
    (line,) = table[(table["row"] == row) & (table["column"] == column)].to_dict("records")
    assert line["source"] == "ours alone"
    assert line["paper"] != line["paper"]


def test_models_are_named_as_a_reader_would():
    assert model_label("score_sum scale=9") == "score-sum council, 1-9"
    assert model_label("annotation_even scale=5") == "annotation even judge, 1-5"
    assert model_label("cbm_hard") == "hard CBM"
    assert model_label("cbm_logit_lambda10") == "logit CBM, lambda 10"
