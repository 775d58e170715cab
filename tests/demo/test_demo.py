"""The demo runs end to end on a few routes, and its report needs nothing from outside."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from aru.datasets import nyc_flights
from aru.demo import run
from aru.demo.outcome import METHODS, score
from aru.demo.replay import DEMO_HORIZON, QUICK, build, day_by_day, seasonal_naive, split, stream
from aru.errors import ConfigError


@pytest.fixture(scope="module")
def data() -> nyc_flights.NycFlights:
    try:
        return nyc_flights.load()
    except ConfigError as error:
        pytest.skip(str(error))


def test_the_demo_prints_a_table_and_writes_a_self_contained_report(tmp_path: Path, data: object) -> None:
    screen = io.StringIO()
    report = run(tmp_path, quick=True, console=Console(file=screen, width=100))
    text = screen.getvalue()
    for word in (*METHODS.values(), "Known routes", "Unseen routes", "ND", "RMSE", "coverage"):
        assert word in text
    html = report.read_text()
    assert report == tmp_path / "report.html"
    assert html.lstrip().lower().startswith("<!doctype html>")
    assert html.count("<svg") >= 5
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", html), "the report must not load anything"
    assert not re.search(r"@import|url\(\s*[\"']?https?:", html)


def test_every_method_is_scored_on_the_same_cells_and_sees_nothing_ahead(data: nyc_flights.NycFlights) -> None:
    replay = stream(data, QUICK, 0, Console(file=io.StringIO()))
    cells = replay.cells
    columns = [f"{m}{part}" for m in METHODS for part in ("", "-median", "-lo-90", "-hi-90")]
    assert cells[columns].notna().all().all()
    assert cells["unseen"].any()
    assert (~cells["unseen"]).any()
    assert (cells["cutoff"] < cells["ds"]).all()
    assert (cells["ds"] - cells["cutoff"]).max() == pd.Timedelta(days=DEMO_HORIZON)
    for method in METHODS:
        assert 0 < score(cells, method).nd < 2


def test_unseen_routes_have_no_rows_in_training(data: nyc_flights.NycFlights) -> None:
    train, live = split(data.df, QUICK, seed=0)
    unseen = set(live["unique_id"]) - set(train["unique_id"])
    assert len(unseen) >= 3
    assert train["ds"].max() == QUICK.train_end
    assert live[live["unique_id"].isin(unseen)]["ds"].min() > QUICK.train_end


def test_what_comes_later_changes_no_forecast(data: nyc_flights.NycFlights) -> None:
    train, live = split(data.df, QUICK, seed=0)
    cutoffs = pd.date_range(QUICK.train_end + pd.Timedelta(days=1), periods=4)
    changed = live.copy()
    changed.loc[changed["ds"] > cutoffs[-1], "y"] += 50.0
    frames = []
    for frame in (live, changed):
        forecaster = build("aru", QUICK, 0)
        forecaster.fit(train, static_df=data.static_df)
        frames.append(day_by_day(forecaster, frame, data.static_df, cutoffs))
    pd.testing.assert_frame_equal(*frames)
    naive = [seasonal_naive(frame, cutoffs).drop(columns="y") for frame in (live, changed)]
    assert np.array_equal(naive[0]["naive"], naive[1]["naive"])
