"""Peers for the tests of `benchmarks.peers`; they run in a process of their own, as real ones do."""

from __future__ import annotations

import pandas as pd

from benchmarks.peers.worker.interface import Spec


class Echo:
    """Forecasts show what the peer was given: mean = sum of all y it may know, median = a covariate of the row."""

    libraries = ("pandas",)

    def __init__(self, spec: Spec, static: pd.DataFrame) -> None:
        self.spec = spec
        self.static = static

    def fit(self, past: pd.DataFrame) -> None:
        self.trained = past.groupby("unique_id").y.sum()

    def predict(self, past: pd.DataFrame, future: pd.DataFrame) -> pd.DataFrame:
        assert "y" not in future
        known = future[self.spec.numbers].sum(axis=1) if self.spec.numbers else 0.0
        return future[["unique_id", "step"]].assign(
            mean=future.unique_id.map(past.groupby("unique_id").y.sum()),
            median=known,
            low=future.unique_id.map(self.trained),
            high=future.unique_id.map(past.groupby("unique_id").step.max()),
        )


class Forgetful(Echo):
    """Loses the last series."""

    def predict(self, past: pd.DataFrame, future: pd.DataFrame) -> pd.DataFrame:
        frame = super().predict(past, future)
        return frame[frame.unique_id < frame.unique_id.max()]


class Broken(Echo):
    """Cannot be trained."""

    def fit(self, past: pd.DataFrame) -> None:
        raise ValueError("no luck today")
