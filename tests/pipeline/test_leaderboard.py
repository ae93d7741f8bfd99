"""`concept-audit leaderboard`: from judged submissions to a page."""

from __future__ import annotations

import csv
import json
import shutil

import pytest

from concept_audit.pipeline.entry import main
from concept_audit.pipeline.plan import config_dir

EXAMPLE = config_dir().parent / "scripts" / "examples"


@pytest.fixture
def submissions(tmp_path):
    """The example, and the same explanations under another model's name."""
    for name in ("one", "two"):
        shutil.copytree(EXAMPLE / "submission", tmp_path / name)
    shutil.copytree(EXAMPLE / "manifests", tmp_path / "manifests")
    for path in (tmp_path / "two").glob("*.jsonl"):
        path.write_text(path.read_text().replace("example CBM", "other CBM"))
    card = tmp_path / "two" / "submission.json"
    card.write_text(card.read_text().replace("example CBM", "other CBM"))
    return tmp_path


def _run(folder, *arguments):
    return main([*arguments, f"paths.output_dir={folder / 'outputs'}"])


def test_judged_submissions_are_ranked(submissions, capsys):
    both = ",".join(str(submissions / name) for name in ("one", "two"))
    for name in ("one", "two"):
        assert _run(submissions, "judge", "judge=scripted", f"submission={submissions / name}") == 0
    assert _run(submissions, "leaderboard", f"submissions={both}") == 0
    board = submissions / "outputs" / "leaderboard"
    assert str(board / "index.html") in capsys.readouterr().out
    with (board / "leaderboard.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["dataset"] == "overall"]
    assert {row["model"] for row in rows} == {"example CBM", "other CBM"}
    assert all(int(row["n_images"]) == 24 for row in rows)
    page = (board / "index.html").read_text(encoding="utf-8")
    assert "other CBM" in page
    assert "<script" not in page


def test_a_submission_that_nobody_judged_is_named_with_the_command(submissions, capsys):
    assert _run(submissions, "leaderboard", f"submissions={submissions / 'one'}") == 1
    assert "concept-audit judge judge=<name> submission=" in capsys.readouterr().err


def test_wrong_use_prints_the_usage(capsys):
    assert main(["leaderboard"]) == 2
    assert main(["leaderboard", "submission=x"]) == 2
    assert "usage: concept-audit leaderboard" in capsys.readouterr().err


def test_the_example_is_what_the_fixture_takes_it_for():
    card = json.loads((EXAMPLE / "submission" / "submission.json").read_text())
    assert "example CBM" in json.dumps(card)
