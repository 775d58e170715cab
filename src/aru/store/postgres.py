"""A PostgreSQL database: durable, and shared by many processes on many hosts.

Writers of different series work side by side. Each takes its locks in one order, so that nobody waits in a circle:

1. the whole store, together with other writers; or alone, where no series are named,
2. the rows of its series in the order of their ids; a new series gets an empty row, for which others wait, too,
3. the rows of digests of requests, in order,
4. what the panel shares, when it is written,
5. a row of `part` that nobody else holds: it counts transactions and has the newest time. Sum and maximum of all parts
   are those of the store, so there is no row that every writer needs.

All locks end with the transaction, and a transaction with its connection. A writer reads after it has the locks
(READ COMMITTED); a reader sees one moment (REPEATABLE READ) and locks nothing. Ids are bytes that sort as ids do.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from aru.errors import StorageError, verbatim
from aru.store import database
from aru.store.address import read_address
from aru.store.contract import About, Key, Kind, Store, Transaction
from aru.store.database import Session

KEPT_OPEN = 8  # idle connections
FLUSHED = 2**25  # bytes of changes that are kept before they are sent
SMALL = 2**19  # bytes of changes that are sent together with the end of the transaction
TOGETHER = 2**7  # records a statement: more of them do not fit the memory that a server gives it
READ_AT_ONCE = 2**10  # records that are read at a time
VERSION_AND_NEWEST = "SELECT coalesce(sum(transactions), 0)::bigint, max(newest) FROM part"
SMALLEST = -(2**63)  # integer id
_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()


class PostgresStore(Store):
    """Records in a schema of a PostgreSQL database, created on first use.

    Args:
        url: `postgresql://user@host/database?schema=name`; without a schema it is "aru". The password may come from
            PGPASSWORD or ~/.pgpass as well.
        create: Whether to create the tables where there are none.
    """

    def __init__(self, url: str, create: bool = True) -> None:
        self._idle: list[Session] = []
        self._process = os.getpid()
        self.address, self._create = read_address(url), create
        self._prepared = False
        self._lock = database.lock_of(self.address)
        _stores.add(self)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A consistent view. Readers and writers do not wait for each other."""
        with database.named_errors(self.address):
            begun = self._begin(f"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; {VERSION_AND_NEWEST}")
            with self._ending(begun.connection):
                yield _View(begun.connection, _head(begun))
                begun.connection.execute("COMMIT")

    @contextlib.contextmanager
    def writing(self, keys: Sequence[Key] | None = None) -> Iterator[Transaction]:
        """The only writer of these series, or of the whole store."""
        with database.named_errors(self.address):
            with_others = "" if keys is None else "_shared"
            begun = self._begin(
                "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; "
                f"SELECT pg_advisory_xact_lock{with_others}({self._lock})"
            )
            with self._ending(begun.connection):
                change = _Change(begun.connection, keys)
                yield change
                change.finish()

    def __str__(self) -> str:
        return self.address.shown

    def close(self) -> None:
        """Close idle connections."""
        self._after_fork()
        while (session := self._waiting()) is not None:
            session.close()

    def __del__(self) -> None:
        if self._process == os.getpid():
            self.close()

    def _begin(self, statements: str) -> psycopg.Cursor[tuple[Any, ...]]:
        """Begin a transaction. A connection that waited here may have lost its server since: then a new one does."""
        self._after_fork()
        session = self._waiting()
        if session is not None:
            try:
                return _executed(session, statements)
            except psycopg.OperationalError:
                if session.info.status == psycopg.pq.ConnStatus.OK:  # it is about something else
                    raise
            self.close()  # others have lost it as well
        return _executed(self._connect(), statements)

    def _waiting(self) -> Session | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    @contextlib.contextmanager
    def _ending(self, session: Session) -> Iterator[None]:
        """Undo what is not complete, and keep a session that can be used again."""
        try:
            yield
        finally:
            with contextlib.suppress(psycopg.Error):
                if session.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    session.execute("ROLLBACK")
            done = session.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            if done and len(self._idle) < KEPT_OPEN and self._process == os.getpid():
                self._idle.append(session)
            else:
                session.close()

    def _connect(self) -> Session:
        session = database.connect(self.address)
        try:
            if not self._prepared:
                if not self._create and database.version_of(session, self.address) == 0:
                    raise StorageError(f"{verbatim(self)} holds no store", "Give the address of one.")
                database.prepare(session, self.address)
                self._prepared = True
        except BaseException:
            session.close()
            raise
        return session

    def _after_fork(self) -> None:
        """In a child process start with new connections; those of the parent must not be closed here."""
        if self._process != os.getpid():
            self._parents = self._idle
            self._process, self._idle = os.getpid(), []


