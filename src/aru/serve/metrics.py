"""Metrics for Prometheus, and the recent rate of observations."""

from __future__ import annotations

import collections
import math
import threading
import time
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

RATE_SECONDS = 60.0
ROW_OUTCOMES = ("applied", "duplicates", "corrected", "late", "rejected")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCH_BUCKETS = tuple(4.0**i for i in range(10))


class Metrics:
    """Counters of one service, in a registry of its own."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        route = ("method", "route")
        self.requests = Counter("aru_http_requests", "Requests answered.", (*route, "status"), registry=registry)
        self.seconds = Histogram(
            "aru_http_request_seconds", "Time to the answer.", route, buckets=SECONDS, registry=registry
        )
        self.rows = Counter("aru_rows", "Observations by what became of them.", ("outcome",), registry=registry)
        self.batch_rows = Histogram(
            "aru_batch_rows", "Observations computed together.", buckets=BATCH_BUCKETS, registry=registry
        )
        self.batch_seconds = Histogram(
            "aru_batch_seconds", "Time to compute and store a batch.", buckets=SECONDS, registry=registry
        )
        self.waiting = Gauge("aru_rows_waiting", "Rows that wait for their turn.", ("queue",), registry=registry)
        self.series = Gauge("aru_series", "Known series.", registry=registry)
        self.nd = Gauge(
            "aru_rolling_nd", "Sum of |y - median| over sum of |y|, of recent forecasts.", ("forecast",),
            registry=registry,
        )  # fmt: skip
        self.coverage = Gauge(
            "aru_rolling_coverage", "Share of recent values inside the 80 % interval of their forecast.",
            registry=registry,
        )  # fmt: skip
        self.drifting = Gauge(
            "aru_drifting_share",
            "Share of series whose latest window had over 1.5 times the error of those before.",
            registry=registry,
        )
        self.newest_age = Gauge(
            "aru_newest_observation_age_seconds", "Time since the newest `ds` of any series.", registry=registry
        )
        self.forecast_seconds = Histogram(
            "aru_forecast_seconds", "Time to compute a batch of forecasts.", buckets=SECONDS, registry=registry
        )
        self.model = Info("aru_model", "The model: its name, horizon, frequency and version.", registry=registry)
        self.monitor_seconds = Counter("aru_monitor_seconds", "Time spent on monitoring.", registry=registry)
        self.errors = Counter("aru_errors", "Failures of the service itself.", registry=registry)

        for unknown in (self.coverage, self.drifting, self.newest_age):
            unknown.set(math.nan)
        for outcome in ROW_OUTCOMES:
            self.rows.labels(outcome)

    def describe(self, name: str, h: str, freq: str, version: str) -> None:
        """Set the description of the model."""
        self.model.info({"name": name, "h": h, "freq": freq, "version": version})

    def set_accuracy(self, accuracy: Mapping[str, float | None]) -> None:
        """Set the figures of all series; None is unknown."""
        for label, name in (("adapted", "nd"), ("global", "nd_global")):
            self.nd.labels(label).set(as_number(accuracy[name]))
        self.coverage.set(as_number(accuracy["coverage_80"]))

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        text: bytes = generate_latest(self._registry)
        return text


def as_number(value: float | None) -> float:
    """NaN for what is unknown."""
    return math.nan if value is None else value


class RowRate:
    """Rows per second over the last minute."""

    def __init__(self) -> None:
        self._seconds: collections.deque[tuple[int, int]] = collections.deque(maxlen=int(RATE_SECONDS) + 1)
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def add(self, rows: int) -> None:
        """Count rows that arrived now."""
        second = int(time.monotonic())
        with self._lock:
            if self._seconds and self._seconds[-1][0] == second:
                rows += self._seconds.pop()[1]
            self._seconds.append((second, rows))

    def by_second(self) -> list[int]:
        """Rows in each whole second of the last minute, oldest first."""
        now = int(time.monotonic())
        with self._lock:
            found = dict(self._seconds)
        return [found.get(second, 0) for second in range(now - int(RATE_SECONDS), now)]

    def per_second(self) -> float:
        """Average over the last minute, or since the start if that is shorter."""
        now = time.monotonic()
        with self._lock:
            total = sum(rows for second, rows in self._seconds if second > now - RATE_SECONDS)
        return total / max(1.0, min(RATE_SECONDS, now - self._began))
