"""What an update of a few series costs: `Forecaster.update` of 10 out of many.

    python -m benchmarks.update [--threads 2] [--old FOLDER] [--quick]

An update should cost what the updated series cost, however many others there are: neither its time nor the memory that
it asks for may grow with them. Bytes are all that torch allocates during one update, and the peak of what numpy and
Python add; a copy of the states would show in them. The first update after training, or after a copy of the forecaster,
takes the states into memory of its own, once, and has a figure of its own. Writes `benchmarks/results/update.csv`. With
`--old` an older checkout is measured in turn with this one (`benchmarks.turns`), in `update-turns.csv`.
"""

from __future__ import annotations

import argparse
import statistics
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.recording import RESULTS, write_table
from benchmarks.trained import START, trained
from benchmarks.turns import Clock, Side, Times, add_options, compare, in_turn, sides, write_comparison

UPDATED = 10  # series of an update
PAST = 20  # days that every series has behind it
AT_ONCE = 10_000  # series whose past is taken in at a time
RANDOM = np.random.default_rng(0)


class Updates:
    """A forecaster with the states of many series."""

    def __init__(self, series: int) -> None:
        self.model = trained().without_series()
        self.ids = np.array([f"series-{i:06}" for i in range(series)])
        for begin in range(0, series, AT_ONCE):
            self.model.update(self._frame(self.ids[begin : begin + AT_ONCE], np.arange(PAST)))
        self.turn = 0

    def round(self) -> Clock:
        """What an update of the next ten series takes."""
        rows = self._next()
        return Clock.of(lambda: self.model.update(rows))

    def allocated(self) -> int:
        """Bytes that such an update asks for."""
        rows = self._next()
        tracemalloc.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the profiler's own
            with torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
            ) as profile:
                self.model.update(rows)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        events = [event.self_cpu_memory_usage for event in profile.events() or ()]
        return peak + sum(size for size in events if size > 0)

    def _next(self) -> pd.DataFrame:
        """One new day of ten series: each ten in its turn."""
        first = UPDATED * self.turn % len(self.ids)
        day = PAST + UPDATED * self.turn // len(self.ids)
        self.turn += 1
        return self._frame(self.ids[first : first + UPDATED], np.array([day]))

    def _frame(self, ids: Any, days: Any) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "unique_id": np.repeat(ids, len(days)),
                "ds": np.tile(START + pd.to_timedelta(days, unit="D"), len(ids)),
                "y": RANDOM.gamma(4.0, 25.0, len(ids) * len(days)),
            }
        )


def measure(versions: dict[str, Side], series: int, rounds: int) -> tuple[Times, dict[str, int]]:
    """Every round by version, and the bytes of one update more."""
    for side in versions.values():
        side.make("Updates", series)
    times: Times = {name: [] for name in versions}
    for turn in range(rounds):
        for name in in_turn(list(versions), turn):
            times[name].append(Clock(*versions[name].call("round")))
    for side in versions.values():
        side.call("allocated")  # the profiler warms up
    return times, {name: side.call("allocated") for name, side in versions.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--series", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.series = 10, [1_000, 10_000]
    rows: list[dict[str, Any]] = []
    with sides("benchmarks.update", options.old, options.threads) as versions:
        for series in options.series:
            times, size = measure(versions, series, options.rounds)
            row: dict[str, Any] = {"series": series, "updated": UPDATED}
            if options.old is None:
                row["first_ms"] = round(1e3 * times["new"][0].wall, 2)
                row["ms"] = round(1e3 * statistics.median(clock.wall for clock in times["new"][1:]), 2)
                row["bytes"] = size["new"]
            else:
                row |= {**compare(times, UPDATED), "old_bytes": size["old"], "new_bytes": size["new"]}
            rows.append(row)
            print(*(f"{k} {v}" for k, v in row.items()), sep="  ", flush=True)
    if options.old is not None:
        write_comparison("update", options.old, options.threads, rows, options.out)
    elif options.out or not options.quick:
        write_table(options.out or RESULTS / "update.csv", [{**row, "threads": options.threads} for row in rows])


if __name__ == "__main__":
    main()
