"""How fast a stream is: updates in bulk with forecasts, and one update with its forecast.

    python -m benchmarks.stream [--threads 2] [--old FOLDER] [--quick]

Medium size, h = 16, context of 16 rows, daily data. "cpu" beside a figure is what the process itself used: on a machine
that does other work, too, wall-clock figures are lower bounds. Writes `benchmarks/results/stream.json`. With `--old` an
older checkout is measured in turn with this one (`benchmarks.turns`), in `stream-turns.csv`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aru import Forecaster, Stream
from benchmarks.recording import machine, write_json
from benchmarks.trained import START
from benchmarks.trained import trained as fresh
from benchmarks.turns import Clock, Side, Times, add_options, compare, in_turn, sides, write_comparison

BATCH = 10_000  # rows of a bulk update
WARM_UP = 20  # single updates before those that count
RANDOM = np.random.default_rng(0)


class BulkCase(NamedTuple):
    """Updates of up to 10,000 series at a time."""

    series: int
    durable: bool
    correctable: int = 0


class SingleCase(NamedTuple):
    """Updates of one series that has so many observations behind it."""

    observations: int
    durable: bool


BULK = [*(BulkCase(n, durable) for n in (10, 1_000, 10_000, 100_000) for durable in (True, False))]
BULK.append(BulkCase(10_000, True, correctable=8))
SINGLE = [SingleCase(100, True), SingleCase(100_000, True), SingleCase(100, False)]
FORMS = {"frames": False, "columns": True}


@functools.cache
def trained() -> Forecaster:
    """The model of all cases."""
    return fresh().without_series()


def frame(ids: Any, day: Any) -> pd.DataFrame:
    ds = START + pd.to_timedelta(np.broadcast_to(day, len(ids)), unit="D")
    return pd.DataFrame({"unique_id": ids, "ds": ds, "y": RANDOM.gamma(4.0, 25.0, len(ids))})


class Bulk:
    """One observation of each of up to 10,000 series, then new forecasts for them, again and again."""

    def __init__(self, folder: str, series: int, durable: bool, correctable: int) -> None:
        self.store = Path(folder) / f"bulk-{series}-{correctable}.db" if durable else None
        self.stream = Stream(trained(), self.store, correctable)
        self.ids = np.array([f"series-{i:06}" for i in range(series)])
        for begin in range(0, series, BATCH):
            part = self.ids[begin : begin + BATCH]
            self.stream.update(frame(np.repeat(part, 4), np.tile(np.arange(16, 20), len(part))))

    def round(self, turn: int) -> tuple[Clock, Clock]:
        """Update, and forecast."""
        series = len(self.ids)
        part = self.ids[turn * BATCH % series :][:BATCH]
        rows = frame(part, 20 + (turn * BATCH // series if series > BATCH else turn))
        update = Clock.of(lambda: self.stream.update(rows))
        return update, Clock.of(lambda: self.stream.predict(ids=part))

    def close(self) -> int:
        """Let go of the store, and say how large its file is."""
        self.stream.close()
        return 0 if self.store is None else os.path.getsize(self.store)


class Single:
    """One observation of one series and its new forecast, as frames or as plain columns."""

    def __init__(self, folder: str, observations: int, durable: bool) -> None:
        store = Path(folder) / f"single-{observations}.db" if durable else None
        self.stream = Stream(trained(), store)
        # Hours would not fit the calendar of daily data, so time begins in the past.
        self.day = observations - 50_000
        self.stream.update(frame(["one"] * observations, np.arange(observations) - 50_000))

    def rounds(self, count: int, columns: bool) -> list[Clock]:
        """So many in a row."""
        return [self._round(columns) for _ in range(count)]

    def _round(self, columns: bool) -> Clock:
        row, stream = frame(["one"], self.day), self.stream
        self.day += 1
        if columns:
            given = {name: row[name].to_numpy() for name in row}
            return Clock.of(lambda: (stream.update(given), stream.predict_columns(ids=["one"])))
        return Clock.of(lambda: (stream.update(row), stream.predict(ids=["one"])))

    def close(self) -> None:
        self.stream.close()


def run_bulk(
    versions: dict[str, Side], folder: Path, case: BulkCase, rounds: int
) -> tuple[dict[str, list[tuple[Clock, Clock]]], int]:
    """Update and forecast of every round by version, and the size of the file."""
    for name, side in versions.items():
        (folder / name).mkdir(exist_ok=True)
        side.make("Bulk", str(folder / name), *case)
    found: dict[str, list[tuple[Clock, Clock]]] = {name: [] for name in versions}
    for turn in range(rounds):
        for name in in_turn(list(versions), turn):
            update, forecast = versions[name].call("round", turn)
            found[name].append((Clock(*update), Clock(*forecast)))
    return found, [side.call("close") for side in versions.values()][-1]


def run_single(
    versions: dict[str, Side], folder: Path, case: SingleCase, rounds: int, at_once: int = 20
) -> dict[str, dict[str, list[Clock]]]:
    """All rounds by form and version; versions take turns after every few."""
    for name, side in versions.items():
        (folder / name).mkdir(exist_ok=True)
        side.make("Single", str(folder / name), *case)
    found: dict[str, dict[str, list[Clock]]] = {}
    for form, columns in FORMS.items():
        clocks: dict[str, list[Clock]] = {name: [] for name in versions}
        for turn in range(-(-(rounds + WARM_UP) // at_once)):
            for name in in_turn(list(versions), turn):
                clocks[name] += [Clock(*clock) for clock in versions[name].call("rounds", at_once, columns)]
        found[form] = {name: values[WARM_UP:] for name, values in clocks.items()}
    for side in versions.values():
        side.call("close")
    return found


def bulk_row(case: BulkCase, rounds: list[tuple[Clock, Clock]], file_bytes: int) -> dict[str, Any]:
    """Figures of one version: of the middle round, as the first one warms up and others may be disturbed."""
    rows = min(case.series, BATCH)

    def rate(*seconds: list[float]) -> int:
        return round(rows / float(np.median(np.sum(seconds, 0)[1:])))

    updates, forecasts = ([clocks[i] for clocks in rounds] for i in (0, 1))
    wall, cpu = ([[getattr(c, kind) for c in part] for part in (updates, forecasts)] for kind in ("wall", "cpu"))
    return {
        **case._asdict(),
        "rows_per_update": rows,
        "updates_per_second": rate(wall[0]),
        "updates_with_forecasts_per_second": rate(*wall),
        "updates_with_forecasts_per_cpu_second": rate(*cpu),
        "bytes_per_series": record_size(case.correctable),
        **({"file_bytes_per_series": round(file_bytes / case.series)} if case.durable else {}),
    }


def record_size(correctable: int) -> int:
    """Bytes of a series' record."""
    return trained().runtime.describe(correctable).size


