"""Whether a store can be used: a file and its disk, or a database."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

from aru.errors import StorageError
from aru.store import SQLiteStore, Store

PROBE_BYTES, PROBE_SECONDS = 2**20, 1.0
PROBE = "probe"  # key of the record


class DiskProbe:
    """Tries it at most once a second: reads the store, and writes a nameless file beside it, or a small record."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._again, self._writable = 0.0, True

    def writable(self) -> bool:
        """Whether the store could be read, and bytes written, lately."""
        with self._lock:
            if time.monotonic() >= self._again:
                self._writable = self._takes()
                self._again = time.monotonic() + PROBE_SECONDS
            return self._writable

    def _takes(self) -> bool:
        try:
            with self._store.reading() as view:
                view.version()
            if isinstance(self._store, SQLiteStore):  # whose writers might be at work for long
                return _takes_bytes(self._store.path.absolute().parent)
            with self._store.writing([]) as change:
                change.put([PROBE], [str(time.time()).encode()], "service")
        except StorageError:
            return False
        return True


def _takes_bytes(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return False
    return True
