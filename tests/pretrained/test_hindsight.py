"""What the errors of a pretrained network teach: from which rows, how far it is believed, and what it must not cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import Ridge

from aru import Forecaster, Stream
from aru.data.frequency import Frequency
from aru.nn.tree import leaves
from aru.pretrained.hindsight import (
    CUT_CORRECTION,
    DIFFERENCE_RIDGE,
    DOUBT_ROUNDS,
    MOST_TRUST,
    ROUND_AGE,
    SEASON_PARTS,
    CommonHindsight,
    Hindsight,
    HindsightSums,
    Window,
)
from aru.pretrained.patches import LEVELS, MEDIAN
from aru.runtime.records import Record

H = 6
HOURLY = (24, 168)


def opened(**options: Any) -> Forecaster:
    return Forecaster.from_pretrained("nano", **{"h": H, "freq": "h", "accelerator": "cpu", **options})


def shifts(n: int, seed: int, noise: float = 1.0) -> np.ndarray[Any, Any]:
    """Hours of a week that are unlike each other, which a network reads with difficulty."""
    random = np.random.default_rng(seed)
    level = np.where(np.random.default_rng(1).random(168) < 0.3, 40.0, 10.0)
    return level[np.arange(n) % 168] + random.normal(0, noise, n)


def frame(values: dict[Any, Any], start: str = "2024-01-01") -> pd.DataFrame:
    parts = [
        pd.DataFrame({"unique_id": name, "ds": pd.date_range(start, periods=len(y), freq="h"), "y": y})
        for name, y in values.items()
    ]
    return pd.concat(parts, ignore_index=True)


def windows(
    hindsight: Hindsight, n: int, rounds: int, seed: int, told: float = 0.0, usual: float = 0.0
) -> list[Window]:
    """Rounds of made-up differences. Errors are `told` times the first one, a habit, and noise; some are missing."""
    random = np.random.default_rng(seed)
    out = []
    for i in range(rounds):
        x = random.normal(size=(n, hindsight.h, hindsight.k))
        tick = i * hindsight.stride + np.arange(hindsight.h) + np.zeros((n, 1), np.int64)
        z = told * x[..., 0] + usual * np.where(tick // 24 % 7 < 3, 1.0, -1.0) + random.normal(size=x.shape[:2])
        z[random.random(z.shape) < 0.1] = np.nan
        out.append(Window(x, tick, z))
    return out


def learned(hindsight: Hindsight, rounds: list[Window]) -> HindsightSums:
    sums = hindsight.empty(len(rounds[0].z))
    for window in rounds:
        sums = hindsight.learn(sums, window)
    return sums


def test_the_grid_reaches_every_phase() -> None:
    """Origins that all lie at one hour of the day would teach about this hour alone."""
    for h, periods, stride in ((24, HOURLY, 25), (7, (7, 365), 8), (14, (7, 365), 15), (16, (12, 0), 17), (1, None, 8)):
        hindsight = Hindsight(h, periods)
        assert hindsight.stride == stride
        assert {i * stride % hindsight.season for i in range(hindsight.season)} == set(range(hindsight.season))


def test_coefficients_are_those_of_a_ridge_regression_by_part_of_the_season() -> None:
    hindsight = Hindsight(H, HOURLY)
    rounds = windows(hindsight, 3, 40, 0, told=0.5)
    sums = learned(hindsight, rounds)
    found = hindsight.meet(sums, CommonHindsight(torch.zeros(SEASON_PARTS, 5).double(), torch.ones(2).double())).theta
    for series in range(3):
        for part in range(SEASON_PARTS):
            rows = [
                (w.x[series, k], w.z[series, k], ROUND_AGE ** (len(rounds) - 1 - i))
                for i, w in enumerate(rounds)
                for k in range(H)
                if w.tick[series, k] % 24 * SEASON_PARTS // 24 == part and not np.isnan(w.z[series, k])
            ]
            x, z, weight = (np.array(v) for v in zip(*rows, strict=True))
            ridge = Ridge(DIFFERENCE_RIDGE, fit_intercept=False).fit(x, z, weight)
            np.testing.assert_allclose(found[series, part], ridge.coef_, rtol=1e-4, atol=1e-6)


def test_a_series_moves_away_from_the_panel_by_its_own_evidence() -> None:
    """A new one has no correction, one without a sign of its own the panel's, one with many rounds its own."""
    hindsight, panel = Hindsight(H, None), torch.full((1, 4), 0.3, dtype=torch.float64)
    common = CommonHindsight(panel, torch.ones(1, dtype=torch.float64))
    new = hindsight.empty(1)
    assert not hindsight.meet(new, common).theta.any()
    known = new._replace(rounds=torch.tensor([90.0]))
    np.testing.assert_allclose(hindsight.meet(known, common).theta, 0.3 * 90 / (90 + DOUBT_ROUNDS))
    own = learned(hindsight, windows(hindsight, 1, 2000, 1, told=-0.5))
    assert abs(hindsight.meet(own, common).theta[0, 0, 0] + 0.5) < 0.1


