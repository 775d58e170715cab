"""One SQLite file: durable, and safe for many threads and processes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from aru.errors import StorageError, verbatim
from aru.store.contract import About, Key, Kind, Store, Transaction, chunks

APPLICATION = 0x41525501  # marks a file as ours
PAGE = 2**14  # bytes: three or four records of the usual size share a page
WRITE_AHEAD_BYTES = 2**26  # bytes of write-ahead log before it is merged into the file
WAIT = 60.0  # seconds that a writer waits for another process
IDLE = 8  # idle connections that are kept open
VARIABLES = 2**14  # per statement; SQLite allows 32,766


class SQLiteStore(Store):
    """Records in a SQLite file, created on first use.

    Write-ahead logging with synchronous=FULL: committed changes survive a crash of process or machine. A connection
    serves one thread at a time. Writers of one process wait on a lock, those of several processes on SQLite's lock.
    """

    def __init__(self, path: str | Path) -> None:
        self._writer = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._process = os.getpid()
        self.path = Path(path)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A consistent view. Readers and writers do not wait for each other."""
        self._after_fork()
        with self._transaction("BEGIN") as connection:
            yield _SQLiteTransaction(connection)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        """The only writer among all threads and processes."""
        self._after_fork()
        with self._writer, self._transaction("BEGIN IMMEDIATE") as connection:
            change = _SQLiteTransaction(connection)
            yield change
            change.finish()
            connection.execute(f"PRAGMA user_version={(change.version() + 1) % 2**31}")

    def __str__(self) -> str:
        return str(self.path)

    def close(self) -> None:
        """Close idle connections; the last one to close merges the log into the file."""
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        if self._process == os.getpid():
            self.close()

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._named_errors():
            connection = self._borrow()
            try:
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                self._return(connection)

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise StorageError(
                    f"{verbatim(self.path)} was busy for {WAIT:g} s with other writers", "Try again."
                ) from error
            raise StorageError(
                f"{verbatim(self.path)} cannot be used as a store: {verbatim(error)}",
                "Give the path of a store, or of a new file.",
            ) from error

    def _after_fork(self) -> None:
        """In a child process start with new connections and locks; those of the parent must not be closed here."""
        if self._process != os.getpid():
            self._parents = self._idle
            self._process, self._idle, self._writer = os.getpid(), [], threading.Lock()

    def _borrow(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _return(self, connection: sqlite3.Connection) -> None:
        if len(self._idle) < IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA page_size={PAGE}")  # has an effect only on an empty file
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application != APPLICATION:
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if application or tables:
                raise sqlite3.DatabaseError("it is a database of another program")
            _patiently(connection, "PRAGMA journal_mode=WAL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TABLE IF NOT EXISTS about (description TEXT NOT NULL)")
            connection.execute("CREATE TABLE IF NOT EXISTS newest (time INTEGER NOT NULL)")
            for kind in get_args(Kind):
                connection.execute(f"CREATE TABLE IF NOT EXISTS {kind} (id PRIMARY KEY, record BLOB NOT NULL)")
            connection.execute(f"PRAGMA application_id={APPLICATION}")
            connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint={WRITE_AHEAD_BYTES // PAGE}")
        connection.execute("PRAGMA cache_size=-16384")  # kB


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Run a statement and retry while another process blocks it: here SQLite's own timeout does not apply."""
    until = time.monotonic() + WAIT
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


class _SQLiteTransaction(Transaction):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._changed = False  # whether series were written or deleted
        self._newest: int | None = None  # what `keep_newest` was told

    def about(self) -> About | None:
        row = self._connection.execute("SELECT description FROM about").fetchone()
        return None if row is None else About.from_json(row[0])

    def version(self) -> int:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        return int(version)

    def describe(self, about: About) -> None:
        self._connection.execute("DELETE FROM about")
        self._connection.execute("INSERT INTO about VALUES (?)", (about.to_json(),))

    def get(self, keys: Sequence[Key], kind: Kind = "series") -> list[bytes | None]:
        found: dict[Key, bytes] = {}
        for part in chunks(keys, VARIABLES):
            marks = ",".join("?" * len(part))
            found.update(self._connection.execute(f"SELECT id, record FROM {kind} WHERE id IN ({marks})", part))
        return list(map(found.get, keys))

    def newest(self) -> int | None:
        if self._changed or self._newest is not None:
            return self._newest
        row = self._connection.execute("SELECT time FROM newest").fetchone()
        return row[0] if row is not None and isinstance(row[0], int) else None

    def keep_newest(self, time: int) -> None:
        self._newest = time

    def finish(self) -> None:
        """Write the newest time if it has changed."""
        newest, self._changed, self._newest = self.newest(), False, None
        if newest != self.newest():
            self._connection.execute("DELETE FROM newest")
            if newest is not None:
                self._connection.execute("INSERT INTO newest VALUES (?)", (newest,))

    def keys(self, kind: Kind = "series") -> list[Key]:
        return [key for (key,) in self._connection.execute(f"SELECT id FROM {kind} ORDER BY id")]

    def heads(self, size: int) -> list[bytes]:
        rows = self._connection.execute("SELECT substr(record, 1, ?) FROM series ORDER BY id", (size,))
        return [head for (head,) in rows]

    def put(self, keys: Sequence[Key], records: Sequence[bytes], kind: Kind = "series") -> None:
        self._changed |= kind == "series"
        self._connection.executemany(
            f"INSERT INTO {kind} VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record",
            zip(keys, records, strict=True),
        )

    def delete(self, keys: Sequence[Key], kind: Kind = "series") -> None:
        self._changed |= kind == "series"
        self._connection.executemany(f"DELETE FROM {kind} WHERE id = ?", [(key,) for key in keys])
