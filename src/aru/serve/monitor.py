"""Monitors recent history and accuracy of every series, in a SQLite file separate from the states.

For each series the state at an origin is kept. After a window of rows the forecast from that origin is made, with and
without adaptation, and compared with the actual values (`aru.runtime.truth`). The present state is the next origin. So
a series costs two forecasts per window, however often it is updated, with the covariates that came with the rows. The
latest rows with their forecasts are kept in a ring of fixed size, as are the sums over all series at the latest times.
Several processes of a machine may share the file. It may be deleted when no service uses it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from aru.data.columns import Bools, Ints
from aru.errors import StorageError, verbatim
from aru.nn.tree import take
from aru.runtime import ForecastRuntime
from aru.runtime.records import Record
from aru.runtime.state import SeriesState, present_rows
from aru.runtime.truth import usable, what_came
from aru.serve.drift import DRIFTED, drift_of, latest_rows
from aru.store import Key
from aru.store.sqlite import VARIABLES

KEPT = 100  # latest rows of a series
TIMES = 1000  # latest times at which any series was scored
MONITOR_FORMAT = 2  # of the tables below
PATIENT = 30.0  # seconds to wait for another process
QUANTILES = (0.5, 0.1, 0.9)
ROW = np.dtype(
    [("ds", "<i8"), *((n, "<f8") for n in ("y", "median", "lo_80", "hi_80", "median_global", "local"))]
)  # local: what the adapted mean adds to the global one
FORECAST_FIELDS = ("median", "lo_80", "hi_80", "median_global", "local")
NEVER = np.iinfo(np.int64).min  # time of a slot that is still empty
MONITORED_AT_ONCE = 2**13  # series

Ring = npt.NDArray[Any]  # (series, KEPT) of ROW, latest rows last

CREATE_TABLES = """
CREATE TABLE about (model TEXT NOT NULL);
CREATE TABLE kept (id PRIMARY KEY, origin BLOB NOT NULL, ring BLOB NOT NULL);
CREATE TABLE scores (id PRIMARY KEY, step INTEGER NOT NULL, scored INTEGER NOT NULL, error REAL NOT NULL,
                     global_error REAL NOT NULL, size REAL NOT NULL, covered INTEGER NOT NULL, drift REAL);
CREATE INDEX by_drift ON scores (drift);
CREATE TABLE times (ds INTEGER PRIMARY KEY, scored INTEGER NOT NULL, error REAL NOT NULL, global_error REAL NOT NULL,
                    size REAL NOT NULL, covered INTEGER NOT NULL);
