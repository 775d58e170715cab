"""Stores of records: one record of bytes per series, in transactions.

SQLiteStore   one durable file, safe for many threads and processes
MemoryStore   in memory, lost with the process

`contract` defines the interface of a store, `layout` the bytes of a record, `exchange` writes and reads exports,
`folder` writes and reads saved models, `receipts` recognises requests that are sent again.
"""

from __future__ import annotations

from pathlib import Path

from aru.store.contract import About, Key, Kind, Store, Transaction
from aru.store.memory import MemoryStore
from aru.store.sqlite import SQLiteStore

__all__ = ["About", "Key", "Kind", "MemoryStore", "SQLiteStore", "Store", "Transaction", "open_store"]


def open_store(store: Store | str | Path | None) -> Store:
    """A store: the given object, the SQLite file at a path, or for None a new one in memory."""
    if isinstance(store, Store):
        return store
    return MemoryStore() if store is None else SQLiteStore(store)
