"""What the gate and the calibration of a forecaster change: backtests of one trained model with them on and off.

    python -m experiments.gated m4_hourly --steps 600

The first 60 % of every series train the model. The last 30 % are scored, in windows that follow each other. States
begin empty and replay all rows. "frozen" is the same network with empty local statistics throughout. One row a variant.
"""

from __future__ import annotations

import argparse
import copy
import csv
import dataclasses
import datetime
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aru import Forecaster
from aru.data.rows import Ragged
from aru.runtime import ForecastRuntime
from aru.runtime.backtest import cutoff_rows
from aru.runtime.engine import NetworkEngine
from aru.runtime.state import SeriesState
from experiments.data import PAPER
from experiments.frozen import TASKS, TRAIN, VALIDATION, Task
from experiments.make import make
from experiments.provenance import commit, hardware

HORIZONS = {"etth1": 24, "exchange_rate": 24, "m4_hourly": 24, "gefcom2012": 24, "rossmann": 16, "walmart": 8}
LEVELS = [80, 90]
VARIANTS: dict[str, dict[str, Any]] = {
    "frozen": {},
    "adapted": {},
    "gate": {"gate": True},
    "calibration": {"calibration": "online"},
    "gate and calibration": {"gate": True, "calibration": "online"},
}


class Unlearning(NetworkEngine):
    """Contexts move on, but nothing is ever learned about a series."""

    def advance(self, state: SeriesState, data: Ragged, adapt: bool = True) -> SeriesState:
        return super().advance(state, data, adapt=False)


def train(task: Task, h: int, arguments: argparse.Namespace) -> Forecaster:
    """A forecaster that has seen the first rows of every series."""
    place = task.df.groupby("unique_id").cumcount()
    size = task.df.groupby("unique_id").y.transform("size")
    settings: dict[str, Any] = {"max_steps": arguments.steps, "random_seed": arguments.seed, "accelerator": "cpu"}
    settings |= {**PAPER, "futr_exog_list": task.covariates}
    return make(h=h, freq=task.freq, **settings).fit(task.df[place < (TRAIN * size).astype(int)], val_size=0)


def backtest(model: Forecaster, df: pd.DataFrame, windows: int, variant: str) -> pd.DataFrame:
    """Forecasts of the last rows in windows of h, from empty states: those of `Forecaster.cross_validation`."""
    runtime, h = model.runtime, model.settings.h
    kind = Unlearning if variant == "frozen" else NetworkEngine
    settings = dataclasses.replace(model.settings, **VARIANTS[variant])
    engine = kind(settings, runtime.engine.schema, copy.deepcopy(runtime.engine.models), runtime.engine.device)
    other = ForecastRuntime(engine, runtime.freq, runtime.style)
    panel = other.read_history(df, in_sight=h * (windows + 1))
    frames = []
    for fold in other.rolling(panel, cutoff_rows(panel, h, windows, h), LEVELS, adapt=True, static_df=None):
        ids, y = np.repeat(panel.ids[fold.series].to_numpy(), h), panel.y[fold.future].ravel()
        frames.append(pd.DataFrame({"unique_id": ids, "y": y, **other.forecast_columns(fold.forecast, LEVELS)}))
    return pd.concat(frames, ignore_index=True).dropna(subset="y")


def main() -> None:
    """One dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=HORIZONS)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/gated.csv"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    task, h = TASKS[arguments.dataset](), HORIZONS[arguments.dataset]
    model = train(task, h, arguments)
    size = task.df.groupby("unique_id").size()
    windows = int((size.min() * (1 - TRAIN - VALIDATION) - 1) // h)
    frozen = None
    for variant in VARIANTS:
        out = backtest(model, task.df, windows, variant)
        by = (out["aru"] - out["y"]).pow(2).groupby(out["unique_id"]).mean()
        frozen = by if frozen is None else frozen
        ratio = (by / frozen)[frozen > 0]
        inside = {q: ((out[f"aru-lo-{q}"] <= out.y) & (out.y <= out[f"aru-hi-{q}"])).mean() for q in LEVELS}
        row = {
            "dataset": arguments.dataset, "h": h, "steps": arguments.steps, "seed": arguments.seed, "variant": variant,
            "series": len(by), "rows": len(out),
            "nd": f"{(out['aru-median'] - out.y).abs().sum() / out.y.abs().sum():.5f}",
            "mse": f"{((out['aru'] - out.y) ** 2).mean():.6g}", "mean_gain": f"{1 - np.exp(np.log(ratio).mean()):.4f}",
            "worst_series": f"{ratio.max() - 1:.4f}", "hurt": f"{(ratio > 1.01).mean():.4f}",
            "coverage80": f"{inside[80]:.4f}", "coverage90": f"{inside[90]:.4f}",
            "commit": commit(), "hardware": hardware(), "date": datetime.date.today().isoformat(),
            "command": f"python -m experiments.gated {' '.join(sys.argv[1:])}",
        }  # fmt: skip
        print(row, flush=True)
        new = not arguments.out.exists()
        with arguments.out.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)


if __name__ == "__main__":
    main()
