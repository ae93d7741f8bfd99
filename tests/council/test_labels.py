from __future__ import annotations

import json

import numpy as np
import pytest

from concept_audit.council import (
    consensus_table,
    inter_annotator_agreement,
    ranking_recovery,
    read_labels,
    synthetic_labels,
)
from concept_audit.council.labels import is_synthetic

ROW = {"dataset": "d", "image_id": "1", "pair": ["a", "b"], "answers": ["A", "A", "equally_good"]}


def write(path, *rows):
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows) + "\n")
    return path


def test_labels_are_read_with_their_consensus(tmp_path):
    rows = read_labels(write(tmp_path / "l.jsonl", ROW, {**ROW, "image_id": "2", "note": "x"}))
    assert (rows[0]["consensus"], rows[0]["strength"]) == ("A", "majority")
    assert rows[1]["note"] == "x"
    assert not is_synthetic(rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["{"], "line 1: cannot be read as JSON"),
        ([{"dataset": "d"}], "line 1: must be an object with dataset, image_id, pair, answers"),
        ([{**ROW, "pair": ["a", "a"]}], "two different models"),
        (
            [ROW, {**ROW, "image_id": "2", "answers": ["C"]}],
            r"line 2: answers must be .* got \['C'\]",
        ),
        ([{**ROW, "answers": []}], "answers must be"),
        ([ROW, {**ROW, "pair": ["b", "a"]}], "line 2: repeats the comparison of line 1"),
        ([""], "holds no label"),
    ],
)
def test_faults_are_named_with_their_line(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        read_labels(write(tmp_path / "l.jsonl", *rows))


def quality(n=100, seed=0):
    rng = np.random.default_rng(seed)
    return {("d", str(i), m): float(rng.random()) for i in range(n) for m in "abc"}


def test_synthetic_labels_are_marked_and_repeatable():
    rows = synthetic_labels(quality(), seed=1)
    assert rows == synthetic_labels(quality(), seed=1)
    assert rows != synthetic_labels(quality(), seed=2)
    assert is_synthetic(rows)
    assert all(row["synthetic"] for row in rows)
    assert consensus_table(rows).items == 300


def test_less_noise_means_more_agreement_and_truth_is_recovered():
    quiet, loud = (synthetic_labels(quality(), noise=noise) for noise in (0.02, 0.8))
    assert inter_annotator_agreement(quiet).alpha > inter_annotator_agreement(loud).alpha + 0.3
    exact = synthetic_labels(quality(), noise=0, tie_width=0)
    truth = [
        {**row, "label": "A" if quality()[("d", row["image_id"], row["pair"][0])]
         > quality()[("d", row["image_id"], row["pair"][1])] else "B"}
        for row in exact
    ]  # fmt: skip
    assert ranking_recovery(exact, truth, n_resamples=10).value == 1
