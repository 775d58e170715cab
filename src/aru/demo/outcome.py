"""The results of the replayed stream, and their scores.

A cell is one forecast day of one route. Terminal table, words and pictures are computed from the same cells, by these
functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from aru.data.columns import Floats

RIVALS: Mapping[str, str] = {"naive": "Seasonal naive", "lightgbm": "LightGBM", "baseline": "Baseline"}
METHODS: Mapping[str, str] = {
    **RIVALS,
    "zero": "ARU, zero-shot",
    "unadapted": "ARU, fitted, unadapted",
    "aru": "ARU, fitted",
}
IN_WORDS = {"naive": "seasonal naive", "lightgbm": "LightGBM", "baseline": "the baseline"}
DEMO_LEVELS = (10, 30, 50, 70, 80, 90, 94, 98)  # central intervals of every method but LightGBM
RESAMPLES = 2000


class Season(NamedTuple):
    """A named period of days, both ends included, that is scored separately."""

    name: str
    start: pd.Timestamp
    end: pd.Timestamp


class Shift(NamedTuple):
    """The stream of some routes once more, with fewer flights from some day on."""

    cells: pd.DataFrame  # as in `Replay`
    start: pd.Timestamp
    kept: float  # share of the departures that remain

    def first_week(self) -> pd.DataFrame:
        """The forecasts of the first seven evenings that know of it."""
        evenings = (self.cells["cutoff"] - self.start).dt.days
        return self.cells[evenings.between(0, 6)]


@dataclass(frozen=True)
class Replay:
    """The forecasts of all methods during the stream, and the data before it."""

    cells: pd.DataFrame
    """One row per route, cutoff and day forecast: unique_id, cutoff, ds, y, unseen, and of each method its median
    `<method>-median` and the ends of the intervals of `DEMO_LEVELS`, `<method>-lo-90` and so on; LightGBM has no
    intervals. No value is missing: every method is scored on every row."""
    shift: Shift
    history: pd.DataFrame
    """unique_id, ds and y of the known routes before the stream began."""
    seasons: Sequence[Season]
    seconds: Mapping[str, float]
    """What each method took until its first forecasts."""
    facts: Mapping[str, str]
    """How the run was set up and what it cost."""

    @property
    def methods(self) -> dict[str, str]:
        """Those that ran, with their names."""
        return methods(self.cells)


def best_of(cells: pd.DataFrame) -> str:
    """The method with the lowest ND."""
    return min(methods(cells), key=lambda method: score(cells, method).nd)


def methods(cells: pd.DataFrame) -> dict[str, str]:
    """The methods that these cells hold, with their names."""
    return {method: name for method, name in METHODS.items() if f"{method}-median" in cells}


class Score(NamedTuple):
    """The scores of one method on a set of cells. Coverage and width are NaN without intervals."""

    nd: float
    """Absolute error of the median over the sum of actual values; NaN without departures."""
    coverage: float
    """Share of randomised ranks inside the 90 % interval."""
    width: float
    """Mean width of that interval over the mean of actual values."""


def score(cells: pd.DataFrame, method: str) -> Score:
    """Score one method, all cells pooled."""
    flown = float(cells["y"].sum())
    nd = float(_errors(cells, method).sum()) / flown if flown else math.nan
    if f"{method}-lo-90" not in cells:
        return Score(nd, math.nan, math.nan)
    width = float((cells[f"{method}-hi-90"] - cells[f"{method}-lo-90"]).sum())
    return Score(nd, _coverage(cells, method), width / flown if flown else math.nan)


def _errors(cells: pd.DataFrame, method: str) -> pd.Series[float]:
    return (cells[f"{method}-median"] - cells["y"]).abs()


def _coverage(cells: pd.DataFrame, method: str) -> float:
    """How often a forecast's rank of the actual value lies between 5 and 95 %.

    Departures are whole numbers, many of them small. An interval that must hold 90 % then holds more, since it ends on
    such numbers. So the rank of y is spread evenly between those of y - 1 and y, as for any discrete distribution.
    """
    sides = [(f"{method}-lo-{level}", 0.5 - level / 200) for level in reversed(DEMO_LEVELS)]
    sides += [(f"{method}-hi-{level}", 0.5 + level / 200) for level in DEMO_LEVELS]
    quantiles, shares = cells[[column for column, _ in sides]].to_numpy(np.float64), [share for _, share in sides]
    ranks = np.concatenate([[0.0], (np.array(shares[1:]) + np.array(shares[:-1])) / 2, [1.0]])
    y = cells["y"].to_numpy(np.float64)[:, None]
    low, high = (ranks[(quantiles <= value).sum(1)] for value in (y - 1, y))
    inside = (np.minimum(high, 0.95) - np.maximum(low, 0.05)).clip(0.0)
    spread = high - low
    share = np.divide(inside, spread, out=((low >= 0.05) & (low <= 0.95)).astype(np.float64), where=spread > 0)
    return float(share.mean())


class Gap(NamedTuple):
    """The error of one method relative to that of another: -0.1 is ten percent less. With a 90 % interval."""

    change: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes that there is no difference."""
        return self.low > 0 or self.high < 0

    @property
    def words(self) -> str:
        """The change in words: "9 % less error"."""
        percent = f"{abs(100 * self.change):.{0 if abs(self.change) >= 0.01 else 1}f} %"
        return f"{percent} {'less' if self.change < 0 else 'more'} error" if percent != "0.0 %" else "the same error"


