from __future__ import annotations

import io
import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from PIL import Image

from concept_audit.council import ReplyStore, explain_contributions, judge_items, parse_score
from concept_audit.council.judges.base import Judge, JudgeImage, JudgeItem, JudgeUnreachable
from concept_audit.council.judges.transformers import TransformersJudge
from concept_audit.council.judging import judge_pairs


def picture(seed=0, size=(40, 30)):
    pixels = np.random.default_rng(seed).integers(0, 255, (*size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return JudgeImage.from_bytes(buffer.getvalue())


def item(model="a", names=("red crown", "<image>"), seed=0):
    shown = explain_contributions(np.linspace(1, 0.5, len(names)), names)
    return JudgeItem("cub200", "1", model, "cardinal", "<image> tanager", shown, picture(seed))


@pytest.fixture(scope="module")
def judge(tiny_vlm):
    return TransformersJudge(str(tiny_vlm), name="tiny", dtype="float32", device="cpu")


def test_the_whole_path_gives_a_score_in_range(judge, tmp_path):
    # Random weights cannot answer freely; constrained decoding must.
    with ReplyStore(tmp_path / "r.jsonl") as store:
        report = judge_items([item(), item("b", ("black bib",))], judge, store, max_new_tokens=12)
        assert {row["parse_status"] for row in report.rows} == {"constrained"}
        assert all(1 <= row["score"] <= 9 for row in report.rows)
        assert report.n_calls == 4
        assert report.warnings
        again = judge_items([item(), item("b", ("black bib",))], judge, store, max_new_tokens=12)
        assert (again.n_calls, again.rows) == (0, report.rows)
    records = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    constrained = [r for r in records if r["constrained"]]
    assert len(constrained) == 2
    for record in constrained:
        reply = json.loads(record["text"])
        assert list(reply) == ["reasoning", "score"]
        assert parse_score(record["text"]).status == "ok"
    identity = records[0]["judge"]
    assert identity["revision"].startswith("local-")
    assert (identity["dtype"], identity["batch_size"], identity["device"]) == ("float32", 1, "cpu")


def test_comparisons_choose_an_allowed_label(judge, tmp_path):
    with ReplyStore(tmp_path / "r.jsonl") as store:
        pair = [item(), item("b", ("black bib",))]
        row = judge_pairs(pair, judge, store, max_new_tokens=8).rows[0]
    allowed = {"CBM1", "CBM2", "Equally_Good", "Equally_Bad"}
    assert {row["forward"], row["swapped"]} <= allowed


def test_batches_agree_with_single_requests_in_float32(tiny_vlm, judge, tmp_path):
    batched = TransformersJudge(
        str(tiny_vlm), name="tiny", dtype="float32", device="cpu", batch_size=3
    )
    items = [
        item("a", ("red crown",), 0),
        item("b", ("black bib", "tail"), 1),
        item("c", ("x",), 2),
    ]
    texts = []
    for name, each in (("one", judge), ("three", batched)):
        with ReplyStore(tmp_path / f"{name}.jsonl") as store:
            judge_items(items, each, store, max_new_tokens=6)
            texts.append(sorted((r["models"], r["text"]) for r in store if not r["constrained"]))
    assert texts[0] == texts[1]
    assert batched.identity != judge.identity


def test_a_template_without_system_role_gets_the_role_in_the_text(
    tiny_vlm_without_system, tmp_path
):
    judge = TransformersJudge(str(tiny_vlm_without_system), dtype="float32", device="cpu")
    with ReplyStore(tmp_path / "r.jsonl") as store:
        assert judge_items([item()], judge, store, max_new_tokens=4).rows[0]["score"] is not None


def test_release_frees_and_reloads(tiny_vlm, tmp_path):
    judge = TransformersJudge(str(tiny_vlm), dtype="float32", device="cpu")
    assert isinstance(judge, Judge)
    with ReplyStore(tmp_path / "r.jsonl") as store:
        first = judge_items([item()], judge, store, max_new_tokens=4).rows
    judge.release()
    with ReplyStore(tmp_path / "s.jsonl") as store:
        second = judge_items([item()], judge, store, max_new_tokens=4).rows
    assert [r["raw_text"] for r in first] == [r["raw_text"] for r in second]


def test_half_precision_is_judged_one_by_one():
    with pytest.raises(ValueError, match="batch_size must be 1 with dtype bfloat16, got 8"):
        TransformersJudge("org/model", revision="abc", batch_size=8)


def test_a_hub_model_needs_its_revision():
    with pytest.raises(ValueError, match="revision must be given for the Hub model 'org/model'"):
        TransformersJudge("org/model")


def test_missing_weights_are_unreachable(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    judge = TransformersJudge(str(tmp_path), name="empty")
    with pytest.raises(JudgeUnreachable, match="judge 'empty' could not be loaded from"):
        judge.check()


def test_large_images_are_scaled_down():
    assert picture(size=(300, 600)).open(max_side=100).size == (100, 50)
    assert picture(size=(30, 60)).open(max_side=100).size == (60, 30)


@pytest.mark.parametrize("name", ["InternVLConfig", "Qwen3_5Config", "Gemma4Config"])
def test_the_judges_own_classes_exist(name):
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    config = getattr(transformers, name)
    assert config in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
