"""What learning in closed form costs beside the network: updates, forecasts, bytes, and whether history matters.

    python -m benchmarks.learning [--quick]

Daily series with a week, covariates that are flags and numbers in turn, h = 14, weights "mini". CPU time of `update`
with one row of every series, and of `predict`, frames included, and of the network alone, per series; bytes of a state.
Then the same after histories of 100 to 10,000 rows with four covariates. Medians over rounds, tasks in turn. Epochs, in
which the panel's coefficients are learned anew, are rare and timed apart. Writes `benchmarks/results/learning.json`.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
import torch

from aru import Forecaster
from aru.pretrained.patches import CONTEXT
from benchmarks.recording import machine, write_json
from benchmarks.turns import Clock, in_turn

WEIGHTS, H, SERIES, ROUNDS = "mini", 14, 256, 7
COLUMNS, LENGTHS, KEPT = (0, 1, 4, 9), (100, 1_000, 10_000), 4
START = pd.Timestamp("1990-01-01")
RANDOM = np.random.default_rng(0)


def frame(series: int, days: Any, columns: int) -> pd.DataFrame:
    """Every series at every day: a week, effects of the covariates, noise."""
    n = series * len(days)
    day = np.tile(days, series)
    out = {"unique_id": np.repeat([f"series-{i:04}" for i in range(series)], len(days))}
    out |= {"ds": START + pd.to_timedelta(day, unit="D"), "y": 100 + 20 * (day % 7 == 0) + RANDOM.normal(0, 5, n)}
    for i in range(columns):
        out[f"x{i}"] = RANDOM.integers(0, 2, n) if i % 2 == 0 else RANDOM.normal(size=n)
        out["y"] = out["y"] + 5 * out[f"x{i}"]
    return pd.DataFrame(out)


class Work:
    """Series with so many covariates and rows."""

    def __init__(self, columns: int, rows: int, series: int) -> None:
        self.columns, self.day, self.series = columns, rows, series
        names = [f"x{i}" for i in range(columns)]
        self.model = Forecaster.from_pretrained(WEIGHTS, h=H, freq="D", futr_exog_list=names, accelerator="cpu")
        for at in range(0, rows, 1_000):
            self.model.update(frame(series, np.arange(at, min(at + 1_000, rows)), columns))
        engine = self.model.runtime.engine
        engine.warm_up()
        network = engine.models[0]
        rows_read = min(CONTEXT, network.shape.rows(rows))
        self.z = torch.randn(series, rows_read)
        self.network = lambda: network.call("run_told", self.z, torch.ones_like(self.z))

    def tasks(self) -> dict[str, Callable[[], Clock]]:
        """What is measured, by name."""
        row = frame(self.series, [self.day], self.columns)
        ahead = frame(self.series, np.arange(self.day + 1, self.day + 1 + H), self.columns).drop(columns="y")
        self.day += 1
        engine = self.model.runtime.engine

        def learn() -> None:
            engine.learn_common(self.model.table.states, self.model.ids, now=True)

        return {
            "update": lambda: Clock.of(lambda: self.model.update(row)),
            "forecast": lambda: Clock.of(lambda: self.model.predict(ahead if self.columns else None)),
            "network": lambda: Clock.of(self.network),
            "epoch": lambda: Clock.of(learn),
        }

    def figures(self, clocks: dict[str, list[Clock]]) -> dict[str, Any]:
        """Microseconds of CPU time a series; an epoch in milliseconds for all."""
        each = {k: 1e6 * statistics.median(c.cpu for c in v) / self.series for k, v in clocks.items()}
        return {
            "covariates": self.columns,
            "regressors": len(self.model.runtime.schema.regressors),
            "rows": self.day,
            "update_us": round(each["update"], 1),
            "forecast_us": round(each["forecast"], 1),
            "network_us": round(each["network"], 1),
            "epoch_ms": round(each["epoch"] * self.series / 1e3, 1),
            "state_bytes": self.model.runtime.describe(0).size,
        }


def measure(cases: list[tuple[int, int]], series: int, rounds: int) -> list[dict[str, Any]]:
    """Figures of every case (covariates, rows), all of them in turn."""
    works = [Work(columns, rows, series) for columns, rows in cases]
    clocks: list[dict[str, list[Clock]]] = [{} for _ in works]
    for turn in range(rounds + 1):
        for i in in_turn(range(len(works)), turn):
            for name, task in works[i].tasks().items():
                clocks[i].setdefault(name, []).append(task())
    # The first round warms up.
    return [w.figures({k: v[1:] for k, v in found.items()}) for w, found in zip(works, clocks, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few series and rounds, no file: does it work?")
    options = parser.parse_args()
    series, rounds = (16, 2) if options.quick else (SERIES, ROUNDS)
    torch.set_num_threads(1)
    before = machine()
    by_columns = measure([(columns, CONTEXT) for columns in COLUMNS], series, rounds)
    by_rows = measure([(KEPT, rows) for rows in LENGTHS], series, rounds)
    for found in (*by_columns, *by_rows):
        print(*(f"{k} {v}" for k, v in found.items()), sep="  ", flush=True)
    if not options.quick:
        about = {"weights": WEIGHTS, "series": series, "h": H, "rounds": rounds}
        results = {**about, "by_covariates": by_columns, "by_rows": by_rows}
        write_json("learning", results, before, onnxruntime=version("onnxruntime"))


if __name__ == "__main__":
    main()
