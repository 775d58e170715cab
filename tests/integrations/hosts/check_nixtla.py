"""neuralforecast and mlforecast: `Adapter` takes their frames of forecasts as they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from examples import run
from lightgbm import LGBMRegressor
from mlforecast import MLForecast
from mlforecast.utils import PredictionIntervals
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import MAE, MQLoss
from neuralforecast.models import NHITS

from aru import Adapter

H, WINDOWS, STEP = 7, 12, 7
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}


def moved() -> pd.DataFrame:
    """Series whose level moves after a frozen model's last training row."""
    rng = np.random.default_rng(0)
    days = pd.date_range("2023-01-01", periods=300)
    frames = []
    for i in range(6):
        level = np.where(np.arange(300) < 200, 1.0, rng.choice([0.6, 1.5]))
        y = 20 * (i + 1) * (level + 0.2 * (days.dayofweek > 4)) + rng.normal(0, 0.5, 300)
        frames.append(pd.DataFrame({"unique_id": f"shop-{i}", "ds": days, "y": y}))
    return pd.concat(frames, ignore_index=True)


def of_neuralforecast(df: pd.DataFrame) -> pd.DataFrame:
    models = [
        NHITS(h=H, input_size=14, loss=MQLoss(level=[90]), max_steps=20, alias="NHITS", **QUIET),
        NHITS(h=H, input_size=14, loss=MAE(), max_steps=20, alias="point", **QUIET),
    ]
    return NeuralForecast(models, freq="D").cross_validation(df, n_windows=WINDOWS, step_size=STEP)


def of_mlforecast(df: pd.DataFrame) -> pd.DataFrame:
    frozen = MLForecast({"lgb": LGBMRegressor(n_estimators=20, verbosity=-1)}, freq="D", lags=[28, 35])
    return frozen.cross_validation(
        df,
        n_windows=WINDOWS,
        h=H,
        step_size=STEP,
        refit=False,
        prediction_intervals=PredictionIntervals(n_windows=2, h=H),
        level=[90],
    )


@pytest.mark.parametrize("make", [of_neuralforecast, of_mlforecast])
def test_frames_of_cross_validation(make: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    df = moved()
    past = make(df)
    adapter = Adapter(h=H, freq="D")
    adapted = adapter.cross_validation(past, keep=True)  # the actual values are their column y
    assert list(adapted.columns) == list(past.columns)
    pd.testing.assert_frame_equal(adapted[["unique_id", "ds", "cutoff", "y"]], past[["unique_id", "ds", "cutoff", "y"]])
    models = [c for c in past if c in ("point", "lgb") or c.endswith("-median")]
    assert models
    for model in models:
        before, after = (float((frame[model] - frame["y"]).abs().mean()) for frame in (past, adapted))
        assert after < before, model
    low, high = (next(c for c in past if end in c) for end in ("-lo-90", "-hi-90"))
    assert (adapted[low] <= adapted[high]).all()
    with_df = Adapter(h=H, freq="D").cross_validation(past, df)
    first = past.cutoff == past.cutoff.min()
    assert with_df.shape == adapted.shape
    np.testing.assert_array_equal(adapted.loc[first, models], past.loc[first, models])  # nothing was known


def test_production_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    df = moved()
    past = of_mlforecast(df[df.ds < "2023-10-20"])
    adapter = Adapter(h=H, freq="D")
    adapter.cross_validation(past, df[df.ds <= past.cutoff.max()], keep=True)
    frozen = MLForecast({"lgb": LGBMRegressor(n_estimators=20, verbosity=-1)}, freq="D", lags=[28, 35]).fit(
        df[df.ds < "2023-07-01"]
    )
    new = df[(df.ds > past.cutoff.max()) & (df.ds < "2023-10-20")]
    assert adapter.update(new).applied == len(new)
    made = frozen.predict(H, new_df=df[df.ds < "2023-10-20"])
    adapted = adapter.adapt(made)
    truth = made.merge(df, on=["unique_id", "ds"]).y.to_numpy()
    assert np.abs(adapted.lgb - truth).mean() < np.abs(made.lgb - truth).mean()


def test_the_example_runs() -> None:
    run("nixtla")
