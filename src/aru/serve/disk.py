"""Whether a store can be used: a file and its disk, or a database."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

from aru.errors import StorageError, verbatim
from aru.serve.logs import LOG
from aru.store import SQLiteStore, Store

PROBE_BYTES, PROBE_SECONDS = 2**20, 1.0
PROBE = "probe"  # key of the record


class DiskProbe:
    """Tries it at most once a second: reads the store, and writes a nameless file beside it, or a small record.

    The log says when it begins to fail, and why, and when it works again.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._again, self._trouble = 0.0, ""

    def writable(self) -> bool:
        """Whether the store could be read, and bytes written, lately."""
        with self._lock:
            if time.monotonic() >= self._again:
                before, self._trouble = self._trouble, self._try()
                self._again = time.monotonic() + PROBE_SECONDS
                if self._trouble and not before:
                    LOG.error("not ready: %s", self._trouble)
                elif before and not self._trouble:
                    LOG.warning("ready again: %s", self._store)
            return not self._trouble

    def _try(self) -> str:
        """What is wrong; empty if nothing is."""
        try:
            with self._store.reading() as view:
                view.version()
            if isinstance(self._store, SQLiteStore):  # whose writers might be at work for long
                return _write_bytes(self._store.path.absolute().parent)
            with self._store.writing([]) as change:
                change.put([PROBE], [str(time.time()).encode()], "service")
        except StorageError as error:
            return str(error)
        return ""


def _write_bytes(folder: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"{verbatim(folder)} cannot be written ({verbatim(error)})"
    return ""
