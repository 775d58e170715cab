"""How fast a stream is: `python -m benchmarks.stream` writes `benchmarks/results/stream.json`.

Medium size, h = 16, context of 16 rows, daily data; `--threads` of torch, two unless given. "cpu" beside a figure is
what the process itself used: on a machine that does other work, too, wall-clock figures are lower bounds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from aru import Forecaster, Stream
from benchmarks.recording import machine, write_json
from experiments.data import PAPER

START = pd.Timestamp("2024-01-01")
BATCH = 10_000  # rows of a bulk update
RANDOM = np.random.default_rng(0)


def trained() -> Forecaster:
    """Weights do not matter for speed: a few steps are enough."""
    df = pd.concat([frame([f"t{i}"] * 64, np.arange(64)) for i in range(8)])
    options = {"enable_progress_bar": False, "logger": False}
    settings: dict[str, Any] = {"h": 16, "freq": "D", "input_size": 16, "size": "medium", "max_steps": 5, **PAPER}
    return Forecaster(**settings, accelerator="cpu", trainer_options=options).fit(df).without_series()


def frame(ids: Any, day: Any) -> pd.DataFrame:
    ds = START + pd.to_timedelta(np.broadcast_to(day, len(ids)), unit="D")
    return pd.DataFrame({"unique_id": ids, "ds": ds, "y": RANDOM.gamma(4.0, 25.0, len(ids))})


class Clock:
    """Wall and CPU seconds of a piece of work."""

    def __init__(self, work: Callable[[], Any]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        self.wall, self.cpu = time.perf_counter() - wall, time.process_time() - cpu


def bulk(model: Forecaster, store: Path | None, series: int, correctable: int = 0, rounds: int = 5) -> dict[str, Any]:
    """One observation of each of up to 10,000 series, then new forecasts for them, again and again."""
    with Stream(model, store, correctable) as stream:
        ids = np.array([f"series-{i:06}" for i in range(series)])
        for begin in range(0, series, BATCH):
            part = ids[begin : begin + BATCH]
            stream.update(frame(np.repeat(part, 4), np.tile(np.arange(16, 20), len(part))))
        batches = [ids[i * BATCH % series :][:BATCH] for i in range(rounds)]
        days = [20 + i * BATCH // series if series > BATCH else 20 + i for i in range(rounds)]
        frames = [frame(part, day) for part, day in zip(batches, days, strict=True)]
        updates, forecasts = [], []
        for rows, part in zip(frames, batches, strict=True):
            updates.append(Clock(lambda rows=rows: stream.update(rows)))
            forecasts.append(Clock(lambda part=part: stream.predict(part)))
        size = stream._about.size
    rows = len(frames[0])

    def rate(clocks: list[Clock], more: list[Clock], kind: str) -> float:
        """Of the middle round: the first one warms up, and others may be disturbed."""
        seconds = [getattr(a, kind) + getattr(b, kind) for a, b in zip(clocks, more, strict=True)]
        return round(rows / float(np.median(seconds[1:])))

    none = [Clock(lambda: None)] * rounds
    return {
        "series": series,
        "durable": store is not None,
        "correctable": correctable,
        "rows_per_update": rows,
        "updates_per_second": rate(updates, none, "wall"),
        "updates_with_forecasts_per_second": rate(updates, forecasts, "wall"),
        "updates_with_forecasts_per_cpu_second": rate(updates, forecasts, "cpu"),
        "bytes_per_series": size,
        **({} if store is None else {"file_bytes_per_series": round(os.path.getsize(store) / series)}),
    }


def single(stream: Stream, uid: str, day: int, columns: bool, rounds: int = 300) -> dict[str, Any]:
    """One observation of one series and its new forecast, as frames or as plain columns."""
    clocks = []
    for i in range(rounds):
        row = frame([uid], day + i)
        if columns:
            given = {name: row[name].to_numpy() for name in row}
            clocks.append(Clock(lambda given=given: (stream.update(given), stream.predict_columns([uid]))))
        else:
            clocks.append(Clock(lambda row=row: (stream.update(row), stream.predict([uid]))))
    wall, cpu = (1e3 * np.array([getattr(c, kind) for c in clocks[20:]]) for kind in ("wall", "cpu"))
    return {
        "form": "columns" if columns else "frames",
        "p50_ms": round(float(np.percentile(wall, 50)), 2),
        "p99_ms": round(float(np.percentile(wall, 99)), 2),
        "p50_cpu_ms": round(float(np.percentile(cpu, 50)), 2),
    }


def history(model: Forecaster, folder: Path) -> list[dict[str, Any]]:
    """The same after a short and after a long history."""
    out = []
    for length, store in ((100, folder / "short.db"), (100_000, folder / "long.db"), (100, None)):
        with Stream(model, store) as stream:
            # Hours would not fit the calendar of daily data, so time begins in the past.
            stream.update(frame(["one"] * length, np.arange(length) - 50_000))
            with stream._store.reading() as view:
                (blob,) = view.get(["one"])
            assert blob is not None
            about = {"observations": length, "durable": store is not None, "bytes": len(blob)}
            for i, columns in enumerate((False, True)):
                out.append({**about, **single(stream, "one", length - 50_000 + 300 * i, columns)})
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    before = machine()
    model = trained()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results: dict[str, Any] = {"bulk": []}
        for series in (10, 1_000, 10_000, 100_000):
            for store in (folder / f"bulk-{series}.db", None):
                results["bulk"].append(bulk(model, store, series))
                print(results["bulk"][-1], flush=True)
        results["bulk"].append(bulk(model, folder / "correctable.db", 10_000, correctable=8))
        print(results["bulk"][-1], flush=True)
        results["history"] = history(model, folder)
        print(results["history"], flush=True)
    write_json("stream", results, before)


if __name__ == "__main__":
    main()
