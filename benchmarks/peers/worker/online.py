"""River: one online model per series, which learns from every value once and never looks back."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from river import linear_model, optim, preprocessing, time_series

from benchmarks.peers.worker.interface import Spec, Streaming, filled, one_hot
from benchmarks.peers.worker.naive import SeasonalNaive

LONGEST_ORDER = 12
RATE = 1e-3  # River's default of 1e-2 diverges with this many lags
DIVERGED = 10  # times the largest value of a series: no forecast any more


class Rows(NamedTuple):
    """New values of series with their features, and the features of the rows to forecast."""

    series: list[int]
    y: list[float]
    x: list[dict[str, float]]
    future: pd.DataFrame
    known: list[dict[str, float]]
    limit: pd.Series[float]  # of each forecast; beyond it a series has diverged
    fallback: pd.Series[float]


class SNARIMAXPeer(Streaming):
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
        self.trained: list[time_series.SNARIMAX] = []
        self.seen = pd.Series(-1, index=static.unique_id)

    def fit(self, past: pd.DataFrame) -> None:
        """Learn from the training rows, one after the other."""
        self.models = [new_model(self.spec.season, length) for length in past.groupby("unique_id").size()]
        self._learn(*self._new(past))

    def host(self, past: pd.DataFrame, static: pd.DataFrame, copies: NDArray[np.int64]) -> None:
        """What one name of a series has learned, its others have, too."""
        self.trained = self.trained or self.models
        self.models = [copy.deepcopy(self.trained[i]) for i in copies]
        self.seen = past.groupby("unique_id").step.max()

    def read(self, past: pd.DataFrame, future: pd.DataFrame) -> Rows:
        """The rows that are new, and what stands in where a forecast diverges."""
        limit = DIVERGED * future.unique_id.map(past.y.abs().groupby(past.unique_id).max())
        fallback = self.fallback.predict(past, future)["mean"]
        return Rows(*self._new(past), future, self._features(future), limit, fallback)

    def answer(self, asked: Rows) -> pd.DataFrame:
        """Learn, then forecast."""
        self._learn(asked.series, asked.y, asked.x)
        h, values = self.spec.h, []
        for at, series in zip(range(0, len(asked.known), h), asked.future.unique_id.tolist()[::h], strict=True):
            values += self.models[series].forecast(h, asked.known[at : at + h])
        point = pd.Series(values)
        sane = (point.abs() <= asked.limit).groupby(asked.future.unique_id).transform("all")
        point = point.where(sane, asked.fallback)
        return asked.future[["unique_id", "step"]].assign(mean=point, median=point)

    def _new(self, past: pd.DataFrame) -> tuple[list[int], list[float], list[dict[str, float]]]:
        past = past.assign(y=filled(past))
        new = past[past.step > past.unique_id.map(self.seen)]
        self.seen = past.groupby("unique_id").step.max()
        return new.unique_id.tolist(), new.y.tolist(), self._features(new)

    def _learn(self, series: list[int], y: list[float], x: list[dict[str, float]]) -> None:
        for i, value, features in zip(series, y, x, strict=True):
            self.models[i].learn_one(value, features)

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
