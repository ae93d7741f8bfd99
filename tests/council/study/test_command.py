"""`concept-audit study`: what a user types, and what each mistake answers."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from concept_audit.council.study.items import load_items
from concept_audit.council.study.store import Store
from concept_audit.pipeline.study import main
from council.study.participant import write_folder


def test_demo_check_and_export_go_together(tmp_path, capsys):
    folder, database = tmp_path / "demo", f"sqlite:///{tmp_path}/study.db"
    assert main(["demo", f"items={folder}"]) == 0
    assert "24 items, 8 images, 3 models" in capsys.readouterr().out
    with Image.open(folder / "images/01.png") as picture:
        assert picture.size == (480, 360)
    assert main(["check", f"items={folder}"]) == 0
    items = load_items(folder)
    store = Store(database)
    for person in range(3):
        session = store.session(store.start(f"p{person}", 24, list(items.items)))
        images = {key: loaded.image.key for key, loaded in items.items.items()}
        while showing := store.next_showing(session, images, per_item=3):
            choice = "B" if showing.swapped else "A"  # always the first model
            store.answer(session, showing.position, showing.item_key, choice, "so")
    store.close()
    out, comments = tmp_path / "labels.jsonl", tmp_path / "comments.jsonl"
    arguments = [f"items={folder}", f"db={database}", f"out={out}", f"comments={comments}"]
    assert main(["export", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "24 labelled comparisons" in printed
    assert "24 of 24 items have 3 answers; 0 answers beyond that" in printed
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(row["answers"] == ["A", "A", "A"] for row in rows)
    assert set(rows[0]) == {"dataset", "image_id", "pair", "answers", "consensus", "strength"}
    assert len(comments.read_text().splitlines()) == 72


def test_faults_of_the_items_are_listed(tmp_path, capsys):
    folder = write_folder(tmp_path, 1)
    with (folder / "items.jsonl").open("a") as stream:
        stream.write("{}\n[1]\n")
    assert main(["check", f"items={folder}"]) == 1
    error = capsys.readouterr().err
    assert "items.jsonl:4: dataset: Field required" in error
    assert "items.jsonl:5:" in error


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["sing"], "unknown action 'sing'"),
        (["serve"], "Say where the items are: concept-audit study serve items=FOLDER."),
        (["check", "itms=x"], "Cannot read 'itms=x': `study check` takes items=..."),
        (["check", "items=/nowhere"], "found none in /nowhere"),
        (["serve", "items={items}", "port=http"], "port must be a whole number, got 'http'"),
        (["serve", "items={items}", "https=yes"], "https must be true or false, got 'yes'"),
        (["serve", "items={items}", "admin_token=short"], "at least 12 characters, got 5"),
        (["serve", "items={items}", "db=study.db"], "db must be a SQLAlchemy address"),
        (["export", "items={items}", "db=sqlite:////nowhere/s.db"], "no file /nowhere/s.db"),
    ],
)
def test_mistakes_are_named(tmp_path, capsys, argv, words):
    folder = write_folder(tmp_path, 1)
    assert main([argument.format(items=folder) for argument in argv]) == 2
    assert words in capsys.readouterr().err


def test_help_is_printed(capsys):
    assert main(["--help"]) == 0
    assert main([]) == 2
    assert main(["serve", "--help"]) == 0
    assert capsys.readouterr().out.count("concept-audit study serve") == 3
