"""Only trusted targets are built."""

from __future__ import annotations

import pytest

from concept_audit.pipeline.run import main
from concept_audit.pipeline.schema import build, check_targets


def test_a_foreign_target_is_refused_before_anything_is_imported():
    with pytest.raises(ValueError, match=r"model\.encoder\._target_ is 'joblib\.load'"):
        check_targets({"encoder": {"_target_": "joblib.load"}}, "model")
    with pytest.raises(ValueError, match="CONCEPT_AUDIT_TRUST"):
        build({"_target_": "os.system", "command": "true"})


def test_a_list_hides_nothing():
    with pytest.raises(ValueError, match=r"config\.steps\[1\]"):
        check_targets({"steps": [{"a": 1}, {"_target_": "subprocess.run"}]})


def test_the_user_may_trust_more_by_the_environment(monkeypatch):
    monkeypatch.setenv("CONCEPT_AUDIT_TRUST", "collections.")
    assert build({"_target_": "collections.Counter"}) == {}


def test_a_prefix_must_match_from_the_start():
    with pytest.raises(ValueError):
        check_targets({"_target_": "evil.concept_audit.models"})


def test_an_error_of_what_is_built_comes_without_hydras_frame():
    config = {"_target_": "concept_audit.models.vae.VAESpec", "network": "huge"}
    with pytest.raises(ValueError, match=r"^network must be 'big' or 'small', got 'huge'"):
        build(config)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data=shapes3d"], "3dshapes.h5 is missing"),
        (["model=vae", "model.spec.network=huge"], "network must be 'big' or 'small', got 'huge'"),
    ],
)
def test_run_says_in_one_sentence_what_cannot_be_built(tmp_path, capsys, overrides, message):
    places = [f"paths.output_dir={tmp_path}/outputs", f"paths.data_dir={tmp_path}/data"]
    assert main(["profile=smoke", *places, *overrides]) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    last = said.strip().splitlines()[-1]
    assert last.startswith("concept-audit run: ")
    assert message in last
