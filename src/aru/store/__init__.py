"""Where records live: one record of bytes per series, changed all at once or not at all.

SQLiteStore   one durable file, safe for many threads and processes
MemoryStore   the same contract, gone with the process

`contract` says what a store promises, `layout` how a record becomes bytes, `exchange` writes exports and reads them,
`folder` holds saved models.
"""

from __future__ import annotations

from pathlib import Path

from aru.store.contract import About, Key, Kind, Store, Transaction
from aru.store.memory import MemoryStore
from aru.store.sqlite import SQLiteStore

__all__ = ["About", "Key", "Kind", "MemoryStore", "SQLiteStore", "Store", "Transaction", "open_store"]


def open_store(store: Store | str | Path | None) -> Store:
    """A store object as it is, the store in a SQLite file, or with None a new one in memory."""
    if isinstance(store, Store):
        return store
    return MemoryStore() if store is None else SQLiteStore(store)
