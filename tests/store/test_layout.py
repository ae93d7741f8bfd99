"""Paths under the outputs folder, and the check before training."""

from __future__ import annotations

import os
import re
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from concept_audit.store.layout import OutputLayout, OutputNotWritableError


def test_paths_follow_the_documented_layout(tmp_path: Path):
    layout = OutputLayout(tmp_path)
    paths = {
        layout.config_path("k1"): "runs/k1/config.yaml",
        layout.manifest_path("k1"): "runs/k1/manifest.json",
        layout.checkpoint_path("k1"): "runs/k1/checkpoint.ckpt",
        layout.bundle_path("k1", "test"): "runs/k1/bundle_test.safetensors",
        layout.metrics_path("k1", "e1"): "runs/k1/metrics/e1.parquet",
        layout.status_path("k1"): "runs/k1/status.json",
        layout.membership_path("leakage", "fig06_supervision", "k1"): (
            "experiments/leakage/fig06_supervision/k1.json"
        ),
        layout.judgement_dir("j1"): "judgements/j1",
        layout.results_parquet: "results/results.parquet",
        layout.results_csv: "results/results.csv",
        layout.figure_path("leakage", "fig06_supervision"): "figures/leakage/fig06_supervision.svg",
        layout.table_path("leakage", "tab01_pairs"): "tables/leakage/tab01_pairs.csv",
        layout.report_html: "report/index.html",
        layout.report_markdown: "report/report.md",
    }
    for path, expected in paths.items():
        assert path.relative_to(tmp_path).as_posix() == expected
    assert list(tmp_path.iterdir()) == []  # asking creates nothing


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a..b", "a b"])
def test_a_key_cannot_leave_the_folder(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match="run_key must be letters"):
        OutputLayout(tmp_path).run_dir(name)


def test_membership(tmp_path: Path):
    layout = OutputLayout(tmp_path)
    assert layout.members("leakage", "fig06_supervision") == []
    layout.add_member("leakage", "fig06_supervision", "k2", {"fold": 0})
    layout.add_member("leakage", "fig06_supervision", "k1", {})
    assert layout.members("leakage", "fig06_supervision") == ["k1", "k2"]
    assert layout.run_keys() == []


def test_check_writable_passes_and_leaves_nothing(tmp_path: Path):
    OutputLayout(tmp_path / "outputs").check_writable(min_free_bytes=1)
    assert list((tmp_path / "outputs").iterdir()) == []


def test_a_file_in_the_way_is_reported(tmp_path: Path):
    (tmp_path / "outputs").write_text("")
    with pytest.raises(OutputNotWritableError, match=r"cannot be written: .*paths\.output_dir"):
        OutputLayout(tmp_path / "outputs").check_writable()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc, a read-only file system")
def test_a_read_only_file_system_is_reported():
    with pytest.raises(OutputNotWritableError, match=re.escape("/proc/concept_audit_outputs")):
        OutputLayout("/proc/concept_audit_outputs").check_writable()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_reported(tmp_path: Path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OutputNotWritableError, match="Permission denied"):
            OutputLayout(tmp_path).check_writable()
    finally:
        tmp_path.chmod(0o700)


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**30, 2**30, 3 * 2**20))
    with pytest.raises(OutputNotWritableError, match=r"needs 256 MiB .* has 3 MiB left"):
        OutputLayout(tmp_path).check_writable()
