"""Seasonal naive: the forecast that a model has to beat, and the unit of its errors in MASE."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from aru.data.columns import Floats, Ints
from aru.data.panel import Panel


class NaiveForecast(NamedTuple):
    """Forecasts from some cutoffs: the value of each lead, the spread around it, and the unit of MASE."""

    point: Floats  # (cutoff, lead)
    spread: Floats  # (cutoff, lead) standard deviation
    unit: Floats  # (cutoff,) mean absolute seasonal difference up to the cutoff; NaN where there is none


class SeasonalNaive:
    """The latest known value of the same season; where there is none, the latest value.

    Its spread is the root mean square of a series' seasonal differences up to the cutoff. It grows with the number of
    seasons ahead. Before a series has a seasonal difference, plain differences take their place, also as the unit.
    """

    def __init__(self, panel: Panel, season: int) -> None:
        self._season = season
        self._starts = panel.starts
        series = panel.series
        place = np.arange(len(panel.y)) - panel.starts[series]
        y = pd.Series(panel.y)
        self._latest = y.groupby(series).ffill().to_numpy(np.float64)
        self._by_phase = y.groupby([series, place % season]).ffill().to_numpy(np.float64)
        self._sizes, self._squares = [], []
        with np.errstate(over="ignore", invalid="ignore"):
            for lag in (season, 1):
                earlier = np.where(place >= lag, np.roll(panel.y, lag), np.nan)
                size = np.abs(panel.y - earlier)
                self._sizes.append(_running_mean(size, series))
                self._squares.append(_running_mean(size**2, series))

    def seasonal(self, cutoffs: Ints) -> bool:
        """Whether any series has a seasonal difference up to its cutoff."""
        return self._season > 1 and bool((~np.isnan(self._sizes[0][cutoffs])).any())

    def forecast(self, cutoffs: Ints, h: int) -> NaiveForecast:
        """Forecasts of the h rows after these rows."""
        first = self._starts[np.searchsorted(self._starts, cutoffs, side="right") - 1, None]
        leads = np.arange(1, h + 1)
        seasons = -(-leads // self._season)
        before = cutoffs[:, None] + leads - self._season * seasons
        same = np.where(before >= first, self._by_phase[before.clip(min=0)], np.nan)
        point = np.where(np.isnan(same), self._latest[cutoffs, None], same)
        unit, square = (_either(means, cutoffs) for means in (self._sizes, self._squares))
        spread = np.sqrt(np.nan_to_num(square))[:, None] * np.sqrt(seasons)
        return NaiveForecast(point, spread, unit)


def _either(means: list[Floats], rows: Ints) -> Floats:
    seasonal, plain = (mean[rows] for mean in means)
    return np.where(np.isnan(seasonal), plain, seasonal)


def _running_mean(values: Floats, series: Ints) -> Floats:
    """The mean of a series' known values so far, at every row; NaN before the first. No series touches another's."""
    known = pd.Series(~np.isnan(values)).groupby(series).cumsum().to_numpy()
    total = pd.Series(np.nan_to_num(values, posinf=np.inf)).groupby(series).cumsum().to_numpy()
    mean: Floats = np.divide(total, known, out=np.full(len(values), np.nan), where=known > 0)
    return mean
