"""The log of a service: failures, and one line per request, each with a limit of lines a minute."""

from __future__ import annotations

import json
import logging
import time
import traceback
import warnings
from typing import Any

LOG = logging.getLogger("aru.serve")
ACCESS = logging.getLogger("aru.access")
LINES = 600  # lines a minute, of failures and of requests
FIELDS = "fields"  # attribute of a record of a request


class LogBudget(logging.Filter):
    """Limits lines per minute, and reports how many were left out. A record begun within the limit is whole."""

    def __init__(self, lines: int = LINES) -> None:
        super().__init__()
        self._lines, self._minute, self._seen, self._held = lines, -1, 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write this record."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            held, self._held = self._held, 0
            self._minute, self._seen = minute, 0
            if held:
                record.msg = f"{record.msg} ({held} earlier lines were left out)"
        lines, fits = _lines(record), self._seen < self._lines
        self._seen += lines * fits
        self._held += lines * (not fits)
        return fits


def _lines(record: logging.LogRecord) -> int:
    trace = traceback.format_exception(*record.exc_info) if record.exc_info and record.exc_info[0] else []
    return 1 + record.getMessage().count("\n") + "".join(trace).count("\n")


class LogText(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(name)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, with the fields of a request."""
        fields = "".join(f" {name}={value}" for name, value in getattr(record, FIELDS, {}).items())
        return super().formatMessage(record) + fields


class LogJson(logging.Formatter):
    """Lines for machines: one JSON object each."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def start_logs(as_json: bool) -> None:
    """Log failures, warnings and requests to standard error."""
    warnings.formatwarning = lambda message, kind, *_: f"{kind.__name__}: {message}"  # one line, without source code
    logging.captureWarnings(True)
    failures, requests = (logging.StreamHandler() for _ in range(2))
    for handler in (failures, requests):
        handler.setFormatter(LogJson() if as_json else LogText())
        handler.addFilter(LogBudget())  # one each: many requests must not hide a failure
    for name in ("aru", "uvicorn", "py.warnings"):
        _attach(logging.getLogger(name), failures, logging.WARNING)
    _attach(ACCESS, requests, logging.INFO)


def _attach(logger: logging.Logger, handler: logging.Handler, level: int) -> None:
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
