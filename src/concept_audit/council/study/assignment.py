"""Who sees what: which item comes next, and which explanation stands on the left.

Pure functions on counts; `store` calls them inside one transaction, so two people who ask at the
same moment are served one after the other.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["ItemCount", "choose_item", "choose_side"]


@dataclass(frozen=True)
class ItemCount:
    """How often an item has been answered or stands before a person right now."""

    shown: int = 0
    swapped: int = 0  # of these, with the canonical second explanation on the left


_NEVER = ItemCount()


def choose_item(
    keys: Sequence[str],
    counts: Mapping[str, ItemCount],
    *,
    seen: Collection[str],
    per_item: int,
    rng: random.Random,
    image_of: Mapping[str, str] | None = None,
    last_image: str | None = None,
) -> str | None:
    """Next item for a person.

    Parameters
    ----------
    keys : all items
    counts : how often each has been shown; absent means never
    seen : items this person has met before, in this session or another
    per_item : people per item; CBX-Bench asks 3
    rng : breaks ties
    image_of, last_image : where there is a choice, the same image does not come twice in a row

    Returns
    -------
    A key, or None when the person has seen everything. An item that lacks people and has some goes
    first, so that a study that stops early leaves items with all their answers; no item gets
    one person too many before every item has had `per_item`.
    """
    if per_item < 1:
        raise ValueError(f"per_item must be at least 1, got {per_item}.")

    def rank(key: str) -> tuple[bool, int, bool]:
        shown = counts.get(key, _NEVER).shown
        full = shown >= per_item
        again = last_image is not None and (image_of or {}).get(key) == last_image
        return (full, shown if full else -shown, again)

    open_keys = [key for key in keys if key not in seen]
    if not open_keys:
        return None
    best = min(map(rank, open_keys))
    return rng.choice([key for key in open_keys if rank(key) == best])


def choose_side(
    count: ItemCount, *, session_shown: int, session_swapped: int, rng: random.Random
) -> bool:
    """Tell whether to swap the explanations: the rarer order of the item, then of the session.

    Parameters
    ----------
    count : earlier showings of this item
    session_shown, session_swapped : earlier items of this session
    rng : decides when both are balanced
    """
    for shown, swapped in (
        (count.shown, count.swapped),
        (session_shown, session_swapped),
    ):
        if 2 * swapped != shown:
            return 2 * swapped < shown
    return rng.random() < 0.5
