"""What gate and calibration change: backtests of one model with them on and off.

    python -m experiments.gated rossmann --series 150 --steps 400
    python -m experiments.gated rossmann --series 150 --pretrained mini

The first 60 % of every series train a model with default settings; a pretrained one is not trained. The last 30 % are
scored, in windows that follow each other. States begin empty and replay all rows, so that a window of 16 of 700 rows
comes after 30 to 43 rounds of feedback. "frozen" is the same network with empty local statistics throughout. The
constants of gate and calibration were chosen on the first 70 % alone, with half of these rows for training. One row a
variant.
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
from aru.datasets import load
from aru.nn.tree import leaves
from aru.runtime import ForecastRuntime
from aru.runtime.backtest import cutoff_rows
from aru.runtime.engine import NetworkEngine
from aru.runtime.state import SeriesState
from experiments.data import DATA
from experiments.frozen import TRAIN, VALIDATION
from experiments.make import make
from experiments.provenance import commit, hardware

DATASETS = ("rossmann", "walmart", "m4_hourly", "gefcom2012", "electricity_10", "nyc_flights")
LEVELS = [50, 60, 70, 80, 85, 90, 95, 98]  # some for a randomised PIT alone
HURT = 1.02
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


def read(name: str, series: int | None, rows: int | None) -> tuple[pd.DataFrame, pd.DataFrame | None, dict[str, Any]]:
    """Series evenly spread over a dataset, their last rows, and the settings that the data say."""
    df, static, about = load(name, None if name == "nyc_flights" else DATA)
    ids = np.sort(df.unique_id.unique())
    if series is not None:
        ids = ids[np.linspace(0, len(ids) - 1, min(series, len(ids))).astype(int)]
    df = df[df.unique_id.isin(ids)]
    df = (df if rows is None else df.groupby("unique_id").tail(rows)).reset_index(drop=True)
    settings = {k: v for k, v in about.settings.items() if k != "lags"}
    return df, None if static is None else static[static.unique_id.isin(ids)], {"h": about.h, **settings}


def prepare(arguments: argparse.Namespace) -> tuple[Forecaster, pd.DataFrame, pd.DataFrame | None]:
    """A forecaster, trained on the first rows of every series or pretrained, and the data."""
    df, static, settings = read(arguments.dataset, arguments.series, arguments.rows)
    if arguments.pretrained:
        covariates = settings["futr_exog_list"] if arguments.covariates else []
        df = df[["unique_id", "ds", "y", *covariates]]
        model = Forecaster.from_pretrained(
            arguments.pretrained, h=settings["h"], freq=settings["freq"], futr_exog_list=covariates
        )
        assert model.trained is not None
        model.trained = model.trained.suited(df)
        return model, df, None
    place = df.groupby("unique_id").cumcount()
    size = df.groupby("unique_id").y.transform("size")
    training = {"max_steps": arguments.steps, "random_seed": arguments.seed, "accelerator": "cpu"}
    model = make(**settings, **training).fit(df[place < (TRAIN * size).astype(int)], static, val_size=0)
    return model, df, static


def switched(model: Forecaster, variant: str) -> ForecastRuntime:
    """The same networks with other settings."""
    runtime = model.runtime
    kind = Unlearning if variant == "frozen" else NetworkEngine
    settings = dataclasses.replace(runtime.settings, **VARIANTS[variant])
    engine = kind(settings, runtime.schema, copy.deepcopy(runtime.engine.models), runtime.engine.device)
    return ForecastRuntime(engine, runtime.freq, runtime.style)


def backtest(
    model: Forecaster, df: pd.DataFrame, windows: int, variant: str, static: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Forecasts of the last rows in windows of h, from empty states: those of `Forecaster.cross_validation`."""
    other, h = switched(model, variant), model.settings.h
    panel = other.read_history(df, in_sight=h * (windows + 1))
    frames = []
    for fold in other.rolling(panel, cutoff_rows(panel, h, windows, h), LEVELS, adapt=True, static_df=static):
        ids, y = np.repeat(panel.ids[fold.series].to_numpy(), h), panel.y[fold.future].ravel()
        frames.append(pd.DataFrame({"unique_id": ids, "y": y, **other.forecast_columns(fold.forecast, LEVELS)}))
    return pd.concat(frames, ignore_index=True).dropna(subset="y")


