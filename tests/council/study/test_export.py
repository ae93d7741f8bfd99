"""The labels file: sides undone, three answers an item, nobody in it."""

from __future__ import annotations

import json

import pytest

from concept_audit.council.alignment import consensus_table, ranking_recovery
from concept_audit.council.study.export import export_labels, undo_swap, write_labels
from council.study.participant import Browser


@pytest.mark.parametrize(
    ("answer", "swapped", "expected"),
    [
        ("A", False, "A"),
        ("A", True, "B"),
        ("B", False, "B"),
        ("B", True, "A"),
        ("equally_good", True, "equally_good"),
        ("equally_bad", True, "equally_bad"),
    ],
)
def test_the_swap_is_undone(answer, swapped, expected):
    assert undo_swap(answer, swapped) == expected


def people_prefer(app, order, n_people):
    """People who always prefer the model that stands first in `order`, wherever it stands."""
    for _ in range(n_people):
        browser = Browser(app)
        browser.start()
        browser.get(str(browser.page.url).replace("instructions", "next"))
        while "data-answers" in browser.page.text:
            better = order.index(browser.left) < order.index(browser.right)
            browser.answer("A" if better else "B")


def test_people_with_one_taste_give_unanimous_labels_that_the_alignment_reads(make_study, tmp_path):
    app, items, store = make_study(n_images=2)
    order = ["model_beta", "model_gamma", "model_alpha"]
    people_prefer(app, order, 3)
    export = export_labels(items, store.answered())
    assert len(export.rows) == 6
    for row in export.rows:
        a, b = row["pair"]
        expected = "A" if order.index(a) < order.index(b) else "B"
        assert row["answers"] == [expected] * 3
        assert (row["consensus"], row["strength"]) == (expected, "unanimous")
    assert 0 < sum(showing.swapped for showing in store.answered()) < 18
    write_labels(tmp_path / "labels.jsonl", export.rows)
    rows = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert consensus_table(rows).unanimous == 6
    predicted = [{**row, "label": row["consensus"]} for row in rows]
    assert ranking_recovery(rows, predicted, n_resamples=10).value == 1.0


def test_incomplete_surplus_and_foreign_answers_are_counted(make_study):
    app, items, store = make_study(n_images=1)
    people_prefer(app, ["model_alpha", "model_beta", "model_gamma"], 2)
    export = export_labels(items, store.answered())
    assert (len(export.rows), export.n_incomplete) == (0, 3)
    so_far = export_labels(items, store.answered(), incomplete=True)
    assert [len(row["answers"]) for row in so_far.rows] == [2, 2, 2]
    single = export_labels(items, store.answered(), per_item=1)
    assert (len(single.rows), single.n_surplus) == (3, 3)
    _, other_items, _ = make_study(n_images=1, changes={"class_name": "Dog"})
    assert export_labels(other_items, store.answered()).n_foreign == 6
    with pytest.raises(ValueError, match="per_item must be at least 1"):
        export_labels(items, [], per_item=0)
