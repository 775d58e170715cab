"""River: one online model per series, which learns from every value once and never looks back."""

from __future__ import annotations

import pandas as pd
from river import linear_model, optim, preprocessing, time_series

from benchmarks.peers.worker.interface import Spec, filled, one_hot
from benchmarks.peers.worker.naive import SeasonalNaive

LONGEST_ORDER = 12
RATE = 1e-3  # River's default of 1e-2 diverges with this many lags
DIVERGED = 10  # times the largest value of a series: no forecast any more


class SNARIMAXPeer:
    """Seasonal differences on lags, past errors and known covariates; categories enter as 0 and 1.

    The regressor is River's usual scaler and linear regression; order and rate were chosen on rows before the test.
    Where a series diverges all the same, its window gets the seasonal naive forecast. Gaps are filled with the last
    value. A series without a whole season in training has plain differences instead.
    River has no intervals for this model; the point forecast is mean and median.
    """

    libraries = ("river",)

    def __init__(self, spec: Spec, static: pd.DataFrame) -> None:
        self.spec = spec
        self.fallback = SeasonalNaive(spec, static)
        self.models: list[time_series.SNARIMAX] = []
        self.seen = pd.Series(-1, index=static.unique_id)

    def fit(self, past: pd.DataFrame) -> None:
        """Learn from the training rows, one after the other."""
        self.models = [new_model(self.spec.season, length) for length in past.groupby("unique_id").size()]
        self._learn(past)

    def predict(self, past: pd.DataFrame, future: pd.DataFrame) -> pd.DataFrame:
        """Learn from the rows that are new, then forecast."""
        self._learn(past)
        known = self._features(future)
        values: list[float] = []
        for start in range(0, len(future), self.spec.h):
            model = self.models[future.unique_id[start]]
            values += model.forecast(self.spec.h, known[start : start + self.spec.h])
        limit = DIVERGED * future.unique_id.map(past.y.abs().groupby(past.unique_id).max())
        sane = (pd.Series(values).abs() <= limit).groupby(future.unique_id).transform("all")
        point = pd.Series(values).where(sane, self.fallback.predict(past, future)["mean"])
        return future[["unique_id", "step"]].assign(mean=point, median=point)

    def _learn(self, past: pd.DataFrame) -> None:
        past = past.assign(y=filled(past))
        new = past[past.step > past.unique_id.map(self.seen)]
        for series, y, x in zip(new.unique_id, new.y, self._features(new), strict=True):
            self.models[series].learn_one(y, x)
        self.seen = past.groupby("unique_id").step.max()

    def _features(self, rows: pd.DataFrame) -> list[dict[str, float]]:
        columns = pd.concat([rows[self.spec.numbers], one_hot(rows, self.spec.codes)], axis=1)
        return columns.astype(float).to_dict("records") if len(columns.columns) else [{} for _ in range(len(rows))]


def new_model(season: int, length: int) -> time_series.SNARIMAX:
    """The model of a series with so many training rows."""
    regressor = preprocessing.StandardScaler() | linear_model.LinearRegression(optim.SGD(RATE))
    if length <= season:
        return time_series.SNARIMAX(p=1, d=1, q=1, regressor=regressor)
    order = min(season, LONGEST_ORDER)
    return time_series.SNARIMAX(p=order, d=0, q=order, m=season, sd=1, regressor=regressor)
