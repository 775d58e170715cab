"""What adaptation costs: ARU and SNAIL beside the baseline, forecasts and updates, in one run.

    python -m benchmarks.inference [--threads 2] [--old FOLDER] [--quick]

Medium size, h = 16, context of 16 rows, daily data. Rounds alternate between the methods, each beginning with another
one (threads that wait busily slow down what comes right after them). A figure is the median of microseconds per series,
`ratio` its ratio to the baseline's. Writes `benchmarks/results/inference.csv`. With `--old` an older checkout is
measured in turn with this one (`benchmarks.turns`), and `ratio` is new to old, in `inference-turns.csv`.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from typing import Any

import numpy as np
import pandas as pd

from aru import Forecaster
from benchmarks.recording import RESULTS, write_table
from benchmarks.trained import START, trained
from benchmarks.turns import Clock, Side, Times, add_options, compare, in_turn, sides, write_comparison

METHODS = ("baseline", "aru", "snail")
H = 16
WORK = {"forecast": 0, "one observation and forecast": 1, "h observations and forecast": H}
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


def answer(model: Forecaster, new: pd.DataFrame) -> None:
    """Take in what is new, if anything, and forecast."""
    if len(new):
        model.update(new)
    model.predict()


class Rounds:
    """All methods, each with the states of the same series."""

    def __init__(self, series: int) -> None:
        self.ids = np.array([f"series-{i:06}" for i in range(series)])
        self.models = {method: trained(model=method).without_series() for method in METHODS}
        for model in self.models.values():
            model.update(frame(self.ids, np.arange(20)))
            model.predict()
        self.day = 20

    def round(self, rows: int, turn: int) -> dict[str, Clock]:
        """What each method takes for `rows` new rows and a forecast of every series."""
        new = frame(self.ids, np.arange(self.day, self.day + rows))
        self.day += rows
        order = in_turn(METHODS, turn)
        return {method: Clock.of(functools.partial(answer, self.models[method], new)) for method in order}


def measure(versions: dict[str, Side], series: int, rounds: int) -> dict[tuple[str, str], Times]:
    """All rounds, by work and method, and by version."""
    for side in versions.values():
        side.make("Rounds", series)
    found: dict[tuple[str, str], Times] = {}
    for work, rows in WORK.items():
        for turn in range(rounds):
            for name in in_turn(list(versions), turn):
                for method, value in versions[name].call("round", rows, turn).items():
                    found.setdefault((work, method), {}).setdefault(name, []).append(Clock(*value))
    return dict(sorted(found.items(), key=lambda item: (list(WORK).index(item[0][0]), METHODS.index(item[0][1]))))


def against_baseline(found: dict[tuple[str, str], Times], series: int, threads: int) -> list[dict[str, Any]]:
    """Rows of the table of one version; the first round warms up."""
    each = {key: 1e6 * statistics.median(c.wall for c in times["new"][1:]) / series for key, times in found.items()}
    return [
        {
            "series": series,
            "threads": threads,
            "work": work,
            "method": method,
            "us_per_series": round(value, 2),
            "ratio": round(value / each[work, "baseline"], 2),
        }
        for (work, method), value in each.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--series", type=int, nargs="+", default=[100, 1_000, 10_000])
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.series = 4, [100]
    rows: list[dict[str, Any]] = []
    with sides("benchmarks.inference", options.old, options.threads) as versions:
        for series in options.series:
            found = measure(versions, series, options.rounds)
            if options.old is None:
                new = against_baseline(found, series, options.threads)
            else:
                new = [
                    {"series": series, "work": work, "method": method, **compare(times, series)}
                    for (work, method), times in found.items()
                ]
            rows += new
            for row in new:
                print(*(f"{k} {v}" for k, v in row.items()), sep="  ", flush=True)
    if options.old is not None:
        write_comparison("inference", options.old, options.threads, rows, options.out)
    elif options.out or not options.quick:
        write_table(options.out or RESULTS / "inference.csv", rows)


if __name__ == "__main__":
    main()
