"""Settings that make several voices of one offline judge."""

from __future__ import annotations

import json

import numpy as np
import pytest

from concept_audit.council.explanations import explain_contributions
from concept_audit.council.judges.annotation import AnnotationJudge
from concept_audit.council.judges.base import JudgeItem
from concept_audit.council.judges.embedding import EmbeddingJudge
from concept_audit.council.judges.scripted import rehearsal_judge
from concept_audit.council.judging import judge_items, judge_pairs
from concept_audit.council.reply_store import ReplyStore


def _item(model: str = "m") -> JudgeItem:
    shown = explain_contributions([0.8, 0.1, 0.1], ["crest", "wing", "bill"])
    return JudgeItem("cub200", "i", model, "jay", "jay", shown)


def _score(judge, tmp_path) -> int:
    store = ReplyStore(tmp_path / f"{judge.identity.name}.jsonl")
    (row,) = judge_items([_item()], judge, store).rows
    return row["score"]


def test_every_concept_may_count_alike(tmp_path):
    table = (["i"], [[1, 0, 0]], ["crest", "wing", "bill"])
    weighted = AnnotationJudge("cub200", *table)
    even = AnnotationJudge("cub200", *table, by_weight=False, name="annotation_even")
    assert _score(weighted, tmp_path) == 1 + int(8 * 0.8 + 0.5)
    assert _score(even, tmp_path) == 1 + int(8 / 3 + 0.5)
    assert weighted.identity.decoding == {}
    assert even.identity.decoding == {"by_weight": False}


def _encoder(names: list[str]) -> np.ndarray:
    """Every name the same direction: fully relevant, fully redundant."""
    return np.ones((len(names), 3))


def test_relevance_and_diversity_may_be_graded_alone(tmp_path):
    relevance = EmbeddingJudge(_encoder, relevance_share=1.0, name="relevance")
    diversity = EmbeddingJudge(_encoder, relevance_share=0.0, name="diversity")
    assert _score(relevance, tmp_path) == 9
    assert _score(diversity, tmp_path) == 1
    assert relevance.identity.decoding == {"relevance_share": 1.0}
    with pytest.raises(ValueError, match=r"relevance_share must lie in \[0, 1\], got 2"):
        EmbeddingJudge(_encoder, relevance_share=2)


def test_a_rehearsal_judge_answers_anything_and_repeats_itself(tmp_path):
    quality = {("cub200", "i", "m"): 1.0, ("cub200", "i", "w"): 0.0}
    judge = rehearsal_judge(quality, noise=0.0)
    items = [_item("m"), _item("w")]
    store = ReplyStore(tmp_path / "replies.jsonl")
    assert [row["score"] for row in judge_items(items, judge, store).rows] == [9, 1]
    (pair,) = judge_pairs(items, judge, store).rows
    assert (pair["forward"], pair["swapped"]) == ("CBM1", "CBM2")
    noisy = [rehearsal_judge(noise=0.3, seed=seed, name=f"n{seed}") for seed in (0, 0, 1)]
    texts = [row["raw_text"] for j in noisy for row in judge_items(items, j, store).rows]
    assert json.loads(texts[0]) == json.loads(texts[2])
    assert noisy[0].identity.revision == noisy[1].identity.revision != noisy[2].identity.revision
