"""Provenance of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from concept_audit.store.manifest import (
    finish_manifest,
    git_state,
    new_manifest,
    read_manifest,
    write_manifest,
)


def test_round_trip(tmp_path: Path):
    manifest = new_manifest(
        command=["concept-audit", "run", "data=tabulartoy"],
        config={"seed": 0},
        key_parts={"config": {"seed": 0}, "code": "c", "dataset": "d", "stage_version": 1},
        seeds={"seed": 0, "eval_seed": 1},
        dataset_fingerprint="d",
    )
    manifest = finish_manifest(manifest, inputs={"a": "1"}, outputs={"b": "2"}, epochs=200)
    write_manifest(tmp_path / "manifest.json", manifest)
    content = read_manifest(tmp_path / "manifest.json")
    assert content == manifest
    assert content["command"] == "concept-audit run data=tabulartoy"
    assert content["key_parts"] == {"code": "c", "dataset": "d", "stage_version": 1}
    assert content["environment"]["libraries"]["numpy"]
    assert content["environment"]["hardware"]["cores"] >= 1
    assert content["seconds"] >= 0
    assert content["peak_memory_mib"] > 10
    assert content["epochs"] == 200
    assert content["outputs"] == {"b": "2"}


def test_no_checkout_has_no_commit(tmp_path: Path):
    assert git_state(tmp_path / "nowhere") == {"commit": None, "dirty": None}


def test_a_damaged_manifest_is_reported(tmp_path: Path):
    (tmp_path / "manifest.json").write_text('{"start"')
    with pytest.raises(ValueError, match="is no readable manifest"):
        read_manifest(tmp_path / "manifest.json")
