"""The item folder: what it may hold, and that every fault is reported with its line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from concept_audit.council.explanations import explain
from concept_audit.council.study.demo import write_demo
from concept_audit.council.study.items import ItemSetError, items_of_image, load_items
from council.study.participant import item, write_folder


def rows_of(folder):
    return [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]


def write_rows(folder, rows):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "items.jsonl").write_text("\n".join(lines) + "\n")


def faults(folder):
    with pytest.raises(ItemSetError) as caught:
        load_items(folder)
    return {(fault.line, str(fault)) for fault in caught.value.faults}


def test_a_sound_folder_is_read(tmp_path):
    items = load_items(write_folder(tmp_path, 3))
    assert len(items) == 9
    assert len(items.images) == 3
    assert {loaded.image.media_type for loaded in items.items.values()} == {"image/png"}


def test_every_fault_is_reported_with_its_line_in_one_pass(tmp_path):
    folder = write_folder(tmp_path, 8)
    rows = rows_of(folder)
    rows[1] = "{not json"
    rows[2] = {**rows[2], "class_name": ""}
    rows[3] = {**rows[3], "extra": 1}
    rows[4] = {**rows[4], "image": "images/absent.png"}
    rows[5] = {**rows[5], "image": "../outside.png"}
    rows[6] = {**rows[6], "b": rows[6]["a"]}
    rows[7] = rows[0]
    rows[8] = {**rows[8], "a": {**rows[8]["a"], "concepts": [{"name": "x", "weight": 1.5}]}}
    rows[9] = {**rows[9], "class_name": "Cat\u202egnp"}
    (folder / "images" / "text.png").write_text("no image")
    rows[10] = {**rows[10], "image": "images/text.png"}
    rows[11] = {**rows[11], "a": {**rows[11]["a"], "concepts": [{"name": "x", "weight": "NaN"}]}}
    del rows[12]["image_id"]
    write_rows(folder, rows)
    found = faults(folder)
    assert {line for line, _ in found} == set(range(2, 14))
    text = "\n".join(message for _, message in sorted(found))
    for expected in (
        "items.jsonl:3: class_name",
        "items.jsonl:4: extra",
        "'images/absent.png' does not exist",
        "'../outside.png' must be a path inside the item folder",
        "a and b must be two models, both are 'model_alpha'",
        "items.jsonl:8: repeats the comparison of line 1",
        "a.concepts.0.weight",
        "visible characters only, got U+202E",
        "'images/text.png' cannot be read as an image",
        "items.jsonl:13: image_id: Field required",
    ):
        assert expected in text


def test_the_same_pair_in_the_other_order_is_a_repeat(tmp_path):
    folder = write_folder(tmp_path, 1)
    rows = rows_of(folder)
    rows.append({**rows[0], "a": rows[0]["b"], "b": rows[0]["a"]})
    write_rows(folder, rows)
    assert any("repeats the comparison of line 1" in message for _, message in faults(folder))


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "..\\x.png", "images/../../x.png", "C:/x.png", "images/link.png"]
)
def test_no_image_outside_the_folder_is_taken(tmp_path, name):
    Image.new("RGB", (4, 4)).save(tmp_path / "x.png")
    folder = write_folder(tmp_path / "items", 1)
    (folder / "images" / "link.png").symlink_to(tmp_path / "x.png")
    rows = rows_of(folder)
    rows[0]["image"] = name
    write_rows(folder, rows)
    (message,) = [message for line, message in faults(folder) if line == 1]
    assert "inside the item folder" in message or "leads out of the item folder" in message


def test_images_of_other_kinds_are_refused(tmp_path):
    folder = write_folder(tmp_path, 1)
    Image.new("RGB", (4, 4)).save(folder / "images/0.png", format="BMP")
    assert all("is BMP, allowed are PNG, JPEG, WEBP" in message for _, message in faults(folder))


def test_empty_and_missing_folders_say_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="study demo items=FOLDER"):
        load_items(tmp_path)
    (tmp_path / "items.jsonl").write_text("\n")
    assert faults(tmp_path) == {(0, "items.jsonl: holds no item")}


def test_the_text_of_an_institution_is_read_and_checked(tmp_path):
    folder = write_folder(tmp_path, 1)
    (folder / "study.json").write_text('{"title": "Birds", "consent": ["We keep answers."]}')
    assert load_items(folder).text.consent == ["We keep answers."]
    (folder / "study.json").write_text('{"titel": "Birds"}')
    assert faults(folder) == {(0, "study.json: titel: Extra inputs are not permitted")}


def test_the_key_of_an_item_changes_with_all_that_is_shown(tmp_path):
    before = set(load_items(write_folder(tmp_path, 1)).items)
    Image.new("RGB", (24, 16), (1, 2, 3)).save(tmp_path / "images/0.png")
    after = set(load_items(tmp_path).items)
    assert not before & after


def test_items_are_made_from_explanations():
    explanation = explain([1.0, -2.0, 0.1], [0.5, -0.5, 0.2], ["stripes", "wheels", "tail"])
    made = items_of_image(
        dataset="toy",
        image_id="1",
        image="1.png",
        class_name="Zebra",
        explanations={m: ("Zebra", explanation) for m in ("c", "a", "b")},
    )
    assert [(one.a.model, one.b.model) for one in made] == [("a", "b"), ("a", "c"), ("b", "c")]
    first = made[0].a.concepts[0]
    assert first.label == "NOT wheels"
    assert np.isclose(first.weight, 1.0 / 1.52)
    with pytest.raises(ValueError, match="at least 2 models, got 1"):
        items_of_image(
            dataset="toy",
            image_id="1",
            image="1.png",
            class_name="Zebra",
            explanations={"a": ("Zebra", explanation)},
        )


def test_the_drawn_example_is_sound_and_repeatable(tmp_path):
    first = load_items(write_demo(tmp_path / "one").parent)
    again = load_items(write_demo(tmp_path / "two").parent)
    assert len(first) == 24
    assert list(first.items) == list(again.items)


def test_weights_and_names_have_bounds():
    with pytest.raises(ValueError, match="at most 120"):
        item(1, "model_alpha", "model_beta", class_name="x" * 121)
