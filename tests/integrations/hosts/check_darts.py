"""Darts: forecasts are those of aru, with all kinds of covariates; historical forecasts walk through a series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from darts import TimeSeries
from darts.metrics import mae
from examples import run
from sales import PROMO, shops

from aru import Forecaster
from aru.errors import FrequencyError, FutureError, InputError
from aru.integrations.darts import AruModel

H = 7
ZERO_SHOT: dict[str, Any] = {"settings": {"name": "nano"}}
SMALL = {"model": "aru-rnn", "size": (4, 5, 4, 3), "max_steps": 3, "input_size": 7, "lags": None, "accelerator": "cpu"}
TRAINED: dict[str, Any] = {"train": True, "settings": SMALL}


class Panel:
    """Series of 110 days; the promotions of ten more are known."""

    def __init__(self) -> None:
        self.df = shops()
        self.series, self.past, self.future = [], [], []
        for _, frame in self.df.groupby("unique_id"):
            table = frame.set_index("ds")
            static = pd.DataFrame({"kind": [table["kind"].iloc[0]]})
            self.series.append(TimeSeries.from_series(table["y"][:110], static_covariates=static))
            self.past.append(TimeSeries.from_series(table["temp"][:110]))
            self.future.append(TimeSeries.from_series(table["promo"]))

    def covariates(self, at: int) -> dict[str, TimeSeries]:
        return {"past_covariates": self.past[at], "future_covariates": self.future[at]}


@pytest.fixture(scope="module")
def panel() -> Panel:
    return Panel()


@pytest.fixture(scope="module", params=["zero-shot", "trained"])
def fitted(request: pytest.FixtureRequest, panel: Panel) -> AruModel:
    model = AruModel(H, **(ZERO_SHOT if request.param == "zero-shot" else TRAINED))
    return model.fit(panel.series, panel.past, panel.future)


def test_covariates_of_all_kinds_are_used(panel: Panel) -> None:
    model = AruModel(H, **ZERO_SHOT).fit(panel.series, panel.past, panel.future)
    assert (model.uses_past_covariates, model.uses_future_covariates, model.uses_static_covariates) == (True,) * 3
    made = model.predict(H, panel.series, panel.past, panel.future)
    truth = panel.df.set_index(["unique_id", "ds"]).y
    for at, forecast in enumerate(made):
        actual = truth[f"shop-{at}"][110 : 110 + H]
        pd.testing.assert_index_equal(forecast.time_index, actual.index, check_names=False)
        assert np.abs(forecast.values().ravel() - actual).mean() < PROMO / 4
        assert forecast.static_covariates is not None
    settings = model.forecaster.settings
    assert (settings.hist_exog_list, settings.futr_exog_list, settings.stat_exog_list) == (("p0",), ("f0",), ("s0",))


def test_forecasts_are_those_of_aru(panel: Panel) -> None:
    model = AruModel(H, **ZERO_SHOT).fit(panel.series[0].with_static_covariates(None))
    forecaster = Forecaster.from_pretrained("nano", h=H, freq="D")
    forecaster.update(panel.df[:110][["unique_id", "ds", "y"]])
    expected = forecaster.predict()["aru"]
    np.testing.assert_array_equal(model.predict(H).values().ravel(), expected)
    np.testing.assert_array_equal(model.predict(3).values().ravel(), expected[:3])


def test_historical_forecasts_without_training_are_those_from_each_cutoff(
    fitted: AruModel, panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = []
    update = Forecaster.update
    monkeypatch.setattr(Forecaster, "update", lambda *a, **k: whole.append(len(a[1])) or update(*a, **k))
    monkeypatch.setattr(AruModel, "fit", None)
    made = fitted.historical_forecasts(
        panel.series[1],
        **panel.covariates(1),
        start=90,
        forecast_horizon=H,
        stride=2,
        retrain=False,
        last_points_only=False,
    )
    assert len(made) == 7
    assert whole == [90, 2, 2, 2, 2, 2, 2]  # each row is taken in once
    for forecast in made:
        fitted._walk = None
        history = panel.series[1].drop_after(forecast.start_time())
        fresh = fitted.predict(H, history, **panel.covariates(1))
        np.testing.assert_array_equal(forecast.values(), fresh.values())


def test_a_change_of_the_past_is_not_overlooked(panel: Panel) -> None:
    model = AruModel(H, **ZERO_SHOT).fit(panel.series[0])
    before = model.predict(H, panel.series[0])
    other = panel.series[0] * 2
    assert mae(model.predict(H, other), before * 2) < mae(before, before * 2) / 10
    several = model.predict(H, [other, panel.series[1]])
    np.testing.assert_array_equal(several[0].values(), model.predict(H, other).values())
    np.testing.assert_array_equal(several[1].values(), model.predict(H, panel.series[1]).values())


def test_retraining_and_backtests_are_those_of_darts(panel: Panel) -> None:
    model = AruModel(H, **ZERO_SHOT)
    error = model.backtest(panel.series[0], start=96, forecast_horizon=H, stride=7, retrain=True, metric=mae)
    assert error < PROMO


def test_sample_paths(fitted: AruModel, panel: Panel) -> None:
    made = fitted.predict(H, panel.series[0], **panel.covariates(0), num_samples=100, random_state=1)
    assert made.n_samples == 100
    assert (made.quantile(0.9).values() >= made.quantile(0.1).values()).all()
    again = fitted.predict(H, panel.series[0], **panel.covariates(0), num_samples=100, random_state=1)
    np.testing.assert_array_equal(made.all_values(), again.all_values())


def test_components_are_series_and_integers_are_times() -> None:
    wave = np.sin(np.arange(100) * 2 * np.pi / 10)
    both = TimeSeries.from_values(np.stack([10 + wave, 100 + 10 * wave], 1), columns=["a", "b"])
    made = AruModel(5, settings={"name": "nano", "season_length": 10}).fit(both).predict(5)
    assert list(made.components) == ["a", "b"]
    assert made.start_time() == 100
    assert np.abs(made.values()[:, 1] - 10 * made.values()[:, 0]).max() < 1


def test_more_steps_than_trained_are_refused(fitted: AruModel, panel: Panel) -> None:
    with pytest.raises(InputError, match="output_chunk_length"):
        fitted.predict(H + 1, panel.series[0], **panel.covariates(0))


def test_what_fit_did_not_have_is_refused(fitted: AruModel, panel: Panel) -> None:
    mondays = pd.date_range("2023-01-02", periods=30, freq="W-MON")
    weeks = TimeSeries.from_series(pd.Series(np.arange(30.0), mondays)).with_static_covariates(
        pd.DataFrame({"kind": ["a"]})
    )
    with pytest.raises(FrequencyError, match="Week"):
        fitted.predict(H, weeks, panel.past[0], panel.future[0])
    plain = AruModel(H, **ZERO_SHOT).fit(panel.series[0])
    with pytest.raises(InputError, match="fitted without future_covariates"):
        plain.predict(H, panel.series[1], future_covariates=panel.future[1])


def test_a_future_that_ends_early_is_an_error(fitted: AruModel, panel: Panel) -> None:
    assert len(fitted.predict(H - 1, panel.series[0], panel.past[0], panel.future[0][: 110 + H - 1])) == H - 1
    with pytest.raises(FutureError, match="2024-04-26"):
        fitted.predict(H, panel.series[0], panel.past[0], panel.future[0][: 110 + H - 1])


def test_files(fitted: AruModel, panel: Panel, tmp_path: Path) -> None:
    fitted.save(str(tmp_path / "model.pkl"))
    loaded = AruModel.load(str(tmp_path / "model.pkl"), trusted=True)
    made = [model.predict(H, panel.series[0], **panel.covariates(0)).values() for model in (fitted, loaded)]
    np.testing.assert_array_equal(*made)


def test_the_example_runs() -> None:
    run("darts")