def single_row(case: SingleCase, form: str, clocks: list[Clock]) -> dict[str, Any]:
    """Figures of one version."""
    wall, cpu = (1e3 * np.array([getattr(c, kind) for c in clocks]) for kind in ("wall", "cpu"))
    return {
        **case._asdict(),
        "bytes": record_size(0),
        "form": form,
        "p50_ms": round(float(np.percentile(wall, 50)), 2),
        "p99_ms": round(float(np.percentile(wall, 99)), 2),
        "p50_cpu_ms": round(float(np.percentile(cpu, 50)), 2),
    }


def alone(versions: dict[str, Side], folder: Path, bulk: list[BulkCase], rounds: int, singles: int) -> dict[str, Any]:
    """This version: what `stream.json` holds."""
    results: dict[str, Any] = {"bulk": [], "history": []}
    for case in bulk:
        found, size = run_bulk(versions, folder, case, rounds)
        results["bulk"].append(bulk_row(case, found["new"], size))
        print(json.dumps(results["bulk"][-1]), flush=True)
    for one in SINGLE:
        for form, by in run_single(versions, folder, one, singles).items():
            results["history"].append(single_row(one, form, by["new"]))
            print(json.dumps(results["history"][-1]), flush=True)
    return results


def both(
    versions: dict[str, Side], folder: Path, bulk: list[BulkCase], rounds: int, singles: int
) -> list[dict[str, Any]]:
    """Both versions: microseconds of an update, of an update with its forecast, and their ratios."""
    rows: list[dict[str, Any]] = []

    def add(work: str, series: int, durable: bool, times: Times, each: int) -> None:
        where = {"work": work, "series": series, "store": "SQLite" if durable else "memory"}
        rows.append({**where, **compare(times, each)})
        print(*(f"{k} {v}" for k, v in rows[-1].items()), sep="  ", flush=True)

    for case in bulk:
        found, _ = run_bulk(versions, folder, case, rounds)
        updates = {name: [update for update, _ in clocks] for name, clocks in found.items()}
        all_of_it = {name: [update + forecast for update, forecast in clocks] for name, clocks in found.items()}
        extra = f", {case.correctable} correctable steps" if case.correctable else ""
        add(f"update{extra}", case.series, case.durable, updates, min(case.series, BATCH))
        add(f"update and forecast{extra}", case.series, case.durable, all_of_it, min(case.series, BATCH))
    for one in SINGLE:
        for form, by in run_single(versions, folder, one, singles).items():
            past = f"after {one.observations:,} observations"
            add(f"update and forecast of one, {form}, {past}", 1, one.durable, by, 1)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    options = parser.parse_args()
    bulk = [case for case in BULK if case.series <= 1_000] if options.quick else BULK
    rounds = (3, 20) if options.quick else (9 if options.old else 5, 280)
    with sides("benchmarks.stream", options.old, options.threads) as versions, tempfile.TemporaryDirectory() as name:
        before = machine()
        if options.old is not None:
            rows = both(versions, Path(name), bulk, *rounds)
            write_comparison("stream", options.old, options.threads, rows, options.out)
            return
        results = alone(versions, Path(name), bulk, *rounds)
    if not options.quick:
        write_json("stream", results, before)


if __name__ == "__main__":
    main()