def gap(cells: pd.DataFrame, method: str, other: str, blocks: pd.Series | None = None) -> Gap:
    """Compare two methods on the same cells. What differs together is drawn together: weeks, unless `blocks` says."""
    blocks = monday(cells["ds"]) if blocks is None else blocks
    ours, theirs = (_errors(cells, m).groupby(blocks).sum().to_numpy(np.float64) for m in (method, other))
    drawn = np.random.default_rng(0).integers(len(ours), size=(RESAMPLES, len(ours)))
    with np.errstate(divide="ignore", invalid="ignore"):  # blocks without errors may be drawn
        changes: Floats = ours[drawn].sum(1) / theirs[drawn].sum(1) - 1
    low, high = np.nanquantile(changes, [0.05, 0.95])
    return Gap(float(ours.sum() / theirs.sum() - 1), float(low), float(high))


def best_rival(cells: pd.DataFrame) -> str:
    """The best of the methods that are not ours."""
    return min((m for m in methods(cells) if m in RIVALS), key=lambda m: score(cells, m).nd)


def monday(ds: pd.Series) -> pd.Series:
    """The Monday of each day's week."""
    start: pd.Series = ds - pd.to_timedelta(ds.dt.day_of_week, unit="D")
    return start


def by_novelty(cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The cells of the routes that training saw, and of unseen routes, if there are any."""
    parts = {"Known routes": cells[~cells["unseen"]], "Unseen routes": cells[cells["unseen"]]}
    return {title: part for title, part in parts.items() if len(part)}


def parts(replay: Replay) -> dict[str, pd.DataFrame]:
    """All sets of cells that the score table shows: by novelty, the holidays, the rest, and the level shift."""
    cells = replay.cells
    seasons = {s.name: cells["ds"].between(s.start, s.end) for s in replay.seasons}
    plain = ~np.logical_or.reduce(list(seasons.values()))
    found = by_novelty(cells) | {f"{name}, all routes": cells[here] for name, here in seasons.items()}
    found |= {"Other days, all routes": cells[plain], "First week after the level shift": replay.shift.first_week()}
    return {title: part for title, part in found.items() if len(part)}


def nd_by(cells: pd.DataFrame, key: pd.Series) -> pd.DataFrame:
    """ND of each method (columns) for each value of `key` (rows); rows without any departure are left out."""
    truth = cells["y"].groupby(key).sum()
    truth = truth[truth > 0]
    errors = pd.DataFrame({method: _errors(cells, method) for method in methods(cells)})
    return errors.groupby(key).sum().loc[truth.index].div(truth, axis=0)


def lead_over_naive(cells: pd.DataFrame) -> pd.DataFrame:
    """By day, how many departures each method has misjudged less than seasonal naive so far.

    A day has a forecast for each lead, which are averaged.
    """
    errors = pd.DataFrame({method: _errors(cells, method) for method in methods(cells)})
    daily = errors.groupby(cells["ds"]).sum().cumsum() / cells["ds"].sub(cells["cutoff"]).dt.days.max()
    return daily.rsub(daily["naive"], axis=0)


def saved(cells: pd.DataFrame) -> pd.Series:
    """Reduction of the mean absolute error per route by adapting."""
    return (_errors(cells, "unadapted") - _errors(cells, "aru")).groupby(cells["unique_id"]).mean()
