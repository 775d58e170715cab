"""Panels of the zero-shot experiments: their rows, what a user knows of them, and where they are forecast."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from aru.datasets import load
from experiments.data import DATA

KEYS = ["unique_id", "ds", "y"]


class Panel(NamedTuple):
    """How a panel is read and forecast.

    Attributes:
        read: Its rows.
        h: Steps ahead.
        freq: As of `Forecaster`.
        season: Season of the seasonal naive forecast and of the MASE.
        windows: Rolling windows that end with the last row.
        step: Rows between the ends of two of them.
        least: Rows that a series has before the first of them, or it is left out there.
        season_length: As of `Forecaster.from_pretrained`.
    """

    read: Callable[[], pd.DataFrame]
    h: int
    freq: str | int
    season: int
    windows: int
    step: int
    least: int
    season_length: int | None = None


class Windows(NamedTuple):
    """Rows of series up to the end of the last window, and what precedes the first one."""

    df: pd.DataFrame
    past: pd.DataFrame
    count: int
    step: int


def m1(name: str) -> pd.DataFrame:
    """Series of the M1 competition. The published copies have two decimals."""
    df = _parquet(f"{name}/data")
    return df.assign(y=df.y.round(2))


def car_parts() -> pd.DataFrame:
    """Demand for 2,674 parts. Months that are missing are zeros, as in the published copy."""
    wide = _parquet("parts/data").pivot(index="ds", columns="unique_id", values="y").fillna(0.0)
    return wide.melt(ignore_index=False, value_name="y").reset_index()[KEYS]


def exchange_rate() -> pd.DataFrame:
    """Eight currencies on business days without dates: times are row numbers."""
    df = pd.read_parquet(DATA / "exchange_rate/data.parquet")
    return df.assign(ds=df.t.astype(np.int64), y=df.y.astype(np.float64))[KEYS]


def etth1() -> pd.DataFrame:
    """Seven channels of one transformer station."""
    wide = pd.read_parquet(DATA / "ett/ETTh1.parquet")
    return wide.melt("ds", var_name="unique_id", value_name="y")[KEYS].astype({"y": np.float64})


def flights() -> pd.DataFrame:
    """Daily departures of New York's air routes, without covariates."""
    return load("nyc_flights").df[KEYS].astype({"y": np.float64})


def _parquet(path: str) -> pd.DataFrame:
    return pd.read_parquet(DATA / f"{path}.parquet", columns=KEYS).astype({"y": np.float64})


PANELS = {
    "m1_yearly": Panel(lambda: m1("m1_yearly"), 6, "YS", 1, 4, 2, 8),
    "m1_quarterly": Panel(lambda: m1("m1_quarterly"), 8, "QS", 4, 4, 3, 10),
    "m1_monthly": Panel(lambda: m1("m1_monthly"), 18, "MS", 12, 3, 7, 24),
    "tourism_monthly": Panel(lambda: _parquet("tourism_monthly/data"), 24, "MS", 12, 4, 11, 30),
    "car_parts": Panel(car_parts, 12, "MS", 12, 2, 5, 14),
    "exchange_rate": Panel(exchange_rate, 30, 1, 5, 20, 30, 100, season_length=5),
    "m4_hourly": Panel(lambda: _parquet("m4_hourly/data"), 48, "h", 24, 3, 53, 200),
    "etth1": Panel(etth1, 24, "h", 24, 84, 25, 200),
    "electricity_10": Panel(lambda: _parquet("electricity_10/data"), 24, "h", 24, 84, 25, 200),
    "gefcom2012": Panel(lambda: _parquet("gefcom2012/data"), 24, "h", 24, 84, 25, 200),
    "nyc_flights": Panel(flights, 14, "D", 7, 4, 14, 28),
}


def windows_of(panel: Panel, rolling: bool, series: int | None = None) -> Windows:
    """The last h rows of every series, or several windows of those that are long enough.

    `series` keeps the first few series only.
    """
    df = panel.read().sort_values(["unique_id", "ds"], ignore_index=True)
    if series is not None:
        df = df[df.unique_id.isin(df.unique_id.unique()[:series])]
    count = panel.windows if rolling else 1
    rows = panel.h + (count - 1) * panel.step
    if rolling:
        df = df[df.groupby("unique_id").y.transform("size") >= rows + panel.least]
    df = df.reset_index(drop=True)
    return Windows(df, without_last(df, rows), count, panel.step)


def without_last(df: pd.DataFrame, rows: int) -> pd.DataFrame:
    """All but the last rows of every series."""
    return df[df.groupby("unique_id").cumcount(ascending=False) >= rows]


def seasonal_naive(windows: Windows, h: int, season: int) -> pd.DataFrame:
    """The latest value of the same season, of every window; the latest of all where the season has none."""
    frames = []
    for i in range(windows.count):
        df = without_last(windows.df, i * windows.step)
        ahead = h - df.groupby("unique_id").cumcount(ascending=False)  # 1 to h are the rows to forecast
        df = df.assign(place=ahead % season, cutoff=i)
        known, future = df[ahead < 1].dropna(subset="y"), df[ahead >= 1].copy()
        last = known.groupby(["unique_id", "place"]).y.last()
        future["naive"] = last.reindex(pd.MultiIndex.from_frame(future[["unique_id", "place"]])).to_numpy()
        future["naive"] = future.naive.fillna(future.unique_id.map(known.groupby("unique_id").y.last()))
        frames.append(future)
    out = pd.concat(frames, ignore_index=True)
    return out.assign(**{"naive-median": out.naive})[["unique_id", "ds", "cutoff", "y", "naive", "naive-median"]]
