"""sktime's own checks, and that forecasts are those of aru."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from examples import run
from sales import PROMO, shops
from sktime.datatypes import check_is_mtype
from sktime.forecasting.model_evaluation import evaluate
from sktime.split import SlidingWindowSplitter
from sktime.transformations.hierarchical.aggregate import Aggregator
from sktime.utils._testing.hierarchical import _make_hierarchical
from sktime.utils.estimator_checks import check_estimator

from aru import Forecaster
from aru.errors import ColumnError, FutureError, InputError
from aru.integrations.sktime import AruForecaster

NANO: dict[str, Any] = {"name": "nano"}
ALPHA = [0.05, 0.5, 0.9]
SMALL = {"model": "aru-rnn", "size": (4, 5, 4, 3), "max_steps": 3, "input_size": 4, "lags": None, "accelerator": "cpu"}


@pytest.fixture(scope="module")
def panel() -> pd.DataFrame:
    return shops().rename(columns={"unique_id": "shop", "ds": "day"}).set_index(["shop", "day"])


def one(panel: pd.DataFrame) -> pd.DataFrame:
    return panel.loc["shop-0"].asfreq("D")


def ours(y: pd.DataFrame, h: int) -> Forecaster:
    forecaster = Forecaster.from_pretrained("nano", h=h, freq="D")
    forecaster.update(y.rename_axis("ds").reset_index().assign(unique_id=0))
    return forecaster


def test_own_checks() -> None:
    results = check_estimator(AruForecaster, verbose=False)
    assert len(results) > 453  # more than one set of parameters
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}


def test_own_checks_of_forecasts_with_training() -> None:
    results = check_estimator(
        AruForecaster(train=True, settings=SMALL),
        verbose=False,
        tests_to_run=["test_fit_predict", "test_predict_quantiles", "test_hierarchical_with_exogenous"],
    )
    assert results
    assert set(results.values()) == {"PASSED"}


def test_forecasts_are_those_of_aru(panel: pd.DataFrame) -> None:
    y = one(panel)[["y"]]
    forecaster = AruForecaster(settings=NANO).fit(y, fh=[1, 3, 7])
    expected = ours(y, 7).predict(level=[80, 90]).iloc[[0, 2, 6]]
    np.testing.assert_array_equal(forecaster.predict()["y"], expected["aru"])
    quantiles = forecaster.predict_quantiles(alpha=ALPHA)["y"]
    for alpha, column in zip(ALPHA, ["aru-lo-90", "aru-median", "aru-hi-80"], strict=True):
        np.testing.assert_array_equal(quantiles[alpha], expected[column])
    interval = forecaster.predict_interval(coverage=[0.9])["y", 0.9]
    np.testing.assert_array_equal(interval["lower"], expected["aru-lo-90"])
    np.testing.assert_array_equal(interval["upper"], expected["aru-hi-90"])


def test_an_update_adapts_and_does_not_fit_again(panel: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    y = one(panel)["y"]
    forecaster = AruForecaster(settings=NANO).fit(y[:90], fh=range(1, 8))
    monkeypatch.setattr(AruForecaster, "_fit", None)
    model, expected = forecaster.forecaster_, ours(y[:90].to_frame("y"), 7)
    for day in range(90, 97):
        forecaster.update(y[day : day + 1])
        expected.update({"unique_id": [0], "ds": [y.index[day]], "y": [y.iloc[day]]})
    forecaster.update(y[94:97])  # rows that it knows
    assert forecaster.forecaster_ is model
    assert forecaster.cutoff[0] == y.index[96]
    np.testing.assert_array_equal(forecaster.predict(), expected.predict()["aru"])


def test_a_trained_model_keeps_its_weights_in_updates(panel: pd.DataFrame) -> None:
    y = one(panel)["y"]
    forecaster = AruForecaster(train=True, settings=SMALL).fit(y[:90], fh=[1, 2])
    weights = forecaster.forecaster_.runtime.engine.models[0].state_dict()
    before = {name: tensor.clone() for name, tensor in weights.items()}
    first = forecaster.predict()
    assert not np.array_equal(forecaster.update(y[90:100]).predict(), first)
    after = forecaster.forecaster_.runtime.engine.models[0].state_dict()
    assert all((after[name] == tensor).all() for name, tensor in before.items())


def test_a_panel_is_one_model_with_covariates(panel: pd.DataFrame) -> None:
    days = panel.index.get_level_values(-1)
    past, future = panel[days < "2024-04-01"], panel[(days >= "2024-04-01") & (days < "2024-04-08")]
    X = ["promo"]
    forecaster = AruForecaster(settings=NANO).fit(past[["y"]], X=past[X], fh=range(1, 8))
    assert len(forecaster.forecaster_.ids) == 4  # sktime made no copies
    made = forecaster.predict(X=future[X])
    assert check_is_mtype(made, "pd-multiindex", scitype="Panel")
    pd.testing.assert_index_equal(made.index, future.index)
    assert np.abs(made["y"] - future["y"]).mean() < PROMO / 4
    with pytest.raises(InputError, match="future of the covariates"):
        forecaster.predict()
    with pytest.raises(FutureError, match="2024-04-07"):
        forecaster.predict(X=future[X][future.index.get_level_values(-1) < "2024-04-07"])
    with pytest.raises(ColumnError, match="promo"):
        forecaster.update(past[["y"]][-1:], X=past[X][-1:].rename(columns={"promo": "price"}))


def test_covariates_of_steps_that_nobody_asks_for_are_not_wanted(panel: pd.DataFrame) -> None:
    days = panel.index.get_level_values(-1)
    past, future = panel[days < "2024-04-01"], panel[days == "2024-04-03"]
    made = AruForecaster(settings=NANO).fit(past[["y"]], X=past[["promo"]], fh=[3]).predict(X=future[["promo"]])
    assert np.abs(made["y"] - future["y"]).mean() < PROMO / 4


def test_steps_of_integers_are_integers() -> None:
    y = pd.Series(np.tile([1.0, 5.0], 30), np.arange(60)).drop([1, 4, 58])
    pd.testing.assert_index_equal(AruForecaster(settings=NANO).fit(y, fh=[1, 2]).predict().index, pd.Index([60, 61]))
    even = AruForecaster(settings=NANO).fit(y[::2], fh=[2]).predict()
    assert even.index[0] == y[::2].index[-1] + 2


def test_series_of_a_panel_may_come_one_after_the_other(panel: pd.DataFrame) -> None:
    y = panel[["y"]]
    days = y.index.get_level_values(-1)
    forecaster = AruForecaster(settings=NANO).fit(y[days < "2024-04-01"], fh=[1, 2])
    new = y[days == "2024-04-01"]
    expected = forecaster.clone().fit(y[days < "2024-04-01"], fh=[1, 2]).update(new).predict()
    for at in (2, 0, 3, 1):
        forecaster.update(new.iloc[at : at + 1])
        made = forecaster.predict()
        pd.testing.assert_index_equal(made.index, expected.index)
    pd.testing.assert_frame_equal(made, expected)


def test_a_hierarchy_with_series_that_end_early_and_that_begin_late() -> None:
    y = _make_hierarchical((2, 2), min_timepoints=20, max_timepoints=30, same_cutoff=False, random_state=0)
    forecaster = AruForecaster(settings=NANO).fit(y, fh=[1, 2])
    fh = forecaster.cutoff[0] + pd.to_timedelta([1, 2], unit="D")
    made = forecaster.predict()
    assert check_is_mtype(made, "pd_multiindex_hier", scitype="Hierarchical")
    assert set(made.index.get_level_values(-1)) == set(fh)
    new = pd.MultiIndex.from_tuples([("h0_9", "h1_9", time) for time in fh], names=y.index.names)
    after = forecaster.update(pd.DataFrame({"c0": [1.0, 2.0]}, new)).predict()
    assert len(after) == len(made) + 2
    whole = Aggregator().fit_transform(y)
    assert len(AruForecaster(settings=NANO).fit(whole, fh=[1]).predict()) == len(whole.index.droplevel(-1).unique())


@pytest.mark.parametrize("freq", ["M", "Q", "W", "h", "D"])
def test_periods_come_back_as_periods(freq: str) -> None:
    y = pd.Series(np.arange(40.0), pd.period_range("2020-03", periods=40, freq=freq))
    made = AruForecaster(settings=NANO).fit(y[:-3], fh=[1, 2, 3]).predict()
    pd.testing.assert_index_equal(made.index, y.index[-3:])


def test_it_is_evaluated_and_saved_as_others_are(panel: pd.DataFrame, tmp_path: Path) -> None:
    y = one(panel)["y"]
    cv = SlidingWindowSplitter(fh=[1, 2, 3], window_length=90, step_length=10)
    results = evaluate(AruForecaster(settings=NANO), cv, y, strategy="update", error_score="raise")
    assert len(results) == 3
    assert results["test_MeanAbsolutePercentageError"].max() < 0.3
    forecaster = AruForecaster(settings=NANO).fit(y, fh=[1, 2])
    forecaster.save(tmp_path / "forecaster")
    loaded = AruForecaster.load_from_path(tmp_path / "forecaster.zip")
    np.testing.assert_array_equal(loaded.predict(), forecaster.predict())


def test_the_example_runs() -> None:
    run("sktime")
