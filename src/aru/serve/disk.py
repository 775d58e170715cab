"""Whether a store takes bytes: the disk of a file, the server of a database."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

from aru.errors import StorageError
from aru.store import SQLiteStore, Store

PROBE_BYTES, PROBE_SECONDS = 2**20, 1.0


class DiskProbe:
    """Tries it at most once a second: writes a file that has no name, or asks a database."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._again, self._writable = 0.0, True

    def writable(self) -> bool:
        """Whether bytes could be written lately."""
        with self._lock:
            if time.monotonic() >= self._again:
                self._writable = self._takes()
                self._again = time.monotonic() + PROBE_SECONDS
            return self._writable

    def _takes(self) -> bool:
        if isinstance(self._store, SQLiteStore):
            return _takes_bytes(self._store.path.absolute().parent)
        try:
            with self._store.reading() as view:
                view.version()
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
