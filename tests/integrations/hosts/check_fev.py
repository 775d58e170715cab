"""fev: tasks on local data, with covariates and several targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fev
import numpy as np
import pytest
from examples import run
from sales import DAYS, shops

import datasets
from aru import Forecaster
from aru.integrations.fev import AruOnTask

H = 7
NANO: dict[str, Any] = {"name": "nano"}
COVARIATES: dict[str, Any] = {
    "known_dynamic_columns": ["promo"],
    "past_dynamic_columns": ["temp"],
    "static_columns": ["kind"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = []
    for name, frame in shops().groupby("unique_id"):
        columns = {key: list(frame[key]) for key in ("y", "promo", "temp")}
        twice = list(2 * frame["y"])
        rows.append({"id": name, "timestamp": list(DAYS), "kind": "ab"[int(frame.kind.iloc[0])], "z": twice, **columns})
    path = tmp_path_factory.mktemp("shops") / "daily" / "data.parquet"
    path.parent.mkdir()
    datasets.Dataset.from_list(rows).to_parquet(path)
    return str(path)


def task(data: str, **more: Any) -> fev.Task:
    given = {"target": "y", "seasonality": 7, "num_windows": 2, "quantile_levels": [0.1, 0.5, 0.9], **more}
    return fev.Task(dataset_path=data, horizon=H, **given)


def row(model: AruOnTask, of: fev.Task) -> dict[str, Any]:
    made = model.fit_predict(of)
    return of.evaluation_summary(made, model.model_name, model.training_time, model.inference_time)


def test_scores_are_those_of_a_backtest(data: str) -> None:
    of = task(data, eval_metric="MASE", extra_metrics=["WAPE", "MQL"], num_windows=1)
    summary = row(AruOnTask(settings=NANO), of)
    assert summary["model_name"] == "aru"
    df = shops()[["unique_id", "ds", "y"]]
    ours = Forecaster.from_pretrained("nano", h=H, freq="D", season_length=7).backtest(df, n_windows=1).scorecard.model
    assert summary["test_error"] == pytest.approx(ours["mase"], rel=1e-9)
    assert summary["inference_time_s"] > 0
    assert summary["training_time_s"] == 0


def test_covariates_help(data: str) -> None:
    plain, helped = (row(AruOnTask(settings=NANO), task(data, **more))["test_error"] for more in ({}, COVARIATES))
    assert helped < plain / 2


def test_the_mean_is_scored_by_squares(data: str) -> None:
    window = task(data, eval_metric="RMSE", num_windows=1)
    (made,) = AruOnTask(settings=NANO).fit_predict(window)
    forecaster = Forecaster.from_pretrained("nano", h=H, freq="D", season_length=7)
    df = shops()
    forecaster.update(df[df.ds <= DAYS[-H - 1]][["unique_id", "ds", "y"]])
    expected = forecaster.predict(level=[80])
    np.testing.assert_array_equal(np.concatenate(made["y"]["predictions"]), expected["aru"])
    np.testing.assert_array_equal(np.concatenate(made["y"]["0.1"]), expected["aru-lo-80"])


def test_several_targets(data: str) -> None:
    of = task(data, target=["y", "z"], num_windows=1, eval_metric="WAPE")
    (made,) = AruOnTask(settings=NANO).fit_predict(of)
    assert list(made) == ["y", "z"]
    np.testing.assert_allclose(made["z"]["predictions"], 2 * np.array(made["y"]["predictions"]), rtol=0.02)
    assert row(AruOnTask(settings=NANO), of)["num_forecasts"] == 8


def test_training_is_timed(data: str) -> None:
    small = {"model": "aru-rnn", "size": (4, 5, 4, 3), "max_steps": 5, "accelerator": "cpu"}
    summary = row(AruOnTask(train=True, settings=small), task(data, num_windows=1))
    assert summary["training_time_s"] > 0
    assert np.isfinite(summary["test_error"])


def test_it_is_a_model_by_name_on_a_leaderboard(data: str) -> None:
    assert fev.ForecastingModel.get_model_cls("aru") is AruOnTask
    assert AruOnTask.trained_on_datasets == []
    summaries = [row(AruOnTask(settings=NANO), task(data, **more)) for more in ({}, COVARIATES)]
    board = fev.leaderboard(summaries, baseline_model="aru")
    assert board.loc["aru", "skill_score"] == 0
    assert board.loc["aru", "num_failures"] == 0


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("fev")
