"""Whether the disk of a store takes bytes."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

PROBE_BYTES, PROBE_SECONDS = 2**20, 1.0


class DiskProbe:
    """Writes a file that has no name, at most once a second."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._again, self._writable = 0.0, True

    def writable(self) -> bool:
        """Whether bytes could be written lately."""
        with self._lock:
            if self._folder is not None and time.monotonic() >= self._again:
                self._writable = _takes_bytes(self._folder)
                self._again = time.monotonic() + PROBE_SECONDS
            return self._writable


def _takes_bytes(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return False
    return True
