"""How cost and memory grow: with the history of a series, the number of series, and the dimension of the local fit.

    python -m benchmarks.growth [--threads 2]

One new observation of every series and a forecast of its horizon, through a `Stream` in memory, in calls of up to
10,000 series. Medium size but for the dimension, h = 16, context of 16 rows. Every case is a process of its own: one
series takes in its whole history, its record is written under as many names as there are series, and these are
measured. Writes `benchmarks/results/growth.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from aru import Forecaster, Stream
from aru.store import MemoryStore
from benchmarks.recording import machine, write_json
from experiments.data import PAPER
from experiments.make import QUIET, make

BATCH = 10_000  # series of a call
CHUNK = 100_000  # rows of history that are taken in at a time
RANDOM = np.random.default_rng(0)


class Case(NamedTuple):
    """One measurement."""

    series: int
    observations: int  # that each series has seen before
    dim: int  # of the local fit: the features and a constant


USUAL = Case(series=1_000, observations=100, dim=11)
HISTORY = [USUAL._replace(observations=10**i) for i in range(2, 7)]
SERIES = [USUAL._replace(series=10**i) for i in range(2, 7)]
DIMS = [USUAL._replace(series=BATCH, dim=dim) for dim in (7, 11, 16, 33)]


def frame(ids: Any, steps: Any) -> pd.DataFrame:
    return pd.DataFrame({"unique_id": ids, "ds": steps, "y": RANDOM.gamma(4.0, 25.0, len(ids))})


def trained(dim: int) -> Forecaster:
    """Weights do not matter for cost: a few steps are enough."""
    size = (16, 16, 15, dim - 1)
    settings: dict[str, Any] = {"h": 16, "freq": 1, "input_size": 16, "size": size, "max_steps": 3, **PAPER}
    settings |= {"accelerator": "cpu", "trainer": {**QUIET, "logger": False, "enable_checkpointing": False}}
    df = frame(np.repeat([f"t{i}" for i in range(8)], 64), np.tile(np.arange(64), 8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's, about the trainer
        return make(**settings).fit(df, val_size=0).without_series()


def record(model: Forecaster, observations: int) -> bytes:
    """What is kept of a series after so many observations."""
    store = MemoryStore()
    with Stream(model, store) as stream:
        for begin in range(0, observations, CHUNK):
            steps = np.arange(begin, min(begin + CHUNK, observations))
            stream.update(frame(["one"] * len(steps), steps))
        with store.reading() as view:
            (blob,) = view.get(["one"])
    assert blob is not None
    return blob


def measure(model: Forecaster, case: Case, rounds: int) -> dict[str, Any]:
    """Cost of an observation, and memory with all series in it."""
    blob = record(model, case.observations)
    store = MemoryStore()
    with Stream(model, store) as stream:
        ids = np.array([f"series-{i:07}" for i in range(case.series)], dtype=object)
        for begin in range(0, len(ids), BATCH):
            write(stream, store, ids[begin : begin + BATCH].tolist(), blob)
        times = [sum(one_round(stream, ids, case.observations + i)) for i in range(rounds + 1)]
        resident = resident_bytes()
    return {
        **case._asdict(),
        "us": round(1e6 * statistics.median(times[1:]) / case.series, 2),  # the first round warms up
        "state_bytes": len(blob),
        "resident_mb": round(resident / 2**20),
    }


def write(stream: Stream, store: MemoryStore, ids: list[str], blob: bytes) -> None:
    """The record under many names."""
    runtime = stream.runtime
    same = runtime.decode([blob], pd.Index(["one"]), stream.correctable_steps).select(np.zeros(len(ids), np.int64))
    with store.writing() as change:
        change.put(ids, runtime.encode(same, ids))


def one_round(stream: Stream, ids: Any, step: int) -> Iterator[float]:
    """Seconds of each call's update and forecast."""
    for begin in range(0, len(ids), BATCH):
        part = ids[begin : begin + BATCH]
        rows = frame(part, step)
        started = time.perf_counter()
        stream.update(rows)
        stream.predict(ids=part)
        yield time.perf_counter() - started


def resident_bytes() -> int:
    """Memory of this process as of now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def rounds_of(case: Case) -> int:
    """Small cases are noisy, large ones take long."""
    return min(max(2, 50_000 // case.series), 50)


def in_process(case: Case, folder: Path, threads: int) -> dict[str, Any]:
    """The same in a process of its own, so that memory is that of the case alone."""
    given = [*map(str, case), str(folder / str(case.dim)), str(threads)]
    command = [sys.executable, "-m", "benchmarks.growth", "--case", *given]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def sweep(run: Callable[[Case], dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """All cases."""
    return {
        "history": [run(case) for case in HISTORY],
        "series": [run(case) for case in SERIES],
        "dimension": [run(case) for case in DIMS],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--case", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        *numbers, folder, threads = options.case
        torch.set_num_threads(int(threads))
        case = Case._make(map(int, numbers))
        print(json.dumps(measure(Forecaster.load(folder, "cpu"), case, rounds_of(case))))
        return
    torch.set_num_threads(options.threads)
    before = machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for dim in sorted({case.dim for case in [*HISTORY, *SERIES, *DIMS]}):
            trained(dim).save(folder / str(dim))

        def run(case: Case) -> dict[str, Any]:
            found = in_process(case, folder, options.threads)
            print(found, flush=True)
            return found

        write_json("growth", {"batch": BATCH, **sweep(run)}, before)


if __name__ == "__main__":
    main()
