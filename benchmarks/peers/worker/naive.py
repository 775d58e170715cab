"""Seasonal naive, in a few lines of pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.peers.worker.interface import Spec

Z90 = 1.6448536  # 95 % quantile of the normal distribution


class SeasonalNaive:
    """The latest known value of the same season; where there is none, the latest value.

    Intervals are normal, with the root mean square of the seasonal differences up to the cutoff (of plain ones, where
    the past is shorter than a season), growing with the number of seasons ahead.
    """

    libraries = ("pandas",)

    def __init__(self, spec: Spec, static: pd.DataFrame) -> None:
        self.season = spec.season

    def fit(self, past: pd.DataFrame) -> None:
        """There is nothing to train."""

    def predict(self, past: pd.DataFrame, future: pd.DataFrame) -> pd.DataFrame:
        """Repeat the last season."""
        phase = past.step % self.season
        latest = past.groupby(["unique_id", phase.rename("phase")]).y.last().rename("mean")
        series = past.groupby("unique_id")
        out = future[["unique_id", "step"]].assign(phase=future.step % self.season)
        out = out.join(latest, on=["unique_id", "phase"])
        out["mean"] = out["mean"].fillna(out.unique_id.map(series.y.last()))
        spread = difference(past, self.season).fillna(difference(past, 1)).fillna(0.0)
        ahead = out.step - out.unique_id.map(series.step.max())
        width = Z90 * out.unique_id.map(spread) * np.sqrt((ahead - 1) // self.season + 1)
        return out.assign(median=out["mean"], low=out["mean"] - width, high=out["mean"] + width)


def difference(past: pd.DataFrame, lag: int) -> pd.Series[float]:
    """Root mean square of each series' differences at a lag; NaN where there is none."""
    squares = (past.y - past.groupby("unique_id").y.shift(lag)) ** 2
    return squares.groupby(past.unique_id).mean() ** 0.5
