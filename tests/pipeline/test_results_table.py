"""What a sweep leaves to be read: one table of results, and lines in the terminal."""

from __future__ import annotations

import os

import pandas as pd
import pytest

from concept_audit.pipeline.results_table import current_rows, write_results_table
from concept_audit.pipeline.summary import run_lines, sweep_lines
from concept_audit.store.layout import OutputLayout
from concept_audit.store.results import write_rows
from concept_audit.store.status import mark_done, mark_failed


def _store(layout, key, value, *, setting="aaaa", fold=0, age=0, rows=(), done=True):
    identity = {
        "run_key": key,
        "scope": "run",
        "dataset": "tabulartoy_d025",
        "standin": False,
        "model": "cbm",
        "encoding": "soft",
        "lambda_concept": 1.0,
        "setting": setting,
        "fold": fold,
        "split": "test",
        "target": "mean",
        "unit": "1",
        "n_samples": 100,
    }
    numbers = [{"metric": "ctl", "value": value}, *rows]
    path = layout.metrics_path(key, "0123456789abcdef")
    path.parent.mkdir(parents=True)
    write_rows(path, [{**identity, **number} for number in numbers], evaluation="leakage")
    if done:
        mark_done(layout.run_dir(key), [])
    else:
        mark_failed(layout.run_dir(key), "the training loss became nan")
    os.utime(layout.status_path(key), ns=(age, age))


@pytest.fixture
def layout(tmp_path):
    layout = OutputLayout(tmp_path / "out")
    _store(layout, "a" * 16, 0.9, fold=0, age=1)  # from before the code changed
    _store(layout, "b" * 16, 0.1, fold=0, age=2)
    _store(layout, "c" * 16, 0.3, fold=1, age=1)
    _store(layout, "d" * 16, 0.7, setting="bbbb", age=1)
    _store(layout, "e" * 16, 0.5, setting="cccc", done=False)
    return layout


def test_the_newest_run_of_each_training_counts(layout):
    rows = current_rows(layout)
    assert sorted(rows["run_key"].str[0]) == ["b", "c", "d"]


def test_the_table_holds_runs_and_their_means(layout):
    write_results_table(layout)
    table = pd.read_csv(layout.results_csv)
    means = table[table["scope"] == "mean"].sort_values("value")
    assert means["value"].tolist() == pytest.approx([0.2, 0.7])
    assert means["n_runs"].tolist() == [2, 1]
    assert (table["scope"] == "run").sum() == 3


def test_an_empty_folder_gives_an_empty_table(tmp_path):
    assert write_results_table(OutputLayout(tmp_path / "nothing")).empty


def test_a_sweep_is_told_line_by_line(layout):
    rows = write_results_table(layout)
    lines = sweep_lines(
        layout,
        rows,
        [("b" * 16, ["fold=0"]), ("c" * 16, ["fold=1"]), ("e" * 16, ["recipe.lr=1"])],
    )
    assert [line.split() for line in lines[:4]] == [
        ["run", "setting", "ctl"],
        ["bbbbbbbb", "fold=0", "0.1000"],
        ["cccccccc", "fold=1", "0.3000"],
        ["eeeeeeee", "recipe.lr=1", "-"],
    ]
    assert lines[-1] == f"All numbers: {layout.results_csv}"


def test_a_run_tells_four_points_of_its_intervention_curve(tmp_path):
    layout = OutputLayout(tmp_path / "out")
    curve = [
        {"metric": "intervention_accuracy", "target": "random", "step": step, "value": step / 112}
        for step in range(113)
    ]
    _store(layout, "f" * 16, 0.25, rows=curve)
    lines = run_lines(layout, "f" * 16, has_pictures=True)
    points = [line.split("after ")[1].split()[0] for line in lines if "after" in line]
    assert points == ["0", "28", "56", "112"]
    assert "  ctl" in lines[1]
    assert lines[-1].startswith("Pictures of it: concept-audit show run=ffffffff paths.output_dir=")
    assert not any("Pictures" in line for line in run_lines(layout, "f" * 16, has_pictures=False))
