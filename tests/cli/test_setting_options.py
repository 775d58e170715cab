"""Options that are made from the declarations of the settings."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from aru.cli.setting_options import OPTIONS, read_settings, setting
from aru.errors import ConfigError
from aru.settings import NetworkOptions, Settings, TrainingOptions, fields_by_name, nested
from tests.making import make_settings


def typed(value: Any) -> Any:
    """A value as typer hands it over."""
    if value is None:
        return "none"
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return [str(v) for v in value] if all(isinstance(v, str) for v in value) else ",".join(map(str, value))
    return value


def test_every_setting_has_an_option_of_its_own() -> None:
    assert set(OPTIONS) == set(fields_by_name()) - {"network", "training"}
    flags = [flag for option in OPTIONS.values() for flag in option.flag.split("/")]
    assert len(flags) == len(set(flags))
    assert all(option.about.endswith(".") for option in OPTIONS.values())


def test_what_is_typed_is_what_the_setting_gets() -> None:
    values = {
        "h": 3, "freq": "D", "input_size": 5, "model": "baseline", "futr_exog_list": ["a", "b"],
        "hist_exog_list": ["c"],
        "stat_exog_list": ["d"], "lags": [7, 14], "season_length": 2, "size": [4, 4, 4, 3], "transform": "asinh",
        "distribution": "gaussian", "support": "real", "ensemble": 2, "gate": True, "calibration": "online",
        "max_steps": 7, "learning_rate": 0.1, "batch_size": 3, "random_seed": 1, "accelerator": "cpu", "alias": "mine",
        "encoder": "gru", "encoder_layers": 2, "alphas": [1.0, 0.5], "ridge": 0.5, "learn_ridge": False,
        "learn_alphas": True, "integration": "skip", "stride": 2, "scaler": "mean", "robust": False, "series_id": True,
        "dropout": 0.1, "schedule": "constant", "weight_average": 0.5, "snapshots": 2, "search": {"ridge": [0.1, 1.0]},
        "cold_starts": 0.5, "size_weight": 1.0, "trainer": {"devices": 1}, "country": "DE", "hindsight": False,
    }  # fmt: skip
    assert set(values) == set(OPTIONS)
    defaults = make_settings(h=1, freq="W")
    assert all(setting(defaults, name) != value for name, value in values.items())
    read = read_settings({name: typed(value) for name, value in values.items()})
    assert nested(read) == nested(values)


def test_defaults_can_be_typed() -> None:
    """So that an option can take back what a preset has chosen."""
    for kind in (Settings, NetworkOptions, TrainingOptions):
        for field in dataclasses.fields(kind):
            if field.name in OPTIONS and field.default is not dataclasses.MISSING and field.default != ():
                text = typed(field.default)
                expected = list(field.default) if isinstance(field.default, tuple) else field.default
                if text != "none" or OPTIONS[field.name].parameter.annotation == str | None:
                    assert OPTIONS[field.name].read(text) == expected, field.name


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("freq", "none", None),
        ("freq", "None", None),
        ("freq", "7", 7),
        ("freq", "-1", -1),
        ("freq", "7D", "7D"),
        ("lags", "auto", "auto"),
        ("lags", "none", None),
        ("lags", "7", [7]),
        ("size", "large", "large"),
        ("size", "4,4,4,3", [4, 4, 4, 3]),
        ("transform", "none", None),
        ("transform", "sqrt", "sqrt"),  # which the settings refuse
        ("alias", "12", "12"),
        ("alphas", "1", [1.0]),
        ("futr_exog_list", ["a, b", "c,"], ["a", "b", "c"]),
        ("trainer", "none", None),
    ],
)
def test_text_as_a_value(name: str, text: Any, value: Any) -> None:
    assert OPTIONS[name].read(text) == value


def test_text_that_is_no_value() -> None:
    with pytest.raises(ConfigError, match="--lags takes numbers separated by commas, got 'week'"):
        OPTIONS["lags"].read("week")
    with pytest.raises(ConfigError, match="--search takes a JSON object, got '3'"):
        OPTIONS["search"].read("3")


@pytest.mark.parametrize(
    ("name", "panel", "says"),
    [
        ("h", None, "Forecast horizon in steps."),
        ("input_size", "Model", "Rows of context that a forecast reads. Default: the horizon, or one season where"),
        ("transform", "Model", "Transform of the scaled target: none, log1p or asinh. Default: none."),
        ("stat_exog_list", "Covariates", "Static exogenous columns, those of --static FILE. Separated by commas, or"),
        ("robust", "Network", "Give outliers .* Default: on."),
        ("max_steps", "Training", "Training steps. Default: 1,000, each .*; of aru at most 300, each a batch"),
        ("alphas", "Network", "Aging factors .* Numbers are separated by commas. Default: 1,0.99,0.95."),
        ("search", "Training", r"Candidate .* A JSON object, for instance {\"ridge\": \[0.1, 1\]}."),
    ],
)
def test_help_is_made_from_the_documentation(name: str, panel: str | None, says: str) -> None:
    info = OPTIONS[name].parameter.default
    assert info.rich_help_panel == panel
    assert re.match(says, info.help), info.help
    assert not re.search("None|`", info.help)
