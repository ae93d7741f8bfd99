"""From answers on a screen to the labels file that the alignment reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from concept_audit.council.scoring import consensus
from concept_audit.council.study.items import ItemSet
from concept_audit.council.study.store import Showing
from concept_audit.store.atomic import write_text

__all__ = ["LabelExport", "export_labels", "label_lines", "undo_swap", "write_labels"]

_OTHER_SIDE = {"A": "B", "B": "A"}


def undo_swap(answer: str, swapped: bool) -> str:
    """Answer in canonical model order: `A` for the item's first model, wherever it stood."""
    return _OTHER_SIDE.get(answer, answer) if swapped else answer


@dataclass(frozen=True)
class LabelExport:
    """Labels of a study, without a trace of who gave them."""

    rows: tuple[dict[str, Any], ...]
    comments: tuple[dict[str, Any], ...]
    n_items: int
    n_incomplete: int  # items with fewer answers than asked for; left out unless asked for
    n_surplus: int  # answers beyond those asked for; left out
    n_foreign: int  # answers to items that the folder does not hold (any more); left out


def export_labels(
    items: ItemSet, answered: Iterable[Showing], *, per_item: int = 3, incomplete: bool = False
) -> LabelExport:
    """Collect answers per item, sides undone.

    Parameters
    ----------
    items : the set that was shown
    answered : from `Store.answered`, in order of time
    per_item : answers of an item; later ones are counted as surplus, so each item weighs the same
    incomplete : keep items that have fewer

    Returns
    -------
    LabelExport; its `rows` are what `ranking_recovery` and `consensus_table` take as human labels.

    Notes
    -----
    CBX-Bench, section 3.1: the collapse of both equalities into a tie comes after this step, the
    raw answers stay.
    """
    if per_item < 1:
        raise ValueError(f"per_item must be at least 1, got {per_item}.")
    given: dict[str, list[str]] = {key: [] for key in items.items}
    comments: list[dict[str, Any]] = []
    foreign = 0
    for showing in answered:
        if showing.answer is None:
            continue
        if showing.item_key not in given:
            foreign += 1
            continue
        answer = undo_swap(showing.answer, showing.swapped)
        given[showing.item_key].append(answer)
        if showing.comment:
            identity = _identity(items, showing.item_key)
            comments.append({**identity, "answer": answer, "comment": showing.comment})
    rows = []
    for key, answers in given.items():
        kept = answers[:per_item]
        if not kept or (len(kept) < per_item and not incomplete):
            continue
        decided = consensus(kept)
        rows.append(
            {
                **_identity(items, key),
                "answers": kept,
                "consensus": decided.label,
                "strength": decided.strength,
            }
        )
    return LabelExport(
        rows=tuple(rows),
        # The order of time would tell which comments came from one person.
        comments=tuple(sorted(comments, key=lambda row: json.dumps(row, sort_keys=True))),
        n_items=len(items),
        n_incomplete=sum(len(answers) < per_item for answers in given.values()),
        n_surplus=sum(max(0, len(answers) - per_item) for answers in given.values()),
        n_foreign=foreign,
    )


def _identity(items: ItemSet, key: str) -> dict[str, Any]:
    item = items.items[key].item
    return {
        "dataset": item.dataset,
        "image_id": item.image_id,
        "pair": [item.a.model, item.b.model],
    }


def label_lines(rows: Iterable[dict[str, Any]]) -> str:
    """Rows as JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_labels(path: str | Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write the labels file, JSON Lines, one comparison a line."""
    write_text(Path(path), label_lines(rows))