def coverage(out: pd.DataFrame, level: float) -> float:
    """Share of the values inside of a central interval, by randomised PIT, since a count may equal several ends."""
    shares = np.array([*((50 - v / 2) / 100 for v in LEVELS[::-1]), 0.5, *((50 + v / 2) / 100 for v in LEVELS)])
    names = [*(f"aru-lo-{v}" for v in LEVELS[::-1]), "aru-median", *(f"aru-hi-{v}" for v in LEVELS)]
    quantiles, y = out[names].to_numpy(np.float64), out.y.to_numpy(np.float64)[:, None]
    between = (np.append(0.0, shares) + np.append(shares, 1.0)) / 2  # PIT of a value between two quantiles
    low, high = between[(quantiles < y).sum(1)], between[(quantiles <= y).sum(1)]
    inside = np.minimum(high, 0.5 + level / 200) - np.maximum(low, 0.5 - level / 200)
    width = np.where(high > low, high - low, 1.0)
    return float(np.where(high > low, inside.clip(0) / width, inside >= 0).mean())


def interval(out: pd.DataFrame, level: int) -> tuple[float, float]:
    """Mean width of an interval, and mean interval score: width and, in units of the share outside, what is missed."""
    low, high, y = out[f"aru-lo-{level}"], out[f"aru-hi-{level}"], out.y
    missed = (low - y).clip(lower=0) + (y - high).clip(lower=0)
    return float((high - low).mean()), float((high - low + 200 / (100 - level) * missed).mean())


def scores(out: pd.DataFrame, frozen: pd.DataFrame, adapted: pd.DataFrame) -> dict[str, Any]:
    """Of one variant, beside the network alone and the adapted forecast without gate and calibration."""

    def errors(frame: pd.DataFrame) -> pd.Series:
        return (frame["aru-median"] - frame.y).abs().groupby(frame.unique_id).sum()

    ratio = (errors(out) / errors(frozen))[errors(frozen) > 0]
    nd = {id(f): (f["aru-median"] - f.y).abs().sum() / f.y.abs().sum() for f in (out, adapted)}
    width, score = interval(out, 90)
    width0, score0 = interval(adapted, 90)
    return {
        "series": len(ratio), "rows": len(out), "nd": f"{nd[id(out)]:.5f}",
        "mse": f"{((out['aru'] - out.y) ** 2).mean():.6g}",
        "cost": f"{nd[id(out)] / nd[id(adapted)] - 1:.4f}",
        "mean_gain": f"{1 - np.exp(np.log(ratio.clip(lower=1e-9)).mean()):.4f}",
        "worst_series": f"{ratio.max() - 1:.4f}", "hurt": f"{(ratio > HURT).mean():.4f}",
        "coverage80": f"{coverage(out, 80):.4f}", "coverage90": f"{coverage(out, 90):.4f}",
        "width90": f"{width / width0:.4f}", "score90": f"{score / score0:.4f}",
    }  # fmt: skip


def main() -> None:
    """One dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("--series", type=int)
    parser.add_argument("--rows", type=int, help="the last rows of each series alone")
    parser.add_argument("--pretrained", default="", help="nano, mini or base instead of a training")
    parser.add_argument("--covariates", action="store_true", help="of a pretrained model")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/gated.csv"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    model, df, static = prepare(arguments)
    size, h = df.groupby("unique_id").size(), model.settings.h
    windows = int((size.median() * (1 - TRAIN - VALIDATION) - 1) // h)
    # A pretrained network without covariates learns from its errors, and has no gate.
    variants = ["frozen", "adapted", "calibration"] if arguments.pretrained else list(VARIANTS)
    found: dict[str, pd.DataFrame] = {}
    for variant in variants:
        found[variant] = backtest(model, df, windows, variant, static)
        if variant == "frozen":
            continue
        state = switched(model, variant).no_records().now
        row = {
            "dataset": arguments.dataset, "h": h,
            "model": (arguments.pretrained + " with covariates" * arguments.covariates) or "aru",
            "steps": "" if arguments.pretrained else arguments.steps, "seed": arguments.seed, "variant": variant,
            "rounds": int((size.median() - 1) // h) - windows, "windows": windows,
            **scores(found[variant], found[variants[0]], found["adapted"]),
            "bytes": sum(v.element_size() * v.shape[1:].numel() for _, v in leaves(state)),
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
