"""One SQLite file: durable, and safe for many threads and processes.

A store must not begin anew, or go back to an older state, because of a damaged or incomplete file:

- A new file appears complete: it is made beside its place and linked there. An empty file is no store.
- Every table has a second index of its ids. An id counts as new only if neither index has it, and lists of both must be
  the same. So a damaged index cannot hide a series; damaged records are found by their checksums (`aru.store.layout`).
- The mark of the file (`application_id`) says whether it is in use. It is set in the file itself before much is written
  to the write-ahead log, and taken back by everyone who closes the store. A file in use without its log is a copy that
  lacks the latest changes, and is refused.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from aru.errors import StorageError, verbatim
from aru.store.atomic import new_file
from aru.store.contract import About, Key, Kind, Store, Transaction, chunks

CLOSED, IN_USE = 0x41525501, 0x41525502  # mark a file as ours
PAGE = 2**14  # bytes: three or four records of the usual size share a page
WRITE_AHEAD_BYTES = 2**26  # bytes of write-ahead log before it is merged into the file
WAIT = 60.0  # seconds that a writer waits for another process
IDLE = 8  # idle connections that are kept open
VARIABLES = 2**14  # per statement; SQLite allows 32,766


def _tables_of(kind: str) -> dict[str, str]:
    return {
        kind: f"CREATE TABLE {kind} (id NOT NULL, record BLOB NOT NULL)",
        f"{kind}_id": f"CREATE UNIQUE INDEX {kind}_id ON {kind} (id)",
        f"{kind}_again": f"CREATE INDEX {kind}_again ON {kind} (id DESC)",
    }


LATER_KINDS = ("service", "journal")  # files of an older version lack them
FIRST_TABLES = {
    "about": "CREATE TABLE about (description TEXT NOT NULL)",
    "newest": "CREATE TABLE newest (time INTEGER NOT NULL, again INTEGER NOT NULL)",
    **{name: sql for kind in get_args(Kind) if kind not in LATER_KINDS for name, sql in _tables_of(kind).items()},
}
LATER_TABLES = {name: sql for kind in LATER_KINDS for name, sql in _tables_of(kind).items()}
TABLES = {**FIRST_TABLES, **LATER_TABLES}

_opened: weakref.WeakSet[SQLiteStore] = weakref.WeakSet()


class SQLiteStore(Store):
    """Records in a SQLite file, created on first use.

    Write-ahead logging with synchronous=FULL: committed changes survive a crash of process or machine. A connection
    serves one thread at a time. Writers of one process wait on a lock, those of several processes on SQLite's lock.
    """

    def __init__(self, path: str | Path, without_log: bool = False) -> None:
        """`without_log`: also open a copy that lacks the write-ahead log, and with it perhaps the latest changes."""
        self._writer = threading.Lock()
        self._without_log = without_log
        self._idle: list[sqlite3.Connection] = []
        self._process = os.getpid()
        self._file: tuple[int, int] | None = None  # which file it is, once it was there: it is created only once
        self._marked = False  # whether this process has seen that the file itself, not only its log, is marked
        self.path = Path(path).resolve()  # wherever the process goes, and where SQLite puts the log
        _opened.add(self)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A consistent view. Readers and writers do not wait for each other."""
        self._after_fork()
        with self._transaction("BEGIN") as connection:
            yield _SQLiteTransaction(connection)

    @contextlib.contextmanager
    def writing(self, keys: Sequence[Key] | None = None) -> Iterator[Transaction]:
        """The only writer among all threads and processes, whatever its series."""
        self._after_fork()
        with self._writer, self._transaction("BEGIN IMMEDIATE") as connection:
            change = _SQLiteTransaction(connection)
            yield change
            change.finish()
            if _read(connection, "application_id") != IN_USE:
                connection.execute(f"PRAGMA application_id={IN_USE}")
                self._marked = False
            connection.execute(f"PRAGMA user_version={(change.version() + 1) % 2**31}")

    def backup(self, path: str | Path) -> None:
        """Write a complete copy to a new file, also while others write to the store."""
        target = Path(path).resolve()
        self._after_fork()
        with self._named_errors():
            source = self._borrow()
            try:
                with new_file(target) as part, contextlib.closing(sqlite3.connect(part)) as copy:
                    source.backup(copy)  # in one step, which sees one state
                    copy.execute(f"PRAGMA application_id={CLOSED}")
                    copy.commit()
            except FileExistsError as error:
                raise StorageError(f"{verbatim(target)} exists already", "Choose a new file.") from error
            except OSError as error:
                raise StorageError(
                    f"{verbatim(target)} cannot be written ({verbatim(error)})", "Choose another file."
                ) from error
            finally:
                self._return(source)

    def size(self) -> int:
        """Bytes of the file and of its log."""
        return _size(self.path) + _size(self.path.with_name(self.path.name + "-wal"))

    def remove(self) -> None:
        """Delete the file."""
        self.close()
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self._file = None

    def __str__(self) -> str:
        return str(self.path)

    def close(self) -> None:
        """Close idle connections; the last one to close merges the log into the file."""
        self._after_fork()
        while self._idle:
            self._close(self._idle.pop())

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
                if begin == "BEGIN IMMEDIATE" and not self._marked:
                    _, frames, merged = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                    self._marked = frames == merged  # a reader may have held it up: next time
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
                "Give the path of a store, or of a new file. Restore a damaged store from a backup.",
            ) from error

    def _after_fork(self) -> None:
        """In a child process start with new connections and locks; those of the parent must not be closed here."""
        if self._process != os.getpid():
            self._parents = self._idle
            self._process, self._idle, self._writer = os.getpid(), [], threading.Lock()

    def _borrow(self) -> sqlite3.Connection:
        if self._file is not None and self._file != _identity(self.path):  # a connection would go on with the old one
            raise StorageError(
                f"{verbatim(self.path)} was deleted or replaced while it was in use",
                "Stop what uses it, restore a backup, and start it again.",
            )
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _return(self, connection: sqlite3.Connection) -> None:
        if len(self._idle) < IDLE:
            self._idle.append(connection)
        else:
            connection.close()  # others stay open

    def _close(self, connection: sqlite3.Connection) -> None:
        """Close a connection, which may be the last one to the file: all that was written is then in the file."""
        with contextlib.suppress(sqlite3.Error):  # the mark stays, if it cannot be taken back
            if not self._idle and _read(connection, "application_id") == IN_USE:
                connection.execute("PRAGMA busy_timeout=0")  # whoever writes now will take the mark back
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(f"PRAGMA application_id={CLOSED}")
                connection.execute("COMMIT")
        connection.close()

    def _connect(self) -> sqlite3.Connection:
        if not self.path.exists():
            _create(self.path)
        elif self.path.is_file() and self.path.stat().st_size == 0:
            raise StorageError(
                f"{verbatim(self.path)} is empty, which a store never is",
                "Restore it from a backup; to begin anew, delete the file.",
            )
        address = f"{self.path.as_uri()}?mode=rw"
        connection = sqlite3.connect(address, timeout=WAIT, isolation_level=None, check_same_thread=False, uri=True)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._file = _identity(self.path)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        connection.execute("BEGIN")  # as long as it lasts, nobody removes the log
        mark = _read(connection, "application_id")
        if mark not in (CLOSED, IN_USE):
            raise sqlite3.DatabaseError("it is a database of another program")
        found = dict(connection.execute("SELECT name, sql FROM sqlite_master"))
        if found not in (FIRST_TABLES, TABLES):
            raise sqlite3.DatabaseError("its tables are damaged, or of another version")
        if mark == IN_USE and not self._without_log and not _size(self.path.with_name(self.path.name + "-wal")):
            raise StorageError(
                f"{verbatim(self.path)} is a copy of a store in use without its write-ahead log, "
                f"{verbatim(self.path.name)}-wal: it lacks the latest changes",
                "Make copies with aru state backup. To go on with what this one holds: aru state backup --without-log.",
            )
        connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous=FULL")
        if found == FIRST_TABLES:
            _add_tables(connection)
        connection.execute(f"PRAGMA wal_autocheckpoint={WRITE_AHEAD_BYTES // PAGE}")
        connection.execute("PRAGMA cache_size=-16384")  # kB


