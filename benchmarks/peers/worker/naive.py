"""Seasonal naive, in a few lines of pandas."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.peers.worker.interface import Spec, Streaming

Z90 = 1.6448536  # 95 % quantile of the normal distribution


class Season(NamedTuple):
    """The latest season of each series, (series, phase), the rows to forecast, and half the width of intervals."""

    values: NDArray[np.float64]
    future: pd.DataFrame
    width: pd.Series[float] | None


class SeasonalNaive(Streaming):
    """The latest known value of the same season; where there is none, the latest value.

    Intervals are normal, with the root mean square of the seasonal differences up to the cutoff (of plain ones, where
    the past is shorter than a season), growing with the number of seasons ahead.
    """

    libraries = ("pandas",)

    def __init__(self, spec: Spec, static: pd.DataFrame) -> None:
        self.season = spec.season
        self.intervals = spec.intervals

    def fit(self, past: pd.DataFrame) -> None:
        """There is nothing to train."""

    def host(self, past: pd.DataFrame, static: pd.DataFrame, copies: NDArray[np.int64]) -> None:
        """There is nothing to keep."""

    def read(self, past: pd.DataFrame, future: pd.DataFrame) -> Season:
        """The latest season."""
        phase = (past.step % self.season).rename("phase")
        latest = past.groupby(["unique_id", phase]).y.last().unstack().reindex(columns=range(self.season))
        last = past.groupby("unique_id").y.last().to_numpy()
        values = np.where(latest.isna(), last[:, None], latest)
        return Season(values, future, self._width(past, future) if self.intervals else None)

    def answer(self, asked: Season) -> pd.DataFrame:
        """Repeat it."""
        future = asked.future
        point = asked.values[future.unique_id.to_numpy(), future.step.to_numpy() % self.season]
        out = future[["unique_id", "step"]].assign(mean=point, median=point)
        return out if asked.width is None else out.assign(low=point - asked.width, high=point + asked.width)

    def _width(self, past: pd.DataFrame, future: pd.DataFrame) -> pd.Series[float]:
        spread = difference(past, self.season).fillna(difference(past, 1)).fillna(0.0)
        ahead = future.step - future.unique_id.map(past.groupby("unique_id").step.max())
        return Z90 * future.unique_id.map(spread) * np.sqrt((ahead - 1) // self.season + 1)


def difference(past: pd.DataFrame, lag: int) -> pd.Series[float]:
    """Root mean square of each series' differences at a lag; NaN where there is none."""
    squares = (past.y - past.groupby("unique_id").y.shift(lag)) ** 2
    return squares.groupby(past.unique_id).mean() ** 0.5
