"""The results table: its schema refuses what does not fit, its files tell when they are hurt."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from concept_audit.store.layout import OutputLayout
from concept_audit.store.results import (
    RESULT_COLUMNS,
    RESULT_DTYPES,
    ResultRowsError,
    collect,
    read_rows,
    rows_frame,
    rows_valid,
    write_results,
    write_rows,
)


def row(**change):
    base = {
        "run_key": "k1",
        "scope": "run",
        "dataset": "tabulartoy_d025",
        "standin": False,
        "model": "cbm",
        "lambda_concept": 1,
        "fold": 0,
        "metric": "ctl",
        "target": "mean",
        "value": 0.5,
        "n_samples": 1000,
    }
    return {**base, **change}


def test_columns_order_and_dtypes():
    frame = rows_frame([row(), row(metric="icl", p_int=0.25, note="x", standin=None)])
    assert tuple(frame.columns) == RESULT_COLUMNS
    for name, dtype in RESULT_DTYPES.items():
        assert frame[name].dtype == dtype, name
    assert frame["n_runs"].isna().all()
    assert frame["p_int"].isna().tolist() == [True, False]


def test_no_rows_have_the_schema_too():
    frame = rows_frame([])
    assert tuple(frame.columns) == RESULT_COLUMNS
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == RESULT_DTYPES


def test_a_table_goes_through_unchanged():
    frame = rows_frame([row()])
    pd.testing.assert_frame_equal(rows_frame(frame), frame)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lambda": 1}, r"unknown columns \['lambda'\]"),
        ({"metric": "CTL (mean)"}, r"metric must be lower case words.*'CTL \(mean\)'"),
        ({"metric": None}, "every row needs 'metric', got 1 of 1 without it"),
        ({"scope": "total"}, r"scope must be one of .*'total'"),
        ({"value": "0.5"}, "column 'value' must hold float64 values, got str such as"),
        ({"fold": 0.5}, "column 'fold' must hold Int64 values"),
        ({"dataset": 3}, "column 'dataset' must hold string values, got int such as"),
    ],
)
def test_what_does_not_fit_is_named(change, message: str):
    with pytest.raises(ResultRowsError, match=message):
        rows_frame([row(**change)])


def test_round_trip(tmp_path: Path):
    path = tmp_path / "metrics" / "e1.parquet"
    rows = [row(), row(value=float("nan"), note="one class only", target="c1|c2")]
    digest = write_rows(path, rows, evaluation="leakage", options={"n_neighbors": 3})
    assert len(digest) == 64
    pd.testing.assert_frame_equal(read_rows(path), rows_frame(rows))
    assert rows_valid(path)


def test_a_flipped_bit_is_noticed(tmp_path: Path):
    path = tmp_path / "e1.parquet"
    write_rows(path, [row(value=float(number)) for number in range(200)], evaluation="leakage")
    whole = path.read_bytes()
    noticed = 0
    positions = range(0, len(whole), 97)
    for position in positions:
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        noticed += not rows_valid(path)
    assert noticed == len(positions)
    with pytest.raises(ResultRowsError, match="has changed since it was written"):
        read_rows(path)
    path.write_bytes(whole)
    assert rows_valid(path)


def test_rows_without_their_hash_count_as_not_written(tmp_path: Path):
    write_rows(tmp_path / "e1.parquet", [row()], evaluation="leakage")
    (tmp_path / "e1.sha256").unlink()
    assert not rows_valid(tmp_path / "e1.parquet")
    assert len(read_rows(tmp_path / "e1.parquet")) == 1


def test_missing_and_truncated_files(tmp_path: Path):
    path = tmp_path / "e1.parquet"
    assert not rows_valid(path)
    with pytest.raises(FileNotFoundError, match="Run the evaluation first"):
        read_rows(path)
    write_rows(path, [row()], evaluation="leakage")
    path.write_bytes(path.read_bytes()[:-10])
    assert not rows_valid(path)
    path.with_suffix(".sha256").unlink()
    with pytest.raises(ResultRowsError, match="is damaged"):
        read_rows(path)


def test_collect_takes_the_newest_of_each_evaluation(tmp_path: Path):
    layout = OutputLayout(tmp_path)
    assert collect(layout).empty
    files = [
        ("k1", "e1", "leakage", 1.0),
        ("k1", "e2", "leakage", 2.0),
        ("k1", "e3", "accuracy", 3.0),
        ("k2", "e4", "leakage", 4.0),
    ]
    for age, (run, evaluation, name, value) in enumerate(files):
        path = layout.metrics_path(run, evaluation)
        write_rows(path, [row(run_key=run, value=value)], evaluation=name)
        os.utime(path, (1000 + age, 1000 + age))
    assert collect(layout)["value"].tolist() == [3.0, 2.0, 4.0]
    assert collect(layout, ["k2", "k2"])["value"].tolist() == [4.0]
    assert collect(layout, evaluation_keys={"k1": ["e1"]})["value"].tolist() == [1.0]
    with pytest.raises(FileNotFoundError, match=r"e9\.parquet"):
        collect(layout, evaluation_keys={"k1": ["e9"]})


def test_the_collected_table_is_written_twice(tmp_path: Path):
    layout = OutputLayout(tmp_path)
    rows = [row(), row(metric="icl")]
    write_results(layout, rows)
    pd.testing.assert_frame_equal(read_rows(layout.results_parquet), rows_frame(rows))
    assert tuple(pd.read_csv(layout.results_csv).columns) == RESULT_COLUMNS