def test_trust_comes_with_evidence_and_goes_without() -> None:
    hindsight = Hindsight(H, HOURLY)
    assert not hindsight.learn_common(hindsight.empty(4)).weights.any()
    useful = hindsight.learn_common(learned(hindsight, windows(hindsight, 20, 120, 0, told=0.6))).weights
    assert 0.5 < useful[0] <= MOST_TRUST
    useless = hindsight.learn_common(learned(hindsight, windows(hindsight, 20, 120, 0))).weights
    assert (useless < 0.2).all()
    turned = windows(hindsight, 20, 120, 0, told=0.6) + windows(hindsight, 20, 25, 0, told=-0.6)
    assert hindsight.learn_common(learned(hindsight, turned)).weights[0] < 0.5 * useful[0]
    few = hindsight.learn_common(learned(hindsight, windows(hindsight, 20, 6, 0, told=0.6))).weights
    assert few[0] < 0.7 * useful[0]


def test_the_weights_are_those_of_least_squares() -> None:
    """Of the errors of all rounds on what the records said before each of them, aged, with doubt on the diagonal."""
    hindsight = Hindsight(H, HOURLY)
    rounds, sums = windows(hindsight, 5, 600, 3, told=0.5, usual=0.5), hindsight.empty(5)
    system, right, number = np.zeros((2, 2)), np.zeros(2), 0.0
    for window in rounds:
        nothing = CommonHindsight(torch.zeros(SEASON_PARTS, 5).double(), torch.zeros(2).double())
        local, there = hindsight.meet(sums, nothing), ~np.isnan(window.z)
        part, cell = hindsight.places(window.tick)
        said = np.stack(
            [
                (np.take_along_axis(local.theta, part[..., None], 1) * window.x).sum(-1),
                np.take_along_axis(local.habit, cell, 1),
            ]
        ).clip(-CUT_CORRECTION, CUT_CORRECTION)
        said, z, count = np.where(there, said, 0), np.where(there, window.z, 0), there.sum(1)
        system = 0.99 * system + np.einsum("vnk,wnk,n->vw", said, said, 1 / count)
        right = 0.99 * right + np.einsum("vnk,nk,n->v", said, z, 1 / count)
        number = 0.99 * number + said.any()
        sums = hindsight.learn(sums, window)
    expected = np.linalg.solve(system + np.diag(np.diag(system)) * DOUBT_ROUNDS / number, right)
    assert (expected > 0).all()
    assert expected[0] < MOST_TRUST < expected[1]
    np.testing.assert_allclose(hindsight.learn_common(sums).weights, expected.clip(max=MOST_TRUST), rtol=1e-3)


def test_no_round_decides_for_long() -> None:
    """Whatever came: errors are cut off, the evidence is forgotten, and what is added is bounded."""
    hindsight = Hindsight(H, HOURLY)
    rounds = windows(hindsight, 4, 80, 0, told=0.5)
    clean, spoiled = learned(hindsight, rounds), learned(hindsight, rounds)
    y = np.full((4, 200), 5.0)
    quantiles = np.linspace(4, 6, len(LEVELS)) * np.ones((4, H, 1))
    wild, spread = hindsight.window(y, y > 0, quantiles, np.zeros(4, np.int64), np.full((4, H), 1e300))
    assert np.isfinite(wild.x).all()
    assert np.isfinite(wild.z).all()
    spoiled = hindsight.learn(spoiled, wild)
    for window in windows(hindsight, 4, 20, 9, told=0.5):
        clean, spoiled = hindsight.learn(clean, window), hindsight.learn(spoiled, window)
    one, other = (hindsight.learn_common(sums).weights for sums in (clean, spoiled))
    np.testing.assert_allclose(one, other, atol=0.1)
    local = hindsight.meet(
        spoiled, CommonHindsight(torch.full((SEASON_PARTS, 5), 1e9).double(), torch.ones(2).double())
    )
    assert (np.abs(hindsight.correction(local, wild, spread)) <= CUT_CORRECTION * spread).all()


def test_differences_by_hand() -> None:
    """Of the values at the same phase, of those that are known, and small after a break."""
    hindsight = Hindsight(H, HOURLY)
    rows = 400
    y = 10 + np.arange(rows) % 24 + np.random.default_rng(0).normal(size=rows)
    known = np.ones(rows, bool)
    known[rows - 24 + 2] = False  # of lead 3, a day before
    median = 10 + (rows + np.arange(H)) % 24 + 0.5
    quantiles = median[None, :, None] + np.linspace(-1, 1, len(LEVELS))
    window, spread = hindsight.window(np.where(known, y, 0.0)[None], known[None], quantiles, np.array([7]))
    low, high = (quantiles[0, 0, LEVELS.index(q)] for q in (0.1, 0.9))
    np.testing.assert_allclose(spread, (high - low) / 2.5631)
    assert quantiles[0, 0, MEDIAN] == median[0]

    def expected(lead: int, days: int, period: int = 24) -> float:
        at = [rows + lead - period * (j + 1) for j in range(days)]
        values = [y[i] for i in at if i >= 0 and known[i]]
        x = (np.mean(values) - median[lead]) / spread[0, 0] if values else 0.0
        return float(x / (1 + (x / 4) ** 2))

    for lead in range(H):
        wanted = [expected(lead, 1), expected(lead, 7), expected(lead, 28), expected(lead, 4, 168)]
        np.testing.assert_allclose(window.x[0, lead, :4], wanted, rtol=1e-9)
    assert window.x[0, 2, 0] == 0
    change = (y[-1] - y[-25]) / spread[0, 0] * np.exp(-np.arange(H) / 12)
    np.testing.assert_allclose(window.x[0, :, 4], change / (1 + (change / 4) ** 2))
    assert window.tick.tolist() == [[8, 9, 10, 11, 12, 13]]
    broken, _ = hindsight.window(np.where(known, y, 0.0)[None] + 1e6, known[None], quantiles, np.array([7]))
    assert np.abs(broken.x[..., :4]).max() < 0.01


