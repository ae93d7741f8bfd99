"""The councils, and every answer of their judges; replies are kept, so nothing is asked twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from concept_audit.council.judges.base import Judge
from concept_audit.council.judging import judge_items, judge_pairs
from concept_audit.council.prompts import SCALES
from concept_audit.council.reply_store import ReplyStore
from concept_audit.pipeline.council_sets import JudgedSet
from concept_audit.pipeline.judge import judge_config, judge_folder, make_judge
from concept_audit.store.layout import OutputLayout

__all__ = ["COUNCILS", "Answers", "ask_all"]

# Judges of each council, files of configs/judge. Five, as in the paper, so that sums lie in
# [5, 45]; the offline ones are variants of two judges, and each looks at one of the criteria that
# the paper's prompt names.
COUNCILS: dict[str, tuple[str, ...]] = {
    "offline": (
        "annotation",
        "annotation_even",
        "embedding",
        "embedding_relevance",
        "embedding_diversity",
    ),
    "scripted": ("scripted", "scripted_2", "scripted_3"),
}
_CONTEXTS = {
    "cub_standin": "Drawn bird image in the layout of CUB-200-2011 (20 invented bird species)",
    "ham10k_standin": "Drawn skin lesion image in the layout of HAM10000 (benign or malignant)",
}


def _judges(council: str) -> list[Callable[[JudgedSet], Judge]]:
    """Makers of the judges: those that need the data set's annotations are made for each."""

    def maker(name: str) -> Callable[[JudgedSet], Judge]:
        config = judge_config(name)
        if not config.get("_partial_", False):
            judge = make_judge(config)
            return lambda data: judge
        return lambda data: make_judge(
            config,
            dataset=data.name,
            image_ids=data.image_ids,
            c=data.c,
            concept_names=data.concept_names,
            quality=data.confidence,
        )

    return [maker(name) for name in COUNCILS[council]]


@dataclass
class Answers:
    """Scores of every scale, and comparisons, of all data sets."""

    scores: dict[int, list[dict[str, Any]]]
    pairs: dict[str, list[dict[str, Any]]]
    n_calls: int = 0
    n_stored: int = 0
    warnings: tuple[str, ...] = ()


def ask_all(
    layout: OutputLayout, council: str, sets: Sequence[JudgedSet], study: Sequence[str]
) -> Answers:
    """Every judge on every item, at the paper's three scales, and on the study's pairs.

    Parameters
    ----------
    layout : the outputs folder, where replies are kept
    council : a name of `COUNCILS`
    sets : what to judge
    study : the models whose explanations are compared in pairs
    """
    judged = Answers({scale: [] for scale in SCALES}, {})
    size = len(COUNCILS[council])
    makers = _judges(council)
    for data in sets:
        for make in makers:
            judge = make(data)
            name = judge.identity.name
            with ReplyStore(judge_folder(layout, judge) / "answers.jsonl") as store:
                reports = {
                    scale: judge_items(
                        data.items,
                        judge,
                        store,
                        scale_max=scale,
                        panel_size=size,
                        contexts=_CONTEXTS,
                    )
                    for scale in SCALES
                }
                compared = judge_pairs(
                    [item for item in data.items if item.model in study],
                    judge,
                    store,
                    contexts=_CONTEXTS,
                )
            for scale, report in reports.items():
                judged.scores[scale] += report.rows
            judged.pairs.setdefault(name, []).extend(compared.rows)
            for report in (*reports.values(), compared):
                judged.n_calls += report.n_calls
                judged.n_stored += report.n_from_store
                judged.warnings += report.warnings
    return judged
