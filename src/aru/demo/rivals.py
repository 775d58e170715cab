"""What a reader would use instead: seasonal naive, and LightGBM on lags and the calendar."""

from __future__ import annotations

import importlib
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from aru.data.columns import Floats, Ints
from aru.demo.outcome import DEMO_LEVELS

DEMO_HORIZON = 7
DAYS_READ, LAGS_READ = 28, 14  # values that are known, and those that are features of their own
LIGHTGBM_ROWS = 60_000  # rows of training
CELL_KEYS = ["unique_id", "cutoff", "ds"]
ONE_DAY = pd.Timedelta(days=1)


def seasonal_naive(live: pd.DataFrame, cutoffs: pd.DatetimeIndex) -> pd.DataFrame:
    """Every cell of the stream with its actual value and the seasonal naive forecast: the value a week before.

    Intervals are normal, with the spread of the route's weekly differences so far. In the first week of a route its
    latest value replaces missing ones, and the spread is zero.
    """
    known = live[["unique_id", "ds", "y"]]
    squares = known.groupby("unique_id")["y"].diff(7) ** 2
    mean_square = squares.groupby(known["unique_id"]).expanding().mean().droplevel(0)
    latest = known.assign(spread=np.sqrt(mean_square).fillna(0.0)).rename(columns={"ds": "cutoff", "y": "latest"})
    leads = pd.DataFrame({"ahead": pd.to_timedelta(np.arange(1, DEMO_HORIZON + 1), unit="D")})
    cells = latest[latest["cutoff"].isin(cutoffs)].merge(leads, how="cross")
    cells["ds"] = cells["cutoff"] + cells["ahead"]
    cells = cells.merge(known, on=["unique_id", "ds"])
    a_week_later = known.assign(ds=known["ds"] + 7 * ONE_DAY).rename(columns={"y": "week_before"})
    cells = cells.merge(a_week_later, on=["unique_id", "ds"], how="left")
    forecast = cells["week_before"].fillna(cells["latest"])
    values = {"naive-median": forecast}
    for level in DEMO_LEVELS:
        half = NormalDist().inv_cdf(0.5 + level / 200) * cells["spread"]
        values |= {f"naive-lo-{level}": forecast - half, f"naive-hi-{level}": forecast + half}
    return cells[[*CELL_KEYS, "y"]].assign(**values)


def lightgbm() -> Any:
    """The package, or None where it is missing or cannot be loaded."""
    try:
        return importlib.import_module("lightgbm")
    except (ImportError, OSError):  # the latter without OpenMP
        return None


class Boosted:
    """LightGBM for the median of all routes and leads, from lags, levels and calendar.

    Values are divided by the route's mean of the latest 28 days, and errors weighed by it, so that the sum of absolute
    errors is minimised. Half of the rows of training know a shorter past, as a new route does.
    """

    def __init__(self, train: pd.DataFrame, trees: int, seed: int) -> None:
        package, rng = lightgbm(), np.random.default_rng(seed)
        table, days = _wide(train)
        begun = np.argwhere(~np.isnan(table[:-DEMO_HORIZON]))
        day, route = begun[rng.integers(len(begun), size=LIGHTGBM_ROWS)].T
        lead = rng.integers(1, DEMO_HORIZON + 1, size=LIGHTGBM_ROWS, dtype=np.int64)
        short = np.exp(rng.uniform(0, np.log(DAYS_READ), LIGHTGBM_ROWS)).astype(int)
        known = np.where(rng.random(LIGHTGBM_ROWS) < 0.5, short, DAYS_READ)
        x, scale = _features(table, days, day, route, lead, known)
        options = {"objective": "l1", "num_leaves": 63, "learning_rate": 0.05, "verbose": -1, "num_threads": 1}
        rows = package.Dataset(x, table[day + lead, route] / scale, weight=scale)
        self._model = package.train({**options, "seed": seed}, rows, trees)

    def medians(self, live: pd.DataFrame, cells: pd.DataFrame) -> Floats:
        """Forecasts of cells, each from the rows up to its cutoff."""
        table, days = _wide(live)
        day = days.get_indexer(pd.DatetimeIndex(cells["cutoff"]))
        route = pd.Index(np.sort(live["unique_id"].unique())).get_indexer(pd.Index(cells["unique_id"]))
        lead = np.asarray((cells["ds"] - cells["cutoff"]).dt.days, dtype=np.int64)
        x, scale = _features(table, days, day, route, lead, np.full(len(cells), DAYS_READ, dtype=np.int64))
        return np.asarray(np.maximum(self._model.predict(x) * scale, 0.0))


def _wide(df: pd.DataFrame) -> tuple[Floats, pd.DatetimeIndex]:
    """Departures by day and route, in alphabetical order; NaN before a route begins."""
    table = df.pivot(index="ds", columns="unique_id", values="y").sort_index(axis=1)
    return table.to_numpy(np.float64), pd.DatetimeIndex(table.index)


def _features(
    table: Floats, days: pd.DatetimeIndex, day: Ints, route: Ints, lead: Ints, known: Ints
) -> tuple[Floats, Floats]:
    """Features of forecasts made on the evening of `day`, and the level of the route."""
    back = np.arange(DAYS_READ)
    past = day[:, None] - back
    y = np.where((past >= 0) & (back < known[:, None]), table[past.clip(0), route[:, None]], np.nan)
    scale = np.nanmean(y, 1) + 0.1
    same = np.take_along_axis(y, 7 * np.arange(1, 5) - lead[:, None], 1)  # the same weekday of four weeks
    week = np.nanmean(y[:, :7], 1)
    ahead = days[day] + pd.to_timedelta(lead, unit="D")
    count = (~np.isnan(y)).sum(1)
    rest = np.stack([week / scale, scale, count, lead, ahead.day_of_week, ahead.day], 1)
    return np.hstack([y[:, :LAGS_READ] / scale[:, None], same / scale[:, None], rest]), scale