@atexit.register
def _close_all() -> None:
    """Close stores that nobody closed: a connection that ends by itself leaves the file marked as in use."""
    for store in list(_opened):
        store.close()


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file has this name; None: there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _create(path: Path) -> None:
    """Make an empty store, unless another process is faster."""
    try:
        with (
            contextlib.suppress(FileExistsError),
            new_file(path) as part,
            contextlib.closing(sqlite3.connect(part, isolation_level=None)) as connection,
        ):
            connection.execute(f"PRAGMA page_size={PAGE}")  # has an effect only on an empty file
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("BEGIN")
            for statement in TABLES.values():
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={CLOSED}")
            connection.execute("COMMIT")
    except OSError as error:
        raise sqlite3.OperationalError(f"it cannot be created ({error})") from error


def _add_tables(connection: sqlite3.Connection) -> None:
    """Bring a file of an older version up to date, unless another process is faster."""
    connection.execute("BEGIN IMMEDIATE")
    if dict(connection.execute("SELECT name, sql FROM sqlite_master")) == FIRST_TABLES:
        for statement in LATER_TABLES.values():
            connection.execute(statement)
    connection.execute("COMMIT")


def _read(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class _SQLiteTransaction(Transaction):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._changed = False  # whether series were written or deleted
        self._newest: int | None = None  # what `keep_newest` was told

    def about(self) -> About | None:
        row = self._connection.execute("SELECT description FROM about").fetchone()
        return None if row is None else About.from_json(row[0])

    def version(self) -> int:
        return _read(self._connection, "user_version")

    def describe(self, about: About) -> None:
        self._connection.execute("DELETE FROM about")
        self._connection.execute("INSERT INTO about VALUES (?)", (about.to_json(),))

    def get(self, keys: Sequence[Key], kind: Kind = "series") -> list[bytes | None]:
        found: dict[Key, bytes] = {}
        for part in chunks(keys, VARIABLES):
            found.update(self._select(f"id, record FROM {kind} INDEXED BY {kind}_id", part))
        records = list(map(found.get, keys))
        missing = [key for key, record in zip(keys, records, strict=True) if record is None]
        for part in chunks(missing, VARIABLES):
            if self._select(f"id FROM {kind} INDEXED BY {kind}_again", part):
                raise _damaged_index()
        return records

    def _select(self, what: str, keys: Sequence[Key]) -> list[tuple[Any, ...]]:
        marks = ",".join("?" * len(keys))
        return self._connection.execute(f"SELECT {what} WHERE id IN ({marks})", keys).fetchall()

    def newest(self) -> int | None:
        if self._changed or self._newest is not None:
            return self._newest
        row = self._connection.execute("SELECT time, again FROM newest").fetchone()
        return row[0] if row is not None and isinstance(row[0], int) and row[0] == row[1] else None

    def keep_newest(self, time: int) -> None:
        self._newest = time

    def finish(self) -> None:
        """Write the newest time if it has changed."""
        newest, self._changed, self._newest = self.newest(), False, None
        if newest != self.newest():
            self._connection.execute("DELETE FROM newest")
            if newest is not None:
                self._connection.execute("INSERT INTO newest VALUES (?, ?)", (newest, newest))

    def keys(self, kind: Kind = "series") -> list[Key]:
        first, second = (
            [key for (key,) in self._connection.execute(f"SELECT id FROM {kind} INDEXED BY {index} ORDER BY id")]
            for index in (f"{kind}_id", f"{kind}_again")
        )
        if first != second:
            raise _damaged_index()
        return first

    def number(self) -> int:
        return self._one("SELECT count(*) FROM series")

    def last_entry(self) -> int:
        return self._one("SELECT coalesce(max(id), 0) FROM journal")

    def entries(self, after: int, most: int) -> list[tuple[int, bytes]]:
        statement = "SELECT id, record FROM journal WHERE id > ? ORDER BY id LIMIT ?"
        return self._connection.execute(statement, (after, most)).fetchall()

    def drop_entries(self, until: int) -> None:
        self._connection.execute("DELETE FROM journal WHERE id <= ?", (min(until, self.last_entry() - 1),))

    def journal_bytes(self) -> int:
        return self._one("SELECT coalesce(sum(length(record)), 0) FROM journal")

    def _one(self, statement: str) -> int:
        return int(self._connection.execute(statement).fetchone()[0])

    def put(self, keys: Sequence[Key], records: Sequence[bytes], kind: Kind = "series") -> None:
        self._changed |= kind == "series"
        self._connection.executemany(
            f"INSERT INTO {kind} VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record",
            zip(keys, records, strict=True),
        )

    def delete(self, keys: Sequence[Key], kind: Kind = "series") -> None:
        self._changed |= kind == "series"
        self._connection.executemany(f"DELETE FROM {kind} WHERE id = ?", [(key,) for key in keys])


def _damaged_index() -> sqlite3.DatabaseError:
    return sqlite3.DatabaseError("its index of series is damaged")
