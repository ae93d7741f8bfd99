"""The store: durable, private, and clear about addresses it cannot use."""

from __future__ import annotations

import sqlite3

import pytest

from concept_audit.council.study.store import Store


def test_sqlite_is_opened_durably(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/study.db")
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
    store.close()


def test_the_file_holds_no_link_and_no_cookie(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/study.db")
    token = store.start("the cookie of a browser", 1, ["k"])
    store.close()
    content = b"".join(path.read_bytes() for path in tmp_path.glob("study.db*"))
    assert token.encode() not in content
    assert b"the cookie of a browser" not in content


def test_the_secret_survives_a_restart(tmp_path):
    stores = [Store(f"sqlite:///{tmp_path}/study.db") for _ in range(2)]
    assert stores[0].secret == stores[1].secret
    for store in stores:
        store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_store_that_forgets_is_refused(url):
    with pytest.raises(ValueError, match="db must name a file"):
        Store(url)


def test_an_address_that_is_none_is_refused():
    with pytest.raises(ValueError, match="db must be a SQLAlchemy address"):
        Store("study.db")


def test_a_store_of_another_schema_is_refused(tmp_path):
    Store(f"sqlite:///{tmp_path}/study.db").close()
    connection = sqlite3.connect(tmp_path / "study.db")
    with connection:
        connection.execute("UPDATE study_setting SET value='0' WHERE name='schema_version'")
    connection.close()
    with pytest.raises(ValueError, match="answers of schema 0, this program reads 1"):
        Store(f"sqlite:///{tmp_path}/study.db")


def test_an_unknown_answer_is_refused(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/study.db")
    session = store.session(store.start("p", 1, ["k"]))
    with pytest.raises(ValueError, match="answer must be one of A, B, equally_good, equally_bad"):
        store.answer(session, 1, "k", "left", None)
    store.close()


def test_the_first_time_counts_and_a_change_is_counted(tmp_path):
    now = [100.0]
    store = Store(f"sqlite:///{tmp_path}/study.db", clock=lambda: now[0])
    session = store.session(store.start("p", 1, ["k"]))
    showing = store.next_showing(session, {"k": "image"}, per_item=3)
    for choice in ("A", "A", "B"):
        now[0] += 10
        store.answer(session, showing.position, "k", choice, None)
    counts = store.counts()
    assert (counts.answers, counts.changed, counts.left, counts.right) == (1, 1, 0, 1)
    assert counts.median_seconds == 10
    assert counts.finished == 1
    store.close()
