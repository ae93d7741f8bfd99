from __future__ import annotations

import sys

import pytest

from concept_audit.council import bradley_terry, inter_annotator_agreement
from concept_audit.council.judges.base import JudgeUnreachable
from concept_audit.council.judges.embedding import EmbeddingJudge
from concept_audit.council.judges.openai_server import OpenAIServerJudge

HUMAN = [{"image_id": "i", "pair": ("a", "b"), "answers": ["A", "B", "A"]}]


def without(monkeypatch, *names):
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


def test_agreement_names_the_extra(monkeypatch):
    without(monkeypatch, "krippendorff", "choix")
    with pytest.raises(
        ModuleNotFoundError, match=r"krippendorff.*pip install 'concept-audit\[judge\]'"
    ):
        inter_annotator_agreement(HUMAN)
    with pytest.raises(ModuleNotFoundError, match=r"choix.*pip install 'concept-audit\[judge\]'"):
        bradley_terry(HUMAN)


def test_judges_name_the_extra(monkeypatch):
    without(monkeypatch, "openai", "sentence_transformers")
    with pytest.raises(JudgeUnreachable, match=r"package openai.*concept-audit\[judge\]"):
        OpenAIServerJudge("http://localhost/v1", "m", revision="r").check()
    with pytest.raises(JudgeUnreachable, match=r"embedding judge needs the package .*\[judge\]"):
        EmbeddingJudge().check()


def test_transformers_judge_names_the_extra(monkeypatch, tmp_path):
    from concept_audit.council.judges.transformers import TransformersJudge

    without(monkeypatch, "transformers")
    with pytest.raises(JudgeUnreachable, match=r"needs the package transformers.*\[torch,judge\]"):
        TransformersJudge(str(tmp_path)).check()


def test_importers_and_board_name_the_extra(monkeypatch, tmp_path):
    from concept_audit.council import load_lf_cbm, write_leaderboard

    without(monkeypatch, "torch", "jinja2")
    (tmp_path / "W_c.pt").write_bytes(b"")
    with pytest.raises(ModuleNotFoundError, match=r"importers need PyTorch.*\[torch\]"):
        load_lf_cbm(tmp_path)
    row = {"dataset": "d", "image_id": "i", "model": "m", "judge": "j", "score": 5}
    with pytest.raises(ModuleNotFoundError, match=r"needs the package jinja2.*\[pipeline\]"):
        write_leaderboard(tmp_path, [row], [], n_resamples=2)


def test_a_judge_without_its_package_still_has_a_name(monkeypatch, tmp_path):
    from importlib import metadata

    from concept_audit.council.judges import transformers as module

    def absent(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(module.metadata, "version", absent)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    identity = module.TransformersJudge(str(tmp_path), name="judge").identity
    assert (identity.name, identity.engine_version) == ("judge", "absent+torchabsent")
