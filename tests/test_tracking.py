"""Gate and calibration of a forecaster: what they learn, that they keep their promises, and that off means off."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aru import Forecaster, Stream, gate
from aru.calibration import CalibrationState
from aru.engine import Engine
from aru.errors import ConfigError
from aru.models import resolve
from aru.schema import Rows
from aru.settings import Settings
from aru.state import SeriesState, to_dict
from aru.tracking import LEVELS, Made, Tracking, TrackState, Waiting
from tests.shops import BASE, COVARIATES, STATIC, TRAINED, H, both, rows

BOTH: dict[str, Any] = {"gate": True, "calibration": "online"}


def switched(f: Forecaster, **changed: Any) -> Forecaster:
    """The same weights with other settings, knowing no series."""
    old, other = f._require_fit(), copy.copy(f)
    other.settings = dataclasses.replace(f.settings, **changed)
    other._engine = Engine(other.settings, old.schema, old.models, old.device)
    return other.without_series()


def bytes_of(f: Forecaster) -> int:
    return sum(v.numel() * v.element_size() for v in to_dict(f._state).values()) // len(f.ids)


@pytest.fixture(scope="module")
def plain() -> Forecaster:
    return Forecaster(**BASE, **COVARIATES).fit(both(range(TRAINED)), STATIC)


@pytest.fixture(scope="module")
def tracked() -> Forecaster:
    return Forecaster(**BASE, **COVARIATES, **BOTH).fit(both(range(TRAINED)), STATIC)


def test_off_means_off(plain: Forecaster, tracked: Forecaster) -> None:
    """Neither state nor fingerprint know of it; training is the same."""
    assert not [name for name in to_dict(plain._state) if "track" in name]
    assert plain._require_fit().fingerprint != tracked._require_fit().fingerprint
    off = switched(tracked, gate=False, calibration=None)
    assert off._require_fit().fingerprint == plain._require_fit().fingerprint
    gated, calibrated = switched(plain, gate=True), switched(plain, calibration="online")
    names = [{name.split(".")[1] for name in to_dict(f._state) if "track" in name} for f in (gated, calibrated)]
    assert names == [{"origin", "rows", "gate"}, {"origin", "rows", "calibration"}]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"gate": True, "model": "baseline"}, "does not adapt"),
        ({"gate": True, "model": "deepar"}, "does not adapt"),
        ({"gate": True, "model": "aru-direct"}, "fall back on"),
        ({"gate": True, "search": {"integration": ("residual", "direct")}}, "fall back on"),
    ],
)
def test_what_makes_no_sense_is_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        resolve(Settings(h=3, freq="D", **changed))


@pytest.mark.parametrize(("apart", "learned"), [(1e-6, False), (1e-2, True)])
def test_experts_that_differ_by_rounding_teach_nothing(plain: Forecaster, apart: float, learned: bool) -> None:
    """Else a series' gate would depend on how networks round beside other series: it knows no unit but its regrets."""
    tracking = Tracking(H, gated=True, calibrated=False, whole=False, nonnegative=False)
    engine = switched(plain, gate=True)._require_fit()
    state = engine.empty(engine.schema.encode_static({"kind": np.full(2, np.nan)}, pd.RangeIndex(2)))

    def close(at: Any, future: Any, quantiles: Any) -> Made:
        mean = 7.0 * torch.stack([torch.ones(2, H), torch.full((2, H), 1 + apart)]).double()
        return Made(mean, mean[:, None])

    for steps in (1, H):
        y = torch.full((2, steps), 9.0).double()
        state = state._replace(steps=state.steps + steps, count=state.count + steps)
        given = Rows(y, y, y.isfinite(), *(v[:, :1].expand(-1, steps, -1) for v in state[7:11]))
        state = tracking.follow(state, given, torch.full((2,), steps), close)
    assert bool((state.track.gate.largest > 0).all()) == learned
    assert torch.equal(gate.weights(state.track.gate), torch.full((2, 2, 2), 0.5).double()) != learned


