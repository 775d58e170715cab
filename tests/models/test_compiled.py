"""The compiled network against the modules that it stands for."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aru import Forecaster
from aru.engine import Engine
from aru.frequency import Frequency
from aru.models.network import Inputs
from aru.panel import read_panel
from aru.state import leaves, take
from tests.shops import BASE, COVARIATES, STATIC, both, rows

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "baseline": {"model": "baseline", **COVARIATES},
    "covariates": {**COVARIATES, "series_id": True},
    "sizes": {"size": (17, 33, 18, 20), "encoder_layers": 3, "alphas": (1.0,), "robust": False},
    "paper": {"integration": "paper", "distribution": "gaussian", "scaler": "level", "stride": 1},
    "skip": {"integration": "skip", "transform": "log1p", "learn_alphas": True, "local_variance": False},
    "direct": {"model": "aru-direct", "stride": 2},
    "direct without variance": {"model": "aru-direct", "local_variance": False, "robust": False},
    "direct, more aging factors than padding": {
        "model": "aru-direct",
        "size": (8, 8, 8, 16),
        "alphas": tuple(1 - 0.01 * i for i in range(20)),
    },
    "lags and season": {"lags": (3, 7), "season": 2, "transform": "asinh"},
    "counts": {"distribution": "negative-binomial", **COVARIATES},
    "ensemble": {"ensemble": 2, "scaler": "level"},
}
UNKNOWN: dict[str, dict[str, Any]] = {
    "gru": {"encoder": "gru"},
    "decoder RNN": {"decoder_rnn": True},
    "raw": {"cell_input": "raw"},
    "snail": {"model": "snail"},
    "finetuned": {"model": "baseline", "finetune_steps": 1},
}


def fitted(**changed: Any) -> Forecaster:
    df = both(range(20))
    if changed.get("distribution") == "negative-binomial":
        df["y"] = df["y"].round()
    forecaster = Forecaster(**{**BASE, "max_steps": 2, **changed}).fit(df, STATIC)
    engine = forecaster._require_fit()
    with torch.no_grad():  # weights that start at zero would hide what they multiply
        for model in engine.models:
            for weight in model.parameters():
                weight += 0.2 * torch.randn_like(weight)
    forecaster._engine = Engine(engine.settings, engine.schema, engine.models, engine.device)
    return forecaster


def history() -> pd.DataFrame:
    """Series of several lengths: missing values, a gap that no forecast can see beyond, an outlier."""
    parts = [rows("a", range(20, 43)), rows("b", [20, 21, 150, 151, 160]), rows("n", range(30, 37)), rows("o", [31])]
    df = pd.concat(parts, ignore_index=True)
    df.loc[[3, 4, 12], "y"] = np.nan
    df.loc[15, "y"] = 1e15
    df.loc[5, "temp"] = np.nan
    return df


def future() -> pd.DataFrame:
    return pd.concat([rows(uid, range(20, 340)) for uid in "abno"]).drop(columns="y")


def run(forecaster: Forecaster, compiled: bool) -> tuple[Forecaster, pd.DataFrame]:
    """A fresh copy of the forecaster after its history, and its forecasts."""
    engine = forecaster._require_fit()
    fresh = Engine(engine.settings, engine.schema, engine.models, engine.device)
    if not compiled:
        fresh.compiled = None
    assert (fresh.compiled is not None) == compiled
    forecaster._engine = fresh
    copy = forecaster.without_series()
    df = history()
    if engine.schema.distribution == "negative-binomial":
        df["y"] = df["y"].round()
    copy.update(df, STATIC)
    copy.update(df.assign(ds=df["ds"] + pd.Timedelta(days=150)).query("unique_id == 'a'").head(2))
    return copy, copy.predict(future() if engine.settings.futr_exog_list else None, level=[80])


@pytest.mark.parametrize("prior", [None, 1.0, 16.0])
def test_scales_of_every_prior(prior: float | None) -> None:
    forecaster = fitted()
    inputs = [m for m in forecaster._require_fit().models[0].modules() if isinstance(m, Inputs)]
    assert inputs
    for module in inputs:
        module.scaling = module.scaling._replace(prior=prior)
    compare(forecaster)


@pytest.mark.parametrize("name", VARIANTS)
def test_states_and_forecasts_are_those_of_the_modules(name: str) -> None:
    compare(fitted(**VARIANTS[name]))


def compare(forecaster: Forecaster) -> None:
    fast, forecast = run(forecaster, compiled=True)
    slow, expected = run(forecaster, compiled=False)
    for (path, value), (_, other) in zip(leaves(fast._state), leaves(slow._state), strict=True):
        say = functools.partial("{}: {}".format, path)
        torch.testing.assert_close(value, other, rtol=2e-4, atol=2e-4, equal_nan=True, msg=say)
    pd.testing.assert_frame_equal(forecast, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_networks_are_left_to_torch(name: str) -> None:
    assert fitted(**UNKNOWN[name])._require_fit().compiled is None


def test_an_answer_does_not_depend_on_the_series_beside_it() -> None:
    forecaster = fitted(**COVARIATES)
    copy, together = run(forecaster, compiled=True)
    for i, uid in enumerate(copy.ids):
        pd.testing.assert_frame_equal(
            copy.predict(future(), level=[80], ids=[uid]),
            together[together["unique_id"] == uid].reset_index(drop=True),
            check_exact=True,
        )
        alone = forecaster.without_series()
        alone.update(history().query(f"unique_id == '{uid}'"), STATIC)
        if uid != "a":
            for (path, value), (_, other) in zip(
                leaves(alone._state), leaves(take(copy._state, torch.tensor([i]))), strict=True
            ):
                assert torch.equal(value, other), path


def test_contexts_alone_move_on_without_adaptation() -> None:
    forecaster = fitted()
    engine = forecaster._require_fit()
    frames = [forecaster.cross_validation(both(range(30)), n_windows=2, step_size=3, adapt=False)]
    engine.compiled = None
    frames.append(forecaster.cross_validation(both(range(30)), n_windows=2, step_size=3, adapt=False))
    pd.testing.assert_frame_equal(frames[0], frames[1], rtol=1e-4)


def test_a_failed_fit_stands_back() -> None:
    forecaster = fitted()
    engine = forecaster._require_fit()
    state = forecaster._state
    member = state.members[0]
    broken = member._replace(local=member.local._replace(now=torch.full_like(member.local.now, torch.nan)))
    empty = member._replace(local=engine.models[0].init_state(len(state.last)).local)
    stats = empty._replace(local=empty.local._replace(stats=member.local.stats))
    ahead = engine.schema.encode(read_panel(both(range(20, 23)), Frequency("D")))
    failed, plain = (engine.forecast(state._replace(members=(m,)), ahead, [0.5]) for m in (broken, stats))
    assert failed.failed.all()
    assert not plain.failed.any()
    assert torch.equal(failed.mean, plain.mean)


@pytest.mark.slow
def test_no_kernel_reaches_beyond_its_arrays(tmp_path: Path) -> None:
    """A write past the end may go unnoticed: every variant again, in a process whose kernels check their indices."""
    script = "from tests.models.test_compiled import VARIANTS, fitted, run\n"
    script += "for options in VARIANTS.values():\n    run(fitted(**options), compiled=True)\n"
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], env={**os.environ, **checked}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
