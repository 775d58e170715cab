"""MLflow: round trips through a local store, as a forecaster and as a function of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from examples import run
from sales import shops

import aru
from aru import Forecaster
from aru.errors import ColumnError
from aru.integrations import mlflow as flavour

H = 7
LISTS: dict[str, Any] = {"futr_exog_list": ["promo"], "stat_exog_list": ["kind"]}
ROWS = ["unique_id", "ds", "y", "promo"]


@pytest.fixture(autouse=True)
def store(tmp_path: Path) -> Iterator[None]:
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("tests", (tmp_path / "artifacts").as_uri()))
    yield
    mlflow.end_run()


def plain() -> Forecaster:
    forecaster = Forecaster.from_pretrained("nano", h=H, freq="D")
    forecaster.update(shops()[["unique_id", "ds", "y"]])
    return forecaster


def trained() -> Forecaster:
    small = {"model": "aru-rnn", "size": (4, 5, 4, 3), "max_steps": 5, "accelerator": "cpu"}
    return Forecaster(h=H, freq="D", **small).fit(shops()[["unique_id", "ds", "y"]])


@pytest.mark.parametrize("make", [plain, trained])
def test_a_registered_model_comes_back(make: Any) -> None:
    forecaster = make()
    with mlflow.start_run():
        info = flavour.log_model(forecaster, "shops", registered_model_name="shops")
    expected = forecaster.predict(level=[90])
    for address in (info.model_uri, "models:/shops/1"):
        loaded = flavour.load_model(address)
        pd.testing.assert_frame_equal(loaded.predict(level=[90]), expected)
        pd.testing.assert_frame_equal(mlflow.pyfunc.load_model(address).predict(pd.DataFrame()), expected)
        assert loaded.update(pd.DataFrame({"unique_id": "shop-0", "ds": ["2024-04-30"], "y": [25.0]})).applied == 1
    assert info.flavors["aru"] == {"aru_version": aru.__version__, "data": "forecaster"}


def test_rows_may_be_a_dictionary_and_lack_no_column(tmp_path: Path) -> None:
    flavour.save_model(plain(), tmp_path / "model")
    function = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    rows = {"unique_id": ["shop-0"], "ds": ["2024-04-30"], "y": [25.0]}
    pd.testing.assert_frame_equal(function.predict(rows), function.predict(pd.DataFrame(rows)))
    with pytest.raises(ColumnError, match="unique_id"):
        function.predict(pd.DataFrame({"shop": ["shop-0"]}))


def test_rows_are_taken_in_and_forgotten() -> None:
    forecaster = plain()
    with mlflow.start_run():
        info = flavour.log_model(forecaster, "shops")
    function = mlflow.pyfunc.load_model(info.model_uri)
    days = pd.date_range("2024-04-30", periods=3)
    news = pd.DataFrame({"unique_id": "shop-0", "ds": days, "y": [90.0, 91.0, 92.0]})
    made = function.predict(news, params={"h": 3, "level": [50.0, 80.0]})
    before = forecaster.predict(level=[50, 80])
    forecaster.update(news)
    pd.testing.assert_frame_equal(made, forecaster.predict(level=[50, 80], ids=["shop-0"], h=3))
    pd.testing.assert_frame_equal(function.predict(pd.DataFrame(), params={"level": [50.0, 80.0]}), before)


def test_covariates_are_columns_of_the_rows() -> None:
    df = shops()
    past, future = df[df.ds <= "2024-04-22"], df[df.ds > "2024-04-22"]
    static = df[["unique_id", "kind"]].drop_duplicates()
    forecaster = Forecaster.from_pretrained("nano", h=H, freq="D", **LISTS)
    forecaster.update(past[ROWS], static)
    with mlflow.start_run():
        info = flavour.log_model(forecaster.without_series(), "shops")
    rows = pd.concat([past, future.assign(y=float("nan"))])[[*ROWS, "kind"]]
    made = mlflow.pyfunc.load_model(info.model_uri).predict(rows)
    fresh = flavour.load_model(info.model_uri)
    fresh.update(past[ROWS], static)
    pd.testing.assert_frame_equal(made, fresh.predict(future[["unique_id", "ds", "promo"]], level=[90]))


def test_the_folder_says_what_it_needs(tmp_path: Path) -> None:
    flavour.save_model(plain(), tmp_path / "model", metadata={"shop": "all"})
    assert mlflow.models.Model.load(str(tmp_path / "model")).metadata == {"shop": "all"}
    requirements = mlflow.pyfunc.get_model_dependencies(str(tmp_path / "model"))
    assert f"aru-forecast=={aru.__version__}" in Path(requirements).read_text()
    assert len(flavour.load_model(str(tmp_path / "model")).predict()) == 4 * H


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("mlflow")
