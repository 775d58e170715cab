"""What a replayed stream leaves behind, and how it is scored.

The table on the terminal and every picture of the report are computed from the same cells, by the functions
here.
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
    """A named stretch of days, both ends included, that is looked at closely."""

    name: str
    start: pd.Timestamp
    end: pd.Timestamp


@dataclass(frozen=True)
class Replay:
    """The forecasts of all methods while the stream came in, and what was known before."""

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
    """The figures of one method on a set of cells."""

    nd: float
    """Absolute error of the median over the sum of the truth."""
    rmse: float
    """Root mean squared error of the mean, in departures a day."""
    coverage: float
    """Share of the truth inside the 90 % interval, ends included."""
    width: float
    """Mean width of that interval over the mean of the truth."""


def score(cells: pd.DataFrame, method: str) -> Score:
    """Score one method, all cells pooled. A route that never flew has no ND: it comes out as NaN."""
    figures = scores(cells, method, level=90)
    return Score(figures["nd"], figures["rmse"], figures["coverage"], figures["width"])


def by_novelty(cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The cells of the routes that training saw and of those it did not, where there are any."""
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
    """Mean absolute error per route that adapting saved against the frozen state; negative where it cost."""
    frozen, adapting = ((cells[f"{m}-median"] - cells["y"]).abs() for m in ("frozen", "adapting"))
    return (frozen - adapting).groupby(cells["unique_id"]).mean()
