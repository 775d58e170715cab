"""The service without HTTP: batched updates and forecasts of many requests, and queries about series."""

from __future__ import annotations

import base64
import bisect
import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from aru.data.clock import Clock
from aru.errors import InputError, LateError, StorageError, UnknownSeriesError, name_series
from aru.runtime.forecasting import Predicted
from aru.runtime.state import SeriesState
from aru.runtime.update import Update
from aru.serve import outgoing, schemas, summaries, tables
from aru.serve.asked import ForecastRequest, ForgetRequest, UpdateRequest
from aru.serve.batching import Outcome, isolate, rounds
from aru.serve.disk import DiskProbe
from aru.serve.fan import Fans
from aru.serve.guarded import GuardedMonitor
from aru.serve.journal import Journal
from aru.serve.metrics import Figure, Metrics, RowRate
from aru.serve.monitor import AccuracySums, Monitor
from aru.serve.tables import TableKinds
from aru.store import Key, Transaction
from aru.store.exchange import unknown_series
from aru.store.receipts import Receipt
from aru.stream import Stream

_cursors: dict[bool, TypeAdapter[Any]] = {True: TypeAdapter(schemas.Whole), False: TypeAdapter(str)}
NOTHING: dict[str, Any] = {
    "accuracy": summaries.accuracy(AccuracySums()), "series_scored": 0, "series_improved": 0, "series_worsened": 0,
    "timeline": [], "drifting": [],
}  # fmt: skip


