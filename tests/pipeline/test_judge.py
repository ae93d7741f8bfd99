"""The judge stage: one judge on a submission, and the council over our own models."""

from __future__ import annotations

import functools
import inspect
import json
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pandas as pd
import pytest

from concept_audit.council.importers import ActivationTable
from concept_audit.council.intake import items_from_table
from concept_audit.council.judges.base import Judge
from concept_audit.pipeline import council
from concept_audit.pipeline.council import judge_runs
from concept_audit.pipeline.council_answers import COUNCILS
from concept_audit.pipeline.council_sets import JudgedSet, balanced_subset
from concept_audit.pipeline.entry import main as entry
from concept_audit.pipeline.judge import judge_config, main, make_judge
from concept_audit.pipeline.plan import config_dir, options
from concept_audit.store.layout import OutputLayout
from concept_audit.store.results import read_rows

EXAMPLES = config_dir().parent / "scripts" / "examples"


def _arguments(tmp_path: Path, judge: str, *more: str) -> list[str]:
    return [
        f"judge={judge}", f"submission={EXAMPLES / 'submission'}",
        f"paths.output_dir={tmp_path / 'out'}", *more,
    ]  # fmt: skip


@pytest.mark.parametrize("name", options("judge"))
def test_every_judge_composes_and_binds(name):
    config = judge_config(name)
    target = hydra.utils.get_object(config["_target_"])
    keywords = {key for key in config if not key.startswith("_")}
    assert keywords <= set(inspect.signature(target).parameters)
    assert config.get("name", "openai").startswith(("openai", name.split("_")[0][:5]))


def test_councils_name_judges_that_exist():
    for judges in COUNCILS.values():
        assert set(judges) <= set(options("judge"))
    assert len(COUNCILS["offline"]) == 5  # sums in [5, 45], as the paper's


def test_a_submission_is_judged_and_a_rerun_makes_no_call(tmp_path, capsys):
    assert entry(["judge", *_arguments(tmp_path, "scripted")]) == 0
    first = capsys.readouterr().out
    assert "scripted on cub200: 12 explanations, 12 calls, 0 answers from the store" in first
    assert "24 of 24 explanations scored" in first
    assert main(_arguments(tmp_path, "scripted")) == 0
    assert "0 calls, 12 answers from the store" in capsys.readouterr().out
    (folder,) = (tmp_path / "out" / "judgements").iterdir()
    tables = [pd.read_parquet(path) for path in sorted(folder.glob("scores-*.parquet"))]
    assert [len(table) for table in tables] == [12, 12]
    assert tables[0]["score"].between(1, 9).all()
    manifest = json.loads(next(folder.glob("manifest-*.json")).read_text())
    assert manifest["judge"]["name"] == "scripted"
    assert manifest["counts"]["ok"] == 12


def test_the_annotation_judge_reads_annotations_from_files(tmp_path, capsys):
    names: dict[str, set[str]] = {}
    for dataset in ("cub200", "places365"):
        lines = (EXAMPLES / "submission" / f"{dataset}.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        names[dataset] = {c["name"] for record in records for c in record["concepts"]}
        ids = [record["image_id"] for record in records]
        known = sorted(names[dataset])
        np.savez(
            tmp_path / f"{dataset}.npz",
            image_ids=ids,
            c=np.ones((len(ids), len(known)), dtype=int),
            concept_names=known,
        )
    assert main(_arguments(tmp_path, "annotation", f"annotations={tmp_path}")) == 0
    assert "24 of 24 explanations scored" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("judge", "more", "status", "message"),
    [
        ("annotation", (), 1, "Give annotations=FOLDER with <dataset>.npz"),
        ("annotation", ("annotations=nowhere",), 1, "no annotations of cub200: no file at"),
        ("qwen3_5_4b", (), 1, "judge.revision must be given: add judge.revision=<value>"),
        ("scripted", ("manifests=nowhere",), 1, "Give manifests=FOLDER with <dataset>.json"),
        ("anotation", (), 2, "judges: annotation, annotation_even"),
        ("scripted", ("scal=7",), 2, "scal"),
    ],
)
def test_what_is_missing_is_named(tmp_path, capsys, judge, more, status, message):
    assert main(_arguments(tmp_path, judge, *more)) == status
    assert message in capsys.readouterr().err


def test_without_a_submission_the_usage_is_shown(capsys):
    assert main(["judge=scripted"]) == 2
    assert "submission must be given" in capsys.readouterr().err
    assert main([]) == 2
    assert main(["--help"]) == 0


def test_a_partial_judge_takes_what_it_needs_and_nothing_else():
    judge = make_judge(
        judge_config("annotation"),
        dataset="d", image_ids=["a"], c=[[1]], concept_names=["beak"], quality={},
    )  # fmt: skip
    assert isinstance(judge, Judge)
    assert judge.identity.revision.startswith("d:")


def _predictions(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    right = rng.permutation(len(y)) < share * len(y)
    return np.where(right, y, (y + 1) % 3)


def test_a_subset_has_as_many_images_of_each_class():
    y = np.repeat([0, 1, 2], [40, 30, 25])
    ids = [f"{i:03d}" for i in range(len(y))]
    guesses = {"a": _predictions(y, 0.8, 0), "b": _predictions(y, 0.4, 1)}
    manifest = balanced_subset("d", ids, y, guesses, ("p", "q", "r"), n_images=60)
    classes = [image.class_name for image in manifest.images]
    assert {name: classes.count(name) for name in "pqr"} == {"p": 20, "q": 20, "r": 20}
    assert manifest.class_names == ("p", "q", "r")
    assert len({image.image_id for image in manifest.images}) == 60
    for model, full in manifest.full_accuracy.items():
        place = [ids.index(image.image_id) for image in manifest.images]
        assert abs(full - manifest.subset_accuracy[model]) <= manifest.tolerance_points
        assert manifest.subset_accuracy[model] == pytest.approx(
            100 * np.mean(guesses[model][place] == y[place])
        )


def test_a_small_class_bounds_the_subset():
    y = np.repeat([0, 1], [50, 4])
    ids = [f"{i:03d}" for i in range(len(y))]
    manifest = balanced_subset("d", ids, y, {"a": y.copy()}, ("p", "q"), n_images=60)
    assert len(manifest.images) == 8


def _data_set(name: str, runs: list[Any], n_images: int) -> Any:
    """Four invented models on twelve images of three classes."""
    rng = np.random.default_rng(len(name))
    names = ("red crest", "grey wing", "short bill", "long tail", "blue eye", "web foot")
    c = rng.integers(0, 2, (12, 6))
    y = np.repeat([0, 1, 2], 4)
    ids = [f"{i:02d}" for i in range(12)]
    tables = {
        model: ActivationTable(
            c + rng.normal(0, 0.3, c.shape), rng.normal(size=(3, 6)), np.zeros(3), names,
            ("p", "q", "r"), y,
        )
        for model in ("cbm_hard", "cbm_logit_lambda1", "cbm_soft_lambda0.1", "cbm_soft_lambda1")
    }  # fmt: skip
    guesses = {model: table.predictions for model, table in tables.items()}
    return JudgedSet(
        name=name,
        manifest=balanced_subset(name, ids, y, guesses, ("p", "q", "r"), n_images=12),
        rows=np.arange(12),
        tables=tables,
        items=[
            item
            for model, table in tables.items()
            for item in items_from_table(table, ids, dataset=name, model=model)
        ],
        c=c,
        concept_names=names,
        confidence={(name, i, model): rng.random() for i in ids for model in tables},
        entries={model: {"accuracy": 50.0, "nec": 6.0, "ncc95": 4.0} for model in tables},
    )


@pytest.fixture
def judged(tmp_path, monkeypatch):
    layout = OutputLayout(tmp_path / "outputs")
    for key, name in (("a" * 16, "cub_standin"), ("b" * 16, "ham10k_standin")):
        path = layout.bundle_path(key, "test")
        path.parent.mkdir(parents=True)
        path.write_text(name)

    class Run:
        def __init__(self, layout: OutputLayout, key: str) -> None:
            name = layout.bundle_path(key, "test").read_text()
            self.identity = {"dataset": name, "lambda_concept": None}
            self.encoding = "hard"

    monkeypatch.setattr(council, "StoredRun", Run)
    monkeypatch.setattr(council, "judged_set", _data_set)
    return layout, ["a" * 16, "b" * 16]


def test_the_council_judges_once_and_leaves_rows_and_a_board(judged, monkeypatch, capsys):
    layout, keys = judged
    key = judge_runs(layout, keys, "scripted")
    # 3 scales of 4 models, 3 pairs of 3 models in both orders; 12 images, 2 data sets, 3 judges
    assert f"{12 * 2 * 3 * (3 * 4 + 3 * 2)} calls, 0 answers" in capsys.readouterr().err
    folder = layout.judgement_dir(f"council-{key}")
    rows = read_rows(folder / "rows.parquet")
    assert rows["standin"].all()
    found = set(rows["metric"])
    assert {"n_images", "consensus_items", "recovery_strict", "recovery_weak_unanimous"} <= found
    assert {"cbx_score", "cbx_rank", "accuracy_rank", "position_bias"} <= found
    labelled = rows[rows["metric"].str.startswith(("consensus", "recovery"))]
    assert labelled["note"].str.contains("synthetic labels").all()
    scores = rows[(rows["metric"] == "cbx_score") & (rows["dataset"] == "overall")]
    assert sorted(scores["model"]) == sorted(_data_set("x", [], 0).tables)
    board = (layout.leaderboard / "index.html").read_text()
    assert "stand-in data" in board
    assert "invented" in board

    monkeypatch.setattr(council, "judged_set", functools.partial(pytest.fail, "judged twice"))
    assert judge_runs(layout, keys, "scripted") == key


def test_a_new_judgement_asks_nothing_that_was_answered(judged, capsys):
    layout, keys = judged
    key = judge_runs(layout, keys, "scripted")
    (layout.judgement_dir(f"council-{key}") / "rows.parquet").unlink()
    capsys.readouterr()
    judge_runs(layout, keys, "scripted")
    assert " 0 calls, " in capsys.readouterr().err


def test_an_unknown_council_is_refused(judged):
    layout, keys = judged
    with pytest.raises(ValueError, match=r"council must be one of offline, scripted, got 'online'"):
        judge_runs(layout, keys, "online")


def test_runs_of_two_councils_do_not_mix(judged):
    layout, keys = judged
    members = {keys[0]: {"profile": "smoke"}, keys[1]: {"profile": "embedded"}}
    with pytest.raises(ValueError, match="must lead to one council"):
        council.council_rows(layout, members, {"smoke": "scripted", "embedded": "offline"})
