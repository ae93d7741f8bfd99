from __future__ import annotations

import json

import numpy as np
import pytest

from concept_audit.council import choose_subset
from concept_audit.council.subsets import first_fair_seed, read_manifest


def test_seeds_of_the_reference_file(reference):
    for case in reference("council")["subset_selection"]:
        seed = first_fair_seed(
            case["full_accuracy"],
            ((c["seed"], c["acc"]) for c in case["candidates"]),
            tolerance_points=case["tolerance_points"],
        )
        assert seed == case["expected_seed"]


def test_the_bound_is_exact_where_floats_are_not():
    assert 74.3 - 72.3 > 2.0 - 1e-12
    assert first_fair_seed({"m": 72.3}, [(0, {"m": 74.3})]) == 0
    assert first_fair_seed({"m": 70.1}, [(0, {"m": 72.1})]) == 0


def models(seed=0, n_classes=120, per_class=5, accuracies=(0.75, 0.76, 0.81)):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), per_class)
    ids = [f"image-{i:04d}" for i in range(y.size)]
    predictions = {
        f"model {a}": np.where(rng.random(y.size) < a, y, (y + 1) % n_classes) for a in accuracies
    }
    return ids, y, predictions, [f"class {c}" for c in range(n_classes)]


def test_a_subset_is_balanced_fair_and_repeatable(tmp_path):
    arguments = models()
    manifest = choose_subset("toy", *arguments)
    assert len(manifest.images) == 100
    assert len({image.class_name for image in manifest.images}) == 100
    for name, full in manifest.full_accuracy.items():
        assert abs(manifest.subset_accuracy[name] - full) <= 2.0
    assert choose_subset("toy", *arguments) == manifest
    order = np.random.default_rng(1).permutation(len(arguments[0]))
    ids, y, predictions, names = arguments
    shuffled = choose_subset(
        "toy",
        [ids[i] for i in order],
        y[order],
        {m: p[order] for m, p in predictions.items()},
        names,
    )
    assert shuffled.sha256 == manifest.sha256
    manifest.write(tmp_path / "m.json")
    assert read_manifest(tmp_path / "m.json") == manifest


def test_a_changed_manifest_is_refused(tmp_path):
    manifest = choose_subset("toy", *models())
    path = tmp_path / "m.json"
    manifest.write(path)
    record = json.loads(path.read_text())
    record["images"][0]["image_id"] = "another"
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="was changed: its content hashes to"):
        read_manifest(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="is no subset manifest"):
        read_manifest(path)


def test_failure_names_the_nearest_seed():
    ids, y, predictions, names = models(accuracies=(0.5, 0.9))
    with pytest.raises(ValueError, match=r"no seed of 3 .* the nearest is seed \d, where model"):
        choose_subset("toy", ids, y, predictions, names, max_seeds=3, tolerance_points=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_classes": 121}, "must not exceed the 120 classes with images, got 121"),
        ({"image_ids": ["a"] * 600}, "image_ids must all differ"),
        ({"predictions": {}}, "at least one model"),
        ({"class_names": ["a"]}, "y goes up to 119, got 1 names"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    names = ("image_ids", "y", "predictions", "class_names")
    arguments = {**dict(zip(names, models(), strict=True)), **change}
    with pytest.raises(ValueError, match=message):
        choose_subset("toy", **arguments)


def test_empty_candidates_are_named():
    with pytest.raises(ValueError, match="at least one seed"):
        first_fair_seed({"m": 1}, [])
    with pytest.raises(ValueError, match="at least one model"):
        first_fair_seed({}, [])
