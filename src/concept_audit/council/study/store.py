"""Where answers are kept: SQLite by default, any SQLAlchemy address for more.

An answer is on disk before the page says so: SQLite runs with a write-ahead log and
`synchronous=FULL`. Resume links are kept as digests, so the file alone opens no session; no name,
no address and no browser string is stored.
"""

from __future__ import annotations

import hashlib
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Double,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, IntegrityError

from concept_audit.council.scoring import ANSWERS
from concept_audit.council.study.assignment import ItemCount, choose_item, choose_side

__all__ = ["Session", "Showing", "Store", "StudyCounts"]

SCHEMA_VERSION = "1"
_TABLES = MetaData()
_setting = Table(
    "study_setting",
    _TABLES,
    Column("name", String(40), primary_key=True),
    Column("value", String(200), nullable=False),
)
# One row; updating it first makes assignments wait for each other on every database.
_turn = Table(
    "study_turn",
    _TABLES,
    Column("id", Integer, primary_key=True),
    Column("taken", Integer, nullable=False),
)
_session = Table(
    "study_session",
    _TABLES,
    Column("id", Integer, primary_key=True),
    Column("token_digest", String(64), nullable=False, unique=True),
    Column("person_digest", String(64), nullable=False, index=True),
    Column("n_items", Integer, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("finished_at", Double),
)
_showing = Table(
    "study_showing",
    _TABLES,
    Column("id", Integer, primary_key=True),
    Column("session_id", ForeignKey("study_session.id"), nullable=False),
    Column("position", Integer, nullable=False),  # 1 .. n_items
    Column("item_key", String(32), nullable=False, index=True),
    Column("swapped", Boolean, nullable=False),
    Column("shown_at", Double, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("answer", String(16)),  # as clicked: A is the left explanation
    Column("answered_at", Double),
    Column("n_changes", Integer, nullable=False, default=0),
    Column("comment", Text),
    UniqueConstraint("session_id", "position"),
    UniqueConstraint("session_id", "item_key"),
)


@dataclass(frozen=True)
class Session:
    """One person's run through the study."""

    id: int
    n_items: int
    n_answered: int
    person_digest: str

    @property
    def finished(self) -> bool:
        """True when every item has an answer."""
        return self.n_answered >= self.n_items


@dataclass(frozen=True)
class Showing:
    """One item before one person."""

    position: int
    item_key: str
    swapped: bool
    answer: str | None  # on screen: A is left, B is right
    comment: str | None
    shown_at: float
    seen_at: float
    answered_at: float | None


@dataclass(frozen=True)
class StudyCounts:
    """Numbers of the admin page."""

    sessions: int
    finished: int
    answers: int
    changed: int
    left: int  # answers that chose the left explanation
    right: int
    equally_good: int
    equally_bad: int
    swapped: int  # answers given with the explanations swapped
    median_seconds: float | None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Store:
    """Sessions, showings and answers.

    Parameters
    ----------
    url : SQLAlchemy address, such as `sqlite:///study.db` or `postgresql+psycopg://host/db`
    hold_seconds : an item shown but not answered counts for this long, then it goes to others
    clock : seconds since the epoch

    Raises
    ------
    ValueError  on an address that SQLAlchemy cannot read, or SQLite without a file.
    """

    def __init__(
        self, url: str, *, hold_seconds: float = 3600.0, clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = _open(url)
        self._hold = hold_seconds
        self._clock = clock
        # SQLite has one writer: waiting here is fair, its own waiting is a lottery of sleeps.
        self._writing = threading.Lock() if self._engine.dialect.name == "sqlite" else None
        _TABLES.create_all(self._engine)
        self.secret = self._setting("secret", secrets.token_hex(32))
        version = self._setting("schema_version", SCHEMA_VERSION)
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"db holds answers of schema {version}, this program reads {SCHEMA_VERSION}. "
                "Export them with the program that wrote them and start a new db."
            )
        with suppress(IntegrityError), self._write() as connection:  # another process was first
            if connection.execute(select(_turn.c.id)).first() is None:
                connection.execute(insert(_turn).values(id=1, taken=0))

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        """One transaction, committed at the end."""
        if self._writing is None:
            with self._engine.begin() as connection:
                yield connection
            return
        with self._writing, self._engine.begin() as connection:
            yield connection

    def _setting(self, name: str, default: str) -> str:
        """Value of a setting; the first one to write it decides."""
        try:
            with self._write() as connection:
                known = connection.scalar(select(_setting.c.value).where(_setting.c.name == name))
                if known is None:
                    connection.execute(insert(_setting).values(name=name, value=default))
                return known or default
        except IntegrityError:  # another process wrote it between our look and our write
            with self._engine.connect() as connection:
                return str(
                    connection.scalar(select(_setting.c.value).where(_setting.c.name == name))
                )

    def start(self, person: str, n_items: int, keys: Sequence[str]) -> str | None:
        """Open a session and return its secret link part; None if nothing is left to show.

        Parameters
        ----------
        person : random text of the browser's cookie, kept as a digest
        n_items : items of the session, fewer when this person has seen the others
        keys : all items
        """
        token, who = secrets.token_urlsafe(18), _digest(person)
        with self._write() as connection:
            fresh = len(set(keys) - self._seen(connection, who))
            if not fresh:
                return None
            connection.execute(
                insert(_session).values(
                    token_digest=_digest(token),
                    person_digest=who,
                    n_items=min(n_items, fresh),
                    started_at=self._clock(),
                )
            )
        return token

    def session(self, token: str) -> Session | None:
        """Session of a link, or None."""
        query = (
            select(
                _session.c.id,
                _session.c.n_items,
                _session.c.person_digest,
                func.count(_showing.c.answer),
            )
            .outerjoin(_showing, _showing.c.session_id == _session.c.id)
            .where(_session.c.token_digest == _digest(token))
            .group_by(_session.c.id, _session.c.n_items, _session.c.person_digest)
        )
        with self._engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else Session(row[0], row[1], row[3], row[2])

    def _seen(self, connection: Connection, who: str) -> set[str]:
        query = (
            select(_showing.c.item_key)
            .join(_session, _session.c.id == _showing.c.session_id)
            .where(_session.c.person_digest == who)
        )
        return set(connection.scalars(query))

    def next_showing(
        self, session: Session, image_of: Mapping[str, str], *, per_item: int
    ) -> Showing | None:
        """Item before this person, drawn now if there is none; None at the end of the session.

        Parameters
        ----------
        session : from `session`
        image_of : item -> image, for all items of the set
        per_item : people per item before any repeats
        """
        mine = self.showings(session)
        waiting = [showing for showing in mine if showing.answer is None]
        now = self._clock()
        fresh = [showing for showing in waiting if showing.seen_at > now - self._hold / 2]
        if fresh and fresh[0].item_key in image_of:
            return fresh[0]
        if not waiting and len(mine) >= session.n_items:
            return None
        with self._write() as connection:
            connection.execute(update(_turn).where(_turn.c.id == 1).values(taken=_turn.c.taken + 1))
            return self._draw(connection, session, image_of, per_item, now)

    def _draw(
        self,
        connection: Connection,
        session: Session,
        image_of: Mapping[str, str],
        per_item: int,
        now: float,
    ) -> Showing | None:
        """Inside the turn: keep the open item if others have not filled it, else draw one."""
        mine = _rows(connection, session.id)
        counts = self._counts(connection, now, without=session.id)
        if mine and mine[-1].answer is None:
            last = mine.pop()
            others = counts.get(last.item_key, ItemCount()).shown
            here = _showing.c.session_id == session.id, _showing.c.position == last.position
            if last.item_key in image_of and others < per_item:
                connection.execute(update(_showing).where(*here).values(seen_at=now))
                return last
            connection.execute(delete(_showing).where(*here))
        if len(mine) >= session.n_items:
            return None
        position = len(mine) + 1
        rng = random.Random(f"{self.secret}:{session.id}:{position}")
        key = choose_item(
            list(image_of),
            counts,
            seen=self._seen(connection, session.person_digest),
            per_item=per_item,
            rng=rng,
            image_of=image_of,
            last_image=image_of.get(mine[-1].item_key) if mine else None,
        )
        if key is None:  # another session of the same browser took the rest
            connection.execute(
                update(_session).where(_session.c.id == session.id).values(n_items=len(mine))
            )
            return None
        swapped = choose_side(
            counts.get(key, ItemCount()),
            session_shown=len(mine),
            session_swapped=sum(showing.swapped for showing in mine),
            rng=rng,
        )
        connection.execute(
            insert(_showing).values(
                session_id=session.id,
                position=position,
                item_key=key,
                swapped=swapped,
                shown_at=now,
                seen_at=now,
                n_changes=0,
            )
        )
        return Showing(position, key, swapped, None, None, now, now, None)

    def _counts(self, connection: Connection, now: float, *, without: int) -> dict[str, ItemCount]:
        """Answered and held showings of every item, those of one session left out."""
        alive = _showing.c.answer.is_not(None) | (_showing.c.seen_at > now - self._hold)
        swapped = func.sum(_showing.c.swapped.cast(Integer))
        query = (
            select(_showing.c.item_key, func.count(), swapped)
            .where(alive, _showing.c.session_id != without)
            .group_by(_showing.c.item_key)
        )
        return {key: ItemCount(int(n), int(s)) for key, n, s in connection.execute(query)}

    def showings(self, session: Session) -> list[Showing]:
        """Items this session has met, in order."""
        with self._engine.connect() as connection:
            return _rows(connection, session.id)

    def answer(
        self, session: Session, position: int, item_key: str, answer: str, comment: str | None
    ) -> bool:
        """Keep an answer; on disk when this returns.

        Parameters
        ----------
        session, position, item_key : which showing; an earlier one may be answered anew
        answer : `A` (left), `B` (right), `equally_good` or `equally_bad`
        comment : free text or None

        Returns
        -------
        False if this session has not been shown such an item.
        """
        if answer not in ANSWERS:
            raise ValueError(f"answer must be one of {', '.join(ANSWERS)}, got {answer!r}.")
        # The item too: a forgotten tab may still show what stood at this position before.
        here = (
            _showing.c.session_id == session.id,
            _showing.c.position == position,
            _showing.c.item_key == item_key,
        )
        now = self._clock()
        with self._write() as connection:
            # A second answer counts as a change only if it differs: a double click does not.
            changed = _showing.c.answer.is_not(None) & (_showing.c.answer != answer)
            kept = connection.execute(
                update(_showing)
                .where(*here)
                .values(
                    n_changes=_showing.c.n_changes + func.coalesce(changed.cast(Integer), 0),
                    answer=answer,
                    answered_at=func.coalesce(_showing.c.answered_at, now),
                    comment=comment,
                )
            )
            if kept.rowcount == 0:
                return False
            if position == session.n_items:
                connection.execute(
                    update(_session)
                    .where(_session.c.id == session.id, _session.c.finished_at.is_(None))
                    .values(finished_at=now)
                )
        return True

    def withdraw(self, session: Session) -> None:
        """Delete a session with all its answers."""
        with self._write() as connection:
            connection.execute(delete(_showing).where(_showing.c.session_id == session.id))
            connection.execute(delete(_session).where(_session.c.id == session.id))

    def answered(self) -> list[Showing]:
        """All answers of all people in order of time, without a trace of who gave them."""
        query = (
            select(*_COLUMNS)
            .where(_showing.c.answer.is_not(None))
            .order_by(_showing.c.answered_at, _showing.c.id)
        )
        with self._engine.connect() as connection:
            return [Showing(*row) for row in connection.execute(query)]

    def counts(self) -> StudyCounts:
        """Numbers of the admin page."""
        answered = self.answered()
        with self._engine.connect() as connection:
            sessions = connection.scalar(select(func.count()).select_from(_session)) or 0
            finished = connection.scalar(select(func.count(_session.c.finished_at))) or 0
            changed = connection.scalar(
                select(func.count()).select_from(_showing).where(_showing.c.n_changes > 0)
            )
        seconds = sorted(s.answered_at - s.shown_at for s in answered if s.answered_at is not None)
        given = [showing.answer for showing in answered]
        return StudyCounts(
            sessions=sessions,
            finished=finished,
            answers=len(answered),
            changed=changed or 0,
            left=given.count("A"),
            right=given.count("B"),
            equally_good=given.count("equally_good"),
            equally_bad=given.count("equally_bad"),
            swapped=sum(showing.swapped for showing in answered),
            median_seconds=seconds[len(seconds) // 2] if seconds else None,
        )


_COLUMNS = tuple(
    _showing.c[name]
    for name in (
        "position",
        "item_key",
        "swapped",
        "answer",
        "comment",
        "shown_at",
        "seen_at",
        "answered_at",
    )
)


def _rows(connection: Connection, session_id: int) -> list[Showing]:
    query = (
        select(*_COLUMNS).where(_showing.c.session_id == session_id).order_by(_showing.c.position)
    )
    return [Showing(*row) for row in connection.execute(query)]


def _open(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ValueError(
            f"db must be a SQLAlchemy address such as sqlite:///study.db, got {url!r}."
        ) from error
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed, pool_pre_ping=True)
    if parsed.database in (None, "", ":memory:"):
        raise ValueError(
            f"db must name a file, got {url!r}, which forgets all answers at the end. "
            "Write sqlite:///study.db."
        )
    engine = create_engine(parsed, connect_args={"timeout": 30}, pool_size=8, max_overflow=32)

    @event.listens_for(engine, "connect")
    def _durable(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine
