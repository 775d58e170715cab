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

from aru import Forecaster, Stream
from aru.data.rows import Rows
from aru.errors import ConfigError
from aru.models import resolve
from aru.runtime import ForecastRuntime, gate
from aru.runtime.calibration import BINS, CalibrationState
from aru.runtime.engine import NetworkEngine
from aru.runtime.gate import GateState
from aru.runtime.state import SeriesState, move_on
from aru.runtime.table import StateTable
from aru.runtime.truth import FOLLOWED_LEVELS, Experts, Followed, Following, Judge, Learned, what_came
from tests.making import flat, make, make_settings
from tests.shops import BASE, COVARIATES, STATIC, TRAINED, E, H, both, rows

pytestmark = pytest.mark.usefixtures("in_torch")

BOTH: dict[str, Any] = {"gate": True, "calibration": "online"}


def switched(f: Forecaster, **changed: Any) -> Forecaster:
    """The same weights with other settings, knowing no series."""
    old, other = f.runtime.engine, copy.copy(f)
    other.settings = dataclasses.replace(f.settings, **changed)
    engine = NetworkEngine(other.settings, old.schema, copy.deepcopy(old.models), old.device)
    assert f.trained is not None
    other.trained = f.trained._replace(runtime=ForecastRuntime(engine, f.runtime.freq, f.runtime.style))
    return other.without_series()


def bytes_of(f: Forecaster) -> int:
    return sum(v.numel() * v.element_size() for v in flat(f.table.states).values()) // len(f.ids)


def taken_in(state: SeriesState, y: torch.Tensor) -> SeriesState:
    """States whose clocks and contexts have moved on by (series, row) values, without any covariates."""
    n, steps = y.shape
    others = (v.new_zeros(n, steps, *v.shape[2:]) for v in state.context.rows[3:])
    given = Rows(torch.zeros(n, steps, dtype=torch.int64), y, y.isfinite(), *others)
    count = torch.full((n,), steps)
    return state._replace(steps=state.steps + count, context=move_on(state.context, given, count))


@pytest.fixture(scope="module")
def plain() -> Forecaster:
    return make(**BASE, **COVARIATES).fit(both(range(TRAINED)), STATIC)


@pytest.fixture(scope="module")
def short() -> Forecaster:
    """Its contexts are shorter than its horizon."""
    return make(**{**BASE, **COVARIATES, "input_size": H - 1}).fit(both(range(TRAINED)), STATIC)


@pytest.fixture(scope="module")
def tracked() -> Forecaster:
    return make(**BASE, **COVARIATES, **BOTH).fit(both(range(TRAINED)), STATIC)


def test_off_means_off(plain: Forecaster, tracked: Forecaster) -> None:
    """Neither state nor fingerprint know of it; training is the same."""
    assert not [name for name in flat(plain.table.states) if "followed" in name]
    assert plain.runtime.engine.fingerprint != tracked.runtime.engine.fingerprint
    off = switched(tracked, gate=False, calibration=None)
    assert off.runtime.engine.fingerprint == plain.runtime.engine.fingerprint
    gated, calibrated = switched(plain, gate=True), switched(plain, calibration="online")
    parts = [{tuple(n.split(".")[1:3]) for n in flat(f.table.states) if "followed" in n} for f in (gated, calibrated)]
    fields = {("origin", name) for name in ("last", "steps", "context", "members")}
    assert parts == [{*fields, ("learned", "gate")}, {*fields, ("learned", "calibration")}]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"gate": True, "model": "baseline"}, "does not adapt"),
        ({"gate": True, "model": "deepar"}, "does not adapt"),
        ({"gate": True, "model": "aru-direct"}, "unadapted forecast"),
        ({"gate": True, "search": {"integration": ("residual", "direct")}}, "unadapted forecast"),
    ],
)
def test_what_makes_no_sense_is_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        resolve(make_settings(h=3, freq="D", **changed))


@pytest.mark.parametrize(("apart", "learned"), [(1e-6, False), (1e-2, True)])
def test_experts_that_differ_by_rounding_teach_nothing(plain: Forecaster, apart: float, learned: bool) -> None:
    """Else a series' gate would depend on how networks round beside other series."""
    following = Following(H, gated=True, calibrated=False, whole=False, nonnegative=False)
    engine = switched(plain, gate=True).runtime.engine
    state = engine.empty(engine.schema.encode_static({"kind": np.full(2, np.nan)}, pd.RangeIndex(2)))

    def close(at: Any, future: Any, quantiles: Any) -> Experts:
        mean = 7.0 * torch.stack([torch.ones(2, H), torch.full((2, H), 1 + apart)]).double()
        return Experts(mean, mean[:, None], torch.zeros(2, 2).bool())

    for steps in (1, H):
        state = following.follow(taken_in(state, torch.full((2, steps), 9.0).double()), close)
    gates = state.followed.learned.gate
    assert bool((gates.size > 0).all())
    assert torch.equal(gate.weights(gates), gate.weights(gate.new_gate(2, 2, 2))) != learned


@pytest.mark.parametrize("name", ["plain", "short"])
def test_the_gate_learns_from_what_predict_would_have_said(name: str, request: pytest.FixtureRequest) -> None:
    """An independent walk: forecasts of two plain forecasters at every h-th row, mixed by hand."""
    days, plain = range(31), request.getfixturevalue(name)
    gated = switched(plain, gate=True)
    gated.update(both(days), STATIC)
    adapting, frozen = switched(plain), switched(plain)
    blocks = gate.blocks(H)
    state = gate.new_gate(2, int(blocks.max()) + 1, 2)

    def experts(after: int) -> torch.Tensor:
        known, future = both(range(after + 1)), both(range(after + 1, after + 1 + H))
        adapting.update(known, STATIC, late="skip")
        engine, data = frozen.runtime.engine, adapting.table.states
        nothing = data._replace(members=tuple(m.init_state(2) for m in engine.models))
        frozen.trained = frozen.trained._replace(table=StateTable(adapting.table.ids, nothing))
        made = [f.predict(future, ids=["a", "b"]) for f in (frozen, adapting)]
        points = [np.stack([v[name].to_numpy().reshape(2, H) for v in made], -1) for name in ("aru-median", "aru")]
        return torch.from_numpy(np.stack(points))

    for after in range(0, 30, H):
        medians = experts(after)[0]
        y = torch.from_numpy(np.stack([rows(i, range(after + 1, after + 1 + H)).y for i in "ab"]))
        loss = (medians - y.unsqueeze(-1)).abs()
        loss = torch.stack([loss[:, blocks == b].mean(1) for b in range(2)], 1)
        state = gate.update(state, loss, torch.ones(2).double())
    expected = (gate.weights(state)[:, blocks] * experts(30)).sum(-1)
    got = gated.predict(both(range(31, 31 + H)), ids=["a", "b"])
    for name, wanted in zip(("aru-median", "aru"), expected, strict=True):
        np.testing.assert_allclose(got[name].to_numpy().reshape(2, H), wanted.numpy(), rtol=1e-6)
    assert not np.allclose(gate.weights(state), gate.weights(gate.new_gate(2, 2, 2)), atol=0.02)


def test_a_stream_a_save_and_a_forecaster_agree(tracked: Forecaster, tmp_path: Path) -> None:
    """One row at a time through SQLite, with rows that are revised; at once; and interrupted by save and load.

    What series have in common is learned from time to time, so forecasts are compared with the same of it.
    """
    new, future = both(range(TRAINED, 40), "abn"), both(range(40, 40 + H), "abn")
    whole = copy.copy(tracked)
    whole.update(new, STATIC)
    tracked.save(tmp_path / "model")
    wrong = rows("a", [30]).assign(y=lambda df: 2 * df.y)
    with Stream(tmp_path / "model", tmp_path / "state.db", correctable_steps=2) as stream:
        for day in range(TRAINED, 40):
            stream.update(both([day], "abn") if day != 30 else pd.concat([wrong, both([day], "bn")]), STATIC)
            if day == 31:
                assert stream.update(rows("a", [30]), late="correct").corrected == 1
        streamed = stream.predict(future, level=[80, 90], ids=["a", "b", "n"])
        whole.runtime.engine.common = common = stream.runtime.engine.common
    expected = whole.predict(future, level=[80, 90])
    pd.testing.assert_frame_equal(streamed, expected, rtol=1e-5)
    half = copy.copy(tracked)
    half.update(both(range(TRAINED, 31), "abn"), STATIC)
    half.save(tmp_path / "half")
    loaded = Forecaster.load(tmp_path / "half", "cpu")
    assert loaded.runtime.engine.common.epoch == half.runtime.engine.common.epoch > 0
    loaded.update(both(range(31, 40), "abn"))
    loaded.runtime.engine.common = common
    pd.testing.assert_frame_equal(loaded.predict(future, level=[80, 90]), expected, rtol=1e-5)


def test_states_reach_back_to_the_origin_that_waits(plain: Forecaster, short: Forecaster) -> None:
    kept = {name: len(f.table.states.context.rows.y[0]) for name, f in (("plain", plain), ("short", short))}
    assert kept == {"plain": E, "short": H - 1}
    for changed in ({"gate": True}, {"calibration": "online"}):
        for f, rows_kept in ((plain, E), (short, H)):
            state = switched(f, **changed).table.states
            assert state.context.rows.y.shape[1] == state.followed.origin.context.rows.y.shape[1] == rows_kept


@pytest.mark.parametrize("h", [2, 3, E])
def test_what_came_after_an_origin(plain: Forecaster, h: int) -> None:
    """Read off the present context: covariates known ahead as they came, historic ones missing, as in a forecast."""
    f = switched(plain)
    f.update(both(range(10)), STATIC)
    origin, last = f.table.states, f.table.states.last
    for passed in range(h + 1):
        if passed:
            f.update(both([9 + passed]).assign(y=lambda d, k=passed: np.where(k == 2, np.nan, d["y"])), STATIC)
        now = f.table.states
        ahead, y = what_came(origin, now, h)
        rows_now = now.context.rows
        assert all(v.shape[:2] == (2, h) for v in (*ahead, y))
        assert not ahead.observed.any()
        assert not ahead.y.any()
        assert not ahead.hist_cat.any()
        assert torch.equal(ahead.hist, torch.tensor([0.0, 1.0]).expand(2, h, 2))
        came = slice(E - passed, E)
        assert torch.equal(ahead.futr[:, :passed], rows_now.futr[:, came])
        assert torch.equal(ahead.futr_cat[:, :passed], rows_now.futr_cat[:, came])
        day = 86_400_000_000
        assert torch.equal(ahead.ds[:, :passed], last[:, None] + day * torch.arange(1, passed + 1))
        expected = np.full((2, h), np.nan)
        for k in range(1, passed + 1):
            expected[:, k - 1] = np.nan if k == 2 else [rows(i, [9 + k]).y.item() for i in "ab"]
        np.testing.assert_array_equal(y.numpy(), expected)
        assert not any(v[:, passed:].any() for v in (ahead.ds, ahead.futr, ahead.futr_cat))  # still to come


def test_a_gap_at_once_teaches_what_its_steps_teach(tracked: Forecaster) -> None:
    """Long enough that steps are left out, and ending at, before and after an origin."""
    for end in range(60, 60 + H):
        at_once, by_step = switched(tracked), switched(tracked)
        for f in (at_once, by_step):
            f.update(both(range(20)), STATIC)
        for day in range(20, end):
            by_step.update(both([day]).assign(y=np.nan, temp=np.nan, promo=None))
        for f in (at_once, by_step):
            f.update(both(range(end, end + 2 * H)))
        one, other = (flat(f.table.states.followed.learned) for f in (at_once, by_step))
        for name, value in one.items():
            torch.testing.assert_close(value, other[name], rtol=1e-5, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
        future = both(range(end + 2 * H, end + 3 * H))
        pd.testing.assert_frame_equal(at_once.predict(future, [80]), by_step.predict(future, [80]), rtol=1e-5)


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
    model = make(**{**BASE, **training, **local}).fit(df[df.ds < 60])
    torch.nn.init.ones_(model.runtime.engine.models[0].joint.mix)

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
    following = Following(h, gated=False, calibrated=True, whole=False, nonnegative=False)
    engine = switched(plain, calibration="online").runtime.engine
    state = engine.empty(engine.schema.encode_static({"kind": np.full(n, np.nan)}, pd.RangeIndex(n)))
    asked = [0.5, *(end / 100 for level in (70, 80, 90, 95) for end in (50 - level / 2, 50 + level / 2))]
    sizes = torch.special.ndtri(torch.tensor([*asked, *following.quantiles], dtype=torch.float64))

    def fixed(at: Any, future: Any, quantiles: Any) -> Experts:
        """Intervals of one width, which is right now and then."""
        values = sizes[-len(quantiles) :, None, None].expand(-1, len(at.last), h)
        zero = torch.zeros(1, len(at.last), h).double()
        return Experts(zero, values.unsqueeze(0), zero[..., 0].bool())

    inside = []
    for window in range(-1, windows):
        first = h * window + 1
        here = y[:, max(first, 0) : first + h]
        if window >= 0:
            _, values = following.issue(state.followed, None, fixed(state, None, sizes), asked)
            low, high = values[1::2], values[2::2]
            inside.append(((low <= here) & (here <= high)).double().mean((1, 2)))
        state = following.follow(taken_in(state, here), fixed)
    off = 100 * torch.stack(inside).mean(0) - torch.tensor([70, 80, 90, 95])
    assert off[1:].abs().max() < 1
    assert off[0].abs() < 5  # lies between levels that are followed


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), whole=st.booleans(), level=st.integers(1, 99))
def test_quantiles_are_in_order_whatever_was_learned(seed: int, whole: bool, level: int) -> None:
    rng = np.random.default_rng(seed)
    n, h = 4, 5
    following = Following(h, gated=True, calibrated=True, whole=whole, nonnegative=True)
    counts = torch.from_numpy(rng.gamma(0.1, 1, (n, 1, BINS))).float()
    drift = torch.from_numpy(rng.uniform(-2, 2, (n, len(FOLLOWED_LEVELS), 2, 1))).float()
    learned = Learned(
        gate=GateState(torch.from_numpy(rng.normal(size=(n, 3, 2))), torch.ones(n, 3).double()),
        calibration=CalibrationState(counts, drift),
    )
    common = torch.from_numpy(rng.gamma(0.1, 1, (1, BINS)))
    followed = Followed(SeriesState(*torch.zeros(4, n)), learned)  # no origin is needed to issue a forecast
    asked = [0.5, (100 - level) / 200, (100 + level) / 200, 0.05, 0.95]
    order = np.argsort([*asked, *following.quantiles], kind="stable")
    values = np.sort(rng.gamma(2, 3, (2, len(order), n, h)), 1)[:, np.argsort(order)]
    made = Experts(torch.ones(2, n, h).double(), torch.from_numpy(values), torch.zeros(2, n).bool())
    point, quantiles = following.issue(followed, common, made, asked)
    assert torch.allclose(point, torch.ones(n, h).double())
    in_order = quantiles[np.argsort(asked, kind="stable")]
    assert (in_order.diff(dim=0) >= 0).all()
    assert (quantiles >= 0).all()
    assert quantiles.isfinite().all()
    assert not whole or torch.equal(quantiles, quantiles.round())


@pytest.mark.parametrize("absurd", [1e200, torch.inf, torch.nan])
def test_absurd_values_teach_neither_gate_nor_calibration(absurd: float) -> None:
    judge = Judge(3, [80.0], experts=2, calibrated=True, same=0.0, by_lead=True)
    before = judge.empty(1)
    experts = torch.tensor([[[1.0, 2.0]] * 3]).double()
    knots = torch.tensor([[[0.0, 1.5, 3.0]] * 3]).double()
    y = torch.full((1, 3), absurd, dtype=torch.float64)
    after = judge.learn(before, experts, knots, y)
    for name, value in flat(after).items():
        assert torch.equal(value, flat(before)[name]), name
    taught = judge.learn(before, experts, knots, torch.ones(1, 3).double())
    assert any(not torch.equal(value, flat(before)[name]) for name, value in flat(taught).items())


def noisy(ids: str, size: float, days: int) -> pd.DataFrame:
    """Series around a level, with noise of some size."""
    parts = []
    for i in ids:
        rng = np.random.default_rng(ord(i))
        ds = pd.date_range("2024-01-01", periods=days)
        parts.append(pd.DataFrame({"unique_id": i, "ds": ds, "y": 50 + size * rng.standard_normal(days)}))
    return pd.concat(parts, ignore_index=True)


def narrow(calibration: Any = "online") -> Forecaster:
    """A hardly trained network."""
    settings = {**BASE, "freq": "D", "lags": None, "calibration": calibration}
    return make(**settings).fit(noisy("abc", 0.2, 40)).without_series()


def test_a_new_series_has_the_intervals_of_its_panel() -> None:
    """The intervals of a hardly trained network are far off; those of the panel are known."""
    f, first = narrow(), noisy("z", 4.0, 12)
    alone = copy.copy(f)
    alone.update(first)
    f.update(noisy("abcdefgh", 4.0, 90))
    f.update(first)
    widths = [v.predict(level=[90], ids=["z"]).eval("`aru-hi-90` - `aru-lo-90`").mean() for v in (alone, f)]
    assert f.runtime.engine.common.epoch > 0
    alone_off, off = np.abs(np.log(np.array(widths) / (2 * 1.645 * 4)))
    assert off < alone_off - 0.4
    records = [flat(v.table.states) for v in (alone, f)]
    at = f.table.ids.index("z")
    for name, value in records[0].items():  # the record itself knows nothing of the panel
        torch.testing.assert_close(records[1][name][at], value[0], rtol=1e-5, atol=1e-6, msg=name)


def test_calibration_knows_no_row_after_a_cutoff() -> None:
    """Of any series, also where series end at different times: what is shared is shared in time."""
    f, long = narrow(), noisy("abcd", 4.0, 70)
    short = noisy("efg", 4.0, 55)
    df = pd.concat([long, short], ignore_index=True)
    before = f.cross_validation(df, n_windows=3, step_size=H, level=[90])
    cutoff = sorted(before.cutoff.unique())[-2]
    late = df.assign(y=df.y.where(df.ds <= cutoff, df.y + 40))
    after = f.cross_validation(late, n_windows=3, step_size=H, level=[90])
    columns = ["unique_id", "ds", "cutoff", "aru", "aru-lo-90", "aru-hi-90"]
    known = before.cutoff <= cutoff
    assert known.any()
    pd.testing.assert_frame_equal(after.loc[known, columns], before.loc[known, columns], check_exact=True)
    early = df.assign(y=df.y.where((df.unique_id != "e") | (df.ds > df.ds.min() + pd.Timedelta(days=40)), df.y * 3))
    other = f.cross_validation(early, n_windows=3, step_size=H, level=[90])
    rest = before.unique_id != "e"
    assert not other.loc[rest, "aru-hi-90"].equals(before.loc[rest, "aru-hi-90"])  # series do share
