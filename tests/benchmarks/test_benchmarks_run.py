"""The benchmark of the estimators runs in its small form and finds equal values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_information_rows():
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import bench_information as b; "
        "print(json.dumps([[r['work'], str(r['equal']), r['ratio']] for r in b.run(True)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    rows = json.loads(done.stdout)
    assert len(rows) == 7
    assert all(equal.startswith("True") for _, equal, _ in rows), rows
    assert all(ratio > 0 for *_, ratio in rows)