def test_the_gate_learns_from_what_predict_would_have_said(plain: Forecaster) -> None:
    """An independent walk: forecasts of two plain forecasters at every h-th row, mixed by hand."""
    days = range(31)
    gated = switched(plain, gate=True)
    gated.update(both(days), STATIC)
    adapting, frozen = switched(plain), switched(plain)
    blocks = gate.blocks(H)
    state = gate.new_gate(2, int(blocks.max()) + 1, 2)

    def experts(after: int) -> torch.Tensor:
        known, future = both(range(after + 1)), both(range(after + 1, after + 1 + H))
        adapting.update(known, STATIC, late="skip")
        engine, data = frozen._require_fit(), adapting._state
        nothing = data._replace(members=tuple(m.init_state(2) for m in engine.models))
        frozen._ids, frozen._state = adapting._ids, nothing
        columns = [f.predict(future, ids=["a", "b"])["aru"].to_numpy().reshape(2, H) for f in (frozen, adapting)]
        return torch.from_numpy(np.stack(columns, -1))

    for after in range(0, 30, H):
        forecasts = experts(after)
        mixed = (gate.weights(state)[:, blocks] * forecasts).sum(-1)
        y = torch.from_numpy(np.stack([rows(i, range(after + 1, after + 1 + H)).y for i in "ab"]))
        r = gate.regret(mixed, forecasts, y)
        state = gate.update(state, torch.stack([r[:, blocks == b].mean(1) for b in range(2)], 1))
    expected = (gate.weights(state)[:, blocks] * experts(30)).sum(-1)
    got = gated.predict(both(range(31, 31 + H)), ids=["a", "b"])["aru"].to_numpy().reshape(2, H)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-6)
    assert not np.allclose(gate.weights(state), 0.5, atol=0.02)


def test_a_stream_a_save_and_a_forecaster_agree(tracked: Forecaster, tmp_path: Path) -> None:
    """One row at a time through SQLite, with rows that are revised; at once; and interrupted by save and load."""
    new, future = both(range(TRAINED, 40), "abn"), both(range(40, 40 + H), "abn")
    whole = copy.copy(tracked)
    whole.update(new, STATIC)
    expected = whole.predict(future, level=[80, 90])
    tracked.save(tmp_path / "model")
    wrong = rows("a", [30]).assign(y=1e3)
    with Stream(tmp_path / "model", tmp_path / "state.db", correctable=2) as stream:
        for day in range(TRAINED, 40):
            stream.update(both([day], "abn") if day != 30 else pd.concat([wrong, both([day], "bn")]), STATIC)
            if day == 31:
                assert stream.update(rows("a", [30]), late="correct").corrected == 1
        streamed = stream.predict(["a", "b", "n"], future, level=[80, 90])
    pd.testing.assert_frame_equal(streamed, expected, rtol=1e-5)
    half = copy.copy(tracked)
    half.update(both(range(TRAINED, 31), "abn"), STATIC)
    half.save(tmp_path / "half")
    loaded = Forecaster.load(tmp_path / "half", "cpu")
    loaded.update(both(range(31, 40), "abn"))
    pd.testing.assert_frame_equal(loaded.predict(future, level=[80, 90]), expected, rtol=1e-5)


def test_the_size_is_constant(plain: Forecaster, tracked: Forecaster) -> None:
    young, old = switched(tracked), switched(tracked)
    young.update(both(range(1)), STATIC)
    old.update(both(range(100)), STATIC)
    assert bytes_of(young) == bytes_of(old) > bytes_of(plain)


