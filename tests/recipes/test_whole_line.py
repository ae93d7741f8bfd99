"""`reproduce` in its smallest form: every artefact of the leakage paper, then nothing to do."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from markupsafe import escape

from concept_audit.pipeline.artefacts import paper_values
from concept_audit.pipeline.plan import experiment_names
from concept_audit.store.layout import OutputLayout

COMMAND = [sys.executable, "-m", "concept_audit.pipeline", "reproduce", "paper=leakage"]


def _reproduce(folder: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    started = time.monotonic()
    done = subprocess.run(
        [*COMMAND, "profile=smoke", f"paths.output_dir={folder}"],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    return done, time.monotonic() - started


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "outputs"
    done, _ = _reproduce(folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return OutputLayout(folder)


def test_every_figure_and_table_comes_out(reproduced):
    for name in experiment_names("leakage"):
        paper, stem = name.split("/")
        if stem.startswith("fig"):
            for suffix in ("pdf", "png", "svg"):
                assert reproduced.figure_path(paper, stem, suffix).stat().st_size > 1000, name
        else:
            assert len(pd.read_csv(reproduced.table_path(paper, stem))) > 0


def test_the_report_names_every_artefact_the_claims_and_every_run(reproduced):
    page = reproduced.report_html.read_text(encoding="utf-8")
    for name in experiment_names("leakage"):
        assert name.split("/")[1] in page
    values = paper_values("leakage")
    statements = values[values["metric"] == "claim"]["column"]
    assert len(statements) == 10
    for statement in statements:
        assert str(escape(statement)) in page
    assert "<script" not in page
    assert not re.search(r'(src|href)="https?://', page)
    for key in reproduced.run_keys()[:5]:
        assert key in page
    assert "smoke" in page
    assert reproduced.report_markdown.is_file()


def test_the_results_table_is_tidy(reproduced):
    rows = pd.read_parquet(reproduced.results_parquet)
    assert {"ctl", "icl", "task_accuracy", "alignment_leakage"} <= set(rows["metric"])
    assert not rows["standin"].any()
    hard = rows[(rows["encoding"] == "hard") & (rows["model"] == "cbm") & (rows["metric"] == "ctl")]
    assert hard["lambda_concept"].isna().all()


def test_a_second_run_trains_and_draws_nothing_and_is_quick(reproduced):
    before = {path: path.stat().st_mtime_ns for path in reproduced.root.rglob("*.ckpt")} | {
        path: path.stat().st_mtime_ns for path in reproduced.figures.rglob("*.svg")
    }
    done, seconds = _reproduce(reproduced.root)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line for line in done.stderr.splitlines() if "already there" in line]
    assert {line.split(":")[0] for line in lines} >= {"train", "evaluate", "draw"}
    assert all("(0 done" in line for line in lines), lines
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert seconds < 90  # 60 s on a quiet machine
