"""The results of the replayed stream, and their scores.

A cell is one forecast day of one route. Terminal table and pictures are computed from the same cells, by these
functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from aru.data.scores import scores

METHODS: Mapping[str, str] = {
    "naive": "Seasonal naive",
    "baseline": "Baseline",
    "frozen": "ARU, frozen",
    "adapting": "ARU, adapting",
}


class Season(NamedTuple):
    """A named period of days, both ends included, that is scored separately."""

    name: str
    start: pd.Timestamp
    end: pd.Timestamp


@dataclass(frozen=True)
class Replay:
    """The forecasts of all methods during the stream, and the data before it."""

    cells: pd.DataFrame
    """One row per route, cutoff and day forecast: unique_id, cutoff, ds, y, unseen, and for each method of
    `METHODS` its mean `<method>` and `<method>-median`, `<method>-lo-90`, `<method>-hi-90`. No value is
    missing: every method is scored on every row."""
    history: pd.DataFrame
    """unique_id, ds and y of the known routes before the stream began."""
    seasons: Sequence[Season]
    facts: Mapping[str, str]
    """How the run was set up and what it cost."""


class Score(NamedTuple):
    """The scores of one method on a set of cells."""

    nd: float
    """Absolute error of the median over the sum of actual values."""
    rmse: float
    """Root mean squared error of the mean, in departures a day."""
    coverage: float
    """Share of actual values inside the 90 % interval, ends included."""
    width: float
    """Mean width of that interval over the mean of actual values."""


def score(cells: pd.DataFrame, method: str) -> Score:
    """Score one method, all cells pooled. ND is NaN for a route without departures."""
    figures = scores(cells, method, level=90)
    return Score(figures["nd"], figures["rmse"], figures["coverage"], figures["width"])


def by_novelty(cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The cells of the routes that training saw, and of unseen routes, if there are any."""
    parts = {"Known routes": cells[~cells["unseen"]], "Unseen routes": cells[cells["unseen"]]}
    return {title: part for title, part in parts.items() if len(part)}


def parts(replay: Replay) -> dict[str, pd.DataFrame]:
    """All sets of cells that the score table shows: by novelty, then the holidays."""
    cells = replay.cells
    seasons = {s.name: cells[cells["ds"].between(s.start, s.end)] for s in replay.seasons}
    return by_novelty(cells) | {f"{name}, all routes": part for name, part in seasons.items() if len(part)}


def nd_by(cells: pd.DataFrame, key: pd.Series) -> pd.DataFrame:
    """ND of each method (columns) for each value of `key` (rows); rows without any departure are left out."""
    errors = {method: (cells[f"{method}-median"] - cells["y"]).abs() for method in METHODS}
    truth = cells["y"].groupby(key).sum()
    truth = truth[truth > 0]
    return pd.DataFrame(errors).groupby(key).sum().loc[truth.index].div(truth, axis=0)


def saved(cells: pd.DataFrame) -> pd.Series:
    """Reduction of the mean absolute error per route by adapting, against the frozen state."""
    frozen, adapting = ((cells[f"{m}-median"] - cells["y"]).abs() for m in ("frozen", "adapting"))
    return (frozen - adapting).groupby(cells["unique_id"]).mean()
