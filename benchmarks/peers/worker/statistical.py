"""statsforecast: one model per series, refitted at every cutoff."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from statsforecast import StatsForecast
from statsforecast.models import AutoARIMA, AutoETS, SeasonalNaive

from benchmarks.peers.worker.interface import LEVEL, Spec, Streaming, filled, threads

LONGEST_SEASON = 24  # of exponential smoothing, and of an ARIMA search that ends
HISTORY = 2000  # rows that a fit reads: all of most series, and enough of the others


class StatsForecastPeer(Streaming):
    """Refits at every cutoff, as the library's own cross-validation does by default; no covariates.

    Gaps are filled with the last value. A series that the model cannot fit falls back on the (seasonal) naive forecast.
    """

    libraries = ("statsforecast",)

    def __init__(self, model: type, spec: Spec) -> None:
        season = spec.season if spec.season <= LONGEST_SEASON else 1
        self.h = spec.h
        self.level = [LEVEL] if spec.intervals else None
        self.name = model.__name__
        self.forecaster = StatsForecast(
            [model(season_length=season)],
            freq=1,
            n_jobs=threads(),
            fallback_model=SeasonalNaive(season_length=season),
        )

    def fit(self, past: pd.DataFrame) -> None:
        """Everything happens at the cutoffs."""

    def host(self, past: pd.DataFrame, static: pd.DataFrame, copies: NDArray[np.int64]) -> None:
        """There is nothing to keep: every fit starts from scratch."""

    def read(self, past: pd.DataFrame, future: pd.DataFrame) -> pd.DataFrame:
        """The history."""
        return past[["unique_id"]].assign(ds=past.step, y=filled(past)).groupby("unique_id").tail(HISTORY)

    def answer(self, asked: pd.DataFrame) -> pd.DataFrame:
        """Fit every series from scratch and forecast."""
        low, high = f"{self.name}-lo-{LEVEL}", f"{self.name}-hi-{LEVEL}"
        out = self.forecaster.forecast(df=asked, h=self.h, level=self.level).rename(
            columns={"ds": "step", self.name: "mean", low: "low", high: "high"}
        )
        return out.assign(median=out["mean"])


def auto_ets(spec: Spec, static: pd.DataFrame) -> StatsForecastPeer:
    """Exponential smoothing chosen by AICc."""
    return StatsForecastPeer(AutoETS, spec)


def auto_arima(spec: Spec, static: pd.DataFrame) -> StatsForecastPeer:
    """ARIMA chosen by AICc."""
    return StatsForecastPeer(AutoARIMA, spec)
