"""The monitor behind a guard: whatever is wrong with its file costs the monitor alone."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from aru.errors import StorageError
from aru.runtime import ForecastRuntime
from aru.serve.logs import LOG
from aru.serve.metrics import Metrics
from aru.serve.monitor import Monitor

PASSING = ("locked", "full", "I/O")  # errors of SQLite that are not about its file
DAMAGES = (sqlite3.Error, StorageError, ValueError, TypeError, OverflowError)  # what reading a damaged file may raise
Answer = TypeVar("Answer")


class GuardedMonitor:
    """A monitor, as long as its file can be used.

    Args:
        runtime: The runtime of the series.
        file: The monitor's file; None takes one that is deleted in the end.
        metrics: Where failures are counted.
        on: Whether there is a monitor at all.
    """

    def __init__(self, runtime: ForecastRuntime, file: Path | None, metrics: Metrics, on: bool) -> None:
        self._metrics = metrics
        self._monitor: Monitor | None = None
        try:
            self._monitor = Monitor(runtime, file) if on else None
        except StorageError:
            self._failed("there is no monitoring")

    @property
    def on(self) -> bool:
        """Whether series are monitored."""
        return self._monitor is not None

    def ask(self, question: Callable[[Monitor], Answer], otherwise: Answer) -> Answer:
        """The monitor's answer, which can be sent as JSON; `otherwise` if there is none."""
        monitor = self._monitor
        if monitor is None:
            return otherwise
        try:
            answer = question(monitor)
            json.dumps(answer, allow_nan=False)  # the numbers of a damaged file need not be any
            return answer
        except Exception as error:  # noqa: BLE001 - a broken monitor must not stop the service
            self._failed("monitoring failed")
            passing = isinstance(error, sqlite3.OperationalError) and any(word in str(error) for word in PASSING)
            if isinstance(error, DAMAGES) and not passing and self._monitor is monitor:
                LOG.error("monitoring ends: its file is damaged; delete it and start the service again")
                self.close()
            return otherwise

    def close(self) -> None:
        """Close the file."""
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            with contextlib.suppress(sqlite3.Error):
                monitor.close()

    def _failed(self, what: str) -> None:
        self._metrics.errors.inc()
        LOG.exception(what)