@pytest.mark.parametrize("cuts", [1, 7, 100, 401])
def test_however_rows_are_delivered(cuts: int) -> None:
    """Gaps, missing values and a series that begins later included."""
    a, b = shifts(1300, 0), shifts(900, 5)
    a[700:730] = np.nan
    df = pd.concat([frame({"a": a}), frame({"b": b}, "2024-01-17 03:00")]).drop(index=list(range(300, 320)))
    whole, parts = opened(), opened()
    whole.update(df)
    order = df.sort_values("ds", kind="stable")
    rows = 60 if cuts == 1 else len(df)  # row by row for a while
    for part in np.array_split(np.arange(rows), rows if cuts == 1 else cuts):
        parts.update(order.iloc[part])
    if rows < len(df):
        parts.update(order.iloc[rows:])
    for (name, one), (_, other) in zip(leaves(whole.table.states), leaves(parts.table.states), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


def test_it_learns_what_the_network_does_not_read() -> None:
    """Shifts of a week, over two months: better than the network alone, and the more the longer it goes on."""
    df = frame({f"s{i}": shifts(1500, i) for i in range(6)})
    alone, both = (opened(h=24, hindsight=on).cross_validation(df, 30, 24) for on in (False, True))
    error = [(out["aru-median"] - out["y"]).abs() for out in (alone, both)]
    assert error[1].sum() < 0.97 * error[0].sum()
    late = alone["cutoff"] > alone["cutoff"].median()
    gain = [1 - error[1][part].sum() / error[0][part].sum() for part in (~late, late)]
    assert gain[1] > gain[0]


@pytest.mark.parametrize("kind", ["noise", "walk"])
def test_where_there_is_nothing_to_learn_it_costs_next_to_nothing(kind: str) -> None:
    random = np.random.default_rng(0)
    values = {f"s{i}": random.normal(size=1000) for i in range(20)}
    values = {name: 100 + (y.cumsum() if kind == "walk" else y) for name, y in values.items()}
    alone, both = (opened(hindsight=on).cross_validation(frame(values), 40, H) for on in (False, True))
    error = [(out["aru-median"] - out["y"]).abs().sum() for out in (alone, both)]
    assert error[1] < 1.005 * error[0]


def test_nothing_after_a_cutoff_matters() -> None:
    """Of any series: not by one bit, wherever series end."""
    df = frame({"a": shifts(500, 0), "b": shifts(400, 1), "c": shifts(460, 2)})
    model = opened()
    before = model.cross_validation(df, 5, H, level=[80])
    cutoff = before.loc[before["unique_id"] == "b", "cutoff"].iloc[2 * H]
    changed = df.assign(y=df["y"].where(df["ds"] <= cutoff, 2 * df["y"] + 7))
    after = model.cross_validation(changed, 5, H, level=[80])
    early = before["cutoff"] <= cutoff
    assert early.any()
    assert (~early).any()
    columns = [name for name in before if name != "y"]
    pd.testing.assert_frame_equal(before.loc[early, columns], after.loc[early, columns], check_exact=True)
    assert not before.loc[~early, columns].equals(after.loc[~early, columns])


def test_frozen_statistics_stay_as_they_are() -> None:
    model, df = opened(), frame({"a": shifts(900, 0), "b": shifts(900, 1)})
    frozen, adapting = (model.cross_validation(df, 60, H, adapt=adapt) for adapt in (False, True))
    first = frozen["cutoff"] == frozen["cutoff"].min()
    pd.testing.assert_frame_equal(frozen[first], adapting[first], check_exact=True)
    assert not frozen.equals(adapting)


def test_saved_streamed_and_corrected(tmp_path: Path) -> None:
    """The same forecasts from memory, from a folder, from a store, and after a row was corrected."""
    df = frame({"a": shifts(700, 0), "b": shifts(650, 1)})
    model = opened()
    model.update(df)
    wanted = model.predict(level=[80])
    assert wanted.attrs["epoch"] == 1
    model.save(tmp_path / "model")
    pd.testing.assert_frame_equal(Forecaster.load(tmp_path / "model").predict(level=[80]), wanted, check_exact=True)
    wrong = df.assign(y=df["y"].where(df.index != 699 - H, 3.0))
    with Stream(opened(), tmp_path / "state.db", correctable_steps=2 * H) as stream:
        stream.update(wrong)
        assert not np.allclose(stream.predict(ids="a")["aru"], model.predict(ids="a")["aru"], rtol=1e-4)
        stream.update(df.iloc[[699 - H]], late="correct")
        states, (_, other) = model.table.states, stream.states(["a", "b"])
        for (name, one), (_, two) in zip(leaves(states), leaves(other), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


def test_without_hindsight_it_is_the_network_alone() -> None:
    df = frame({"a": shifts(1100, 0)})
    alone, both = opened(hindsight=False), opened()
    for model in (alone, both):
        model.update(df)
    assert alone.runtime.epoch is None
    assert not alone.predict().equals(both.predict())
    record = Record(both.table.states)
    runtime = both.runtime
    network = runtime.forecast(record.now, runtime.future(both.table.find(None)[0], record.now, None)[1], [0.5])
    runtime.engine.common = runtime.engine.common._replace(effects=None)
    without = runtime.forecast(record.now, runtime.future(both.table.find(None)[0], record.now, None)[1], [0.5])
    assert not torch.equal(network.mean, without.mean)
    np.testing.assert_array_equal(without.mean.ravel(), alone.predict()["aru"])
    with_covariates = opened(futr_exog_list=["x"])
    with_covariates.update(df.assign(x=np.arange(len(df)) % 5))
    assert type(with_covariates.table.states.members[0]).__name__ == "EffectSums"


@pytest.mark.parametrize(("h", "freq"), [(24, "h"), (200, "h"), (7, "D"), (12, "MS"), (1, 5)])
def test_a_record_has_less_than_six_thousand_bytes(h: int, freq: str | int) -> None:
    y, ds = shifts(1300, 0), 5 * np.arange(1300) if freq == 5 else pd.date_range("1900", periods=1300, freq=str(freq))
    model = opened(h=h, freq=freq)
    model.update(pd.DataFrame({"unique_id": "a", "ds": ds, "y": y}))
    (blob,) = model.runtime.encode(Record(model.table.states), model.ids)
    assert len(blob) < 6000
    assert model.table.states.members[0].rounds.item() > 1
    assert np.isfinite(model.predict(level=[90])[["aru", "aru-lo-90"]]).all(axis=None)


def test_a_horizon_as_long_as_the_context_learns_nothing() -> None:
    model = opened(h=700)
    model.update(frame({"a": shifts(1500, 0)}))
    assert model.runtime.epoch is None
    assert len(model.predict()) == 700


@pytest.mark.parametrize(
    ("freq", "season"), [("h", 168), ("15min", 96), ("D", 7), ("W-FRI", 52), ("B", 5), ("MS", 12), ("QS", 4), (5, 9)]
)
def test_steps_are_counted_alike_for_all_series(freq: str | int, season: int) -> None:
    times = np.arange(0, 300, 5) if freq == 5 else None
    if times is None:
        index = pd.date_range("2019-12-30 00:00", periods=60, freq=str(freq))
        times = index.to_numpy().astype("datetime64[us]").view(np.int64)
    ticks = Frequency(freq).ticks(times)
    assert (np.diff(ticks) == 1).all()
    assert (Frequency(freq).ticks(times[10:]) == ticks[10:]).all()
    assert set((ticks % season).tolist()) == set(range(season)) or len(ticks) < season


def test_hours_are_those_of_the_time_zone() -> None:
    """The same clock in summer and winter; in UTC it would be another hour."""
    index = pd.date_range("2024-03-01", periods=1000, freq="h", tz="Europe/Berlin")
    model = opened()
    model.update(pd.DataFrame({"unique_id": "a", "ds": index, "y": shifts(1000, 0)}))
    (network,) = model.runtime.engine.models
    tick = network.learner._ticks(torch.tensor([index[-1].tz_convert("UTC").tz_localize(None).value // 1000]))
    assert tick % 24 == index[-1].hour
