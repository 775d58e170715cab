"""GluonTS: DeepAR in torch, a cross-check of other implementations of the same model."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pandas as pd
from gluonts.dataset.common import ListDataset
from gluonts.torch import DeepAREstimator

from benchmarks.peers.worker.interface import LEVEL, Spec, one_hot

BATCHES = 50  # of an epoch, the library's default


class GluonDeepARPeer:
    """Trained once; later windows only bring new context. Missing values are the library's own business.

    On a calendar the library chooses time features and lags by the frequency. Rows that are merely consecutive get a
    nominal daily index, our calendar features as covariates, and lags by the season.
    """

    libraries = ("gluonts", "torch")

    def __init__(self, spec: Spec, static: pd.DataFrame) -> None:
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        pl.seed_everything(spec.seed)
        self.spec = spec
        self.regular = isinstance(spec.freq, str)
        self.period = period(spec.freq) if isinstance(spec.freq, str) else "D"
        self.codes = {k: v for k, v in spec.codes.items() if not (self.regular and k in spec.calendar)}
        self.static_numbers = static[spec.static_numbers].to_numpy(np.float32)
        self.static_codes = static[list(spec.static_codes)].to_numpy(np.int64)

    def fit(self, past: pd.DataFrame) -> None:
        """Train the network."""
        spec = self.spec
        data = self._dataset(past, None)
        dynamic = len(spec.numbers) + sum(levels - 1 for levels in self.codes.values())
        options: dict[str, Any] = {} if self.regular else {"time_features": [], "lags_seq": lags(spec)}
        estimator = DeepAREstimator(
            freq=self.period,
            prediction_length=spec.h,
            context_length=spec.context,
            num_feat_dynamic_real=dynamic,
            num_feat_static_real=len(spec.static_numbers),
            num_feat_static_cat=len(spec.static_codes),
            cardinality=list(spec.static_codes.values()) or None,
            num_batches_per_epoch=BATCHES,
            trainer_kwargs={
                "max_epochs": -(-spec.steps // BATCHES),
                "accelerator": spec.accelerator,
                "devices": 1,
                "logger": False,
                "enable_progress_bar": False,
                "enable_model_summary": False,
            },
            **options,
        )
        self.predictor = estimator.train(data)

    def predict(self, past: pd.DataFrame, future: pd.DataFrame) -> pd.DataFrame:
        """Forecast from new context with the weights as they are: 100 sample paths."""
        forecasts = list(self.predictor.predict(self._dataset(past, future)))
        ends = (0.5 - LEVEL / 200, 0.5 + LEVEL / 200)
        return future[["unique_id", "step"]].assign(
            mean=np.concatenate([f.mean for f in forecasts]),
            median=np.concatenate([f.quantile(0.5) for f in forecasts]),
            low=np.concatenate([f.quantile(ends[0]) for f in forecasts]),
            high=np.concatenate([f.quantile(ends[1]) for f in forecasts]),
        )

    def _dataset(self, past: pd.DataFrame, future: pd.DataFrame | None) -> ListDataset:
        return ListDataset(self._entries(past, future), freq=self.period)

    def _entries(self, past: pd.DataFrame, future: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
        rows = past if future is None else pd.concat([past, future]).sort_values(["unique_id", "step"])
        known = pd.concat([rows[self.spec.numbers], one_hot(rows, self.codes)], axis=1).to_numpy(np.float32)
        y = past.y.to_numpy(np.float32)
        row, value = 0, 0
        for series, length in past.groupby("unique_id").size().items():
            covered = length if future is None else length + self.spec.h
            start = past.ds.iloc[value] if self.regular else pd.Timestamp("2000-01-01")
            entry: dict[str, Any] = {
                "item_id": str(series),
                "start": pd.Period(start, freq=self.period),
                "target": y[value : value + length],
                "feat_static_real": self.static_numbers[series],
                "feat_static_cat": self.static_codes[series],
                "feat_dynamic_real": known[row : row + covered].T,
            }
            yield {k: v for k, v in entry.items() if not isinstance(v, np.ndarray) or v.size}
            row, value = row + covered, value + length


def period(freq: str) -> str:
    """The period of a pandas offset: months begin or end, a period does neither."""
    return {"MS": "M", "ME": "M", "QS": "Q", "QE": "Q", "YS": "Y", "YE": "Y"}.get(freq, freq)


def lags(spec: Spec) -> list[int]:
    """The latest season, and whole seasons as far as the context goes."""
    return sorted({*range(1, spec.season + 2), *range(spec.season, spec.context + 1, spec.season)})
