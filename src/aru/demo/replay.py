"""The demo's main job: train on most routes up to the autumn, stream the rest of the year, score, report.

Every evening of the stream all methods forecast the next seven days of every route, then see what departed the next
day. Routes held out of training enter the stream with their first streamed day and no past at all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console

from aru.datasets import nyc_flights
from aru.demo.report import render
from aru.demo.scores import Replay, Season

HORIZON = 7
WEEK = 7
SEASONS = (
    Season("Thanksgiving", pd.Timestamp("2013-11-25"), pd.Timestamp("2013-12-01")),
    Season("Christmas", pd.Timestamp("2013-12-21"), pd.Timestamp("2013-12-31")),
)
_KEYS = ["unique_id", "cutoff", "ds", "y"]
_PARTS = ("", "-median", "-lo-90", "-hi-90")
_NORMAL_95 = 1.6449  # the 95 % quantile of the normal distribution: a 90 % interval has 5 % at either end


@dataclass(frozen=True)
class Plan:
    """What is streamed, and how long the networks train. Decided on August and September alone."""

    train_end: pd.Timestamp = pd.Timestamp("2013-09-30")
    stream_end: pd.Timestamp = pd.Timestamp("2013-12-31")
    unseen_share: float = 0.2
    routes: int | None = None
    steps: int = 600
    input_size: int = 28


FULL = Plan()
QUICK = Plan(train_end=pd.Timestamp("2013-11-17"), routes=20, steps=8, input_size=14)


def run(output: Path, seed: int = 0, quick: bool = False, console: Console | None = None) -> Path:
    """Run the demo and write its report; returns the report's path.

    `output` is the report itself if it ends in .html, else a folder for report.html. `quick` takes a few routes and
    hardly trains: it shows that everything works, not how well.
    """
    console = console or Console()
    began = time.perf_counter()
    plan = QUICK if quick else FULL
    with _step(console, "Reading the departures of 2013 from New York"):
        data = nyc_flights.load()
    replay = stream(data, plan, seed, console)
    console.print(score_table(replay))
    minutes, seconds = divmod(round(time.perf_counter() - began), 60)
    path = output if output.suffix == ".html" else output / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(replay), encoding="utf-8")
    console.print(f"Report: {path} ({minutes} min {seconds} s in all)", soft_wrap=True)
    return path


def stream(data: nyc_flights.NycFlights, plan: Plan, seed: int, console: Console) -> Replay:
    """Train both networks, replay the stream with every method, and line all forecasts up cell by cell."""
    known, unseen = split(data, plan, seed)
    train, streamed = frames(data.df, plan, known, unseen)
    console.print(
        f"{len(known)} known routes until {plan.train_end:%d %B}, {len(unseen)} unseen ones from the day after; "
        f"{len(data.dropped)} routes that hardly fly are left out"
    )
    n_windows = (plan.stream_end - plan.train_end).days - HORIZON
    cells = seasonal_naive(streamed, n_windows)
    facts = {}
    for model in ("baseline", "aru"):
        forecaster = build(model, plan, seed)
        with _step(console, f"Training {model}, {plan.steps} steps") as training:
            forecaster.fit(train, static_df=data.static_df)
        for name, adapt in {"baseline": {"baseline": True}, "aru": {"frozen": False, "adapting": True}}[model]:
            pass
    return Replay(cells, train[["unique_id", "ds", "y"]], SEASONS, facts)
