from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pandas")

from concept_audit.council import benchmark_scores, synthetic_labels
from concept_audit.council.result_rows import (
    benchmark_rows,
    consensus_rows,
    position_bias_rows,
    recovery_rows,
)
from concept_audit.reporting.paper_values import read_paper_values
from concept_audit.store.results import rows_frame


@pytest.fixture
def study(reference):
    return reference("council")["study"]


@pytest.fixture
def human(study):
    return [
        {
            "dataset": i["dataset"],
            "image_id": i["image_id"],
            "pair": pair.split("|"),
            "answers": raw,
        }
        for i in study["images"]
        for pair, raw in i["human"].items()
    ]


@pytest.fixture
def scores(study):
    return [
        {"dataset": i["dataset"], "image_id": i["image_id"], "model": m, "judge": j, "score": s}
        for i in study["images"]
        for j, values in i["scores"].items()
        for m, s in values.items()
    ]


def find(rows, **columns):
    hits = [r for r in rows if all(r.get(k) == v for k, v in columns.items())]
    assert len(hits) == 1, (columns, len(hits))
    return hits[0]


def test_rows_hold_the_reference_values_and_fit_the_results_table(study, human, scores):
    rows = recovery_rows(human, scores, n_resamples=20)
    want = study["expected"]["recovery"]["score_sum"]["strict"]["overall"]
    got = find(rows, metric="recovery_strict", model="score_sum scale=9", dataset="overall")
    assert got["value"] == pytest.approx(100 * want["value"])
    assert (got["n_samples"], got["note"]) == (want["n_images"], f"{want['n_pairs']} pairs")
    rows += consensus_rows(human)
    assert find(rows, metric="consensus_tie_items", dataset="overall")["value"] == 6
    accuracy = {"lf_cbm": {"cub200": 70.0}}
    rows += benchmark_rows(benchmark_scores(scores, n_resamples=20), accuracy=accuracy)
    assert find(rows, metric="cbx_rank", model="cbm_suite", dataset="overall")["value"] == 1
    assert find(rows, metric="task_accuracy")["value"] == 70
    frame = rows_frame(rows)
    assert len(frame) == len(rows)
    assert set(frame.paper) == {"cbx"}


def test_position_bias_rows(reference):
    case = reference("council")["position_bias"]
    rows = position_bias_rows({"judge": case["rows"]})
    assert find(rows, metric="position_bias")["value"] == 37.5


def test_synthetic_labels_are_named_in_every_row(scores):
    quality = {(r["dataset"], r["image_id"], r["model"]): r["score"] / 9 for r in scores}
    human = synthetic_labels(quality)
    rows = recovery_rows(human, scores, n_resamples=10) + consensus_rows(human)
    assert all("synthetic labels" in row["note"] for row in rows)


def test_metrics_and_models_are_those_of_the_paper_values(human, scores):
    path = Path(__file__).parents[2] / "data" / "paper_values" / "cbx.csv"
    paper = read_paper_values(path)
    rows = recovery_rows(human, scores, n_resamples=5) + consensus_rows(human)
    ours = {(r["metric"], r.get("model", "")) for r in rows}
    tables = paper[paper.artefact.isin(["tab03_strict_recovery", "tab04_weak_recovery"])]
    printed = {(m, j) for m, j in zip(tables.metric, tables.model, strict=True)}
    missing = {key for key in printed - ours if key[1].endswith("scale=9")}
    assert missing == set()
    assert ("recovery_weak", "chance") in ours
