"""Every ablation of the grid trains and forecasts, and its own part of the model is what its name says."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aru import Forecaster
from aru.errors import ConfigError
from aru.models import MODELS
from aru.models.aru import ARU
from aru.models.finetuned import FineTuned
from experiments.ablations import ABLATIONS
from experiments.grid import ABLATIONS as GRID_ABLATIONS
from experiments.grid import SIZES, VARIANTS
from experiments.make import make

H = 3
SMALL: dict[str, Any] = {
    "h": H,
    "freq": "D",
    "input_size": 4,
    "size": (3, 4, 4, 3),
    "max_steps": 4,
    "lags": None,
    "futr_exog_list": ["price"],
    "stat_exog_list": ["kind"],
    "accelerator": "cpu",
}
STATIC = pd.DataFrame({"unique_id": ["a", "b"], "kind": ["x", "y"]})
# Other sizes and contexts say nothing about a part of the model.
SETTINGS = [name for name in VARIANTS if name and name not in SIZES and not name.startswith("input_size")]


def rows(first: int, last: int) -> pd.DataFrame:
    day = np.arange(first, last)
    parts = []
    for i, uid in enumerate(STATIC.unique_id):
        y = 10.0 * (i + 1) * (1.5 + np.sin(2 * np.pi * day / 7)) + np.cos(day * (i + 2))
        ds = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
        price = np.sin(0.7 * day + i)
        parts.append(pd.DataFrame({"unique_id": uid, "ds": ds, "y": y.round(2), "price": price}))
    return pd.concat(parts, ignore_index=True)


@functools.cache
def trained(name: str) -> Forecaster:
    """Not to be changed: tests take copies."""
    return make(**SMALL, model=name, stride=2).fit(rows(0, 30), STATIC)


def model_of(forecaster: Forecaster) -> ARU:
    model = forecaster.runtime.engine.models[0]
    assert isinstance(model, ARU)
    return model


def forecast(forecaster: Forecaster, day: int) -> np.ndarray[Any, Any]:
    futr = rows(day, day + H).drop(columns="y")
    out = forecaster.predict(futr, level=[90])
    return out.drop(columns=["unique_id", "ds"]).to_numpy(np.float64)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("variant", SETTINGS)
def test_every_variant_of_the_grid_trains_and_forecasts(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (ARU, FineTuned):
        monkeypatch.setattr(kind, "exported", {})  # torch computes: exporting takes longer than all the rest
    method = "baseline" if variant == "fine-tuned" else "aru"
    settings = {k: v for k, v in {"model": method, "alias": method, **VARIANTS[variant]}.items() if v is not None}
    settings |= {"ensemble": min(settings.get("ensemble", 1), 2), "stride": min(settings.get("stride", H), H)}
    forecaster = make(**{**SMALL, **settings}).fit(rows(0, 30), STATIC)
    frame = forecaster.cross_validation(rows(0, 40), 2, level=[90], static_df=STATIC)
    assert {method, f"{method}-median", f"{method}-lo-90"} <= set(frame)  # results are keyed by the method
    assert np.isfinite(frame[method]).all()


def test_the_grid_names_every_ablation_but_raw_inputs() -> None:
    used = {settings["model"] for name, settings in VARIANTS.items() if "model" in settings and name in GRID_ABLATIONS}
    assert used == set(ABLATIONS) - {"aru-cell-raw"}


def test_ablations_are_models_when_they_are_asked_for() -> None:
    assert not set(ABLATIONS) & set(MODELS)
    with pytest.raises(ConfigError, match="aru-cell-x"):
        Forecaster(h=3, freq="D", model="aru-cell-x")
    make(h=3, freq="D", model="aru-cell-x")
    assert Forecaster(h=3, freq="D", model="aru-cell-x").settings.model == "aru-cell-x"


@pytest.mark.parametrize("name", ABLATIONS)
def test_streaming_equals_batch(name: str) -> None:
    """Row by row, all at once, and replayed from the beginning: the same states and forecasts."""
    forecaster = copy.copy(trained(name))
    stepwise, at_once = copy.copy(forecaster), copy.copy(forecaster)
    for day in range(30, 37):
        stepwise.update(rows(day, day + 1))
    at_once.update(rows(30, 37))
    replayed = forecaster.without_series()
    replayed.update(rows(0, 37), STATIC)
    expected = forecast(at_once, 37)
    for other in (stepwise, replayed):
        np.testing.assert_allclose(forecast(other, 37), expected, rtol=1e-5, atol=1e-4)
    backtest = forecaster.cross_validation(rows(0, 37 + H), 1, level=[90], static_df=STATIC)
    columns = [name, f"{name}-median", f"{name}-lo-90", f"{name}-hi-90"]
    np.testing.assert_allclose(backtest[columns].to_numpy(np.float64), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ABLATIONS)
def test_nothing_after_a_cutoff_matters(name: str) -> None:
    forecaster = trained(name)
    df = rows(0, 40)
    before = forecaster.cross_validation(df, 2, static_df=STATIC)
    first = df.ds <= before.cutoff.min()
    after = forecaster.cross_validation(df.assign(y=df.y.where(first, 3 * df.y + 7)), 2, static_df=STATIC)
    early = before.cutoff == before.cutoff.min()
    np.testing.assert_array_equal(after.loc[early, name], before.loc[early, name])
    assert (after.loc[~early, name] != before.loc[~early, name]).any()


@pytest.mark.parametrize("name", ["aru-cell-x", "aru-cell-raw"])
def test_networks_in_onnx_runtime_say_what_torch_says(name: str) -> None:
    forecaster = copy.deepcopy(trained(name))
    forecaster.update(rows(30, 35))
    fast = forecast(forecaster, 35)
    for model in forecaster.runtime.engine.models:
        assert model.sessions is not None
        model.sessions = None
    np.testing.assert_allclose(forecast(forecaster, 35), fast, rtol=1e-4, atol=1e-3)


def test_no_gradient_passes_through_the_fit() -> None:
    for name, passes in (("aru-no-variance", True), ("aru-stop-gradient", False), ("aru-authors-cell", False)):
        cell = copy.deepcopy(model_of(trained(name)).cell).requires_grad_(False)
        h, y = torch.ones(1, 4, cell.input_size, requires_grad=True), torch.arange(4.0).unsqueeze(0)
        _, variance, _ = cell.scan(cell.init_state(1), h, y)
        assert variance.requires_grad == passes, name


def test_the_spread_does_not_read_the_local_variance() -> None:
    """Other residuals change the spread of ARU's forecast, and not that of the ablation."""
    for name, changes in (("aru-stop-gradient", True), ("aru-no-variance", False), ("aru-authors-cell", False)):
        forecaster = copy.deepcopy(trained(name))
        model = model_of(forecaster)
        with torch.no_grad():
            for layer in (model.joint.out_sigma, model.joint.out_mu):  # a trained network, which reads all its inputs
                layer.weight.fill_(0.5)
        context, future = forecaster.table.states.context, rows(30, 30 + H).drop(columns="y")
        _, ahead = forecaster.runtime.future(*forecaster.table.find(None), forecaster.runtime.read_futr(future))
        state = forecaster.table.states.members[0]
        stats = state.local.stats
        louder = state._replace(local=state.local._replace(stats=stats._replace(ss=4 * stats.ss)))
        model.sessions = None
        with torch.no_grad():
            spreads = [model.forecast(s, context, ahead).forecast.params.sigma for s in (state, louder)]
        assert torch.equal(*spreads) != changes, name


def test_an_ablation_is_saved_and_loaded(tmp_path: Path) -> None:
    forecaster = trained("aru-cell-x")
    make(**SMALL, model="aru-cell-x")  # among the models, whoever trained it
    forecaster.save(tmp_path / "model")
    np.testing.assert_array_equal(forecast(Forecaster.load(tmp_path / "model", "cpu"), 30), forecast(forecaster, 30))
