"""Metrics for Prometheus, and the recent rate of observations.

Counters and histograms are counted where things happen. If several processes share a port, prometheus_client keeps them
in files of a folder (PROMETHEUS_MULTIPROC_DIR), and whoever is asked adds up those of all processes. What a store or a
monitor knows is looked up when Prometheus asks (`Figures`).
"""

from __future__ import annotations

import collections
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

RATE_SECONDS = 60.0
ROW_OUTCOMES = ("applied", "duplicates", "corrected", "late", "rejected")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCH_BUCKETS = tuple(4.0**i for i in range(10))
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
# What is looked up when Prometheus asks: name, text, and labels beside that of the model.
FIGURES = {
    "aru_ready": ("Whether requests can be answered.", ()),
    "aru_series": ("Known series.", ()),
    "aru_newest_observation_age_seconds": ("Time since the newest `ds` of any series.", ()),
    "aru_rolling_nd": ("Sum of |y - median| over sum of |y|, of recent forecasts.", ("forecast",)),
    "aru_rolling_coverage": ("Share of recent values inside the interval of their forecast.", ("level",)),
    "aru_scored_rows": ("Recent values that were compared with a forecast.", ()),
    "aru_drifting_share": ("Share of series that drift.", ()),
    "aru_store_bytes": ("Size of the store of the champion.", ()),
    "aru_kept_bytes": ("Size of the rows that are kept.", ()),
    "aru_version_info": ("Versions of the model.", ("version", "role", "status", "fingerprint", "h", "freq", "method")),
    "aru_shadow_behind_entries": ("Entries of the journal that a version has not taken in.", ("version",)),
    "aru_shadow_refused_rows": ("Rows of the champion that a version could not take.", ("version",)),
    "aru_contest_nd": ("Error of champion and shadow on the same rows.", ("role",)),
    "aru_contest_rows": ("Rows on which champion and shadow were compared.", ()),
}
Figure = tuple[str, Mapping[str, str], float | None]  # name, labels, value; None: not known


class Metrics:
    """Counters of one service, in a registry of its own. `figures` looks up what only stores and monitors know."""

    def __init__(self, figures: Callable[[], Iterable[Figure]] = lambda: ()) -> None:
        self._registry = registry = CollectorRegistry()
        self._figures = _Figures(figures)
        route, model = ("method", "route"), ("model",)

        def histogram(name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...] = SECONDS) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        self.requests = Counter("aru_http_requests", "Requests answered.", (*route, "status"), registry=registry)
        self.seconds = histogram("aru_http_request_seconds", "Time to the answer.", route)
        self.rows = Counter("aru_rows", "Observations by what became of them.", ("model", "outcome"), registry=registry)
        self.batch_rows = histogram("aru_batch_rows", "Observations computed together.", model, BATCH_BUCKETS)
        self.batch_seconds = histogram("aru_batch_seconds", "Time to compute and store a batch.", model)
        self.forecast_seconds = histogram("aru_forecast_seconds", "Time to compute a batch of forecasts.", model)
        self.waiting = Gauge(
            "aru_rows_waiting", "Rows that wait for their turn.", ("model", "queue"), registry=registry,
            multiprocess_mode="livesum",
        )  # fmt: skip
        self.monitor_seconds = Counter("aru_monitor_seconds", "Time spent on monitoring.", model, registry=registry)
        self.errors = Counter("aru_errors", "Failures of the service itself.", registry=registry)

    def begin(self, model: str) -> None:
        """Show the counters of a model from the start."""
        for outcome in ROW_OUTCOMES:
            self.rows.labels(model, outcome)

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        registry = self._registry
        if SHARED_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        looked_up = CollectorRegistry()
        looked_up.register(self._figures)
        text: bytes = generate_latest(registry) + generate_latest(looked_up)
        return text


class _Figures(Collector):
    def __init__(self, find: Callable[[], Iterable[Figure]]) -> None:
        self._find = find

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()  # so that nothing is looked up when it is registered

    def collect(self) -> Iterator[GaugeMetricFamily]:
        found: dict[str, list[tuple[Mapping[str, str], float]]] = {name: [] for name in FIGURES}
        for name, labels, value in self._find():
            if value is not None:
                found[name].append((labels, value))
        for name, (text, more) in FIGURES.items():
            names = ("model", *more)
            family = GaugeMetricFamily(name, text, labels=names)
            for given, value in found[name]:
                family.add_metric([given.get(label, "") for label in names], value)
            yield family


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
