"""What `fit` takes with the defaults, panel by panel: `python -m benchmarks.fitting`.

    python -m benchmarks.fitting [--threads 2] [--panels m1_yearly rossmann]

`Forecaster(h, freq, ...).fit(df)` with the rows before the last h, as in the fixed rows of `python -m experiments
defaults`, forecasts not included. Times are of the clock and of all cores. Needs the data of the experiments; a run of
all panels writes `benchmarks/results/fitting.json`.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from aru import Forecaster, TrainingOptions
from benchmarks.recording import machine, write_json
from benchmarks.turns import Clock
from experiments.defaults import FIXED, PLAIN, task_of
from experiments.learning import FLIGHTS
from experiments.make import QUIET, told

PANELS = (
    *PLAIN,
    "tourism_monthly",
    "m4_hourly",
    "parts",
    "electricity_10",
    "gefcom2012",
    FLIGHTS,
    "walmart",
    "rossmann",
)


def measure(name: str, series: int | None = None, steps: int | None = None) -> dict[str, Any]:
    """One panel, or its first few series, with the default number of steps or fewer."""
    task = task_of(name, FIXED, series)
    settings = told(task.settings)
    static = task.static if settings.get("stat_exog_list") else None
    made = {"max_steps": steps} if steps else {}
    model = Forecaster(**settings, **made, training=TrainingOptions(trainer=QUIET), accelerator="cpu")
    clock = Clock.of(lambda: model.fit(task.train, static))
    lengths, summary = task.train.groupby("unique_id").size(), model.summary()
    return {
        "panel": name,
        "series": len(lengths),
        "rows": int(lengths.median()),
        "seconds": round(clock.wall, 1),
        "cpu_seconds": round(clock.cpu, 1),
        "chosen": str(summary.choice[summary.what == "network"].iloc[0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--panels", nargs="+", default=list(PANELS), choices=PANELS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    measure(PANELS[0], series=10, steps=4)  # what is compiled at first use
    before, found = machine(), []
    for name in options.panels:
        found.append(measure(name))
        print(found[-1], flush=True)
    if set(options.panels) == set(PANELS):
        write_json("fitting", {"panels": found}, before)


if __name__ == "__main__":
    main()
