"""The demo runs end to end on a few routes; its words follow from the run, its report needs nothing from outside."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from aru import Forecaster
from aru.datasets import nyc_flights
from aru.demo import run
from aru.demo.outcome import DEMO_LEVELS, METHODS, Gap, Replay, best_rival, gap, lead_over_naive, methods, score
from aru.demo.replay import KEPT_DEPARTURES, QUICK, build, day_by_day, shifted, split, stream, unadapted
from aru.demo.report import headline, render
from aru.demo.rivals import DEMO_HORIZON, Boosted, lightgbm, seasonal_naive
from aru.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore:The forecasts of aru are worse")  # after six steps on a few routes


@pytest.fixture(scope="module")
def data() -> nyc_flights.NycFlights:
    try:
        return nyc_flights.load()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def replay(data: nyc_flights.NycFlights) -> Replay:
    return stream(data, QUICK, 0, Console(file=io.StringIO()))


def test_the_demo_prints_a_table_and_writes_a_self_contained_report(
    tmp_path: Path, replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aru.demo.replay.stream", lambda *_: replay)
    screen = io.StringIO()
    report = run(tmp_path, quick=True, console=Console(file=screen, width=100))
    text = screen.getvalue()
    for word in (*replay.methods.values(), "Known routes", "Unseen routes", "level shift", "ND", "coverage"):
        assert word in text
    assert headline(replay) in text
    html = report.read_text()
    assert report == tmp_path / "report.html"
    assert html.lstrip().lower().startswith("<!doctype html>")
    assert html.count("<svg") >= 5
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", html), "the report must not load anything"
    assert not re.search(r"@import|url\(\s*[\"']?https?:", html)


def test_every_method_is_scored_on_the_same_cells(replay: Replay) -> None:
    cells, shift = replay.cells, replay.shift.cells
    for frame in (cells, shift):
        assert frame.notna().all().all()
        assert (frame["ds"] - frame["cutoff"]).dt.days.between(1, DEMO_HORIZON).all()
    assert set(cells["unseen"]) == {True, False}
    assert replay.methods.keys() == METHODS.keys() - (set() if lightgbm() else {"lightgbm"})
    assert methods(shift).keys() == replay.methods.keys() - {"zero"}
    for method in ("naive", "zero", "unadapted", "aru"):
        assert 0 < score(cells, method).nd < 0.5


def costs(page: str) -> str:
    return page.split("Where it costs")[1].split("</ul>")[0]


def test_words_follow_from_the_run(replay: Replay) -> None:
    known = replay.cells[~replay.cells["unseen"]]
    assert best_rival(known) == min(("naive", "baseline"), key=lambda m: score(known, m).nd) or lightgbm()

    def told(off: float, of: str) -> Replay:
        medians = replay.cells[of] + off
        return dataclasses.replace(replay, cells=replay.cells.assign(**{"aru-median": medians}))

    right, wrong, same = told(0, "y"), told(90, "y"), told(0, f"{best_rival(known)}-median")
    assert headline(right).startswith("100 % less error than ")
    assert "% more error than" in headline(wrong)
    assert headline(same).startswith("No clear difference from ")
    assert 'class="tile worse"' in render(wrong)
    assert 'class="tile even"' in render(same)
    best, worst = (costs(render(one)) for one in (right, wrong))
    assert "Known routes: weeks of 5 in which others had less error</b>: none<" in best
    assert re.search(r"Known routes: routes of (\d+) on which others had less error</b>: [^<]* \1; [^<]* \1<", worst)


def test_unseen_routes_have_no_rows_in_training(data: nyc_flights.NycFlights) -> None:
    train, live = split(data.df[["unique_id", "ds", "y"]], QUICK, seed=0)
    unseen = set(live["unique_id"]) - set(train["unique_id"])
    assert len(unseen) >= 3
    assert train["ds"].max() == QUICK.train_end
    assert live[live["unique_id"].isin(unseen)]["ds"].min() > QUICK.train_end


def test_what_comes_later_changes_no_forecast(data: nyc_flights.NycFlights) -> None:
    train, live = split(data.df[["unique_id", "ds", "y"]], QUICK, seed=0)
    cutoffs = pd.date_range(QUICK.train_end + pd.Timedelta(days=1), periods=4)
    changed = live.copy()
    changed.loc[changed["ds"] > cutoffs[-1], "y"] += 50.0
    boosted = Boosted(train, trees=3, seed=0) if lightgbm() else None
    frames = []
    for rows in (live, changed):
        made = day_by_day(build("zero", QUICK, 0, train), "zero", rows, cutoffs, both=True)
        naive = seasonal_naive(rows, cutoffs)
        medians = np.zeros(len(naive)) if boosted is None else boosted.medians(rows, naive)
        frames += [(made, naive.drop(columns="y").assign(boosted=medians))]
    for one, other in zip(*frames, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_unadapted_is_the_network_without_hindsight(data: nyc_flights.NycFlights) -> None:
    train, _ = split(data.df[["unique_id", "ds", "y"]], QUICK, seed=0)
    alone = Forecaster.from_pretrained(h=DEMO_HORIZON, freq="D", hindsight=False, accelerator="cpu")
    alone.update(train)
    adapting = build("zero", QUICK, 0, train)
    pd.testing.assert_frame_equal(unadapted(adapting).predict(level=DEMO_LEVELS), alone.predict(level=DEMO_LEVELS))
    assert not adapting.predict().equals(alone.predict())


def test_the_shift_takes_departures_from_its_day_on(data: nyc_flights.NycFlights) -> None:
    _, live = split(data.df[["unique_id", "ds", "y"]], QUICK, seed=0)
    busiest = live.groupby("unique_id")["y"].sum().idxmax()
    changed = shifted(live, [str(busiest)], QUICK)
    before = live[live["unique_id"] == busiest]
    late = before["ds"] >= QUICK.shift
    assert changed["y"][~late].equals(before["y"][~late])
    assert (changed["y"][late] - KEPT_DEPARTURES * before["y"][late]).abs().max() <= 0.5
    assert changed["y"][late].sum() < before["y"][late].sum()


def counts(seed: int) -> pd.DataFrame:
    """Small counts beside their true distribution, as method aru, and a median that is one off, as naive."""
    rng = np.random.default_rng(seed)
    rate = rng.uniform(0.5, 8, 4000)
    days = pd.Timestamp("2013-10-01") + pd.to_timedelta(np.arange(4000) % 70, unit="D")
    y = rng.poisson(rate).astype(float)
    cells = {"ds": days, "cutoff": days - pd.Timedelta(days=1), "y": y, "aru-median": stats.poisson.ppf(0.5, rate)}
    for level in DEMO_LEVELS:
        cells[f"aru-lo-{level}"] = stats.poisson.ppf(0.5 - level / 200, rate)
        cells[f"aru-hi-{level}"] = stats.poisson.ppf(0.5 + level / 200, rate)
    return pd.DataFrame(cells).assign(**{"naive-median": cells["aru-median"] + 1})


def test_coverage_of_counts_is_that_of_randomised_ranks() -> None:
    cells = counts(0)
    inside = (cells["aru-lo-90"] <= cells["y"]) & (cells["y"] <= cells["aru-hi-90"])
    assert inside.mean() > 0.94
    assert score(cells, "aru").coverage == pytest.approx(0.9, abs=0.02)
    assert np.isnan(score(cells, "naive").coverage)


def test_gaps_have_a_direction_and_an_interval() -> None:
    cells = counts(1)
    better, worse, same = (gap(cells, *pair) for pair in (("aru", "naive"), ("naive", "aru"), ("aru", "aru")))
    assert better.low < better.change < better.high < 0 < worse.low
    assert better.clear
    assert "less" in better.words
    assert "more" in worse.words
    assert same.words == "the same error"
    assert Gap(-0.004, -0.006, -0.002).words == "0.4 % less error"
    assert not same.clear
    lead = lead_over_naive(cells)
    saved = score(cells, "naive").nd - score(cells, "aru").nd
    assert lead["aru"].iloc[-1] == pytest.approx(saved * cells["y"].sum())
    assert (lead["naive"] == 0).all()
