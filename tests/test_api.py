"""What users import: every export is listed here, and importing the package is cheap."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import re
import subprocess
import sys
from typing import Any

import pytest

import aru
from aru.settings import Settings, fields_by_name
from tests.making import make, make_settings

EXPORTS = {
    "ARUCell", "ARUState", "Adapter", "AdaptiveLinear", "Forecaster", "NetworkOptions", "PAPER", "Stream",
    "TrainingOptions",
}  # fmt: skip
HEAVY = (
    "torch",
    "lightning",
    "pytorch_lightning",
    "fastapi",
    "pandas",
    "numpy",
    "scipy",
    "polars",
    "pyspark",
    "onnxruntime",
)


def test_exports_are_these_and_no_others() -> None:
    assert set(aru.__all__) == EXPORTS
    assert len(aru.__all__) == len(EXPORTS)
    assert set(dir(aru)) >= EXPORTS


@pytest.mark.parametrize("name", sorted(EXPORTS))
def test_every_export_can_be_imported(name: str) -> None:
    value = getattr(aru, name)
    namespace: dict[str, Any] = {}
    exec(f"from aru import {name}", namespace)
    assert namespace[name] is value
    if inspect.isclass(value):
        assert value.__name__ == name
        assert value.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'aru' has no attribute 'Oracle'"):
        _ = aru.Oracle  # type: ignore[attr-defined]
    assert not hasattr(aru, "torch")


def test_the_version_is_that_of_the_distribution() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", aru.__version__)
    try:
        installed = importlib.metadata.version("aru-forecast")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package runs from its source tree and is not installed")
    assert installed == aru.__version__


@pytest.mark.parametrize("statement", ["import aru", "import aru.errors", "import aru; dir(aru); aru.__all__"])
def test_importing_the_package_imports_nothing_heavy(statement: str) -> None:
    code = f"import sys\n{statement}\nprint([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_settings_module_needs_no_torch() -> None:
    code = f"import sys\nfrom aru import PAPER\nprint([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_forecaster_documents_every_setting() -> None:
    documentation = inspect.getdoc(aru.Forecaster)
    assert documentation is not None
    documented = re.findall(r"^ {4}(\w+): ", documentation, flags=re.MULTILINE)
    assert documented == [f.name for f in dataclasses.fields(Settings)]


def test_the_forecaster_passes_every_setting_on() -> None:
    given: dict[str, Any] = {
        "h": 3, "freq": "W", "input_size": 5, "model": "aru-rnn", "futr_exog_list": ["a"], "hist_exog_list": ["b"],
        "stat_exog_list": ["c"], "lags": [4], "season_length": 2, "encoder": "gru", "encoder_layers": 2,
        "size": (5, 4, 3, 2),
        "alphas": (0.9,), "ridge": 0.3, "learn_ridge": False, "learn_alphas": True, "integration": "paper", "stride": 2,
        "scaler": "level", "transform": "asinh", "robust": False, "distribution": "gaussian", "series_id": True,
        "ensemble": 2, "dropout": 0.1, "max_steps": 7, "learning_rate": 0.1, "batch_size": 9, "random_seed": 4,
        "accelerator": "cpu", "alias": "mine",
    }  # fmt: skip
    assert make(**given).settings == make_settings(**given)
    untouched = {name for name in fields_by_name() if name not in given} - {"network", "training"}
    assert untouched == {
        "support", "gate", "calibration", "schedule", "weight_average", "snapshots", "search", "cold_starts",
        "size_weight", "trainer", "hindsight", "country",
    }  # fmt: skip
    more: dict[str, Any] = {
        "support": "real", "gate": True, "calibration": "online", "schedule": "constant", "weight_average": 0.5,
        "snapshots": 2, "search": {"ridge": [1.0, 2.0]}, "cold_starts": 0.1, "size_weight": 0.5, "trainer": {"a": 1},
    }  # fmt: skip
    assert make(h=3, freq="W", **more).settings == make_settings(h=3, freq="W", **more)


@pytest.mark.parametrize(
    ("owner", "method", "parameters"),
    [
        ("Forecaster", "fit", ["df", "static_df", "val_size"]),
        ("Forecaster", "predict", ["futr_df", "level", "ids"]),
        ("Forecaster", "update", ["df", "static_df"]),
        ("Forecaster", "cross_validation", ["df", "n_windows", "step_size", "level", "adapt"]),
        ("Forecaster", "save", ["path"]),
        ("Forecaster", "load", ["path"]),
        ("Forecaster", "export_onnx", ["folder"]),
        ("Stream", "__init__", ["model", "store", "correctable_steps"]),
        ("Stream", "update", ["df", "static_df", "late"]),
        ("Stream", "predict", ["futr_df", "level", "ids"]),
        ("Stream", "series", []),
        ("Stream", "forget", ["ids"]),
        ("Stream", "export", ["path"]),
        ("Stream", "import_", ["path"]),
        ("Adapter", "__init__", ["h", "freq", "season_length", "models"]),
        ("Adapter", "update", ["df", "late"]),
        ("Adapter", "adapt", ["forecasts"]),
        ("Adapter", "cross_validation", ["forecasts", "df", "keep"]),
        ("Adapter", "save", ["path"]),
        ("Adapter", "load", ["path"]),
        ("AdaptiveLinear", "__init__", ["in_features", "out_features", "bias"]),
        ("AdaptiveLinear", "init_state", ["batch_size"]),
        ("AdaptiveLinear", "update", ["state", "input", "y", "mask"]),
        ("ARUCell", "__init__", ["input_size", "alphas", "ridge", "learn_ridge", "learn_alphas"]),
        ("ARUCell", "init_state", ["batch_size"]),
        ("ARUCell", "predict", ["state", "h"]),
        ("ARUCell", "update", ["state", "h", "y", "mask", "weight"]),
        ("ARUCell", "scan", ["state", "h", "y", "mask", "weight"]),
    ],
)
def test_methods_that_people_rely_on(owner: str, method: str, parameters: list[str]) -> None:
    """Their first parameters, in this order; more may follow."""
    names = list(inspect.signature(getattr(getattr(aru, owner), method)).parameters)
    assert [n for n in names if n not in ("self", "cls")][: len(parameters)] == parameters


def test_the_state_of_the_cell_has_the_papers_names() -> None:
    assert aru.ARUState._fields == ("sxx", "sxy", "sn", "ss")
