"""What adaptation costs: ARU and SNAIL beside the baseline, forecasts and updates, in one run.

    python -m benchmarks.inference [--threads 2] [--out benchmarks/results/inference.csv]

Medium size, h = 16, context of 16 rows, daily data. Rounds alternate between the methods, each beginning with another
one (threads of torch that wait busily slow down what comes right after them). A figure is the median of microseconds
per series, `ratio` its ratio to the baseline's.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from aru import Forecaster
from benchmarks.recording import RESULTS, write_table
from experiments.data import PAPER

METHODS = ("baseline", "aru", "snail")
H = 16
START = pd.Timestamp("2024-01-01")
RANDOM = np.random.default_rng(0)


def frame(ids: Any, days: Any) -> pd.DataFrame:
    """Every series on every day."""
    return pd.DataFrame(
        {
            "unique_id": np.repeat(ids, len(days)),
            "ds": np.tile(START + pd.to_timedelta(days, unit="D"), len(ids)),
            "y": RANDOM.gamma(4.0, 25.0, len(ids) * len(days)),
        }
    )


def trained(method: str) -> Forecaster:
    """Weights do not matter for speed: a few steps are enough."""
    options = {"enable_progress_bar": False, "logger": False}
    df = frame([f"t{i}" for i in range(8)], np.arange(64))
    settings: dict[str, Any] = {"h": H, "freq": "D", "input_size": 16, "size": "medium", "max_steps": 3, **PAPER}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Forecaster(**settings, model=method, accelerator="cpu", trainer_options=options).fit(df).without_series()


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(series: int, rounds: int) -> list[dict[str, Any]]:
    ids = np.array([f"series-{i:06}" for i in range(series)])
    models = {method: trained(method) for method in METHODS}
    for model in models.values():
        model.update(frame(ids, np.arange(20)))
        model.predict()
    found, day = [], 20
    for work, rows in {"forecast": 0, "one observation and forecast": 1, "h observations and forecast": H}.items():
        times: dict[str, list[float]] = {method: [] for method in METHODS}
        for i in range(rounds):
            new = frame(ids, np.arange(day, day + rows))
            day += rows
            for method in [*METHODS[i % len(METHODS) :], *METHODS[: i % len(METHODS)]]:
                times[method].append(seconds(functools.partial(answer, models[method], new)))
        each = {method: 1e6 * statistics.median(values[1:]) / series for method, values in times.items()}
        found += [
            {
                "series": series,
                "threads": torch.get_num_threads(),
                "work": work,
                "method": method,
                "us_per_series": round(value, 2),
                "ratio": round(value / each["baseline"], 2),
            }
            for method, value in each.items()
        ]
    return found


def answer(model: Forecaster, new: pd.DataFrame) -> None:
    """Take in what is new, if anything, and forecast."""
    if len(new):
        model.update(new)
    model.predict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--series", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--out", type=Path, default=RESULTS / "inference.csv")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for series in options.series:
        found = measure(series, options.rounds)
        rows += found
        for row in found:
            print(*(f"{k} {v}" for k, v in row.items()), sep="  ", flush=True)
    write_table(options.out, rows)


if __name__ == "__main__":
    main()
