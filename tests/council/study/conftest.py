"""Builds a study in a temporary folder."""

from __future__ import annotations

import pytest

from concept_audit.council.study.app import StudyRules, create_app
from concept_audit.council.study.items import load_items
from concept_audit.council.study.store import Store
from council.study.participant import ADMIN, write_folder


@pytest.fixture
def make_study(tmp_path):
    """Build (app, items, store) of a study."""
    opened = []

    def make(n_images=8, *, session_items=20, per_item=3, clock=None, hold=3600.0, **options):
        changes = options.pop("changes", {})
        edit = options.pop("edit", lambda text: text)
        folder = tmp_path / f"items{len(opened)}"
        source = write_folder(folder, n_images, **changes) / "items.jsonl"
        source.write_text(edit(source.read_text()))
        items = load_items(folder)
        timing = {"clock": clock} if clock else {}
        store = Store(f"sqlite:///{tmp_path}/{len(opened)}.db", hold_seconds=hold, **timing)
        opened.append(store)
        rules = StudyRules(
            admin_token=ADMIN, session_items=session_items, per_item=per_item, **options
        )
        return create_app(items, store, rules), items, store

    yield make
    for store in opened:
        store.close()