@atexit.register
def _close_stores() -> None:
    for store in list(_stores):
        store.close()


def _executed(session: Session, statements: str) -> psycopg.Cursor[tuple[Any, ...]]:
    """The cursor with the rows of the last of these statements. A session is closed if one fails."""
    try:
        cursor = session.execute(statements, prepare=False)
        while cursor.nextset():
            pass
        return cursor
    except BaseException:
        session.close()
        raise


def _head(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[int, int | None]:
    """Number of transactions and newest time."""
    row = cursor.fetchone()
    assert row is not None
    return row[0], row[1]


def _as_bytes(key: Key) -> bytes:
    """An id as bytes that sort as ids do, integers before strings."""
    return b"s" + key.encode() if isinstance(key, str) else b"i" + (key - SMALLEST).to_bytes(8, "big")


def _as_key(data: bytes) -> Key:
    return data[1:].decode() if data[:1] == b"s" else int.from_bytes(data[1:], "big") + SMALLEST


class _View(Transaction):
    """What a transaction reads."""

    def __init__(self, session: Session, head: tuple[int, int | None]) -> None:
        self._session = session
        self._version, self._stored_newest = head

    def about(self) -> About | None:
        row = self._session.execute("SELECT description FROM about").fetchone()
        return None if row is None else About.from_json(row[0])

    def version(self) -> int:
        return self._version

    def newest(self) -> int | None:
        return self._stored_newest

    def get(self, keys: Sequence[Key], kind: Kind = "series") -> list[bytes | None]:
        ids = [_as_bytes(key) for key in keys]
        found = self._load(ids, kind)
        return [found.get(id) or None for id in ids]  # a row without a record is only a lock

    def keys(self, kind: Kind = "series") -> list[Key]:
        return [_as_key(id) for id in sorted(self._ids(kind))]

    def _load(self, ids: Sequence[bytes], kind: Kind) -> dict[bytes, bytes | None]:
        found: dict[bytes, bytes | None] = {}
        with self._session.cursor(binary=True) as cursor:
            for at in range(0, len(ids), READ_AT_ONCE):
                some = list(ids[at : at + READ_AT_ONCE])
                found.update(cursor.execute(f"SELECT id, record FROM {kind} WHERE id = ANY(%b)", [some]).fetchall())
        return found

    def _ids(self, kind: Kind) -> set[bytes]:
        with self._session.cursor(binary=True) as cursor:
            return {id for (id,) in cursor.execute(f"SELECT id FROM {kind}")}

    def describe(self, about: About) -> None:
        raise _read_only()

    def put(self, keys: Sequence[Key], records: Sequence[bytes], kind: Kind = "series") -> None:
        raise _read_only()

    def delete(self, keys: Sequence[Key], kind: Kind = "series") -> None:
        raise _read_only()

    def keep_newest(self, time: int) -> None:
        raise _read_only()


def _read_only() -> StorageError:
    return StorageError("This view of the store is for reading", "Open the store for writing.")


class _Change(_View):
    """A writing transaction. Changes are kept here and sent at the end, or when they are many."""

    def __init__(self, session: Session, keys: Sequence[Key] | None) -> None:
        self._alone = keys is None
        self._changed: dict[Kind, dict[bytes, bytes | None]] = {"series": {}, "request": {}, "panel": {}}
        self._made: dict[Kind, set[bytes]] = {"series": set(), "request": set(), "panel": set()}  # rows as locks
        self._bytes = 0  # of changes that are not sent yet
        self._touched = False  # whether series were changed
        self._newest: int | None = None  # what `keep_newest` was told
        self._session, self._locked = session, {_as_bytes(key) for key in keys or ()}
        with session.pipeline():
            made = self._lock(self._locked, "series")
            asked = session.execute(VERSION_AND_NEWEST)  # when nobody else can change these series any more
        self._made["series"] = {id for cursor in made for (id,) in cursor}
        super().__init__(session, _head(asked))

    def describe(self, about: About) -> None:
        self._session.execute("DELETE FROM about")
        self._session.execute("INSERT INTO about VALUES (%s)", [about.to_json()])

    def newest(self) -> int | None:
        return self._newest if self._touched or self._newest is not None else self._stored_newest

    def keep_newest(self, time: int) -> None:
        self._newest = time

    def put(self, keys: Sequence[Key], records: Sequence[bytes], kind: Kind = "series") -> None:
        self._change(zip(map(_as_bytes, keys), records, strict=True), kind)

    def delete(self, keys: Sequence[Key], kind: Kind = "series") -> None:
        self._change(((_as_bytes(key), None) for key in keys), kind)

    def finish(self) -> None:
        """Send all changes and commit."""
        if self._touched and self._newest is None and not self._alone:
            raise RuntimeError("a writer of some series must tell the newest time")
        if self._bytes > SMALL:
            self._flush()
        with self._session.pipeline():  # one round trip for what is left
            self._flush()
            for kind, made in self._made.items():
                if made:  # series that did not begin, requests that were not kept
                    self._session.execute(f"DELETE FROM {kind} WHERE id = ANY(%b) AND record = ''", [list(made)])
            self._close_part()
            self._session.execute("COMMIT")

    def _change(self, changes: Iterator[tuple[bytes, bytes | None]], kind: Kind) -> None:
        kept = self._changed[kind]
        before = len(kept)
        for id, record in changes:
            kept[id] = record
            self._bytes += 0 if record is None else len(record)
        self._touched |= kind == "series" and len(kept) > 0
        if kind == "series" and not self._alone and len(kept) > before and not kept.keys() <= self._locked:
            strange = next(iter(kept.keys() - self._locked))
            raise RuntimeError(f"series {_as_key(strange)!r} is changed by a writer of others")
        if self._bytes > FLUSHED:
            self._flush()

    def _load(self, ids: Sequence[bytes], kind: Kind) -> dict[bytes, bytes | None]:
        kept = self._changed[kind]
        unsent = [id for id in ids if id not in kept] if kept else ids
        if kind != "request" or self._alone:
            return {**super()._load(unsent, kind), **kept}
        with self._session.pipeline():  # digests are read, changed and written by one at a time
            made = self._lock(set(unsent), kind)
            found = super()._load(unsent, kind)
        self._made[kind].update(id for cursor in made for (id,) in cursor)
        return {**found, **kept}

    def _ids(self, kind: Kind) -> set[bytes]:
        kept = self._changed[kind]
        there = (super()._ids(kind) - self._made[kind]) | kept.keys()
        return there - {id for id, record in kept.items() if record is None}

    def _lock(self, ids: set[bytes], kind: Kind) -> list[psycopg.Cursor[tuple[bytes]]]:
        """Lock rows in order. Ids without one get an empty row; the cursors return these."""
        statement = (
            f"INSERT INTO {kind} SELECT unnest(%b::bytea[]), '' "
            "ON CONFLICT (id) DO UPDATE SET record = '' WHERE false RETURNING id"
        )
        ordered, cursors = sorted(ids), []
        for at in range(0, len(ordered), READ_AT_ONCE):
            cursors.append(self._session.cursor(binary=True))
            cursors[-1].execute(statement, [ordered[at : at + READ_AT_ONCE]])
        return cursors

    def _flush(self) -> None:
        """Send the changes that are kept here, sorted, series first."""
        for kind, changed in self._changed.items():
            gone = sorted(id for id, record in changed.items() if record is None)
            if gone:
                self._session.execute(f"DELETE FROM {kind} WHERE id = ANY(%b)", [gone])
            put = sorted((id, record) for id, record in changed.items() if record is not None)
            has_rows = not self._alone and kind != "panel"
            statement = (
                f"UPDATE {kind} SET record = new.record FROM unnest(%b::bytea[], %b::bytea[]) AS new(id, record) "
                f"WHERE {kind}.id = new.id"
                if has_rows
                else f"INSERT INTO {kind} SELECT * FROM unnest(%b::bytea[], %b::bytea[]) "
                "ON CONFLICT (id) DO UPDATE SET record = excluded.record"
            )
            for at in range(0, len(put), TOGETHER):
                some = put[at : at + TOGETHER]
                self._session.execute(statement, [[id for id, _ in some], [record for _, record in some]])
            self._made[kind] -= changed.keys()
            changed.clear()
        self._bytes = 0

    def _close_part(self) -> None:
        """Count this transaction in a part that is free, together with the newest time."""
        newest = self.newest()
        if self._alone and newest != self._stored_newest:
            self._session.execute("UPDATE part SET newest = NULL WHERE newest IS NOT NULL")
        self._session.execute(
            """WITH mine AS (
                UPDATE part SET transactions = transactions + 1, newest = greatest(newest, %(newest)s::bigint)
                WHERE slot = (SELECT slot FROM part LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING 1
            )
            INSERT INTO part (transactions, newest)
            SELECT 1, %(newest)s::bigint WHERE NOT EXISTS (SELECT FROM mine)""",
            {"newest": newest},
        )
