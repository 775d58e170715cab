"""The paper's synthetic experiment at small size: gamma = 20, no series id.

Ten hourly series y = theta_i . [hour, day of week, 1] + eps, theta_i uniform in [-20, 20], eps standard normal, hour
and day rescaled to [0, 1]. The last week is forecast day by day. No forecast can have an RMSE below 1. What a day of
context tells a frozen network about theta_i leaves it with about 5: one day of the week shows nothing of the slope
over the week. ARU fits theta_i from all history.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from aru.data.scores import scores
from tests.making import make

pytestmark = pytest.mark.usefixtures("in_torch")

GAMMA, WEEKS, SERIES = 20.0, 6, 10


def series(seed: int, prefix: str) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    ds = pd.date_range("2024-01-01", periods=WEEKS * 7 * 24, freq="h")
    x = np.stack([ds.hour / 23, ds.day_of_week / 6, np.ones(len(ds))], 1)
    parts = []
    for i in range(SERIES):
        theta = random.uniform(-GAMMA, GAMMA, 3)
        y = x @ theta + random.normal(size=len(ds))
        parts.append(pd.DataFrame({"unique_id": f"{prefix}{i}", "ds": ds, "y": y}))
    return pd.concat(parts, ignore_index=True)


KNOWN, UNSEEN = series(0, "known"), series(100, "unseen")


@pytest.fixture(scope="module")
def results() -> pd.DataFrame:
    """RMSE and coverage of both methods on series they were trained on and on series they were not."""
    before = KNOWN[KNOWN["ds"] < KNOWN["ds"].max() - pd.Timedelta(days=6, hours=23)]
    rows = []
    for model in ("baseline", "aru"):
        f = make(
            h=24,
            freq="h",
            input_size=24,
            model=model,
            lags=None,
            scaler="mean",
            distribution="gaussian",
            robust=False,
            learning_rate=0.02,
            max_steps=250,
            random_seed=1,
            accelerator="cpu",
            trainer={"enable_progress_bar": False},
        ).fit(before)
        for kind, df in (("known", KNOWN), ("unseen", UNSEEN)):
            rows.append({"model": model, "kind": kind, **scores(f.cross_validation(df, 7, level=[90]), model, 90)})
    return pd.DataFrame(rows).set_index(["model", "kind"])


def test_aru_approaches_the_noise_level(results: pd.DataFrame) -> None:
    assert 0.95 < results.loc[("aru", "known"), "rmse"] < 1.25


def test_the_baseline_does_not(results: pd.DataFrame) -> None:
    assert results.loc[("baseline", "known"), "rmse"] > 3.5
    assert results.loc[("baseline", "known"), "rmse"] > 3 * results.loc[("aru", "known"), "rmse"]


def test_aru_adapts_to_series_that_training_never_saw(results: pd.DataFrame) -> None:
    assert 0.95 < results.loc[("aru", "unseen"), "rmse"] < 1.4
    assert results.loc[("baseline", "unseen"), "rmse"] > 5


def test_arus_intervals_cover(results: pd.DataFrame) -> None:
    """90 % intervals of a short training on ten series: neither much too narrow nor much too wide."""
    for kind in ("known", "unseen"):
        assert 0.82 <= results.loc[("aru", kind), "coverage"] <= 0.95


def test_every_value_was_scored(results: pd.DataFrame) -> None:
    assert (results["values"] == SERIES * 7 * 24).all()
