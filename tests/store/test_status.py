"""A run is done when it says so and its files are what they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from concept_audit.store.status import (
    is_done,
    mark_done,
    mark_failed,
    mark_running,
    read_status,
    verify_files,
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "k1"
    folder.mkdir()
    (folder / "checkpoint.ckpt").write_bytes(b"weights")
    (folder / "bundle_test.safetensors").write_bytes(b"arrays")
    mark_done(folder, [folder / "checkpoint.ckpt", "bundle_test.safetensors"], epochs=3)
    return folder


def test_done(run_dir: Path):
    assert is_done(run_dir)
    status = read_status(run_dir)
    assert status is not None
    assert status.state == "done"
    assert status.info == {"epochs": 3}
    assert sorted(status.files) == ["bundle_test.safetensors", "checkpoint.ckpt"]


def test_a_tampered_file_is_not_done(run_dir: Path):
    (run_dir / "checkpoint.ckpt").write_bytes(b"weighs!")
    assert not is_done(run_dir)
    assert "checkpoint.ckpt has changed" in verify_files(run_dir)[0]


def test_a_missing_file_is_not_done(run_dir: Path):
    (run_dir / "checkpoint.ckpt").unlink()
    assert not is_done(run_dir)
    assert "is missing" in verify_files(run_dir)[0]


def test_a_damaged_status_is_not_done(run_dir: Path):
    (run_dir / "status.json").write_text('{"state": "done", "files"')
    assert read_status(run_dir) is None
    assert not is_done(run_dir)
    assert "missing or damaged" in verify_files(run_dir)[0]


def test_no_status_is_not_done(tmp_path: Path):
    assert not is_done(tmp_path / "nowhere")


def test_running_and_failed(run_dir: Path):
    mark_running(run_dir, epoch=1)
    status = read_status(run_dir)
    assert status is not None
    assert status.state == "running"
    assert status.info["epoch"] == 1
    assert not is_done(run_dir)
    try:
        raise FloatingPointError("loss is NaN at step 3, lambda_concept=5")
    except FloatingPointError as error:
        mark_failed(run_dir, error)
    status = read_status(run_dir)
    assert status is not None
    assert status.state == "failed"
    assert "loss is NaN at step 3" in (status.error or "")
    assert "Traceback" in (status.error or "")


def test_done_needs_its_files(run_dir: Path, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"cannot be marked done: .*nothing\.ckpt"):
        mark_done(run_dir, ["nothing.ckpt"])
    (tmp_path / "outside.txt").write_text("")
    with pytest.raises(ValueError, match="files must lie in the run's folder"):
        mark_done(run_dir, [tmp_path / "outside.txt"])
