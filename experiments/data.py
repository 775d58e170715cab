"""Datasets of the experiments, from the Parquet copies in the data folder (ARU_DATA, else ../shared/data)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

DATA = Path(os.environ.get("ARU_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A long frame with everything a forecaster needs to know about it; the last `test_size` rows are the test."""

    df: pd.DataFrame
    static: pd.DataFrame | None
    test_size: int
    settings: dict[str, Any]


def rossmann() -> Dataset:
    """Daily sales of 1,115 shops; open days as consecutive rows, no weather, no series id."""
    df = pd.read_parquet(DATA / "rossmann/data.parquet")
    static = pd.read_parquet(DATA / "rossmann/static.parquet")
    df = df[df.y > 0].sort_values(["unique_id", "ds"], ignore_index=True)
    shop = static.set_index("unique_id").loc[df.unique_id].reset_index()
    year, month, week = df.ds.dt.year, df.ds.dt.month, df.ds.dt.isocalendar().week.astype(int)
    opened = 12 * (year - shop.competition_open_since_year) + month - shop.competition_open_since_month
    running = (year - shop.promo2_since_year) * 52 + week - shop.promo2_since_week
    days = df.groupby("unique_id").ds
    frame = df[["unique_id", "ds", "y", "promo", "school_holiday", "state_holiday"]].assign(
        promo2=((shop.promo2 == 1) & (running > 0)).astype(float),
        distance=np.log1p(shop.competition_distance),
        competition=opened.clip(0, 24),
        trend=(df.ds - df.ds.min()).dt.days.astype(float),
        closed_before=(days.diff().dt.days - 1).clip(0, 14).fillna(0.0),
        closed_after=(-days.diff(-1).dt.days - 1).clip(0, 14).fillna(0.0),
    )
    numbers = ["promo", "school_holiday", "promo2", "distance", "competition", "trend", "closed_before", "closed_after"]
    return Dataset(
        frame,
        static[["unique_id", "store_type", "assortment", "state"]],
        16,
        {
            "h": 16,
            "freq": None,
            "input_size": 16,
            "futr_exog_list": [*numbers, "state_holiday"],
            "stat_exog_list": ["store_type", "assortment", "state"],
        },
    )


def walmart() -> Dataset:
    """Weekly sales of 3,040 departments, on the calendar, test = the last 8 weeks."""
    df = pd.read_parquet(DATA / "walmart/data.parquet")
    static = pd.read_parquet(DATA / "walmart/static.parquet")
    df = df[df.y >= 0]
    df = df[df.groupby("unique_id").y.transform("size") >= 32]
    weeks = pd.date_range(df.ds.min(), df.ds.max(), freq="W-FRI")
    store = pd.read_parquet(DATA / "walmart/store_features.parquet")
    first = df.groupby("unique_id").ds.min().rename("first")
    grid = pd.MultiIndex.from_product([first.index, weeks], names=["unique_id", "ds"]).to_frame(index=False)
    grid = grid.merge(first, on="unique_id")
    grid = grid[grid.ds >= grid["first"]].drop(columns="first").merge(df[["unique_id", "ds", "y"]], how="left")
    grid["store"] = grid.unique_id.str.split("_").str[0].astype(int)
    store = store.assign(store=store["store"].astype(int))
    frame = grid.merge(store, on=["store", "ds"], how="left").drop(columns="store")
    frame["trend"] = (frame.ds - frame.ds.min()).dt.days.astype(float)
    frame["is_holiday"] = frame.is_holiday.astype(float)
    numbers = ["is_holiday", "temperature", "fuel_price", "cpi", "unemployment", "trend"]
    numbers += [f"markdown{i}" for i in range(1, 6)]
    return Dataset(
        frame[["unique_id", "ds", "y", *numbers]],
        static[static.unique_id.isin(frame.unique_id)][["unique_id", "type", "size"]],
        8,
        {
            "h": 8,
            "freq": "W-FRI",
            "input_size": 8,
            "futr_exog_list": numbers,
            "stat_exog_list": ["type", "size"],
            "lags": [52],
        },
    )


def m4_hourly() -> Dataset:
    """414 hourly series without covariates."""
    df = pd.read_parquet(DATA / "m4_hourly/data.parquet")
    return Dataset(df, None, 24, {"h": 24, "freq": "h", "input_size": 168})


def gefcom2012() -> Dataset:
    """Hourly load of 20 zones, the last two years, temperature known."""
    df = pd.read_parquet(DATA / "gefcom2012/data.parquet")
    temperature = pd.read_parquet(DATA / "gefcom2012/temperature.parquet")
    mean = temperature.set_index("ds").mean(axis=1).rename("temperature").reset_index()
    df = df[df.ds >= "2006-06-01"].merge(mean, on="ds", how="left")
    df["cooling"] = (df.temperature - 65).clip(lower=0)
    df["heating"] = (60 - df.temperature).clip(lower=0)
    return Dataset(
        df,
        None,
        24 * 7,
        {"h": 24, "freq": "h", "input_size": 168, "futr_exog_list": ["temperature", "cooling", "heating"]},
    )


def tourism_monthly() -> Dataset:
    """366 monthly series with trend and multiplicative seasons."""
    df = pd.read_parquet(DATA / "tourism_monthly/data.parquet").drop(columns="is_test")
    return Dataset(df, None, 24, {"h": 24, "freq": "MS", "input_size": 48})


def parts() -> Dataset:
    """Monthly demand of 1,310 spare parts, mostly zero."""
    df = pd.read_parquet(DATA / "parts/data.parquet")
    static = pd.read_parquet(DATA / "parts/static.parquet")
    keep = static[static.aru_code_filter == 1].unique_id
    return Dataset(df[df.unique_id.isin(keep)], None, 8, {"h": 8, "freq": "MS", "input_size": 8, "size": "small"})


def electricity_10() -> Dataset:
    """A year of hourly load of ten clients."""
    df = pd.read_parquet(DATA / "electricity_10/data.parquet")
    return Dataset(df, None, 24 * 7, {"h": 24, "freq": "h", "input_size": 168})


DATASETS: dict[str, Callable[[], Dataset]] = {
    f.__name__: f for f in (rossmann, walmart, m4_hourly, gefcom2012, tourism_monthly, parts, electricity_10)
}