class Service:
    """A stream that takes requests, watched by a monitor.

    Args:
        stream: The stream.
        monitor: Whether to monitor it.
        name: The name of the model in metrics.
        metrics: Where to count.
        journal: Writes down what is taken in; None: nobody does.
        file: The monitor's file; None takes one that is deleted in the end.
    """

    def __init__(
        self,
        stream: Stream,
        monitor: bool,
        name: str = "model",
        metrics: Metrics | None = None,
        journal: Journal | None = None,
        file: Path | None = None,
    ) -> None:
        self.stream, self.name, self._journal, self._file = stream, name, journal, file
        self.metrics, self.rate = metrics or Metrics(), RowRate()
        self.metrics.begin(name)
        self._unseen: list[Update | list[Key]] = []  # not yet seen by the monitor: updates, and deleted series
        self.disk = DiskProbe(stream.store)
        self._suiting = threading.Lock()
        self._suit(monitor)

    def _suit(self, monitor: bool) -> None:
        """Take over the stream's model. That of a pretrained one is another after the first rows."""
        self.runtime = runtime = self.stream.runtime
        self.datetime = runtime.freq.clock if runtime.schema.datetime else None
        self.tables, self.fans = TableKinds.of(runtime.settings, runtime.schema), Fans(runtime)
        self.monitor = GuardedMonitor(runtime, self._file, self.metrics, monitor)

    def _follow(self) -> None:
        """The same, if it is another."""
        with self._suiting:
            if self.runtime is not self.stream.runtime:
                monitored = self.monitor.on
                self.monitor.close()
                self._suit(monitored)

    # Requests of many clients

    def update(self, requests: list[UpdateRequest | ForgetRequest]) -> list[Outcome]:
        """Take in observations and delete series, with one network pass and one commit per group of requests."""
        began = time.perf_counter()
        kinds = [
            (r.late, r.allow_jump, r.rows["ds"].dtype.kind, r.static is None)
            if isinstance(r, UpdateRequest)
            else "forget"
            for r in requests
        ]
        outcomes: dict[int, Outcome] = {}
        for group in rounds([r.ids for r in requests], kinds):
            for part in self._resent_apart(group, requests):
                outcomes |= isolate(lambda which: self._change([requests[i] for i in which]), part)
        for i, outcome in outcomes.items():
            self._count(requests[i], outcome)
        rows = sum(r.size for r in requests if isinstance(r, UpdateRequest))
        self.metrics.batch_rows.labels(self.name).observe(rows)
        self.metrics.batch_seconds.labels(self.name).observe(time.perf_counter() - began)
        return [outcomes[i] for i in range(len(requests))]

    def watch(self) -> None:
        """Pass changes since the last call to the monitor."""
        unseen, self._unseen = self._unseen, []
        if not self.monitor.on:
            return
        began = time.perf_counter()

        def follow(monitor: Monitor) -> None:
            for change in unseen:
                if isinstance(change, list):
                    monitor.forget(change)
                elif change.record is not None:
                    monitor.observe(change.ids.tolist(), change.record.now)

        self.monitor.ask(follow, None)
        self.metrics.monitor_seconds.labels(self.name).inc(time.perf_counter() - began)

    def forecast(self, requests: list[ForecastRequest]) -> list[Outcome]:
        """Forecast the series of each request."""
        began = time.perf_counter()
        kinds = [(r.level, None if r.futr is None else r.futr["ds"].dtype.kind) for r in requests]
        # Requests without covariates cannot contradict each other.
        series = [[] if r.futr is None else r.ids for r in requests]
        outcomes: dict[int, Outcome] = {}
        for group in rounds(series, kinds):
            outcomes |= isolate(lambda which: self._predict([requests[i] for i in which]), group)
        self.metrics.forecast_seconds.labels(self.name).observe(time.perf_counter() - began)
        return [outcomes[i] for i in range(len(requests))]

    def _resent_apart(self, group: list[int], requests: Sequence[UpdateRequest | ForgetRequest]) -> list[list[int]]:
        """The requests of a group that were consumed before, and the others: of the former no row is late."""
        if len(group) == 1 or isinstance(requests[group[0]], ForgetRequest):
            return [group]  # the update itself sees whether it is a repetition
        try:
            known = self.stream.consumed([r.digest for i in group if isinstance(r := requests[i], UpdateRequest)])
        except StorageError:  # the update itself will say so
            return [group]
        parts = [[i for i, resent in zip(group, known, strict=True) if resent is which] for which in (True, False)]
        return [part for part in parts if part]

    def _change(self, requests: list[Any]) -> list[dict[str, Any]]:
        """Work on requests of one kind."""
        return self._forget(requests) if isinstance(requests[0], ForgetRequest) else self._apply(requests)

    def _forget(self, requests: list[ForgetRequest]) -> list[dict[str, Any]]:
        ids, journal = [key for r in requests for key in r.ids], self._journal
        self.stream.forget(ids, lambda change: None if journal is None else journal.forgotten(change, ids))
        self._unseen.append(ids)
        return [{"forgotten": r.ids[0]} for r in requests]

    def _apply(self, requests: list[UpdateRequest]) -> list[dict[str, Any]]:
        static, journal = [r.static for r in requests if r.static is not None], self._journal

        def together(change: Transaction, update: Update) -> None:
            if journal is not None:
                journal.rows(change, self.stream.runtime, update, requests)

        update = self.stream.apply(
            tables.join([r.rows for r in requests]),
            tables.join(static) if static else None,
            requests[0].late,
            allow_jump=requests[0].allow_jump,
            requests=[Receipt(r.digest, r.ids) for r in requests],
            together=together,
        )
        self._follow()
        self._unseen.append(update)
        return _reports(update, requests, self.datetime)

    def _predict(self, requests: list[ForecastRequest]) -> list[Predicted]:
        ids = list(dict.fromkeys(key for r in requests for key in r.ids))
        futr = None if requests[0].futr is None else tables.join([r.futr for r in requests if r.futr is not None])
        columns, epoch = self.stream.predict_columns(futr, requests[0].level, ids)
        self._follow()
        for r in requests:
            if r.futr is not None and self.monitor.on:
                self.fans.remember(r.ids, r.futr)
        if len(requests) == 1:
            return [Predicted(columns, epoch)]
        h, place = self.runtime.h, {key: i for i, key in enumerate(ids)}
        steps = np.arange(h)
        picks = [(np.array([place[key] for key in r.ids])[:, None] * h + steps).ravel() for r in requests]
        return [Predicted({name: values[pick] for name, values in columns.items()}, epoch) for pick in picks]

    def _count(self, request: UpdateRequest | ForgetRequest, outcome: Outcome) -> None:
        """Count the rows of a request by what became of them."""
        if not isinstance(request, UpdateRequest):
            return

        def count(what: str, rows: int) -> None:
            self.metrics.rows.labels(self.name, what).inc(rows)

        if isinstance(outcome, InputError):  # late ones, and all that were refused because of them
            late = len(outcome.rows or ()) if isinstance(outcome, LateError) else 0
            count("late", late)
            count("rejected", request.size - late)
        elif not isinstance(outcome, Exception):
            for what in ("applied", "duplicates", "corrected"):
                count(what, outcome[what])
            count("late", len(outcome["late"]))
            self.rate.add(outcome["applied"])

    # Questions

    def keys(self) -> list[Key]:
        """All series, in order."""
        return self.stream.keys()

    def page(self, limit: int, cursor: str | None, query: str) -> dict[str, Any]:
        """Some series: those after the cursor whose name contains the query, in any case."""
        keys = self.keys()
        if cursor is not None:
            after = _read_cursor(cursor, self.runtime.schema.integer_ids)
            keys = keys[bisect.bisect_right(keys, after) :]
        if query:
            wanted = query.casefold()
            keys = [key for key in keys if wanted in str(key).casefold()]
        chosen = keys[:limit]
        found, state = self.stream.states(chosen)
        rows = self._rows(found.tolist(), state)
        return {"series": rows, "next_cursor": _write_cursor(chosen[-1]) if len(keys) > limit else None}

    def series(self, name: str) -> dict[str, Any]:
        """Details of one series."""
        return self._report(*self.find(name))

    def watched(self, name: str) -> dict[str, Any]:
        """The same with recent history, past forecasts and the present forecast."""
        ids, state = self.find(name)
        (key,) = ids.tolist()
        nothing: list[dict[str, Any]] = []
        history = self.monitor.ask(
            lambda monitor: summaries.history(monitor.history(key, state), self.datetime), nothing
        )
        forecast, missing = None, None
        try:
            forecast = self.fans.make(ids, state)
        except InputError:
            missing = self.fans.missing()
        return {
            **self._report(ids, state),
            "model": self.about(),
            "monitored": self.monitor.on,
            "drift": self.monitor.ask(lambda monitor: monitor.drift(key), None),
            "history": history,
            "forecast": forecast,
            "forecast_missing": missing,
        }

    def fleet(self) -> dict[str, Any]:
        """All series at a glance."""
        h = self.runtime.h
        known = self.monitor.ask(lambda monitor: summaries.fleet(monitor, h, self.datetime), NOTHING)
        return {
            "model": self.about(),
            "monitored": self.monitor.on,
            "series": self.number(),
            "observations_per_second": self.rate.per_second(),
            "observations_by_second": self.rate.by_second(),
            **known,
        }

    def about(self) -> dict[str, Any]:
        """What the model is: method, horizon, frequency, and the fingerprint of settings and weights."""
        settings = self.runtime.settings
        version = self.stream.about.fingerprint
        return {"name": settings.name, "h": settings.h, "freq": settings.freq, "version": version}

    def _report(self, ids: pd.Index[Any], state: SeriesState) -> dict[str, Any]:
        sizes = self.runtime.effective_sizes(state)
        latest = state.context.rows
        return {
            **self._rows(ids.tolist(), state)[0],
            "y": float(latest.y[0, -1]) if latest.came[0, -1] else None,
            "effective_sample_size": None if sizes is None else sizes[0][0].tolist(),
            "aging_factors": None if sizes is None else sizes[1].tolist(),
        }

    def find(self, name: str) -> tuple[pd.Index[Any], SeriesState]:
        """A known series and its state."""
        key = self.key(name)
        found, state = self.stream.states([key])
        if len(found) == 0:
            raise unknown_series([key])
        return found, state

    def key(self, name: str) -> Key:
        """The id of a series, from its name in a path."""
        if not self.runtime.schema.integer_ids:
            return name
        try:
            number = int(name)
        except ValueError:
            number = 2**63
        if not -(2**63) <= number < 2**63:
            rows = name_series([name[:100]])
            raise UnknownSeriesError(f"These series are not known: {rows}", "Their ids are integers.", rows=rows)
        return number

    def figures(self) -> Iterator[Figure]:
        """What Prometheus is told about the series."""
        store, model = self.stream.store, {"model": self.name}
        with store.reading() as view:
            newest = view.newest()
            yield "aru_series", model, view.number()
        yield "aru_store_bytes", model, store.size()
        if self.datetime and newest is not None:
            moment = self.datetime.write(np.array([newest]))[0].timestamp()  # without a zone it is taken as UTC's
            yield "aru_newest_observation_age_seconds", model, time.time() - moment
        known = self.monitor.ask(lambda monitor: summaries.accuracy(monitor.fleet()), NOTHING["accuracy"])
        for label, field in (("adapted", "nd"), ("global", "nd_global")):
            yield "aru_rolling_nd", {**model, "forecast": label}, known[field]
        yield "aru_rolling_coverage", {**model, "level": "80"}, known["coverage_80"]
        yield "aru_scored_rows", model, known["observations"]
        yield "aru_drifting_share", model, self.monitor.ask(lambda monitor: monitor.drifting_share(), None)

    def number(self) -> int:
        """The number of series."""
        with self.stream.store.reading() as view:
            return view.number()

    def close(self) -> None:
        """Close the monitor. The stream is its owner's."""
        self.monitor.close()

    def _rows(self, keys: Sequence[Key], state: SeriesState) -> list[dict[str, Any]]:
        """Series in a list."""
        ds = outgoing.times(state.last.cpu().numpy(), self.datetime)
        nothing: dict[Key, dict[str, Any]] = {}
        scores = self.monitor.ask(
            lambda monitor: {key: summaries.accuracy(sums) for key, sums in monitor.scores(keys).items()}, nothing
        )
        rows = zip(keys, ds, state.context.count.long().tolist(), strict=True)
        return [
            {
                "unique_id": key,
                "ds": time,
                "observations": count,
                "accuracy": scores.get(key),
            }
            for key, time, count in rows
        ]


