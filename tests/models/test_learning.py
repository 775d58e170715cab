"""Every way to read a context learns a pattern that the mean of a series misses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.making import make

H, DAYS = 7, 140
WEEK = np.array([0.6, 0.7, 0.9, 1.0, 1.2, 1.5, 1.1])


@pytest.fixture(scope="module")
def panel() -> pd.DataFrame:
    """Thirty series with a common weekly pattern and a level of their own, which jumps once."""
    random = np.random.default_rng(1)
    day, ds = np.arange(DAYS), pd.date_range("2024-01-01", periods=DAYS)
    frames = []
    for i in range(30):
        level = random.uniform(50, 500) * np.where(day < random.integers(30, DAYS - 20), 1.0, random.uniform(0.6, 1.6))
        y = level * WEEK[day % 7] * random.normal(1, 0.05, DAYS)
        frames.append(pd.DataFrame({"unique_id": f"s{i:02}", "ds": ds, "y": y}))
    return pd.concat(frames, ignore_index=True)


@pytest.mark.parametrize(
    "options",
    [{"model": "snail"}, {"model": "baseline", "encoder": "sru"}, {"model": "baseline", "encoder": "fru"}],
    ids=["snail", "sru", "fru"],
)
def test_the_forecast_clearly_beats_the_mean(panel: pd.DataFrame, options: dict[str, Any]) -> None:
    """The day of the week is known; the level after the jump is to be read from the context."""
    past = panel.groupby("unique_id").head(DAYS - H)
    f = make(
        h=H, freq="D", input_size=14, max_steps=100, weight_average=0.9, learning_rate=0.02, accelerator="cpu",
        trainer={"enable_progress_bar": False}, **options,
    ).fit(past)  # fmt: skip
    merged = f.predict().merge(panel, on=["unique_id", "ds"])
    error = (merged["y"] - merged[options["model"]]).abs().sum()
    naive = (merged["y"] - merged["unique_id"].map(past.groupby("unique_id")["y"].mean())).abs().sum()
    assert len(merged) == 30 * H
    assert error < 0.6 * naive