"""


NAMES = {"about", "kept", "scores", "times"}
SUMS = "scored, error, global_error, size, covered"
ADD_TIME = "INSERT INTO times VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (ds) DO UPDATE SET " + ", ".join(
    f"{name} = {name} + excluded.{name}" for name in SUMS.split(", ")
)


class AccuracySums(NamedTuple):
    """Sums over scored rows: those with an actual value and a forecast."""

    scored: int = 0
    error: float = 0.0
    global_error: float = 0.0
    size: float = 0.0
    covered: int = 0  # inside the 80 % interval


class Monitor:
    """Watches the series of one model. Safe for several threads and processes.

    Args:
        runtime: The runtime of the series.
        path: The file; None takes one that is deleted in the end.
        window: Rows after which forecasts are scored; None takes as many as a forecast has and a context holds.
    """

    def __init__(self, runtime: ForecastRuntime, path: Path | None, window: int | None = None) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._window = largest_window(runtime) if window is None else window
        about = runtime.describe()
        self._database = _connect(path, f"{about.fingerprint} {about.size} {KEPT} {MONITOR_FORMAT}")

    def observe(self, ids: Sequence[Key], state: SeriesState) -> None:
        """Score series with their states after an update."""
        for at in range(0, len(ids), MONITORED_AT_ONCE):
            index = torch.arange(at, min(at + MONITORED_AT_ONCE, len(ids)), device=state.last.device)
            self._observe(list(ids[at : at + MONITORED_AT_ONCE]), take(state, index))

    def forget(self, ids: Iterable[Key]) -> None:
        """Remove series."""
        with self._writing():
            for table in ("kept", "scores"):
                self._database.executemany(f"DELETE FROM {table} WHERE id = ?", [(key,) for key in ids])

    def scores(self, ids: Sequence[Key]) -> dict[Key, AccuracySums]:
        """The accuracy of these series, where a window has passed."""
        found = self._read(ids, f"id, {SUMS}", "scores")
        return {key: score for key, sums in found.items() if (score := AccuracySums(*sums)).scored}

    def fleet(self) -> AccuracySums:
        """The accuracy of all series together."""
        sums = SUMS.replace(", ", "), sum(")
        (found,) = self._select(f"SELECT sum({sums}) FROM scores", ())
        return AccuracySums(*(value or 0 for value in found))

    def errors(self) -> dict[Key, float]:
        """The error of every series that was scored, over the rows that are kept."""
        return dict(self._select("SELECT id, error FROM scores WHERE scored > 0", ()))

    def helped(self) -> tuple[int, int, int]:
        """Number of series that were scored, and of those for which the adapted forecast was better, and worse."""
        sums = "sum(error < global_error), sum(error > global_error)"
        ((scored, better, worse),) = self._select(f"SELECT count(*), {sums} FROM scores WHERE scored > 0", ())
        return scored, better or 0, worse or 0

    def timeline(self) -> list[tuple[int, AccuracySums]]:
        """The accuracy of all series at the latest times, oldest first."""
        found = self._select(f"SELECT ds, {SUMS} FROM times ORDER BY ds", ())
        return [(ds, AccuracySums(*sums)) for ds, *sums in found]

    def drifting(self, limit: int) -> list[tuple[Key, float, AccuracySums]]:
        """The series that drift most (`aru.serve.drift`)."""
        statement = f"SELECT id, drift, {SUMS} FROM scores WHERE drift IS NOT NULL ORDER BY drift DESC LIMIT ?"
        return [(key, drift, AccuracySums(*rest)) for key, drift, *rest in self._select(statement, (limit,))]

    def drifting_share(self) -> float | None:
        """The share of series that drift; None if it is known of no series."""
        ((share,),) = self._select("SELECT avg(drift > ?) FROM scores WHERE drift IS NOT NULL", (DRIFTED,))
        return None if share is None else float(share)

    def rings(self, ids: Sequence[Key]) -> dict[Key, Ring]:
        """The rows of series up to their latest origins, with their forecasts."""
        found = self._read(ids, "id, ring", "kept")
        return {key: ring[ring["ds"] != NEVER] for key, (blob,) in found.items() for ring in _rings([blob])}

    def drift(self, key: Key) -> dict[str, float] | None:
        """The drift of one series, its error (ND) over the latest rows and over those before; None: not known."""
        (ring,) = self._read([key], "id, ring", "kept").get(key, (b"",))
        rings = _rings([ring]) if ring else np.zeros((1, 0), ROW)
        drift = float(ring_drift(rings, self._window)[0]) if ring else np.nan
        if not np.isfinite(drift):
            return None
        scored, (_, error, _, size, _) = _is_scored(rings), _terms(rings)
        latest = np.arange(KEPT) >= KEPT - latest_rows(self._window, KEPT)
        errors = [
            float(np.where(which, error, 0.0).sum() / max(np.where(which, size, 0.0).sum(), np.finfo(float).tiny))
            for which in (scored & latest, scored & ~latest)
        ]
        return {
            "drift": drift,
            "limit": DRIFTED,
            "error_latest": errors[0],
            "error_before": errors[1],
            "rows_latest": int((scored & latest).sum()),
            "rows_before": int((scored & ~latest).sum()),
        }

    def history(self, key: Key, state: SeriesState) -> Ring:
        """The latest rows of one series in this state, with their forecasts."""
        ring = self.rings([key]).get(key, np.zeros(0, ROW))
        context, valid = self._context(state)
        newer = context[valid & (context["ds"] > (ring["ds"].max() if ring.size else NEVER))]
        rows: Ring = np.concatenate([ring, newer])[-KEPT:]
        return rows

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _select(self, statement: str, values: Sequence[Any]) -> list[Any]:
        with self._lock:
            return self._database.execute(statement, values).fetchall()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def _observe(self, ids: list[Key], state: SeriesState) -> None:
        steps = state.steps.cpu().numpy()
        begun = self._read(ids, "id, step", "scores")
        origin = np.array([begun.get(key, (np.iinfo(np.int64).max,))[0] for key in ids])
        known = origin <= steps  # a later origin belongs to states that were replaced since
        due = np.flatnonzero(~known | (steps - origin >= self._window))
        if len(due) == 0:
            return
        names, now = [ids[i] for i in due], take(state, torch.from_numpy(due).to(state.last.device))
        context, valid = self._context(now)
        rings = np.zeros((len(due), KEPT), ROW)
        rings["ds"] = NEVER
        rings = _append(rings, context, valid.sum(1))
        old = np.flatnonzero(known[due])
        scored = np.zeros((len(due), 0), ROW)
        if len(old):
            scored = np.zeros((len(due), self._window), ROW)
            scored["ds"] = NEVER
            later = take(now, torch.from_numpy(old).to(now.last.device))
            rings[old], scored[old] = self._continue([names[i] for i in old], later)
        blobs = self._runtime.encode(Record(now), names)
        with self._writing():
            # Another process may have scored a series meanwhile.
            now_begun = self._select_in(names, "id, step", "scores")
            mine = np.array([now_begun.get(key) == begun.get(key) for key in names])
            self._add_times(scored[mine].ravel())
            fresh = [i for i, own in enumerate(mine.tolist()) if own]
            self._write([names[i] for i in fresh], [blobs[i] for i in fresh], now.steps[mine].tolist(), rings[mine])

    def _continue(self, names: list[Key], now: SeriesState) -> tuple[Ring, Ring]:
        """The rings of series for which a window has passed, with that window's forecasts; and the window's rows."""
        kept = self._read(names, "id, origin, ring", "kept")
        origin = self._runtime.decode([kept[name][0] for name in names], names).now
        context, valid = self._context(now)
        E = context.shape[1]
        passed = (now.steps - origin.steps).cpu().numpy()
        whole = np.flatnonzero(passed <= E)  # else the context no longer holds all rows after the origin
        scored = np.zeros((len(names), self._window), ROW)
        scored["ds"] = NEVER
        if len(whole):
            index = torch.from_numpy(whole).to(now.last.device)
            scored[whole] = self._fill_in(context, whole, take(origin, index), take(now, index), passed[whole])
        rings = _append(_rings([kept[name][1] for name in names]), context, np.minimum(passed, valid.sum(1)))
        return rings, scored

    def _fill_in(self, context: Ring, which: Ints, origin: SeriesState, now: SeriesState, passed: Ints) -> Ring:
        """Write the forecasts of the window after the origin into the rows of the context, and return these rows."""
        runtime, w = self._runtime, self._window
        ahead, y = what_came(origin, now, runtime.h)
        adapted, plain = runtime.both_forecasts(origin, ahead, QUANTILES)
        values = [*adapted.quantiles, plain.quantiles[0], adapted.mean - plain.mean]
        made = np.stack([value[:, :w].double().numpy() for value in values])
        made[:, ~usable(made[:4]).all(0)] = np.nan  # not a usable forecast
        at = context.shape[1] - passed[:, None] + np.arange(w)
        for name, column in zip(("y", *FORECAST_FIELDS), (y.cpu().numpy()[:, :w], *made), strict=True):
            context[name][which[:, None], at] = column
        window: Ring = context[which[:, None], at]
        return window

    def _add_times(self, rows: Ring) -> None:
        """Add scored rows to the sums of their times, and keep the latest times."""
        rows = rows[_is_scored(rows)]
        ds, place = np.unique(rows["ds"], return_inverse=True)
        sums = [np.bincount(place, values, len(ds)) for values in _terms(rows)]
        self._database.executemany(ADD_TIME, zip(ds.tolist(), *(values.tolist() for values in sums), strict=True))
        self._database.execute(
            "DELETE FROM times WHERE ds <= (SELECT ds FROM times ORDER BY ds DESC LIMIT 1 OFFSET ?)", (TIMES,)
        )

    def _context(self, state: SeriesState) -> tuple[Ring, Bools]:
        """The rows in the context, without forecasts, and which of them are not padding."""
        seen = state.context.rows
        rows = np.zeros(tuple(seen.ds.shape), ROW)
        rows["ds"] = seen.ds.cpu().numpy()
        rows["y"] = torch.where(seen.came, seen.y, torch.nan).cpu().numpy()
        for name in FORECAST_FIELDS:
            rows[name] = np.nan
        valid: Bools = present_rows(state).cpu().numpy()
        return rows, valid

    def _read(self, ids: Sequence[Key], columns: str, table: str) -> dict[Key, tuple[Any, ...]]:
        with self._lock:
            return self._select_in(ids, columns, table)

    def _select_in(self, ids: Sequence[Key], columns: str, table: str) -> dict[Key, tuple[Any, ...]]:
        found = {}
        for at in range(0, len(ids), VARIABLES):
            some = ids[at : at + VARIABLES]
            marks = ",".join("?" * len(some))
            for key, *rest in self._database.execute(f"SELECT {columns} FROM {table} WHERE id IN ({marks})", some):
                found[key] = tuple(rest)
        return found

    def _write(self, ids: list[Key], origins: list[bytes], steps: list[int], rings: Ring) -> None:
        data = [ring.tobytes() for ring in rings]
        self._database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", zip(ids, origins, data, strict=True))
        scores = _scores(rings, self._window)
        self._database.executemany(
            "INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?, ?, ?, ?, ?)", zip(ids, steps, *scores, strict=True)
        )


def largest_window(runtime: ForecastRuntime) -> int:
    """Rows after which forecasts can be scored: as many as a forecast has and a context holds."""
    return int(min(runtime.h, runtime.no_records().now.context.rows.y.shape[1]))


def _append(rings: Ring, context: Ring, counts: Ints) -> Ring:
    """Append the last `counts` rows of each context to its ring, and drop the oldest rows."""
    n, E = context.shape
    back = np.arange(KEPT, 0, -1)  # 1 is the latest
    new = counts[:, None]
    at = np.where(back <= new, KEPT + E - back, KEPT - back + new)
    both: Ring = np.concatenate([rings, context], 1)
    return both[np.arange(n)[:, None], at]


def _rings(blobs: Sequence[bytes]) -> Ring:
    return np.frombuffer(b"".join(blobs), ROW).reshape(len(blobs), KEPT).copy()


def _is_scored(rows: Ring) -> Bools:
    """Which rows have an actual value and a forecast."""
    scored: Bools = (rows["ds"] != NEVER) & usable(rows["y"]) & usable(rows["median"])
    return scored


def _terms(rows: Ring) -> tuple[Any, ...]:
    """What each scored row adds to `AccuracySums`."""
    y = rows["y"]
    covered = (rows["lo_80"] <= y) & (y <= rows["hi_80"])
    return np.ones(y.shape), np.abs(y - rows["median"]), np.abs(y - rows["median_global"]), np.abs(y), covered


def _scores(rings: Ring, window: int) -> tuple[list[Any], ...]:
    """Sums over each ring, and its drift."""
    scored, terms = _is_scored(rings), _terms(rings)
    sums = [np.where(scored, values, 0.0).sum(1) for values in terms]
    drift = ring_drift(rings, window).tolist()
    return (*(values.tolist() for values in sums), [value if np.isfinite(value) else None for value in drift])


def ring_drift(rings: Ring, window: int) -> Any:
    """The drift of each series, NaN where it is not known."""
    scored, (_, error, _, size, _) = _is_scored(rings), _terms(rings)
    sizes = np.where(scored, size, 0.0).sum(1) / np.maximum(scored.sum(1), 1)
    return drift_of(np.where(scored, error, np.nan), sizes, latest_rows(window, KEPT))


def _connect(path: Path | None, model: str) -> sqlite3.Connection:
    """Open the file. Tables of another model are removed."""
    database = None
    try:
        database = sqlite3.connect(path or "", PATIENT, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        database.execute("BEGIN IMMEDIATE")
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and tables != NAMES:
            raise sqlite3.DatabaseError("it is a database of another program")
        if not tables or database.execute("SELECT model FROM about").fetchall() != [(model,)]:
            for statement in [*(f"DROP TABLE {name}" for name in sorted(tables)), *CREATE_TABLES.split(";")]:
                database.execute(statement)
            database.execute("INSERT INTO about VALUES (?)", (model,))
        database.execute("COMMIT")
    except sqlite3.Error as error:
        if database is not None:
            database.close()
        raise StorageError(
            f"{verbatim(path)} cannot be used for monitoring: {verbatim(error)}", "Delete the file, or move it."
        ) from error
    return database
