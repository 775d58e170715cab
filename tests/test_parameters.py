"""scikit-learn's protocol: parameters read and set again, `clone`, pickles and processes of joblib."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from aru import PAPER, Forecaster, NetworkOptions, TrainingOptions
from aru.errors import ConfigError, NotFittedError

DAYS = pd.date_range("2024-01-01", periods=40)
DF = pd.DataFrame(
    [(name, day, 10.0 + i + day.day_of_week) for i, name in enumerate("ab") for day in DAYS],
    columns=["unique_id", "ds", "y"],
)
ARGUMENTS: dict[str, Any] = {
    "h": 3,
    "freq": "D",
    "model": "aru-rnn",
    "futr_exog_list": ["price"],
    "lags": [7, 14],
    "network": NetworkOptions(alphas=(1.0, 0.9)),
    "training": TrainingOptions(search={"ridge": [0.1, 1.0]}),
}


def pretrained() -> Forecaster:
    forecaster = Forecaster.from_pretrained("nano", h=3, freq="D")
    forecaster.update(DF)
    return forecaster


def test_the_parameters_are_the_arguments_as_they_were_given() -> None:
    parameters = Forecaster(**ARGUMENTS).get_params()
    assert list(parameters) == list(inspect.signature(Forecaster).parameters)
    for name, value in ARGUMENTS.items():
        assert parameters[name] is value, name
    assert parameters["size"] is None  # not what the method made of it


@pytest.mark.parametrize("arguments", [ARGUMENTS, {"h": 16, "freq": "D", **PAPER}, {"h": 1, "freq": None}])
def test_a_clone_has_the_same_settings(arguments: dict[str, Any]) -> None:
    forecaster = Forecaster(**arguments)
    twin = clone(forecaster)
    assert twin is not forecaster
    assert twin.settings == forecaster.settings
    assert twin.trained is None


def test_a_clone_of_a_pretrained_model_is_one_to_be_fitted() -> None:
    forecaster = pretrained()
    twin = clone(forecaster)
    assert (twin.settings, twin.trained) == (forecaster.settings, None)
    with pytest.raises(NotFittedError):
        twin.predict()
    assert len(forecaster.predict()) == 6  # which stays as it is


def test_a_search_sets_arguments_and_options() -> None:
    forecaster = Forecaster(**ARGUMENTS)
    tried = []
    for point in ParameterGrid({"h": [2, 3], "ridge": [0.5, 2.0]}):
        candidate = clone(forecaster).set_params(**point)
        tried.append((candidate.settings.h, candidate.settings.network.ridge, candidate.settings.network.alphas))
    assert tried == [(h, ridge, (1.0, 0.9)) for h in (2, 3) for ridge in (0.5, 2.0)]
    assert forecaster.settings == Forecaster(**ARGUMENTS).settings


def test_what_is_set_needs_another_fit() -> None:
    forecaster = pretrained()
    assert forecaster.set_params() is forecaster
    assert len(forecaster.predict()) == 6
    assert forecaster.set_params(h=5).get_params()["h"] == 5
    with pytest.raises(NotFittedError):
        forecaster.predict()


@pytest.mark.parametrize("parameters", [{"horizon": 3}, {"h": 0}, {"h": 5, "lags": [2]}])
def test_what_cannot_be_set_changes_nothing(parameters: dict[str, Any]) -> None:
    forecaster = Forecaster(**ARGUMENTS)
    with pytest.raises(ConfigError):
        forecaster.set_params(**parameters)
    assert forecaster.get_params() == Forecaster(**ARGUMENTS).get_params()


def test_pickles_and_files_of_joblib_hold_model_and_states(tmp_path: Path) -> None:
    forecaster = pretrained()
    joblib.dump(forecaster, tmp_path / "model.joblib")
    expected = forecaster.predict(level=[80])
    for copied in (pickle.loads(pickle.dumps(forecaster)), joblib.load(tmp_path / "model.joblib")):
        pd.testing.assert_frame_equal(copied.predict(level=[80]), expected)
        copied.update(pd.DataFrame({"unique_id": "a", "ds": [pd.Timestamp("2024-02-10")], "y": [30.0]}))
        assert not copied.predict().equals(expected)
    pd.testing.assert_frame_equal(forecaster.predict(level=[80]), expected)


@pytest.mark.slow
def test_processes_of_joblib_forecast_the_same() -> None:
    forecaster = pretrained()
    made = joblib.Parallel(n_jobs=2)(joblib.delayed(forecaster.predict)(ids=[name]) for name in "ab")
    pd.testing.assert_frame_equal(pd.concat(made, ignore_index=True), forecaster.predict())
