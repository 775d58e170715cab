"""A PostgreSQL database: durable, and shared by many processes on many hosts.

Writers of different series work side by side. Each takes its locks in one order, so that nobody waits in a circle:

1. the whole store, together with other writers; or alone, where no series are named,
2. the rows of its series in the order of their ids; a new series gets an empty row, for which others wait, too,
3. the rows of digests of requests, in order,
4. what the panel shares, when it is written,
5. a row of `part` that nobody else holds: it counts transactions and observations, and has the newest time. Sums and
   maximum of all parts are those of the store, so there is no row that every writer needs.

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
from aru.store.contract import Key, Store, Transaction
from aru.store.database import Session
from aru.store.postgres_transactions import LAST_ENTRY, PARTS_HEAD, Change, View, read_head

KEPT_OPEN = 8  # idle connections
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
        self._leading: dict[str, Session] = {}  # by task
        self._process = os.getpid()
        self.address, self._create = read_address(url), create
        self._prepared = False
        self._lock, self._panel_lock = (database.lock_of(self.address, what) for what in ("", "/panel"))
        _stores.add(self)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A consistent view. Readers and writers do not wait for each other."""
        with database.named_errors(self.address):
            begun = self._begin(f"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; {PARTS_HEAD}")
            with self._ending(begun.connection):
                yield View(begun.connection, read_head(begun))
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
                change = Change(begun.connection, keys, self._panel_lock)
                yield change
                change.finish()

    def settled(self) -> int:
        """The latest entry of the journal, when no writer is at work that could still add an earlier one."""
        with database.named_errors(self.address):
            begun = self._begin(
                f"BEGIN ISOLATION LEVEL READ COMMITTED, READ ONLY; SELECT pg_advisory_xact_lock({self._lock}); "
                f"{LAST_ENTRY}"
            )
            with self._ending(begun.connection):
                row = begun.fetchone()
                assert row is not None
                return int(row[0])

    def lead(self, task: str) -> bool:
        """Whether this process has a task: a session of its own holds a lock as long as it lives."""
        self._after_fork()
        with database.named_errors(self.address):
            held = self._leading.pop(task, None)
            if held is not None:
                with contextlib.suppress(psycopg.OperationalError):
                    held.execute("SELECT 1")
                    self._leading[task] = held
                    return True
                held.close()
            session = self._connect()
            lock = database.lock_of(self.address, f"/{task}")
            if session.execute(f"SELECT pg_try_advisory_lock({lock})").fetchone() == (True,):
                self._leading[task] = session
                return True
            session.close()
            return False

    def size(self) -> int:
        """Bytes of all tables."""
        with database.named_errors(self.address):
            begun = self._begin(
                "BEGIN READ ONLY; SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
                f"WHERE relkind = 'r' AND relnamespace = '{self.address.schema}'::regnamespace"
            )
            with self._ending(begun.connection):
                row = begun.fetchone()
                assert row is not None
                return int(row[0])

    def remove(self) -> None:
        """Drop the schema."""
        with database.named_errors(self.address):
            self.close()
            with contextlib.closing(database.connect(self.address)) as session:
                session.execute(f"DROP SCHEMA IF EXISTS {self.address.schema} CASCADE")
        self._prepared = False

    def __str__(self) -> str:
        return self.address.shown

    def close(self) -> None:
        """Close idle connections."""
        self._after_fork()
        while (session := self._waiting()) is not None:
            session.close()
        while self._leading:
            self._leading.popitem()[1].close()

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
            while (other := self._waiting()) is not None:  # which have lost it as well
                other.close()
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
            self._parents = [*self._idle, *self._leading.values()]
            self._process, self._idle, self._leading = os.getpid(), [], {}


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
