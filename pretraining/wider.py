"""Other real series, to see how far weights carry: sums over rows of the panels, and what lies beside them.

"sums" are days, weeks, quarters and years of panels of hours, days and months. "others" are weather, prices, searches,
customers and totals over shops. No row of a report is among them, and nothing of them entered training.

    python -m pretraining.wider src/aru/pretrained/mini-1.safetensors
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from aru.pretrained.patches import LEVELS, PatchNetwork
from pretraining.evaluate import PANELS, Windows, data_folder, judge, say, seasonal_naive, series_of
from pretraining.forecast import forecaster

Series = Callable[[], list[np.ndarray]]


class Other(NamedTuple):
    """Series and how they are judged; the fields are those of `evaluate.Panel`."""

    series: Series
    h: int
    season: int
    periods: tuple[int, int]
    windows: int
    step: int
    least: int
    whole: bool = False


def before_report(name: str, every: int = 1) -> list[np.ndarray]:
    """Series of a panel without the rows of its report."""
    return [values[: -PANELS[name].h] for values in series_of(name)[::every]]


def sums(name: str, rows: int, every: int = 1) -> list[np.ndarray]:
    """Sums over rows of a panel, counted back from its report."""
    return [v[len(v) % rows :].reshape(-1, rows).sum(1) for v in before_report(name, every)]


def skipping(name: str, rows: int) -> list[np.ndarray]:
    """Every so many rows of a panel, counted back from its report."""
    return [v[::-rows][::-1] for v in before_report(name)]


def read(file: str, last: str = "2100") -> pd.DataFrame:
    """A table of the data folder, up to a date."""
    frame = pd.read_parquet(data_folder() / f"{file}.parquet")
    return frame[frame.ds <= last].sort_values("ds")


def column(file: str, by: str, name: str, last: str = "2100", only: tuple[str, ...] = ()) -> list[np.ndarray]:
    """A column of a table, one series by group."""
    groups = read(file, last).groupby(by)
    return [rows[name].to_numpy(np.float64) for key, rows in groups if not only or key in only]


def quarters(file: str, by: str, name: str, last: str) -> list[np.ndarray]:
    """Means over 13 weeks of a column."""
    return [v[len(v) % 13 :].reshape(-1, 13).mean(1) for v in column(file, by, name, last)]


def walmart(part: int) -> list[np.ndarray]:
    """Sales by shop (0) or by department (1)."""
    frame = read("walmart/data")
    key = frame.unique_id.str.split("_").str[part]
    wide = frame.groupby([key, "ds"]).y.sum().unstack().iloc[:, : -PANELS["walmart"].h]
    return list(wide[wide.notna().all(axis=1)].to_numpy(np.float64))


def customers() -> list[np.ndarray]:
    """Customers of one shop in twelve."""
    frame = read("rossmann/data")
    ids = sorted(frame.unique_id.unique())[::12]
    groups = frame[frame.unique_id.isin(ids)].groupby("unique_id")
    return [rows.customers.to_numpy(np.float64)[: -PANELS["rossmann"].h] for _, rows in groups]


def by_state() -> list[np.ndarray]:
    """Sales of all shops of a state."""
    frame, static = read("rossmann/data"), pd.read_parquet(data_folder() / "rossmann/static.parquet")
    state = frame.unique_id.map(static.set_index("unique_id").state)
    wide = frame.groupby([state, "ds"]).y.sum().unstack()
    return list(wide.to_numpy(np.float64)[:, : -PANELS["rossmann"].h])


def temperatures() -> list[np.ndarray]:
    """Of five stations, by the hour."""
    return list(read("gefcom2012/temperature").iloc[:, 1:6].to_numpy(np.float64).T)


WEEK, WEEKDAYS, HOURS = (52, 0), (7, 365), (24, 168)
END = "2012-10-26"
SUMS = {
    "tourism by year": Other(partial(sums, "tourism_monthly", 12), 4, 1, (1, 0), 3, 2, 6),
    "tourism by quarter": Other(partial(sums, "tourism_monthly", 3), 8, 4, (4, 0), 4, 3, 12),
    "m1 by quarter": Other(partial(sums, "m1_monthly", 3), 8, 4, (4, 0), 2, 3, 10),
    "parts by quarter": Other(partial(sums, "car_parts", 3, 2), 4, 4, (4, 0), 1, 1, 6, True),
    "rossmann by week": Other(partial(sums, "rossmann", 7, 6), 8, 52, WEEK, 4, 7, 60),
    "electricity by day": Other(partial(sums, "electricity_10", 24), 28, 7, WEEKDAYS, 12, 13, 100),
    "gefcom by day": Other(partial(sums, "gefcom2012", 24), 28, 7, WEEKDAYS, 20, 61, 200),
}
WEATHER = {"temperature": "mean_temp_c", "humidity": "mean_humidity", "wind": "mean_wind_kmh"}
WEATHER |= {"rain": "precipitation_mm", "pressure": "mean_pressure_hpa"}
STATES = ("BB", "BY", "HH", "NW", "SN")
OTHERS = {
    f"{name} by day": Other(
        partial(column, "rossmann/weather", "state", field, "2100", STATES), 28, 7, WEEKDAYS, 8, 53, 200
    )
    for name, field in WEATHER.items()
} | {
    "searches by week": Other(partial(column, "rossmann/google_trend", "region", "trend"), 8, 52, WEEK, 4, 9, 60),
    "fuel by week": Other(
        partial(column, "walmart/store_features", "store", "fuel_price", END), 13, 52, WEEK, 3, 13, 60
    ),
    "temperature by week": Other(
        partial(column, "walmart/store_features", "store", "temperature", END), 13, 52, WEEK, 3, 13, 60
    ),
    "walmart by shop": Other(partial(walmart, 0), 13, 52, WEEK, 2, 13, 60),
    "walmart by department": Other(partial(walmart, 1), 13, 52, WEEK, 2, 13, 60),
    "customers by day": Other(customers, 28, 7, WEEKDAYS, 4, 61, 200),
    "sales by state": Other(by_state, 28, 7, WEEKDAYS, 8, 61, 200),
    "temperature by hour": Other(temperatures, 24, 24, HOURS, 30, 631, 400),
    "electricity_370": Other(
        partial(column, "electricity_370_2weeks/data", "unique_id", "y"), 24, 24, HOURS, 3, 31, 150
    ),
    "ETTh1 by day": Other(partial(sums, "ETTh1", 24), 28, 7, WEEKDAYS, 10, 31, 200),
    "exchange by week": Other(partial(skipping, "exchange_rate", 5), 13, 52, WEEK, 8, 40, 100),
    "exchange by month": Other(partial(skipping, "exchange_rate", 21), 12, 12, (12, 0), 6, 17, 60),
    "fuel by quarter": Other(
        partial(quarters, "walmart/store_features", "store", "fuel_price", END), 3, 4, (4, 0), 1, 1, 6
    ),
}


def windows_of(other: Other) -> Windows:
    """Contexts and the h values after them, counted back from the end of each series."""
    contexts, futures = [], []
    for values in other.series():
        for end in (len(values) - i * other.step for i in range(other.windows)):
            start = end - other.h
            if start >= other.least and np.isfinite(values[start:end]).any():
                contexts.append(values[:start])
                futures.append(values[start:end])
    return Windows(contexts, np.stack(futures))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of weight files side by side: MASE and WQL relative to seasonal naive, and the coverage."""
    parser = argparse.ArgumentParser(prog="python -m pretraining.wider", description=__doc__.split("\n")[0])
    parser.add_argument("weights", type=Path, nargs="+", help="safetensors files")
    forecasts = [forecaster(PatchNetwork.load(path)) for path in parser.parse_args(arguments).weights]
    for group, panels in {"sums": SUMS, "others": OTHERS}.items():
        ratios = []
        for name, other in panels.items():
            windows, season = windows_of(other), other.season
            naive = seasonal_naive(windows.contexts, other.h, season)[..., None].repeat(len(LEVELS), -1)
            rows = [judge(f(windows.contexts, other.h, other.periods), windows, season, other.whole) for f in forecasts]
            plain = judge(naive, windows, season)
            ratios.append([[row[m] / plain[m] for m in ("MASE", "WQL")] for row in rows])
            cells = [f"{m:.3f}/{q:.3f} {100 * r['cover80']:.0f}%" for (m, q), r in zip(ratios[-1], rows, strict=True)]
            say(f"{name:22} {len(windows.futures):5} ", "  ".join(cells))
        means = np.exp(np.log(ratios).mean(0))
        say(f"{group:28} ", "  ".join(f"{m:.3f}/{q:.3f}    " for m, q in means))


if __name__ == "__main__":
    main()
