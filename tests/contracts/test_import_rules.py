"""The rooms of the package import only downwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_import_contracts_hold():
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as run; run()",
    ]
    done = subprocess.run(
        [*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "0 broken" in done.stdout


def test_there_is_no_room_without_a_name():
    stray = {"utils", "helpers", "misc", "common"}
    found = [path for path in (ROOT / "src").rglob("*") if path.stem in stray]
    assert not found


def test_nothing_committed_names_one_machine():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    if listed.returncode != 0:  # an unpacked archive: all sources are there all the same
        files = [path for path in (ROOT / "src").rglob("*.py")]
    else:
        files = [ROOT / name for name in listed.stdout.splitlines()]
    homes = ("/" + "work/", "/" + "root/", "/" + "home/")
    for path in files:
        if path.suffix in (".py", ".md", ".yaml", ".toml", ".cff") and path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not any(home in text for home in homes), path
