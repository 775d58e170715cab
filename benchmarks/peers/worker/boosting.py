"""mlforecast with LightGBM: one global model of lags and covariates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from mlforecast import MLForecast
from mlforecast.lag_transforms import RollingMean
from mlforecast.target_transforms import Differences, LocalStandardScaler
from mlforecast.utils import PredictionIntervals
from numpy.typing import NDArray

from benchmarks.peers.worker.interface import LEVEL, Spec, Streaming, filled, threads

CALIBRATION_WINDOWS = 10


class LightGBMPeer(Streaming):
    """Trained once on squared error (mean) and on absolute error (median), recursive over the horizon.

    Levels, differences or seasonal differences, standardised per series: whichever is best on the last window of the
    training rows. `MLForecast.update` brings later rows in; the trees stay. (It leaves the state of expanding
    statistics behind, so none are used.) Intervals are mlforecast's conformal ones, around the median, calibrated on
    windows of the training rows. Where no intervals are asked for, the median is all there is.
    """

    libraries = ("mlforecast", "lightgbm")

    def __init__(self, spec: Spec, static: pd.DataFrame) -> None:
        self.spec = spec
        self.static = static
        self.covariates = [*spec.numbers, *spec.codes]
        self.fixed = [c for c in static if c != "unique_id"]

    def fit(self, past: pd.DataFrame) -> None:
        """Choose the differences, train both models and calibrate the intervals as far as the series are long."""
        frame = self._frame(past)
        shortest = int(past.groupby("unique_id").size().min())
        difference = self._choose_difference(frame, shortest)
        models, calibration = {"median": new_trees(self.spec, "l1")}, None
        if self.spec.intervals:
            models["mean"] = new_trees(self.spec, "l2")
            windows = min(CALIBRATION_WINDOWS, (shortest - 1 - difference) // self.spec.h)
            calibration = PredictionIntervals(n_windows=windows, h=self.spec.h) if windows >= 2 else None
        self.level = [LEVEL] if calibration else None
        self.forecaster = new_forecaster(self.spec, models, difference)
        self.forecaster.fit(frame, static_features=self.fixed, dropna=False, prediction_intervals=calibration)
        self.seen = past.groupby("unique_id").step.max()

    def host(self, past: pd.DataFrame, static: pd.DataFrame, copies: NDArray[np.int64]) -> None:
        """Other series for the same trees; of their values only those that a feature reads."""
        self.static = static
        self.seen = past.groupby("unique_id").step.max()
        reach = max(lags(self.spec)) + self.spec.season
        self.forecaster.preprocess(
            self._frame(past), static_features=self.fixed, dropna=False, keep_last_n=reach, validate_data=False
        )

    def read(self, past: pd.DataFrame, future: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame | None]:
        """The rows that are new, and the covariates of the horizon."""
        frame = self._frame(past)
        new = frame[frame.ds > frame.unique_id.map(self.seen)]
        self.seen = past.groupby("unique_id").step.max()
        return new, future[["unique_id", *self.covariates]].assign(ds=future.step) if self.covariates else None

    def answer(self, asked: tuple[pd.DataFrame, pd.DataFrame | None]) -> pd.DataFrame:
        """Bring in what is new, then forecast."""
        new, known = asked
        if len(new):
            self.forecaster.update(new)
        out = self.forecaster.predict(self.spec.h, X_df=known, level=self.level)
        out = out.rename(columns={"ds": "step", f"median-lo-{LEVEL}": "low", f"median-hi-{LEVEL}": "high"})
        return out if "mean" in out else out.assign(mean=out["median"])

    def _choose_difference(self, frame: pd.DataFrame, shortest: int) -> int:
        """0, 1 or the season, by the absolute error on the last horizon; only what the shortest series allows."""
        candidates = sorted({0, 1, self.spec.season})
        candidates = [d for d in candidates if shortest > d + self.spec.h] or [0]
        return min(candidates, key=lambda d: self._error(frame, d)) if len(candidates) > 1 else candidates[0]

    def _error(self, frame: pd.DataFrame, difference: int) -> float:
        forecaster = new_forecaster(self.spec, {"median": new_trees(self.spec, "l1")}, difference)
        out = forecaster.cross_validation(frame, n_windows=1, h=self.spec.h, static_features=self.fixed, dropna=False)
        return float((out.y - out["median"]).abs().sum())

    def _frame(self, rows: pd.DataFrame) -> pd.DataFrame:
        frame = rows[["unique_id", *self.covariates]].assign(ds=rows.step, y=filled(rows))
        return frame.merge(self.static, on="unique_id") if self.fixed else frame


def new_forecaster(spec: Spec, models: dict[str, LGBMRegressor], difference: int) -> MLForecast:
    """Lags and the mean of the last season."""
    return MLForecast(
        models,
        freq=1,
        lags=lags(spec),
        lag_transforms={1: [RollingMean(max(spec.season, 2), min_samples=1)]},
        target_transforms=[*([Differences([difference])] if difference else []), LocalStandardScaler()],
    )


def lags(spec: Spec) -> list[int]:
    """The latest values, and the seasons within the context (two in any case)."""
    seasons = range(spec.season, max(spec.context, 2 * spec.season) + 1, spec.season)
    return sorted({*range(1, 8), *seasons})


def new_trees(spec: Spec, objective: str) -> LGBMRegressor:
    """Settings that are common for panels of this size."""
    settings: dict[str, Any] = {"num_leaves": 63, "learning_rate": 0.05, "colsample_bytree": 0.8, "verbosity": -1}
    return LGBMRegressor(
        objective=objective, n_estimators=spec.steps, random_state=spec.seed, n_jobs=threads(), **settings
    )
