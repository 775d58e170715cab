"""GluonTS: forecasts are those of aru, its Evaluator scores them as aru does, and predictors survive files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from examples import run
from gluonts.dataset.pandas import PandasDataset
from gluonts.dataset.split import split
from gluonts.ev.metrics import ND, RMSE
from gluonts.evaluation import Evaluator, make_evaluation_predictions
from gluonts.model import evaluate_model
from gluonts.model.predictor import ParallelizedPredictor, Predictor
from sales import PROMO, shops

from aru import Forecaster
from aru.errors import FrequencyError, InputError
from aru.integrations.gluonts import AruPredictor

H = 7
SMALL: dict[str, Any] = {"model": "aru-rnn", "size": (4, 5, 4, 3), "max_steps": 5, "accelerator": "cpu", "alias": "aru"}
FEATURES = {"feat_dynamic_real": ["promo"], "past_feat_dynamic_real": ["temp"]}
LISTS = {"futr_exog_list": ["promo"], "hist_exog_list": ["temp"], "stat_exog_list": ["size"]}


@pytest.fixture(scope="module")
def df() -> pd.DataFrame:
    return shops()


def dataset(df: pd.DataFrame, **more: Any) -> PandasDataset:
    return PandasDataset.from_long_dataframe(df, item_id="unique_id", timestamp="ds", target="y", freq="D", **more)


@pytest.fixture(scope="module", params=["pretrained", "fitted"])
def forecaster(request: pytest.FixtureRequest, df: pd.DataFrame) -> Forecaster:
    if request.param == "pretrained":
        return Forecaster.from_pretrained("nano", h=H, freq="D")
    return Forecaster(h=H, freq="D", **SMALL).fit(df[["unique_id", "ds", "y"]])


def test_the_evaluator_scores_as_aru_does(forecaster: Forecaster, df: pd.DataFrame) -> None:
    train, template = split(dataset(df), offset=-H)
    forecasts = list(AruPredictor(forecaster).predict(train))
    targets = [frame.set_index(pd.PeriodIndex(frame["ds"], freq="D"))["y"] for _, frame in df.groupby("unique_id")]
    evaluator = Evaluator(quantiles=(0.05, 0.5, 0.95), seasonality=7, num_workers=0)
    theirs, items = evaluator(targets, forecasts)
    ours = forecaster.backtest(df[["unique_id", "ds", "y"]], n_windows=1, level=[90]).scorecard.model
    for their_name, name in (("ND", "nd"), ("RMSE", "rmse"), ("MASE", "mase")):
        assert theirs[their_name] == pytest.approx(ours[name], rel=1e-9), name
    assert theirs["Coverage[0.95]"] - theirs["Coverage[0.05]"] == pytest.approx(ours["coverage-90"])
    assert list(items["item_id"]) == sorted(df.unique_id.unique())
    pairs = template.generate_instances(H)
    new = evaluate_model(AruPredictor(forecaster), test_data=pairs, metrics=[ND(0.5), RMSE("mean")])
    assert new["ND[0.5]"].iloc[0] == pytest.approx(ours["nd"], rel=1e-9)
    assert new["RMSE[mean]"].iloc[0] == pytest.approx(ours["rmse"], rel=1e-9)


def test_many_windows_are_those_of_a_backtest(forecaster: Forecaster, df: pd.DataFrame) -> None:
    _, template = split(dataset(df), offset=-3 * H)
    pairs = template.generate_instances(H, windows=3)
    scores = evaluate_model(AruPredictor(forecaster), test_data=pairs, metrics=[ND(0.5)])
    ours = forecaster.backtest(df[["unique_id", "ds", "y"]], n_windows=3).scorecard.model
    # What series of a pretrained model have in common is learned at other moments of a backtest.
    same = 1e-2 if forecaster.runtime.engine.shares else 1e-9
    assert scores["ND[0.5]"].iloc[0] == pytest.approx(ours["nd"], rel=same)


def test_later_windows_have_no_part_in_earlier_ones(forecaster: Forecaster, df: pd.DataFrame) -> None:
    _, template = split(dataset(df), offset=-3 * H)
    windows = list(template.generate_instances(H, windows=3).input)
    together = list(AruPredictor(forecaster).predict(windows))
    assert [made.start_date for made in together] == [w["start"] + len(w["target"]) for w in windows]
    first = [i for i, window in enumerate(windows) if len(window["target"]) == 99]
    alone = list(AruPredictor(forecaster).predict([windows[i] for i in first]))
    for at, made in zip(first, alone, strict=True):
        np.testing.assert_array_equal(together[at].forecast_array, made.forecast_array)


def test_covariates_of_all_kinds_are_used(df: pd.DataFrame) -> None:
    static = df.groupby("unique_id").y.mean().round().rename("size").to_frame()
    given = dataset(df, **FEATURES, static_features=static)
    train, _ = split(given, offset=-H)
    predictor = AruPredictor(Forecaster.from_pretrained("nano", h=H, freq="D", **LISTS))
    made = list(predictor.predict([{**entry, **future(df, entry)} for entry in train]))
    truth = df.groupby("unique_id").y.apply(lambda y: y.to_numpy()[-H:])
    for forecast in made:
        assert np.abs(forecast.mean - truth[forecast.item_id]).mean() < PROMO / 4
    with pytest.raises(InputError, match="needs 120 times"):
        list(predictor.predict(train))  # without the future of the promotions


def future(df: pd.DataFrame, entry: dict[str, Any]) -> dict[str, Any]:
    return {"feat_dynamic_real": df[df.unique_id == entry["item_id"]][["promo"]].to_numpy().T}


def test_sample_paths(forecaster: Forecaster, df: pd.DataFrame) -> None:
    forecasts, targets = make_evaluation_predictions(dataset(df), predictor=AruPredictor(forecaster), num_samples=50)
    made = list(forecasts)
    assert [forecast.samples.shape for forecast in made] == [(50, H)] * 4
    assert [forecast.start_date for forecast in made] == [pd.Period("2024-04-23", "D")] * 4
    assert Evaluator(num_workers=0)(list(targets), made)[0]["ND"] < 0.2


def test_files_and_processes(forecaster: Forecaster, df: pd.DataFrame, tmp_path: Path) -> None:
    predictor = AruPredictor(forecaster, quantiles=[0.1, 0.9])
    expected = list(predictor.predict(dataset(df)))
    assert expected[0].forecast_keys == ["mean", "0.1", "0.5", "0.9"]
    predictor.serialize(tmp_path)
    for other in (Predictor.deserialize(tmp_path), ParallelizedPredictor(predictor, num_workers=1, chunk_size=9)):
        made = list(other.predict(dataset(df)))
        np.testing.assert_array_equal([f.forecast_array for f in made], [f.forecast_array for f in expected])
        assert [f.item_id for f in made] == [f.item_id for f in expected]


def test_other_steps_than_those_of_the_forecaster_are_refused(forecaster: Forecaster) -> None:
    entry = {"start": pd.Period("2024-01-01", "W"), "target": np.arange(30.0)}
    for samples in (None, 10):
        with pytest.raises(FrequencyError, match="W-SUN"):
            list(AruPredictor(forecaster).predict([entry], samples))


def test_an_error_names_the_item(forecaster: Forecaster) -> None:
    entry = {"start": pd.Period("2024-01-01", "D"), "target": np.full(30, np.nan), "item_id": "shop-7"}
    with pytest.raises(InputError, match="shop-7"):
        list(AruPredictor(forecaster).predict([entry]))


def test_a_forecaster_may_have_its_own_names_of_columns(df: pd.DataFrame) -> None:
    called = {"unique_id": "shop", "ds": "day", "y": "sold"}
    own, plain = (Forecaster.from_pretrained("nano", h=H, freq="D") for _ in range(2))
    rows = df[["unique_id", "ds", "y"]]
    own.update(rows.rename(columns=called), id_col="shop", time_col="day", target_col="sold")
    plain.update(rows)
    made = zip(*(AruPredictor(f).predict(dataset(rows)) for f in (own, plain)), strict=True)
    for ours, theirs in made:
        np.testing.assert_array_equal(ours.mean, theirs.mean)


def test_the_start_of_months(df: pd.DataFrame) -> None:
    months = pd.period_range("2019-01", periods=48, freq="M")
    entry = {"start": months[0], "target": 10 + np.arange(48) % 12, "item_id": "m"}
    (made,) = AruPredictor(Forecaster.from_pretrained("nano", h=3, freq="MS")).predict([entry])
    assert made.start_date == pd.Period("2023-01", "M")
    assert np.abs(made.mean - [10, 11, 12]).max() < 1


def test_the_example_runs() -> None:
    run("gluonts")
