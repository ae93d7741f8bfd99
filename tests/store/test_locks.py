"""Of two processes with the same key one computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from concept_audit.store.locks import held_lock, lock_holder
from concept_audit.store.results import read_rows

# Waits for the starting gun, then does what the pipeline does for one run.
RACER = """
import sys, time
from pathlib import Path
from concept_audit.store.layout import OutputLayout
from concept_audit.store.locks import held_lock
from concept_audit.store.results import write_rows
from concept_audit.store.status import is_done, mark_done

for line in sys.stdin:
    root, start = line.split()
    layout = OutputLayout(root)
    while time.time() < float(start):
        pass
    with held_lock(layout.lock_path("k1"), wait_s=30, poll_s=0.005) as held:
        outcome = "skipped" if not held else "found"
        if held and not is_done(layout.run_dir("k1")):
            time.sleep(0.02)
            path = layout.metrics_path("k1", "e1")
            write_rows(path, [dict(scope="run", dataset="d", metric="ctl", value=1.0)],
                       evaluation="leakage")
            mark_done(layout.run_dir("k1"), [path])
            outcome = "computed"
    print(outcome, flush=True)
"""


def test_two_processes_at_the_same_moment(tmp_path: Path):
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        for trial in range(20):
            root = tmp_path / str(trial)
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"{root} {time.time() + 0.03}\n")
                racer.stdin.flush()
            outcomes = sorted(racer.stdout.readline().strip() for racer in racers if racer.stdout)
            assert outcomes == ["computed", "found"], trial
            files = sorted(path.name for path in (root / "runs" / "k1").rglob("*"))
            assert files == ["e1.parquet", "e1.sha256", "metrics", "status.json"]
            assert len(read_rows(root / "runs" / "k1" / "metrics" / "e1.parquet")) == 1
    finally:
        for racer in racers:
            racer.communicate()


def test_a_held_lock_is_skipped_and_names_its_holder(tmp_path: Path):
    path = tmp_path / "run" / ".lock"
    with held_lock(path) as first:
        assert first
        holder = lock_holder(path)
        assert holder is not None
        assert holder.pid == os.getpid()
        assert str(holder).startswith(f"process {os.getpid()} on {holder.host}, since 20")
        with held_lock(path) as second:
            assert not second
        assert lock_holder(path) == holder  # the loser released nothing
    assert lock_holder(path) is None
    assert list(path.parent.iterdir()) == []


def test_waiting_ends(tmp_path: Path):
    with held_lock(tmp_path / ".lock"):
        begin = time.monotonic()
        with held_lock(tmp_path / ".lock", wait_s=0.1, poll_s=0.01) as second:
            assert not second
        assert time.monotonic() - begin >= 0.1


def test_an_error_in_the_block_releases(tmp_path: Path):
    with pytest.raises(RuntimeError, match="stop"), held_lock(tmp_path / ".lock"):
        raise RuntimeError("stop")
    assert lock_holder(tmp_path / ".lock") is None


def dead_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    return child.pid


def leave_lock(path: Path, **change) -> None:
    with held_lock(path):
        content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **change}))


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path):
    leave_lock(tmp_path / ".lock", pid=dead_process())
    with held_lock(tmp_path / ".lock") as held:
        assert held
    assert list(tmp_path.iterdir()) == []


def test_a_reused_process_number_is_recognised(tmp_path: Path):
    leave_lock(tmp_path / ".lock", process_start="1")
    with held_lock(tmp_path / ".lock") as held:
        assert held


def test_a_lock_of_another_machine_stays(tmp_path: Path):
    leave_lock(tmp_path / ".lock", host="elsewhere", pid=dead_process())
    with held_lock(tmp_path / ".lock") as held:
        assert not held
    assert (tmp_path / ".lock").exists()


def test_a_foreign_file_is_reported(tmp_path: Path):
    (tmp_path / ".lock").write_text("hello")
    with (
        pytest.raises(ValueError, match="is no lock of this program"),
        held_lock(tmp_path / ".lock"),
    ):
        pass


def test_a_disk_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with held_lock(tmp_path / ".lock") as first, held_lock(tmp_path / ".lock") as second:
        assert (first, second) == (True, False)
    assert list(tmp_path.iterdir()) == []
