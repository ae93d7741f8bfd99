"""`reproduce paper=cbx` in its smallest form: models, judgement, tables, leaderboard, report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from concept_audit.pipeline.plan import experiment_names
from concept_audit.store.layout import OutputLayout

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "concept_audit.pipeline", "reproduce", "paper=cbx"]


def _reproduce(folder: Path) -> str:
    done = subprocess.run(
        [*COMMAND, "profile=smoke", f"paths.output_dir={folder}", "logger=none"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


def test_the_council_line_comes_out_and_a_rerun_does_nothing(tmp_path):
    layout = OutputLayout(tmp_path / "outputs")
    first = _reproduce(layout.root)
    assert first.count("council scripted:") == 1  # one judgement serves all tables
    for name in experiment_names("cbx"):
        table = pd.read_csv(layout.table_path(*name.split("/")))
        ours = table[table["ours"].notna()]
        assert len(ours) > 0, name
        assert set(ours["verdict"]) == {"stand-in"}
    (manifest,) = layout.judgements.glob("council-*/manifest.json")
    record = json.loads(manifest.read_text())
    assert record["study_models"] == ["cbm_hard", "cbm_logit_lambda10", "cbm_soft_lambda10"]
    assert record["from_store"] == 0
    page = layout.report_html.read_text(encoding="utf-8")
    assert 'href="../leaderboard/index.html"' in page
    assert "offline stand-in" in page
    assert (layout.leaderboard / "index.html").is_file()

    again = _reproduce(layout.root)
    assert "council scripted" not in again
    assert "(0 done, 7 already there)" in again
