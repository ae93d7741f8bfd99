"""Who sees what: three people per item before any repeats, sides balanced, also when many ask."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import SQLAlchemyError

from concept_audit.council.study.assignment import ItemCount, choose_item, choose_side
from concept_audit.council.study.store import Store

KEYS = [f"item{number}" for number in range(6)]
COUNTS = st.dictionaries(
    st.sampled_from(KEYS), st.integers(0, 5).map(lambda n: ItemCount(n, n // 2)), max_size=6
)


@settings(max_examples=300, deadline=None)
@given(COUNTS, st.sets(st.sampled_from(KEYS)), st.integers(1, 4), st.integers(0, 99))
def test_no_item_repeats_while_another_lacks_people(counts, seen, per_item, seed):
    chosen = choose_item(KEYS, counts, seen=seen, per_item=per_item, rng=random.Random(seed))
    left = {key: counts.get(key, ItemCount()).shown for key in KEYS if key not in seen}
    if not left:
        assert chosen is None
        return
    lacking = {key: shown for key, shown in left.items() if shown < per_item}
    if lacking:
        assert lacking[chosen] == max(lacking.values())  # begun items are finished first
    else:
        assert left[chosen] == min(left.values())


def test_the_same_image_does_not_come_twice_in_a_row_where_there_is_a_choice():
    image_of = {"item0": "x", "item1": "x", "item2": "y"}
    for seed in range(20):
        chosen = choose_item(
            list(image_of),
            {},
            seen={"item0"},
            per_item=3,
            rng=random.Random(seed),
            image_of=image_of,
            last_image="x",
        )
        assert chosen == "item2"


def test_the_rarer_side_comes_next():
    rng = random.Random(0)
    balanced = {"session_shown": 4, "session_swapped": 2, "rng": rng}
    assert choose_side(ItemCount(1, 0), **balanced) is True
    assert choose_side(ItemCount(1, 1), **balanced) is False
    assert choose_side(ItemCount(2, 1), session_shown=3, session_swapped=1, rng=rng) is True
    assert choose_side(ItemCount(), session_shown=3, session_swapped=2, rng=rng) is False
    drawn = {
        choose_side(ItemCount(), session_shown=0, session_swapped=0, rng=rng) for _ in range(40)
    }
    assert drawn == {True, False}


def test_per_item_below_one_is_refused():
    with pytest.raises(ValueError, match="per_item must be at least 1, got 0"):
        choose_item(KEYS, {}, seen=(), per_item=0, rng=random.Random(0))


def run_session(store, items, image_of, person, n_items=20, answer="A"):
    """Answer a whole session; returns what was shown."""
    token = store.start(person, n_items, list(items.items))
    while token:
        session = store.session(token)
        showing = store.next_showing(session, image_of, per_item=3)
        if showing is None:
            return store.showings(session)
        assert store.answer(session, showing.position, showing.item_key, answer, None)
    return []


def image_map(items):
    return {key: loaded.image.key for key, loaded in items.items.items()}


def test_a_whole_study_gives_three_people_to_every_item_and_balanced_sides(make_study):
    _, items, store = make_study(n_images=10)  # 30 items; 30 * 3 / 10 = 9 sessions of 10
    for person in range(9):
        shown = run_session(store, items, image_map(items), f"person {person}", n_items=10)
        assert len({showing.item_key for showing in shown}) == 10
        complete = Counter(showing.item_key for showing in store.answered())
        assert max(complete.values()) <= 3
        # At any moment at most the items of the sessions in progress are half done.
        assert sum(0 < count < 3 for count in complete.values()) <= 20
    answered = store.answered()
    assert set(Counter(showing.item_key for showing in answered).values()) == {3}
    swapped = Counter(showing.item_key for showing in answered if showing.swapped)
    assert all(swapped[key] in (1, 2) for key in items.items)
    assert 40 <= sum(swapped.values()) <= 50  # of 90
    run_session(store, items, image_map(items), "one more", n_items=10)
    assert max(Counter(s.item_key for s in store.answered()).values()) == 4


def test_many_people_at_once_are_served_one_after_the_other(make_study, tmp_path):
    _, items, store = make_study(n_images=8)  # 24 items, 72 places, 12 people of 6
    # A second server on the same file: only the database stands between the two.
    other = Store(f"sqlite:///{tmp_path}/0.db")
    failures = []

    def person(number):
        try:
            mine = (store, other)[number % 2]
            run_session(mine, items, image_map(items), f"person {number}", n_items=6)
        except (AssertionError, SQLAlchemyError) as error:
            failures.append(error)

    threads = [threading.Thread(target=person, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert not failures
    with store._engine.connect() as connection:
        draws = connection.exec_driver_sql(
            "SELECT session_id, item_key, swapped FROM study_showing ORDER BY id"
        ).all()
    assert len(draws) == 72
    # Each draw, in the order they were made, obeyed the rule given all draws before it. (A person
    # who has met every item that still lacks people gets a full one: 12 times 6 leaves no slack.)
    shown, swapped, seen = Counter(), Counter(), {}
    for session, key, side in draws:
        met = seen.setdefault(session, set())
        lacking = [shown[other] for other in items.items if other not in met and shown[other] < 3]
        if lacking:
            assert shown[key] == max(lacking)
        else:
            assert shown[key] == min(shown[other] for other in items.items if other not in met)
        shown[key] += 1
        swapped[key] += side
        met.add(key)
        assert abs(2 * swapped[key] - shown[key]) <= 1


def test_an_item_left_lying_goes_to_others_and_is_replaced_when_they_fill_it(make_study):
    now = [1000.0]
    _, items, store = make_study(n_images=1, clock=lambda: now[0], hold=600.0)
    images = image_map(items)
    away = store.session(store.start("away", 3, list(items.items)))
    left = store.next_showing(away, images, per_item=3)
    for person in ("p1", "p2", "p3"):
        run_session(store, items, images, person, n_items=2)
    counts = Counter(showing.item_key for showing in store.answered())
    assert counts[left.item_key] == 2  # one place is held for the person who is away
    now[0] += 601
    for person in ("p4", "p5"):
        run_session(store, items, images, person, n_items=3)
    assert Counter(s.item_key for s in store.answered())[left.item_key] >= 3
    back = store.next_showing(away, images, per_item=3)
    assert back.position == 1
    # The old tab still shows the old item: its answer is refused, not given to the new one.
    if back.item_key != left.item_key:
        assert not store.answer(away, 1, left.item_key, "A", None)


def test_a_look_keeps_the_place(make_study):
    now = [1000.0]
    _, items, store = make_study(n_images=1, clock=lambda: now[0], hold=600.0)
    session = store.session(store.start("slow", 3, list(items.items)))
    first = store.next_showing(session, image_map(items), per_item=3)
    for _ in range(5):
        now[0] += 400
        again = store.next_showing(session, image_map(items), per_item=3)
        assert (again.item_key, again.swapped) == (first.item_key, first.swapped)


def test_one_browser_never_gets_an_item_twice(make_study):
    _, items, store = make_study(n_images=2)  # 6 items
    first = run_session(store, items, image_map(items), "same", n_items=4)
    second = run_session(store, items, image_map(items), "same", n_items=4)
    assert len(second) == 2
    assert not {s.item_key for s in first} & {s.item_key for s in second}
    assert store.start("same", 4, list(items.items)) is None


def test_two_sessions_of_one_browser_share_what_is_left(make_study):
    _, items, store = make_study(n_images=1)  # 3 items
    images = image_map(items)
    one, two = (store.session(store.start("same", 2, list(items.items))) for _ in range(2))
    for session in (one, two):
        for _ in range(2):
            showing = store.next_showing(session, images, per_item=3)
            if showing:
                store.answer(session, showing.position, showing.item_key, "B", None)
    assert len(store.answered()) == 3
