"""The first values: error against the number of values that are known of series never seen.

A fifth of the series (Walmart: whole stores, as in `experiments.curves`) is kept apart. All methods are told the other
series up to the first row that is forecast. Then, for every n, the latest n values of the series kept apart.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aru import Forecaster
from aru.data.scores import scores
from aru.datasets import DESCRIPTIONS
from aru.errors import AruError
from experiments.boosted import Boosted
from experiments.curves import held_out
from experiments.data import read
from experiments.make import make
from experiments.panels import PANELS as ZERO_SHOT_PANELS
from experiments.panels import Windows, seasonal_naive

PANELS = ("rossmann", "walmart", "nyc_flights", "m1_monthly")
TRAINED = ("nyc_flights", "m1_monthly")
"""Panels on which our networks are trained here; for the others `curves.csv` has them."""
OBSERVED = (0, 1, 2, 3, 5, 8, 12, 20, 30, 50)
BLOCKS = {"m1_monthly": 1}  # horizons that are forecast, up to the end; 3 unless it says otherwise
ALONE = " alone"


class Apart(NamedTuple):
    """Rows of the series that are told, and of those kept apart."""

    others: pd.DataFrame
    apart: pd.DataFrame
    static: pd.DataFrame | None
    settings: dict[str, Any]
    season: int
    blocks: int


class Told(NamedTuple):
    """Of the series kept apart: the values that are told before a block, and the block."""

    past: pd.DataFrame
    ahead: pd.DataFrame


def kept_apart(dataset: str, series: int | None = None) -> Apart:
    """A panel in two parts; `series` keeps a few series, spread over all."""
    if dataset == "m1_monthly":
        panel = ZERO_SHOT_PANELS[dataset]
        df, static, settings, season = panel.read(), None, {"h": panel.h, "freq": panel.freq}, panel.season
    else:
        data = read(dataset)
        df, static, settings, season = data.df, data.static, data.settings, DESCRIPTIONS[dataset].season
    ids = np.sort(df.unique_id.unique())
    if series is not None:
        df = df[df.unique_id.isin(ids[:: max(1, len(ids) // series)])]
    blocks, h = BLOCKS.get(dataset, 3), settings["h"]
    apart, size = held_out(df.unique_id, dataset), df.groupby("unique_id").y.transform("size")
    age = df.groupby("unique_id").cumcount(ascending=False)
    long = size >= max(OBSERVED) + blocks * h
    return Apart(df[~apart & (age >= blocks * h)], df[apart & long], static, settings, season, blocks)


def told(panel: Apart, n: int) -> Iterator[Told]:
    """Every block with the n values before it; series without a value there are left out, unless n is 0."""
    h, age = panel.settings["h"], panel.apart.groupby("unique_id").cumcount(ascending=False)
    for block in range(panel.blocks):
        first = (block + 1) * h
        past = panel.apart[(age >= first) & (age < first + n)]
        past = past[past.groupby("unique_id").y.transform("count") > 0]
        ahead = panel.apart[(age >= first - h) & (age < first)]
        yield Told(past, ahead if n == 0 else ahead[ahead.unique_id.isin(past.unique_id.unique())])


def curve(job: Any, columns_of: Callable[[dict[str, Any]], dict[str, list[str]]]) -> Iterator[dict[str, Any]]:
    """Scores of a method by the number of known values."""
    panel = kept_apart(job.dataset, job.series)
    if job.method == "seasonal-naive":
        forecast: Callable[[Told], pd.DataFrame | None] = _naive(panel)
    elif job.method == "lightgbm":
        trees = Boosted(panel.others, panel.static, panel.settings, panel.season, job.seed)
        forecast = lambda part: trees.predict(part.past, part.ahead)  # noqa: E731
    elif job.size:
        forecast = _pretrained(panel, job.size, {} if job.method.endswith(ALONE) else columns_of(panel.settings))
    else:
        named = {"model": job.method, "alias": "aru", "random_seed": job.seed}
        steps = {"max_steps": job.steps} if job.steps else {}
        forecast = _trained(panel, make(**{**panel.settings, **named, **steps}))
    for n in OBSERVED:
        frames = [forecast(part) for part in told(panel, n)]
        if any(frame is None for frame in frames):
            continue
        frame = pd.concat(frames)
        found = scores(frame, "aru", 90 if "aru-lo-90" in frame else None)
        known = {"nd": found["nd"], "rmse": found["rmse"]}
        if "coverage" in found:
            known["coverage90"] = found["coverage"]
        h = panel.settings["h"]
        yield {"x": n, "h": h, "series": frame.unique_id.nunique(), "forecasts": len(frame) // h, **known}


def _naive(panel: Apart) -> Callable[[Told], pd.DataFrame | None]:
    def forecast(part: Told) -> pd.DataFrame | None:
        if not len(part.past):
            return None
        df = pd.concat([part.past, part.ahead]).sort_values(["unique_id", "ds"])
        h = panel.settings["h"]
        frame = seasonal_naive(Windows(df, part.past, 1, h), h, panel.season)
        return frame.rename(columns={"naive": "aru", "naive-median": "aru-median"})

    return forecast


def _pretrained(panel: Apart, size: str, columns: dict[str, list[str]]) -> Callable[[Told], pd.DataFrame | None]:
    """The other series are told first; they stay as they are."""
    names = [name for key, list_ in columns.items() if not key.startswith("stat") for name in list_]
    futr, static = list(columns.get("futr_exog_list", ())), panel.static if "stat_exog_list" in columns else None
    settings = {"h": panel.settings["h"], "freq": panel.settings["freq"], **columns}
    model = Forecaster.from_pretrained(size, **settings, hindsight=False)  # which needs more rows than these
    model.update(panel.others[["unique_id", "ds", "y", *names]], static)

    def forecast(part: Told) -> pd.DataFrame | None:
        future = part.ahead[["unique_id", "ds", *futr]]
        if not len(part.past):
            try:
                frame = model.predict_new(future, static, level=[90])
            except AruError:  # it does not forecast series without a value
                return None
        else:
            young = copy.copy(model)
            young.update(part.past[["unique_id", "ds", "y", *names]], static, allow_jump=True)
            frame = young.predict(future, [90], list(part.past.unique_id.unique()))
        return frame.merge(part.ahead[["unique_id", "ds", "y"]], on=["unique_id", "ds"])

    return forecast


def _trained(panel: Apart, model: Forecaster) -> Callable[[Told], pd.DataFrame | None]:
    model = model.fit(panel.others, panel.static, val_size=0, allow_jump=True).without_series()

    def forecast(part: Told) -> pd.DataFrame | None:
        future = part.ahead.drop(columns="y")
        apart = panel.static
        if apart is not None:
            apart = apart[apart.unique_id.isin(part.ahead.unique_id.unique())]
        if not len(part.past):
            frame = model.predict_new(future, apart, level=[90])
        else:
            young = model.without_series()
            young.update(part.past, apart, allow_jump=True)
            frame = young.predict(future, level=[90])
        return frame.merge(part.ahead[["unique_id", "ds", "y"]], on=["unique_id", "ds"])

    return forecast
