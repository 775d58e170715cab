"""Where a stream keeps what it knows of each series: one record of bytes per series, changed all at once or not at all.

SQLiteStore   one durable file, safe for many threads and processes
MemoryStore   the same contract, gone with the process
RocksStore    a folder of RocksDB, for one process (needs `aru-forecast[rocksdb]`)
"""

from __future__ import annotations

from aru.store.base import About, Key, Store, Transaction
from aru.store.memory import MemoryStore
from aru.store.rocks import RocksStore
from aru.store.sqlite import SQLiteStore

__all__ = ["About", "Key", "MemoryStore", "RocksStore", "SQLiteStore", "Store", "Transaction"]
