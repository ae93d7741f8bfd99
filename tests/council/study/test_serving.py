"""A served study under load and under kill -9: what a person was told is kept, is kept."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections import Counter
from contextlib import suppress
from urllib.parse import urlencode

import pytest

from concept_audit.council.study.items import load_items
from concept_audit.council.study.store import Store
from council.study.participant import ADMIN, write_folder
from council.study.serving import Server


class Person:
    """A participant with one connection and one cookie; `times` collects seconds per request."""

    def __init__(self, port, times=None):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._cookie = ""
        self.times = times if times is not None else []
        self.page = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._connection.close()

    def send(self, method, path, **form):
        headers = {"Cookie": self._cookie} if self._cookie else {}
        body = None
        if method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = urlencode({"form_token": self.field("form_token"), **form})
        began = time.perf_counter()
        self._connection.request(method, path, body, headers)
        reply = self._connection.getresponse()
        self.page = reply.read().decode() or self.page
        self.times.append(time.perf_counter() - began)
        if reply.getheader("set-cookie"):
            self._cookie = reply.getheader("set-cookie").split(";")[0]
        return reply.status, reply.getheader("location")

    def field(self, name):
        found = re.search(rf'name="{name}" value="([^"]*)"', self.page)
        return found.group(1) if found else ""

    def begin(self):
        self.send("GET", "/")
        status, location = self.send("POST", "/start", agreed="yes")
        assert status == 303, status
        self.token = location.split("/")[2]

    def show(self):
        """Open the next item; True while there is one."""
        status, _ = self.send("GET", f"/s/{self.token}/next")
        return status == 200

    def answer(self, choice):
        """Answer the open item; what was answered, once the server has said that it is kept."""
        item = self.field("item")
        position = re.search(r"/item/(\d+)\" data-answers", self.page).group(1)
        status, _ = self.send("POST", f"/s/{self.token}/item/{position}", item=item, choice=choice)
        assert status == 303, status
        return item, choice


def test_what_was_answered_before_kill_9_is_kept(tmp_path):
    items = load_items(write_folder(tmp_path / "items", 12)).folder
    database = tmp_path / "study.db"
    server = Server(items, database, tmp_path / "log", admin_token=ADMIN)
    told, lock, enough = [], threading.Lock(), threading.Event()

    def take_part(number):
        # The server is killed under us.
        with suppress(OSError, http.client.HTTPException), Person(server.port) as person:
            person.begin()
            while person.show():
                kept = person.answer(("A", "B", "equally_good", "equally_bad")[number % 4])
                with lock:
                    told.append(kept)
                    if len(told) >= 25:
                        enough.set()

    people = [threading.Thread(target=take_part, args=(number,)) for number in range(4)]
    for person in people:
        person.start()
    assert enough.wait(60)
    server.kill()  # the four are in the middle of their next answers
    for person in people:
        person.join()
    assert len(told) < 80
    store = Store(f"sqlite:///{database}")
    kept = Counter((showing.item_key, showing.answer) for showing in store.answered())
    store.close()
    assert not Counter(told) - kept
    assert kept.total() <= len(told) + 4  # at most one each was kept but not yet confirmed

    again = Server(items, database, tmp_path / "log", admin_token=ADMIN)  # and it goes on
    try:
        with Person(again.port) as person:
            person.begin()
            assert person.show()
            person.answer("A")
    finally:
        again.stop()


@pytest.mark.slow
def test_200_sessions_lose_nothing(tmp_path, record_property, capsys):
    sessions, length, at_once = 200, 5, 20
    folder = write_folder(tmp_path / "items", 125)  # 375 items; 1000 answers fill 333 of them
    database = tmp_path / "study.db"
    server = Server(
        folder,
        database,
        tmp_path / "log",
        admin_token=ADMIN,
        session_items=length,
        rate_limits="false",
    )
    told, times, failed = [], [], []
    waiting = list(range(sessions))

    def people():
        while waiting:
            try:
                waiting.pop()
            except IndexError:
                return
            with Person(server.port, times) as person:
                try:
                    person.begin()
                    while person.show():
                        told.append(person.answer("AB"[len(told) % 2]))
                except (OSError, AssertionError, http.client.HTTPException) as error:
                    failed.append(error)

    began = time.perf_counter()
    threads = [threading.Thread(target=people) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    server.stop()
    assert not failed
    store = Store(f"sqlite:///{database}")
    answered, counts = store.answered(), store.counts()
    store.close()
    assert Counter((s.item_key, s.answer) for s in answered) == Counter(told)
    assert (counts.sessions, counts.finished, counts.answers) == (200, 200, sessions * length)
    per_item = Counter(showing.item_key for showing in answered)
    assert max(per_item.values()) <= 3
    # A person begins a new item only after meeting all that are begun and lack people.
    assert sum(count < 3 for count in per_item.values()) <= length
    p95 = sorted(times)[int(0.95 * len(times))]
    line = (
        f"{sessions} sessions of {length} answers, {at_once} at once: {len(times)} requests in "
        f"{seconds:.1f} s, p95 {1000 * p95:.0f} ms"
    )
    record_property("load", line)
    with capsys.disabled():
        print(f"\n{line}")
    assert p95 < 5.0  # ten times what a person would notice on a quiet machine
