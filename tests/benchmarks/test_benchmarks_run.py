"""The benchmarks run in their small form and find equal values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

KEYS = {"work", "peer", "must", "aim", "ratio", "ours_ms", "peer_ms", "sizes", "equal"}


def rows_of(name: str) -> list[dict]:
    """Rows of one file, in a process of its own: they set threads for all of it."""
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import importlib; "
        "print(json.dumps(importlib.import_module(sys.argv[2]).run(True), default=str))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), name],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    rows = json.loads(done.stdout.splitlines()[-1])
    for row in rows:
        assert set(row) >= KEYS
        assert (
            row["ratio"] == pytest.approx(row["peer_ms"] / row["ours_ms"])
            or "error" in (row["work"])
        )
        assert row["ratio"] > 0
    return rows


def test_information_rows():
    rows = rows_of("bench_information")
    assert len(rows) == 7
    assert all(str(row["equal"]).startswith("True") for row in rows), rows


def test_impurity_rows():
    pytest.importorskip("torch")
    pairwise, joint = rows_of("bench_impurity")
    assert pairwise["equal"].startswith("True"), pairwise
    assert (pairwise["must"], joint["must"]) == (3.0, 30.0)


def test_probe_rows():
    pytest.importorskip("torch")
    pytest.importorskip("sage")
    rows = {row["work"]: row for row in rows_of("bench_probes")}
    gap = rows["MLP probes, 7 factors, 2 seeds, h = 28"]["equal"]
    # float32 weights near 0.2, some steps of 1e-3: rounding stays below 1e-4.
    assert float(gap.rpartition(" ")[2]) < 1e-4
    same = rows["SAGE, one factor of 7, same draws"]["equal"]
    assert float(same.rpartition(" ")[2]) < 1e-6
    until = rows["SAGE, one factor of 7, to the same standard error"]
    assert until["equal"] == "within 4 standard errors: True"


def test_image_rows():
    pytest.importorskip("torchvision")
    rows = rows_of("bench_images")
    assert [row["must"] for row in rows] == [10.0] + 7 * [None]
    assert "images/s" in rows[0]["note"]
    for row in rows[:1] + rows[2:]:  # augmentation draws other random numbers than its peer
        assert str(row["equal"]).startswith("True"), row