def test_where_adaptation_hurts_the_gate_protects() -> None:
    """Noise around a level, a local fit that forgets within a few rows, and a network that trusts it all the same."""
    T, series = 241, 12
    y = 50 + 10 * np.random.default_rng(0).normal(size=(series, T))
    ids = np.repeat([f"s{i:02}" for i in range(series)], T)
    df = pd.DataFrame({"unique_id": ids, "ds": np.tile(np.arange(T), series), "y": y.ravel()})
    local = {"alphas": (0.7,), "ridge": 0.01, "learn_ridge": False, "robust": False, "scaler": "mean"}
    training = {"freq": 1, "max_steps": 40, "learning_rate": 0.05, "weight_average": 0.0}
    model = Forecaster(**{**BASE, **training, **local}).fit(df[df.ds < 60])
    torch.nn.init.ones_(model._require_fit().models[0].joint.mix)

    def errors(adapt: bool = True, **changed: Any) -> pd.Series:
        """Mean squared error of each series over its whole life."""
        with pytest.warns(UserWarning, match="inside the training data"):
            out = switched(model, **changed).cross_validation(df, n_windows=(T - 1) // H, step_size=H, adapt=adapt)
        return (out["aru"] - out["y"]).pow(2).groupby(out["unique_id"]).mean()

    frozen, adapted, gated = errors(adapt=False), errors(), errors(gate=True)
    assert adapted.mean() > 1.08 * frozen.mean()  # there is something to protect from
    assert gated.mean() < 1.02 * frozen.mean()  # after eighty rounds
    assert (gated < 1.05 * frozen).all()


def test_coverage_stays_nominal_while_the_data_drift(plain: Forecaster) -> None:
    """Noise that grows, shrinks and jumps around a level that moves: coverage within a point of nominal."""
    windows, n, h = 1000, 20, H
    rng, t = np.random.default_rng(1), np.arange(windows * h + 1)
    spread = np.where(t % 600 < 300, 1.0, 2.5) * (1 + 0.5 * np.sin(2 * np.pi * t / 400))
    y = torch.from_numpy(5 * np.sin(2 * np.pi * t / 500) + spread * rng.standard_t(5, size=(n, len(t))))
    tracking = Tracking(h, gated=False, calibrated=True, whole=False, nonnegative=False)
    engine = switched(plain, calibration="online")._require_fit()
    state = engine.empty(engine.schema.encode_static({"kind": np.full(n, np.nan)}, pd.RangeIndex(n)))
    asked = [0.5, *(end / 100 for level in (70, 80, 90, 95) for end in (50 - level / 2, 50 + level / 2))]
    sizes = torch.special.ndtri(torch.tensor([*asked, *tracking.quantiles], dtype=torch.float64))

    def fixed(at: Any, future: Any, quantiles: Any) -> Made:
        """Intervals of one width, which is right now and then."""
        values = sizes[-len(quantiles) :, None, None].expand(-1, len(at.last), h)
        return Made(torch.zeros(1, len(at.last), h).double(), values.unsqueeze(0))

    inside = []
    for window in range(-1, windows):
        first = h * window + 1
        here, steps = y[:, max(first, 0) : first + h], h if window >= 0 else 1
        if window >= 0:
            _, values = tracking.issue(state.track, fixed(state, None, sizes), asked)
            low, high = values[1::2], values[2::2]
            inside.append(((low <= here) & (here <= high)).double().mean((1, 2)))
        state = state._replace(steps=state.steps + steps, count=state.count + steps)
        given = Rows(here, here, here.isfinite(), *(v[:, :1].expand(-1, steps, -1) for v in state[7:11]))
        state = tracking.follow(state, given, torch.full((n,), steps), fixed)
    off = 100 * torch.stack(inside).mean(0) - torch.tensor([70, 80, 90, 95])
    assert off[1:].abs().max() < 1
    assert off[0].abs() < 5  # lies between levels that are followed


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), whole=st.booleans(), level=st.integers(1, 99))
def test_quantiles_are_in_order_whatever_was_learned(seed: int, whole: bool, level: int) -> None:
    rng = np.random.default_rng(seed)
    n, h = 4, 5
    tracking = Tracking(h, gated=True, calibrated=True, whole=whole, nonnegative=True)
    mean, deviation, correction, count = torch.from_numpy(rng.normal(0, 3, (4, n, len(LEVELS), 2, h)))
    rows = Waiting(*torch.zeros(4, n, h))
    track = TrackState(
        origin=SeriesState(*torch.zeros(len(SeriesState._fields), n)),
        rows=rows,
        gate=gate.update(gate.new_gate(n, 3, 2), torch.from_numpy(rng.normal(size=(n, 3, 2)))),
        calibration=CalibrationState(mean, deviation.abs(), correction, count.abs()),
    )
    asked = [0.5, (100 - level) / 200, (100 + level) / 200, 0.05, 0.95]
    order = np.argsort([*asked, *tracking.quantiles], kind="stable")
    values = np.sort(rng.gamma(2, 3, (2, len(order), n, h)), 1)[:, np.argsort(order)]
    point, quantiles = tracking.issue(track, Made(torch.ones(2, n, h).double(), torch.from_numpy(values)), asked)
    assert torch.allclose(point, torch.ones(n, h).double())
    in_order = quantiles[np.argsort(asked, kind="stable")]
    assert (in_order.diff(dim=0) >= 0).all()
    assert (quantiles >= 0).all()
    assert quantiles.isfinite().all()
    assert not whole or torch.equal(quantiles, quantiles.round())
