"""Observations a second on a GPU whose memory holds the states.

    python -m benchmarks.resident [--out benchmarks/results/resident.csv]

Medium size, h = 16, context of 16 rows. One call takes in an observation of every series and forecasts the horizon;
rows are encoded tensors on the device, and so are the forecasts (mean, median, 5 % and 95 % quantiles).
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from aru.data.rows import Ragged, Rows, Static
from aru.nn.tree import leaves
from aru.runtime.engine import NetworkEngine
from aru.runtime.state import SeriesState
from benchmarks.recording import RESULTS, write_table
from experiments.data import PAPER
from experiments.make import make
from experiments.provenance import hardware

H = 16
QUANTILES = (0.05, 0.5, 0.95)


def trained(method: str) -> NetworkEngine:
    """Weights do not matter for speed: a few steps are enough."""
    days = pd.date_range("2024-01-01", periods=64)
    y = np.random.default_rng(0).gamma(4.0, 25.0, 8 * 64)
    df = pd.DataFrame({"unique_id": np.repeat([f"t{i}" for i in range(8)], 64), "ds": np.tile(days, 8), "y": y})
    settings: dict[str, Any] = {"h": H, "freq": "D", "input_size": 16, "size": "medium", "max_steps": 3, **PAPER}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(**settings, model=method).fit(df, val_size=0).runtime.engine


def rows(engine: NetworkEngine, n: int, observed: bool) -> Rows:
    """Encoded rows with calendar codes that are as good as any."""
    schema, device = engine.schema, engine.device
    return Rows(
        ds=torch.zeros(n, dtype=torch.int64, device=device),
        y=torch.rand(n, dtype=torch.float64, device=device) * 100,
        observed=torch.full((n,), observed, device=device),
        held=torch.zeros(n, dtype=torch.bool, device=device),
        futr=torch.zeros(n, 2 * len(schema.futr[0]), device=device),
        futr_cat=torch.ones(n, len(schema.futr[1]) + len(schema.calendar), dtype=torch.int32, device=device),
        hist=torch.zeros(n, 2 * len(schema.hist[0]), device=device),
        hist_cat=torch.zeros(n, len(schema.hist[1]), dtype=torch.int32, device=device),
    )


def one_each(engine: NetworkEngine, series: int) -> Ragged:
    at = torch.arange(series, device=engine.device)
    none = torch.zeros_like(at)
    return Ragged(rows(engine, series, True), at, torch.ones_like(at), none)


def measure(method: str, series: int, rounds: int) -> dict[str, Any]:
    engine = trained(method)
    device = engine.device
    static = Static(torch.zeros(series, 0, device=device), torch.zeros(series, 0, dtype=torch.int32, device=device))
    state: SeriesState = engine.empty(static)
    new, future = one_each(engine, series), rows(engine, series * H, False)
    times: list[float] = []
    for _ in range(rounds + 3):
        _wait(device)
        start = time.perf_counter()
        state = engine.advance(state, new)
        engine.forecast(state, future, QUANTILES)
        _wait(device)
        times.append(time.perf_counter() - start)
    each = statistics.median(times[3:])
    return {
        "hardware": hardware(),
        "method": method,
        "series": series,
        "per_second": round(series / each),
        "ms": round(1000 * each, 2),
        "bytes_per_series": sum(value.nbytes for _, value in leaves(state)) // series,
    }


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--series", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--out", type=Path, default=RESULTS / "resident.csv")
    options = parser.parse_args()
    found = []
    for series in options.series:
        for method in ("baseline", "aru"):
            found.append(measure(method, series, options.rounds))
            print(*(f"{k} {v}" for k, v in found[-1].items()), sep="  ", flush=True)
    write_table(options.out, found)


if __name__ == "__main__":
    main()
