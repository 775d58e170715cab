"""Transactions in PostgreSQL: what they read, lock and write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg

from aru.errors import StorageError
from aru.store.contract import About, Key, Kind, Transaction
from aru.store.database import Session

FLUSHED = 2**25  # bytes of changes that are kept before they are sent
SMALL = 2**19  # bytes of changes that are sent together with the end of the transaction
TOGETHER = 2**7  # records a statement: more of them do not fit the memory that a server gives it
READ_AT_ONCE = 2**10  # records that are read at a time
PARTS_HEAD = "SELECT coalesce(sum(transactions), 0)::bigint, max(newest), sum(counted)::bigint FROM part"
LAST_ENTRY = "SELECT coalesce(max(number), 0) FROM journal"
SMALLEST = -(2**63)  # integer id
ORDER: tuple[Kind, ...] = ("series", "request", "panel", "service")  # in which records are locked and written
LOCKED_KINDS = ORDER[:2]  # whose rows are locked, and therefore there, before they are written


class Head(NamedTuple):
    """What all parts say together: number of transactions, newest time, number of observations."""

    version: int
    newest: int | None
    counted: int | None


def read_head(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Head:
    """The row that the statement PARTS_HEAD returns."""
    row = cursor.fetchone()
    assert row is not None
    return Head(*row)


def _as_bytes(key: Key) -> bytes:
    """An id as bytes that sort as ids do, integers before strings."""
    return b"s" + key.encode() if isinstance(key, str) else b"i" + (key - SMALLEST).to_bytes(8, "big")


def _as_key(data: bytes) -> Key:
    return data[1:].decode() if data[:1] == b"s" else int.from_bytes(data[1:], "big") + SMALLEST


class View(Transaction):
    """What a transaction reads."""

    def __init__(self, session: Session, head: Head) -> None:
        self._session, self._head = session, head

    def about(self) -> About | None:
        """The description of the records."""
        row = self._session.execute("SELECT description FROM about").fetchone()
        return None if row is None else About.from_json(row[0])

    def version(self) -> int:
        """Number of transactions so far."""
        return self._head.version

    def newest(self) -> int | None:
        """The newest time of all series."""
        return self._head.newest

    def counted(self) -> int | None:
        """The number of observations."""
        return self._head.counted

    def get(self, keys: Sequence[Key], kind: Kind = "series") -> list[bytes | None]:
        """The record of each key."""
        ids = [_as_bytes(key) for key in keys]
        found = self._load(ids, kind)
        return [found.get(id) or None for id in ids]  # a row without a record is only a lock

    def keys(self, kind: Kind = "series") -> list[Key]:
        """All keys, in order."""
        return [_as_key(id) for id in sorted(self._ids(kind))]

    def number(self) -> int:
        """The number of series."""
        return self._one("SELECT count(*) FROM series")

    def last_entry(self) -> int:
        """The number of the latest entry of the journal."""
        return self._one(LAST_ENTRY)

    def entries(self, after: int, most: int) -> list[tuple[int, bytes]]:
        """The first entries after a number."""
        statement = "SELECT number, entry FROM journal WHERE number > %s ORDER BY number LIMIT %s"
        with self._session.cursor(binary=True) as cursor:
            return [(int(n), entry) for n, entry in cursor.execute(statement, [after, most])]

    def journal_bytes(self) -> int:
        """What the journal takes on disk."""
        return self._one("SELECT pg_total_relation_size('journal')")

    def _one(self, statement: str) -> int:
        row = self._session.execute(statement).fetchone()
        assert row is not None
        return int(row[0])

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
        """Write the description of the records."""
        raise _read_only()

    def put(self, keys: Sequence[Key], records: Sequence[bytes], kind: Kind = "series") -> None:
        """Write or replace records."""
        raise _read_only()

    def delete(self, keys: Sequence[Key], kind: Kind = "series") -> None:
        """Remove records."""
        raise _read_only()

    def keep_newest(self, time: int) -> None:
        """Remember the newest time."""
        raise _read_only()


def _read_only() -> StorageError:
    return StorageError("This view of the store is for reading", "Open the store for writing.")


class Change(View):
    """A writing transaction. Changes are kept here and sent at the end, or when they are many."""

    def __init__(self, session: Session, keys: Sequence[Key] | None, panel_lock: int) -> None:
        self._alone, self._panel_lock = keys is None, panel_lock
        self._changed: dict[Kind, dict[bytes, bytes | None]] = {kind: {} for kind in ORDER}
        self._made: dict[Kind, set[bytes]] = {kind: set() for kind in ORDER}  # rows that are only locks
        self._bytes = 0  # of changes that are not sent yet
        self._touched = False  # whether series were changed
        self._newest: int | None = None  # what `keep_newest` was told
        self._more: int | None = None  # observations to add to a part
        self._session, self._locked = session, {_as_bytes(key) for key in keys or ()}
        with session.pipeline():
            made = self._lock(self._locked, "series")
            asked = session.execute(PARTS_HEAD)  # when nobody else can change these series any more
        self._made["series"] = {id for cursor in made for (id,) in cursor}
        super().__init__(session, read_head(asked))

    def describe(self, about: About) -> None:
        """Write the description of the records."""
        self._session.execute("DELETE FROM about")
        self._session.execute("INSERT INTO about VALUES (%s)", [about.to_json()])

    def newest(self) -> int | None:
        """The newest time of all series."""
        return self._newest if self._touched or self._newest is not None else self._head.newest

    def keep_newest(self, time: int) -> None:
        """Remember the newest time."""
        self._newest = time

    def count(self, more: int) -> None:
        """Add to the number of observations."""
        self._more = (self._more or 0) + more

    def recount(self, total: int | None) -> None:
        """Set the number of observations."""
        if not self._alone:
            raise RuntimeError("observations are counted anew by a writer of the whole store")
        self._session.execute("UPDATE part SET counted = NULL WHERE counted IS NOT NULL")
        self._more = total

    def append(self, entry: bytes, number: int | None = None) -> None:
        """Add an entry to the journal."""
        if number is None:  # taken when the locks are held: entries of a series have the order of its changes
            self._session.execute("INSERT INTO journal (entry) VALUES (%b)", [entry])
            return
        self._session.execute("INSERT INTO journal (number, entry) VALUES (%s, %b)", [number, entry])
        self._session.execute("SELECT setval(pg_get_serial_sequence('journal', 'number'), %s)", [number])

    def drop_entries(self, until: int) -> None:
        """Remove entries of the journal."""
        self._session.execute(
            "DELETE FROM journal WHERE number <= %s AND number < (SELECT max(number) FROM journal)", [until]
        )

    def claim_panel(self) -> bool:
        """Whether this writer may now write what all series share."""
        if self._alone:
            return True
        found = self._session.execute(f"SELECT pg_try_advisory_xact_lock({self._panel_lock})").fetchone()
        return found == (True,)

    def put(self, keys: Sequence[Key], records: Sequence[bytes], kind: Kind = "series") -> None:
        """Write or replace records."""
        self._change(zip(map(_as_bytes, keys), records, strict=True), kind)

    def delete(self, keys: Sequence[Key], kind: Kind = "series") -> None:
        """Remove records."""
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
            has_rows = not self._alone and kind in LOCKED_KINDS
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
        if self._alone and newest != self._head.newest:
            self._session.execute("UPDATE part SET newest = NULL WHERE newest IS NOT NULL")
        self._session.execute(
            """WITH mine AS (
                UPDATE part SET transactions = transactions + 1, newest = greatest(newest, %(newest)s::bigint),
                    counted = coalesce(counted + %(more)s::bigint, counted, %(more)s::bigint)
                WHERE slot = (SELECT slot FROM part LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING 1
            )
            INSERT INTO part (transactions, newest, counted)
            SELECT 1, %(newest)s::bigint, %(more)s::bigint WHERE NOT EXISTS (SELECT FROM mine)""",
            {"newest": newest, "more": self._more},
        )
