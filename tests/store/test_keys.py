"""A key changes when settings, data or code change, and at no other time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from concept_audit.store.keys import (
    canonical_json,
    code_digest,
    evaluation_key,
    keyed_config,
    reached_modules,
    run_key,
    targets_of,
)

PARTS = {
    "config": {"model": {"lambda_concept": 1.0, "widths": [64, 64]}, "seed": 0},
    "dataset": "abc",
    "stage_version": 1,
    "code": "def",
}


# Canonical text


def test_equal_content_gives_equal_text():
    assert canonical_json({"b": (1, 2), "a": Path("x/y")}) == '{"a":"x/y","b":[1,2]}'
    assert canonical_json({"a": np.float64(0.5), "b": np.int64(3)}) == '{"a":0.5,"b":3}'


def test_kinds_stay_apart():
    texts = {canonical_json(value) for value in (1, 1.0, "1", True, None, float("inf"), "inf")}
    assert len(texts) == 7


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [{1, 2}]}, r"a\[0\] must be text, a number.*got set"),
        ({"a": {"b": np.zeros(2)}}, r"a\.b must be text.*got ndarray"),
        ({"a": {1: 2}}, "a must have text keys, got 1 of type int"),
    ],
)
def test_what_cannot_enter_a_key_is_named(value, message: str):
    with pytest.raises(TypeError, match=message):
        canonical_json(value)


# Keys


def test_run_key_is_stable_and_short():
    key = run_key(PARTS)
    assert key == run_key(dict(reversed(PARTS.items())))
    assert len(key) == 16
    assert int(key, 16) >= 0


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"model": {"lambda_concept": 0.5, "widths": [64, 64]}, "seed": 0}},
        {"config": {"model": {"lambda_concept": 1.0, "widths": [64, 64]}, "seed": 1}},
        {"dataset": "abd"},
        {"stage_version": 2},
        {"code": "deg"},
        {"extra": 1},
    ],
)
def test_every_part_counts(change):
    assert run_key({**PARTS, **change}) != run_key(PARTS)


def test_a_missing_part_is_refused():
    with pytest.raises(ValueError, match=r"run_key needs the parts .*: code missing"):
        run_key({name: part for name, part in PARTS.items() if name != "code"})
    with pytest.raises(ValueError, match=r"evaluation_key needs .*bundles, evaluation missing"):
        evaluation_key({"run_key": "a", "stage_version": 1, "code": "b"})


def test_evaluation_key_follows_the_bundle():
    parts = {
        "run_key": "a",
        "bundles": {"test": "1"},
        "evaluation": {"n_neighbors": 3},
        "stage_version": 1,
        "code": "b",
    }
    assert evaluation_key(parts) == evaluation_key(dict(parts))
    assert evaluation_key({**parts, "bundles": {"test": "2"}}) != evaluation_key(parts)


def test_excluded_keys_do_not_count_and_new_ones_do():
    config = {"model": 1, "paths": {"data_dir": "/a"}, "hydra": {}, "profile": {"epochs": 1}}
    assert keyed_config(config) == {"model": 1}
    assert keyed_config({**config, "novelty": 2}) == {"model": 1, "novelty": 2}


# Digest of the code


@pytest.fixture
def package(tmp_path: Path):
    """A package that imports in every way we follow, and a function that edits it."""
    files = {
        "__init__.py": '"""Package."""\n__version__ = "1"\n',
        "stage.py": (
            '"""Stage."""\nfrom __future__ import annotations\nimport json\n'
            "from typing import TYPE_CHECKING\n"
            "from concept_audit.room import scores\n"
            "if TYPE_CHECKING:\n    from concept_audit.room import typed\n"
            "def run():\n"
            '    """Run."""\n'
            "    # inside a function\n"
            "    from concept_audit.room.late import late\n"
            "    from concept_audit.lazy import ctl\n"
            "    return late() + ctl() + scores.one() + 1\n"
        ),
        "room/__init__.py": '"""Room."""\n',
        "room/scores.py": "from concept_audit.room.deep import two\ndef one():\n    return two\n",
        "room/deep.py": "two = 2\n",
        "room/late.py": "def late():\n    return 3\n",
        "room/typed.py": "x = 1\n",
        "room/unused.py": "x = 1\n",
        "lazy/__init__.py": '_HOME: dict[str, str] = {"ctl": "leakage", "dci": "other"}\n',
        "lazy/leakage.py": "def ctl():\n    return 0\n",
        "lazy/other.py": "def dci():\n    return 0\n",
    }
    root = tmp_path / "concept_audit"

    def edit(name: str, old: str = "", new: str = "") -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        assert old in text
        path.write_text(text.replace(old, new, 1) if old else new)

    for name, text in files.items():
        edit(name, new=text)
    return root, edit


STAGE = ["concept_audit.stage"]


def test_reached_modules(package):
    root, _ = package
    assert reached_modules(STAGE, root) == (
        "concept_audit.lazy.leakage",
        "concept_audit.room.deep",
        "concept_audit.room.late",
        "concept_audit.room.scores",
        "concept_audit.stage",
    )


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("stage.py", '"""Run."""', '"""Run, said better."""'),
        ("stage.py", '"""Stage."""', ""),
        ("stage.py", "# inside a function", "# elsewhere"),
        ("stage.py", "+ 1", "+  1"),
        ("room/unused.py", "1", "2"),
        ("room/typed.py", "1", "2"),
        ("lazy/other.py", "0", "1"),
        ("lazy/__init__.py", "}", ', "new": "newer"}'),
        ("__init__.py", '"1"', '"2"'),
    ],
)
def test_digest_stays_when_the_code_reached_is_the_same(package, name: str, old: str, new: str):
    root, edit = package
    before = code_digest(STAGE, root)
    edit(name, old, new)
    assert code_digest(STAGE, root) == before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("stage.py", "+ 1", "+ 12"),
        ("room/scores.py", "return two", "return two + 1"),
        ("room/deep.py", "2", "30"),
        ("room/late.py", "3", "30"),
        ("lazy/leakage.py", "0", "10"),
        ("lazy/__init__.py", '"ctl": "leakage"', '"ctl": "other"'),
    ],
)
def test_digest_changes_with_code_that_is_reached(package, name: str, old: str, new: str):
    root, edit = package
    before = code_digest(STAGE, root)
    edit(name, old, new)
    assert code_digest(STAGE, root) != before


def test_excluded_modules_are_not_entered(package):
    root, edit = package
    exclude = ["concept_audit.room.scores", "concept_audit.lazy"]
    assert reached_modules(STAGE, root, exclude=exclude) == (
        "concept_audit.room.late",
        "concept_audit.stage",
    )
    before = code_digest(STAGE, root, exclude=exclude)
    edit("room/deep.py", "2", "30")
    assert code_digest(STAGE, root, exclude=exclude) == before
    assert code_digest(STAGE, root) != before


def test_a_target_that_does_not_exist_is_an_error(package):
    root, _ = package
    with pytest.raises(ValueError, match=r"got 'concept_audit\.stag', which has no source file"):
        code_digest(["concept_audit.stag"], root)


def test_other_packages_are_passed_over(package):
    root, _ = package
    assert reached_modules(["torch.optim", "concept_audit.room.deep"], root) == (
        "concept_audit.room.deep",
    )


def test_targets_are_found_everywhere_in_a_config():
    config = {
        "model": {"_target_": "concept_audit.store.layout.OutputLayout"},
        "optimiser": {"_target_": "torch.optim.Adam"},
        "list": [{"_target_": "concept_audit.store.keys.run_key"}],
        "lazy": {"_target_": "concept_audit.metrics.concepts_task_leakage"},
    }
    assert targets_of(config) == (
        "concept_audit.metrics.leakage",
        "concept_audit.store.keys",
        "concept_audit.store.layout",
    )


def test_the_real_package_is_digested():
    assert "concept_audit.store.atomic" in reached_modules(["concept_audit.store.layout"])
    assert len(code_digest(["concept_audit.store.layout"])) == 64
