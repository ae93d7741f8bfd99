"""Only trusted targets are built."""

from __future__ import annotations

import pytest

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
