"""A judge over many items: prompts out, replies stored, scores read, failures retried and counted.

The first attempt is plain greedy decoding. A reply that cannot be read is asked again within the
reply's JSON schema, then with a larger token budget where it was cut off; what still fails stays
missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import numpy as np

from concept_audit.council.judges.base import Judge, JudgeError, JudgeItem, JudgeRequest, Reply
from concept_audit.council.parsing import (
    ParsedPreference,
    ParsedScore,
    parse_preference,
    parse_score,
)
from concept_audit.council.prompts import (
    TEMPLATE_VERSION,
    pairwise_prompt,
    pairwise_schema,
    protocol_id,
    score_prompt,
    score_schema,
)
from concept_audit.council.reply_store import ReplyStore, reply_key

__all__ = [
    "BatchingCheck",
    "JudgingReport",
    "batching_check",
    "judge_items",
    "judge_pairs",
    "judge_panel",
]

VALIDATED_SHARE = 0.95  # below it a judge's panel is no longer the one that was validated
_LARGER_BUDGET = 4

_Parsed = ParsedScore | ParsedPreference


@dataclass(frozen=True)
class JudgingReport:
    """Scores of one judge, and what it took to get them."""

    rows: list[dict[str, Any]]
    counts: dict[str, int]  # ok, repaired, constrained, failed
    n_calls: int  # made now
    n_from_store: int  # answered by an earlier run
    warnings: tuple[str, ...] = field(default=())


def judge_items(
    items: Sequence[JudgeItem],
    judge: Judge,
    store: ReplyStore,
    *,
    scale_max: int = 9,
    panel_size: int = 1,
    contexts: Mapping[str, str] | None = None,
    render_negation: bool = True,
    max_new_tokens: int = 256,
) -> JudgingReport:
    """Score every item by one judge.

    Parameters
    ----------
    items : explanations to score
    judge : any judge; it is checked first and must be reachable
    store : where replies are looked up and kept
    scale_max : 5, 7 or 9
    panel_size : judges of the panel, for the protocol id
    contexts : context lines of data sets that the paper does not have
    render_negation : show a negated concept as `NOT name`
    max_new_tokens : budget of a reply; four times as much where it was cut off

    Returns
    -------
    JudgingReport with one row per item, in the order of `items`.

    Raises
    ------
    JudgeUnreachable  when the judge does not answer; replies that came before stay stored.
    """
    requests = [
        JudgeRequest(
            prompt=score_prompt(
                item.explanation,
                dataset=item.dataset,
                gt_class=item.gt_class,
                pred_class=item.pred_class,
                scale_max=scale_max,
                contexts=contexts,
                render_negation=render_negation,
            ),
            items=(item,),
            schema=score_schema(scale_max),
            scale_max=scale_max,
            max_new_tokens=max_new_tokens,
        )
        for item in items
    ]
    outcomes, calls = _ask(
        requests, judge, store, lambda text: parse_score(text, scale_max=scale_max)
    )
    protocol = protocol_id(scale_max, panel_size, render_negation=render_negation)
    rows = [
        {
            "protocol_id": protocol,
            "dataset": item.dataset,
            "image_id": item.image_id,
            "model": item.model,
            "scale": scale_max,
            "score": outcome.parsed.score if isinstance(outcome.parsed, ParsedScore) else None,
            **_provenance(judge, outcome),
        }
        for item, outcome in zip(items, outcomes, strict=True)
    ]
    return _report(judge, rows, *calls)


def judge_pairs(
    items: Sequence[JudgeItem],
    judge: Judge,
    store: ReplyStore,
    *,
    contexts: Mapping[str, str] | None = None,
    render_negation: bool = True,
    max_new_tokens: int = 256,
) -> JudgingReport:
    """Compare the models of each image in both orders, as the ablation of CBX-Bench's table 7.

    Returns
    -------
    JudgingReport with one row per image and pair: `first`, `second`, and the labels `forward` of
    (first, second) and `swapped` of (second, first), as `position_bias_rate` reads them.
    """
    images: dict[tuple[str, str], list[JudgeItem]] = {}
    for item in items:
        images.setdefault((item.dataset, item.image_id), []).append(item)
    pairs = [pair for group in images.values() for pair in combinations(group, 2)]
    requests = [
        JudgeRequest(
            prompt=pairwise_prompt(
                first.explanation,
                second.explanation,
                dataset=first.dataset,
                gt_class=first.gt_class,
                pred_classes=(first.pred_class, second.pred_class),
                contexts=contexts,
                render_negation=render_negation,
            ),
            items=(first, second),
            schema=pairwise_schema(),
            max_new_tokens=max_new_tokens,
        )
        for pair in pairs
        for first, second in (pair, pair[::-1])
    ]
    outcomes, calls = _ask(requests, judge, store, parse_preference)
    rows = []
    for number, (first, second) in enumerate(pairs):
        forward, swapped = outcomes[2 * number], outcomes[2 * number + 1]
        rows.append(
            {
                "dataset": first.dataset,
                "image_id": first.image_id,
                "first": first.model,
                "second": second.model,
                "forward": _label(forward),
                "swapped": _label(swapped),
                **_provenance(judge, forward),
                "parse_status_swapped": swapped.status,
            }
        )
    return _report(judge, rows, *calls)


def judge_panel(
    items: Sequence[JudgeItem],
    judges: Sequence[Judge],
    stores: Mapping[str, ReplyStore],
    **options: Any,
) -> dict[str, JudgingReport]:
    """Score every item by every judge, one judge after the other.

    Parameters
    ----------
    items, options : as in `judge_items`
    judges : the panel; all are checked before the first is asked
    stores : reply store per judge name

    Raises
    ------
    JudgeUnreachable  when any judge does not answer: a panel never shrinks in silence.
    """
    names = [judge.identity.name for judge in judges]
    if len(set(names)) != len(names) or not names:
        raise ValueError(f"judges must have different names and be at least one, got {names}.")
    absent = [name for name in names if name not in stores]
    if absent:
        raise ValueError(f"stores lacks the judges {', '.join(absent)}.")
    for judge in judges:
        judge.check()
    reports = {}
    for judge in judges:
        name = judge.identity.name
        reports[name] = judge_items(items, judge, stores[name], panel_size=len(judges), **options)
        release = getattr(judge, "release", None)
        if callable(release):  # large models leave memory before the next is loaded
            release()
    return reports


@dataclass(frozen=True)
class BatchingCheck:
    """Scores given in batches against scores given one by one."""

    n_items: int
    n_changed: int

    @property
    def changed(self) -> float:
        """Share of scores that differ."""
        return self.n_changed / self.n_items


def batching_check(
    items: Sequence[JudgeItem],
    rows: Sequence[Mapping[str, Any]],
    single: Judge,
    store: ReplyStore,
    *,
    share: float = 0.05,
    seed: int = 0,
    **options: Any,
) -> BatchingCheck:
    """Score a random part of the items again, one by one, and count the scores that changed.

    Parameters
    ----------
    items, rows : what was scored, and the rows that `judge_items` gave, in the same order
    single : the same judge with one request at a time
    store : of the single judge
    share, seed : part of the items, at least one, and the seed of its choice
    options : as in `judge_items`
    """
    if len(items) != len(rows) or not items:
        raise ValueError(
            f"items and rows must agree and not be empty: got {len(items)} and {len(rows)}."
        )
    if single.identity.batch_size != 1:
        raise ValueError(f"single must have batch_size 1, got {single.identity.batch_size}.")
    count = max(1, round(share * len(items)))
    chosen = np.sort(np.random.default_rng(seed).choice(len(items), count, replace=False))
    again = judge_items([items[i] for i in chosen], single, store, **options).rows
    changed = sum(row["score"] != rows[i]["score"] for i, row in zip(chosen, again, strict=True))
    return BatchingCheck(count, changed)


@dataclass
class _Outcome:
    """Last reply to one request and its reading."""

    request: JudgeRequest
    parsed: _Parsed
    record: dict[str, Any]

    @property
    def failed(self) -> bool:
        return self.parsed.status.startswith("failed:")

    @property
    def status(self) -> str:
        if self.failed or not self.request.constrained:
            return self.parsed.status
        return "constrained"


def _label(outcome: _Outcome) -> str | None:
    return outcome.parsed.label if isinstance(outcome.parsed, ParsedPreference) else None


def _ask(
    requests: Sequence[JudgeRequest],
    judge: Judge,
    store: ReplyStore,
    parse: Callable[[str], _Parsed],
) -> tuple[list[_Outcome], tuple[int, int]]:
    """Outcome of each request after up to three attempts; calls made and lookups answered."""
    judge.check()
    outcomes: list[_Outcome | None] = [None] * len(requests)
    waiting = list(enumerate(requests))
    n_calls = n_stored = 0
    while waiting:
        replies, made = _replies([request for _, request in waiting], judge, store)
        n_calls += made
        n_stored += len(waiting) - made
        again = []
        for (position, request), record in zip(waiting, replies, strict=True):
            outcome = _Outcome(request, parse(record["text"]), record)
            outcomes[position] = outcome
            following = _next_attempt(outcome, judge)
            if following is not None:
                again.append((position, following))
        waiting = again
    return [outcome for outcome in outcomes if outcome is not None], (n_calls, n_stored)


def _next_attempt(outcome: _Outcome, judge: Judge) -> JudgeRequest | None:
    """The same prompt under other decoding, or None: plain greedy decoding repeats itself."""
    request = outcome.request
    if not outcome.failed:
        return None
    following = replace(request, attempt=request.attempt + 1)
    if not request.constrained and judge.supports_constrained:
        return replace(following, constrained=True)
    if outcome.record["truncated"] and request.attempt <= 2:
        return replace(following, max_new_tokens=_LARGER_BUDGET * request.max_new_tokens)
    return None


def _replies(
    requests: Sequence[JudgeRequest], judge: Judge, store: ReplyStore
) -> tuple[list[dict[str, Any]], int]:
    """Stored record of each request; those not stored are asked, equal ones once."""
    identity = judge.identity
    keys = [reply_key(identity, request) for request in requests]
    new: dict[str, JudgeRequest] = {}
    # Items of one image in a row, so that a server's prefix cache meets the image again.
    order = sorted(
        range(len(requests)), key=lambda i: (requests[i].image is None, _image(requests[i]))
    )
    for i in order:
        if keys[i] not in store:
            new.setdefault(keys[i], requests[i])
    asked = list(new)
    answered = set()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    for position, reply in judge.answer(list(new.values())) if new else ():
        key = asked[position]
        answered.add(key)
        store.put(key, reply, **_call_record(judge, new[key], reply, started))
    if len(answered) != len(new):
        raise JudgeError(
            f"judge {identity.name!r} answered {len(answered)} of {len(new)} requests. "
            "Run again: the answers that came are stored."
        )
    records = []
    for key in keys:
        stored = store.get(key)
        assert stored is not None
        records.append(stored[1])
    return records, len(new)


def _image(request: JudgeRequest) -> str:
    return request.image.sha256 if request.image else ""


def _call_record(judge: Judge, request: JudgeRequest, reply: Reply, started: str) -> dict[str, Any]:
    item = request.items[0]
    return {
        "judge": judge.identity.record(),
        "dataset": item.dataset,
        "image_id": item.image_id,
        "models": [each.model for each in request.items],
        "prompt_sha256": request.prompt.sha256,
        "image_sha256": request.image.sha256 if request.image else None,
        "constrained": request.constrained,
        "max_new_tokens": request.max_new_tokens,
        "attempt": request.attempt,
        "started_at": started,
    }


def _provenance(judge: Judge, outcome: _Outcome) -> dict[str, Any]:
    identity, record = judge.identity, outcome.record
    return {
        "judge": identity.name,
        "judge_revision": identity.revision,
        "parse_status": outcome.status,
        "attempts": outcome.request.attempt,
        "raw_text": record["text"],
        "reasoning": outcome.parsed.reasoning,
        "prompt_sha256": record["prompt_sha256"],
        "image_sha256": record["image_sha256"],
        "template_version": TEMPLATE_VERSION,
        "engine": identity.engine,
        "engine_version": identity.engine_version,
        "dtype": identity.dtype,
        "batch_size": identity.batch_size,
        "device": identity.device,
        "max_new_tokens": record["max_new_tokens"],
        "thinking": bool(identity.decoding.get("enable_thinking", False)),
        "started_at": record["started_at"],
        "seconds": record["seconds"],
    }


def _report(judge: Judge, rows: list[dict[str, Any]], n_calls: int, n_stored: int) -> JudgingReport:
    statuses = [
        row[column]
        for row in rows
        for column in ("parse_status", "parse_status_swapped")
        if column in row
    ]
    kinds = Counter(status.partition(":")[0] for status in statuses)
    counts = {kind: kinds[kind] for kind in ("ok", "repaired", "constrained", "failed")}
    warnings: tuple[str, ...] = ()
    readable = counts["ok"] + counts["repaired"]
    if statuses and readable < VALIDATED_SHARE * len(statuses):
        warnings = (
            f"judge {judge.identity.name!r}: {readable} of {len(statuses)} replies could be read "
            f"without constraint, under {VALIDATED_SHARE:.0%}; the panel is not the validated one.",
        )
    return JudgingReport(rows, counts, n_calls, n_stored, warnings)
