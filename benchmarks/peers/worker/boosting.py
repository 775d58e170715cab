"""mlforecast with LightGBM: one global model of lags and covariates."""

from __future__ import annotations

import pandas as pd
from lightgbm import LGBMRegressor
from mlforecast import MLForecast
from mlforecast.lag_transforms import ExpandingMean, RollingMean
from mlforecast.target_transforms import LocalStandardScaler
from mlforecast.utils import PredictionIntervals

from benchmarks.peers.worker.interface import LEVEL, Spec, filled, threads

CALIBRATION_WINDOWS = 10


class LightGBMPeer:
    """Trained once on squared error (mean) and on absolute error (median), recursive over the horizon.

    Each series is standardised by its training rows. `MLForecast.update` brings the later rows in; the trees stay.
    Intervals are mlforecast's conformal ones, around the median, calibrated on windows before the first cutoff.
    """

    libraries = ("mlforecast", "lightgbm")

    def __init__(self, spec: Spec, static: pd.DataFrame) -> None:
        self.h = spec.h
        self.static = static
        self.covariates = [*spec.numbers, *spec.codes]
        self.intervals = False
        settings = {
            "n_estimators": spec.steps,
            "learning_rate": 0.05,
            "num_leaves": 63,
            "colsample_bytree": 0.8,
            "random_state": spec.seed,
            "n_jobs": threads(),
            "verbosity": -1,
        }
        models = {"mean": LGBMRegressor(**settings), "median": LGBMRegressor(objective="l1", **settings)}
        self.forecaster = MLForecast(
            models,
            freq=1,
            lags=lags(spec),
            lag_transforms={1: [RollingMean(max(spec.season, 2), min_samples=1), ExpandingMean()]},
            target_transforms=[LocalStandardScaler()],
        )

    def fit(self, past: pd.DataFrame) -> None:
        """Train both models and calibrate the intervals, as far as the shortest series allows."""
        windows = min(CALIBRATION_WINDOWS, (int(past.groupby("unique_id").size().min()) - 1) // self.h)
        self.intervals = windows >= 2
        self.forecaster.fit(
            self._frame(past),
            static_features=[c for c in self.static if c != "unique_id"],
            dropna=False,
            prediction_intervals=PredictionIntervals(n_windows=windows, h=self.h) if self.intervals else None,
        )
        self.seen = past.groupby("unique_id").step.max()

    def predict(self, past: pd.DataFrame, future: pd.DataFrame) -> pd.DataFrame:
        """Bring in what is new, then forecast."""
        frame = self._frame(past)
        new = frame[frame.ds > frame.unique_id.map(self.seen)]
        if len(new):
            self.forecaster.update(new)
            self.seen = past.groupby("unique_id").step.max()
        known = future[["unique_id", *self.covariates]].assign(ds=future.step) if self.covariates else None
        out = self.forecaster.predict(self.h, X_df=known, level=[LEVEL] if self.intervals else None)
        return out.rename(columns={"ds": "step", f"median-lo-{LEVEL}": "low", f"median-hi-{LEVEL}": "high"})

    def _frame(self, rows: pd.DataFrame) -> pd.DataFrame:
        frame = rows[["unique_id", *self.covariates]].assign(ds=rows.step, y=filled(rows))
        return frame.merge(self.static, on="unique_id") if len(self.static.columns) > 1 else frame


def lags(spec: Spec) -> list[int]:
    """The latest values, the seasons within the context, and the two latest seasons in any case."""
    seasons = range(spec.season, max(spec.context, 2 * spec.season) + 1, spec.season)
    return sorted({*range(1, 8), *seasons})
