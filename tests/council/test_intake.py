from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pydantic")
pytest.importorskip("jinja2")

from PIL import Image

import concept_audit.council as council
from concept_audit.council import (
    ActivationTable,
    ReplyStore,
    items_from_submission,
    items_from_table,
    judge_panel,
    model_entry,
    read_manifest,
    write_leaderboard,
)
from concept_audit.council.judges.embedding import EmbeddingJudge
from concept_audit.council.judges.scripted import ScriptedJudge

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"


@pytest.fixture(scope="module")
def manifests():
    return {p.stem: read_manifest(p) for p in sorted((EXAMPLES / "manifests").glob("*.json"))}


def encoder(texts):
    rng = [np.random.default_rng(len(text)) for text in texts]
    return np.stack([r.normal(size=8) for r in rng])


def test_a_submission_goes_all_the_way_to_the_board(tmp_path, manifests):
    items = items_from_submission(EXAMPLES / "submission", manifests=manifests)
    assert len(items) == 24
    assert [i.image_id for i in items[:12]] == [i.image_id for i in manifests["cub200"].images]
    judges = [
        EmbeddingJudge(encoder, revision="toy"),
        ScriptedJudge(lambda request: 6, name="scripted"),
    ]
    stores = {j.identity.name: ReplyStore(tmp_path / f"{j.identity.name}.jsonl") for j in judges}
    rows = [row for r in judge_panel(items, judges, stores).values() for row in r.rows]
    entry = model_entry(EXAMPLES / "submission", flags=["invented numbers"])
    index = write_leaderboard(tmp_path / "board", rows, items, models=[entry], n_resamples=50)
    text = index.read_text()
    assert "example CBM" in text
    assert "invented numbers" in text
    assert len(list((tmp_path / "board" / "items").glob("*.html"))) == 24


def test_a_faulty_submission_is_not_judged(tmp_path, manifests):
    for source in (EXAMPLES / "submission").iterdir():
        (tmp_path / source.name).write_bytes(source.read_bytes())
    with (tmp_path / "cub200.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(ValueError, match=r"has \d+ errors, first: cub200.jsonl"):
        items_from_submission(tmp_path, manifests=manifests)


def test_images_are_checked_against_the_manifest(tmp_path, manifests):
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, format="PNG")
    data = buffer.getvalue()
    for dataset, manifest in manifests.items():
        for image in manifest.images:
            path = tmp_path / dataset / image.image_id
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    read = items_from_submission(EXAMPLES / "submission", manifests=manifests, image_root=tmp_path)
    assert read[0].image.sha256 == hashlib.sha256(data).hexdigest()
    path.unlink()
    with pytest.raises(FileNotFoundError, match="is missing: no file at"):
        items_from_submission(EXAMPLES / "submission", manifests=manifests, image_root=tmp_path)

    from concept_audit.council.intake import _image

    with pytest.raises(ValueError, match="is not the benchmark's image"):
        _image(tmp_path, "cub200", manifests["cub200"].images[0].image_id, "0" * 64)
    with pytest.raises(ValueError, match="leads out of"):
        _image(tmp_path, "cub200", "../../x", None)


def test_items_of_our_own_models():
    table = ActivationTable(
        np.array([[1.0, 0.5], [0.2, 2.0]]),
        np.eye(2),
        np.zeros(2),
        ("a", "b"),
        ("x", "y"),
        np.array([0, 0]),
    )
    items = items_from_table(table, ["i", "j"], dataset="toy", model="ours")
    assert [(i.gt_class, i.pred_class) for i in items] == [("x", "x"), ("x", "y")]
    assert items[1].explanation.concepts[0].name == "b"
    with pytest.raises(ValueError, match="one name per row: got 1 for 2"):
        items_from_table(table, ["i"], dataset="toy", model="ours")
    with pytest.raises(ValueError, match="table must hold y"):
        items_from_table(replace(table, y=None), ["i", "j"], dataset="toy", model="ours")


def test_importing_the_package_loads_nothing_heavy():
    program = (
        "import sys, json, concept_audit.council; "
        "from concept_audit.council import explain, score_sum_council, parse_score; "
        "print(json.dumps([m for m in ('torch', 'transformers', 'pydantic', 'jinja2', 'openai', "
        "'pandas', 'sklearn', 'PIL', 'scipy') if m in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert json.loads(done.stdout) == []


def test_every_public_name_loads():
    for name in council.__all__:
        assert getattr(council, name) is not None
    assert set(council.__all__) <= set(dir(council))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(council, "nothing")  # noqa: B009