def _reports(update: Update, requests: Sequence[UpdateRequest], datetime: Clock | None) -> list[dict[str, Any]]:
    """What became of the rows of each request; no two of them share a series."""
    owner = {key: i for i, r in enumerate(requests) for key in r.ids}
    tally, n = update.tally, len(requests)
    mine = np.array([owner[key] for key in tally.ids.tolist()])
    counts = {
        name: np.bincount(mine, getattr(tally, name), n).astype(int).tolist()
        for name in ("applied", "duplicates", "corrected", "gaps_filled")
    }
    reports: list[dict[str, Any]] = [
        {**{name: values[i] for name, values in counts.items()}, "new_series": [], "late": [], "held_back": []}
        for i in range(n)
    ]
    for key in update.new_ids.tolist():
        reports[owner[key]]["new_series"].append(key)
    for name, columns in (("late", update.result.left_out), ("held_back", update.result.outliers)):
        for row in outgoing.to_rows(columns, datetime) if len(columns["ds"]) else ():
            reports[owner[row["unique_id"]]][name].append(row)
    return reports


def unique_ids(values: Any) -> list[Key]:
    """Ids in order of appearance, each once."""
    return list(dict.fromkeys(values.tolist()))


def _write_cursor(key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def _read_cursor(cursor: str, integer: bool) -> Key:
    try:
        key: Key = _cursors[integer].validate_json(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
    except ValueError:
        raise InputError("This cursor was not made by this service", "Use next_cursor of an earlier page.") from None
    return key
