from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("jinja2")

from PIL import Image

from concept_audit.council import ReplyStore, explain_contributions, judge_items, write_leaderboard
from concept_audit.council.judges.base import JudgeImage, JudgeItem
from concept_audit.council.judges.scripted import ScriptedJudge
from concept_audit.council.leaderboard import ModelEntry

ATTACK = '<script>alert("x")</script><img src=x onerror=alert(1)>'


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.text += data


def picture(seed=0):
    pixels = np.random.default_rng(seed).integers(0, 255, (30, 40, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return JudgeImage.from_bytes(buffer.getvalue())


def build(tmp_path, name="board", models=("a", "b"), gt_class="cardinal", concept="red crown"):
    items, answers = [], {}
    for number in range(4):
        for m, model in enumerate(models):
            if number == 3 and m == 1:
                continue
            shown = explain_contributions([0.6, 0.4], [concept, "black bib"])
            image = picture(number) if number < 2 else None
            items.append(JudgeItem("cub200", f"{number}", model, gt_class, "tanager", shown, image))
            answers[("cub200", f"{number}", model)] = 7 - 3 * m + number % 2
    rows = []
    for judge in (
        ScriptedJudge(answers, name="one"),
        ScriptedJudge(
            lambda r: json.dumps({"reasoning": f"saw {ATTACK}", "score": 5}), name=f"two {ATTACK}"
        ),
    ):
        with ReplyStore(tmp_path / f"{name}-{judge.identity.name[:3]}.jsonl") as store:
            rows += judge_items(items, judge, store, panel_size=2).rows
    entries = [
        ModelEntry(models[0], "1.0", code_url="https://example.org", accuracy={"cub200": 70.0}),
        ModelEntry(models[1], "2.0", code_url="javascript:alert(1)", accuracy={"cub200": 80.0}),
    ]
    index = write_leaderboard(
        tmp_path / name, rows, items, models=entries, date="2026-01-01",
        notes=[f"invented numbers {ATTACK}"], n_resamples=100,
    )  # fmt: skip
    return index.parent


def test_the_board_ranks_and_links(tmp_path):
    folder = build(tmp_path)
    page = Page((folder / "index.html").read_text())
    assert "cbx-s9-sum2-p1" in page.text
    assert "incomplete: 3 of 4 images" in page.text
    assert ("href", "items/00001.html") in page.attributes
    assert ("href", "https://example.org") in page.attributes
    records = list(csv.DictReader(io.StringIO((folder / "leaderboard.csv").read_text())))
    by_key = {(r["dataset"], r["model"]): r for r in records}
    assert by_key[("cub200", "a")]["rank"] == "1"
    assert float(by_key[("cub200", "a")]["score"]) == pytest.approx((6.5 + 4) / 2 / 8)
    assert by_key[("cub200", "b")]["rank"] == ""
    assert by_key[("cub200", "b")]["n_images"] == "3"
    assert by_key[("cub200", "b")]["accuracy_rank"] == "1"
    assert json.loads((folder / "leaderboard.json").read_text())["protocol_id"] == "cbx-s9-sum2-p1"


def test_item_pages_show_image_explanation_and_every_verdict(tmp_path):
    folder = build(tmp_path)
    page = Page((folder / "items" / "00001.html").read_text())
    for text in ("cardinal", "tanager (wrong)", "red crown", "0.600", "7 / 9", "5 / 9", "scripted"):
        assert text in page.text
    sources = [value for name, value in page.attributes if name == "src"]
    assert len(sources) == 1
    assert (folder / "items" / sources[0]).resolve().is_file()
    without = Page((folder / "items" / "00003.html").read_text())
    assert "no image with this submission" in without.text


def test_names_cannot_run_scripts(tmp_path):
    folder = build(tmp_path, models=(ATTACK, "b"), gt_class=ATTACK, concept=f"wing {ATTACK}"[:100])
    for path in folder.rglob("*.html"):
        text = path.read_text()
        page = Page(text)
        assert "script" not in page.tags
        assert set(page.tags) & {"iframe", "object", "embed", "form", "input", "link"} == set()
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        for name, value in page.attributes:
            if name in ("href", "src"):
                assert not value.startswith(("javascript:", "data:", "//")), value
        assert "default-src 'none'" in text
        assert "alert(" in page.text  # shown, as text


def test_formulas_do_not_run_in_a_spreadsheet(tmp_path):
    folder = build(tmp_path, models=("=cmd|' /C calc'!A0", "@b"))
    text = (folder / "leaderboard.csv").read_text()
    names = [record["model"] for record in csv.DictReader(io.StringIO(text))]
    assert set(names) == {"'=cmd|' /C calc'!A0", "'@b"}


def test_the_same_input_gives_the_same_bytes(tmp_path):
    first, second = build(tmp_path, "x"), build(tmp_path, "y")
    for path in first.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (second / path.relative_to(first)).read_bytes()


def test_a_missing_grade_is_shown_as_missing(tmp_path):
    shown = explain_contributions([1.0], ["a"])
    items = [JudgeItem("cub200", str(i), "m", "x", "x", shown) for i in range(2)]
    judge = ScriptedJudge({("cub200", "0", "m"): 5, ("cub200", "1", "m"): ["none", "no"]})
    with ReplyStore(tmp_path / "r.jsonl") as store:
        rows = judge_items(items, judge, store).rows
    folder = write_leaderboard(tmp_path / "b", rows, items, n_resamples=10).parent
    assert "1 explanation lacks a judge's grade" in Page((folder / "index.html").read_text()).text
    assert "missing" in Page((folder / "items" / "00002.html").read_text()).text


def test_no_rows_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="at least one score"):
        write_leaderboard(tmp_path, [], [])
