"""A reader sees the old file or the new one, whatever happens to the writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from concept_audit.store.atomic import (
    atomic_path,
    file_sha256,
    process_start,
    remove_leftovers,
    write_bytes,
    write_json,
    write_text,
)

SLOW_WRITER = """
import sys, time
from concept_audit.store.atomic import atomic_path
with atomic_path(sys.argv[1]) as temporary:
    with temporary.open("wb") as stream:
        stream.write(b"new" * 100)
        stream.flush()
        print("half", flush=True)
        time.sleep(60)
"""


def test_replaces_the_whole_file(tmp_path: Path):
    target = tmp_path / "deep" / "file.txt"
    write_text(target, "old")
    write_bytes(target, b"new")
    assert target.read_bytes() == b"new"
    assert list(target.parent.iterdir()) == [target]


def test_json_is_readable_and_sorted(tmp_path: Path):
    write_json(tmp_path / "a.json", {"b": 1, "a": "é"})
    assert (tmp_path / "a.json").read_text() == '{\n  "a": "é",\n  "b": 1\n}\n'


def test_an_error_in_the_block_keeps_the_old_file(tmp_path: Path):
    target = tmp_path / "file.txt"
    write_text(target, "old")

    def stop_half_way() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop_half_way()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_temporary_name_keeps_the_suffix(tmp_path: Path):
    with atomic_path(tmp_path / "figure.svg") as temporary:
        temporary.write_text("<svg/>")
        assert temporary.suffix == ".svg"
        assert temporary.parent == tmp_path


def test_a_kill_in_the_middle_leaves_the_old_file(tmp_path: Path):
    target = tmp_path / "file.bin"
    write_bytes(target, b"old")
    writer = subprocess.Popen(
        [sys.executable, "-c", SLOW_WRITER, str(target)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "half\n"
    assert remove_leftovers(tmp_path) == 0  # its writer is alive
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    assert target.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2
    assert remove_leftovers(tmp_path) == 1
    assert list(tmp_path.iterdir()) == [target]


def test_hash_follows_the_content(tmp_path: Path):
    target = tmp_path / "file.bin"
    write_bytes(target, b"abc")
    first = file_sha256(target)
    assert first == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    write_bytes(target, b"abd")
    assert file_sha256(target) != first


def test_process_start_tells_the_living_from_the_dead():
    assert process_start(os.getpid()) is not None
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    time.sleep(0.01)
    assert process_start(child.pid) is None
