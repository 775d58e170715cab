"""Stores of records: one record of bytes per series, in transactions.

SQLiteStore     one durable file, safe for many threads and processes
PostgresStore   a database, for writers on several hosts; in `postgres`, which needs the driver
MemoryStore     in memory, lost with the process

`contract` defines the interface of a store, `layout` the bytes of a record, `exchange` writes and reads exports,
`folder` writes and reads saved models, `receipts` recognises requests that are sent again.
"""

from __future__ import annotations

from pathlib import Path

from aru.errors import StorageError, verbatim
from aru.store.address import is_database
from aru.store.contract import About, Key, Kind, Store, Transaction
from aru.store.memory import MemoryStore
from aru.store.sqlite import SQLiteStore

__all__ = ["About", "Key", "Kind", "MemoryStore", "SQLiteStore", "Store", "Transaction", "open_existing", "open_store"]


def open_store(store: Store | str | Path | None) -> Store:
    """A store: the given object, a database by its address, the SQLite file at a path, or for None one in memory."""
    if isinstance(store, Store):
        return store
    if is_database(store):
        return _open_database(store)
    return MemoryStore() if store is None else SQLiteStore(store)


def open_existing(store: str | Path, without_log: bool = False) -> Store:
    """A store that is there already: to look into one must not create it. `without_log` is SQLite's."""
    if is_database(store):
        return _open_database(store, create=False)
    if not Path(store).is_file():
        raise StorageError(f"{verbatim(store)} does not exist", "Give the SQLite file of a stream.")
    return SQLiteStore(store, without_log)


def _open_database(url: str, create: bool = True) -> Store:
    try:
        from aru.store.postgres import PostgresStore
    except ImportError as error:
        raise StorageError(
            f"A store in PostgreSQL needs the package psycopg ({verbatim(error)})",
            "Install it: pip install 'aru-forecast[postgres]'.",
        ) from error
    return PostgresStore(url, create)
