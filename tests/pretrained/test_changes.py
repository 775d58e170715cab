"""Changes of effects: lasting ones are found and followed; noise, levels and single values are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aru import Forecaster
from aru.pretrained.changes import (
    FAR,
    GRID,
    HALF_LEVEL,
    HALF_SIZE,
    LATEST_ROWS,
    MOST_ALIKE,
    WIDER,
    Beliefs,
    Changes,
    find_changes,
)

K, ROWS = 5, 400
SPREAD, NOISE = 0.01, 0.01
GROUPS = [np.array([0, 1]), np.array([2]), np.array([3, 4])]
DELTA = np.array([0.5, -0.4, 0.0, 0.3, 0.0])


class Series:
    """What the coefficients of some series leave over, noise at first, and their regressors: flags that come and go."""

    def __init__(self, n: int = 3, rows: int = ROWS, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.x = (random.random((n, rows, K)) < 0.4) / 0.5
        self.left = np.sqrt(NOISE) * random.normal(size=(n, rows))
        self.known = np.ones((n, rows), bool)

    def changes(self) -> Changes:
        return find_changes(self.left, self.known, self.x[:, -LATEST_ROWS:], self.beliefs())

    def beliefs(self, factor: float = 1.0) -> Beliefs:
        n = len(self.left)
        spread, noise = np.full((n, K), factor**2 * SPREAD), np.full(n, factor**2 * NOISE)
        return Beliefs(spread, noise, self.x.var(1), GROUPS)

    def change(self, since: int, delta: Any = DELTA) -> Series:
        self.left[:, -since:] += self.x[:, -since:] @ delta
        return self


@pytest.mark.parametrize("since", [24, 48, 100, 180])
def test_other_coefficients_since_some_rows_are_found(since: int) -> None:
    found = Series().change(since).changes()
    near = [n for n in GRID if 0.6 * since <= n <= 1.4 * since]
    assert set(found.rows) <= set(near)
    error = np.abs(found.delta - DELTA).mean()
    assert error < 0.1 * (100 / since) ** 0.5


def test_nothing_else_is_a_change() -> None:
    random = np.random.default_rng(1)
    calm = Series(n=50)
    level = Series(n=50, seed=2)
    level.left[:, -40:] += 0.5
    trend = Series(n=50, seed=3)
    trend.left += np.linspace(0, 3, ROWS)
    louder = Series(n=50, seed=4)
    louder.left[:, -60:] *= 3
    walk = Series(n=50, seed=5)
    walk.left = np.cumsum(walk.left, 1)
    outlier = Series(n=50, seed=6)
    outlier.left[np.arange(50), random.integers(ROWS - 60, ROWS, 50)] += random.choice([-50, 50], 50)
    for series in (calm, level, trend, louder, walk, outlier):
        found = series.changes()
        assert (found.rows > 0).mean() <= 0.02
        assert not found.delta[found.rows == 0].any()


def test_an_outlier_beside_a_change_is_bounded() -> None:
    plain, odd = Series().change(60), Series().change(60)
    odd.left[:, -20] += 30 * np.sqrt(NOISE)
    assert (odd.changes().rows > 0).all()
    np.testing.assert_allclose(odd.changes().delta, plain.changes().delta, atol=0.25)


def test_a_regressor_that_moves_with_the_level_keeps_its_coefficient() -> None:
    """One switch in the latest rows, at the time of a new level: there is nothing to tell them apart."""
    series = Series()
    series.x[..., 0] = 0.0
    series.x[:, -40:, 0] = 2.0
    found = series.change(40, np.array([0.8, 0.0, 0.0, 0.0, 0.0])).changes()
    assert np.abs(found.delta[:, 0]).max() < 0.1


def test_missing_rows_and_padding_say_nothing() -> None:
    random = np.random.default_rng(7)
    series, other = Series().change(100), Series().change(100)
    gone = random.random(series.known.shape) < 0.2
    for part, rubbish in ((series, 0.0), (other, 1e9)):
        part.known &= ~gone
        part.known[:, :100] = False
        part.left[~part.known] = rubbish
    first, second = series.changes(), other.changes()
    assert (first.rows > 0).all()
    assert np.array_equal(first.rows, second.rows)
    assert np.array_equal(first.delta, second.delta)


def test_few_rows_are_not_enough() -> None:
    assert not Series(rows=2 * GRID[0] - 1).change(15, 5 * DELTA).changes().rows.any()
    assert Series(n=0).changes().delta.shape == (0, K)
    still = Series()
    still.left[:] = 0
    assert not still.changes().rows.any()
    silent = Beliefs(np.ones((3, K)), np.zeros(3), still.x.var(1), GROUPS)
    assert not find_changes(still.left, still.known, 1e3 * still.x[:, -LATEST_ROWS:], silent).rows.any()
    assert np.isfinite(find_changes(Series().left, still.known, 1e3 * still.x[:, -LATEST_ROWS:], silent).delta).all()


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), factor=st.sampled_from([1e-6, 0.1, 1e4]), since=st.integers(20, 200))
def test_in_any_units_and_one_by_one(seed: int, factor: float, since: int) -> None:
    series = Series(n=4, seed=seed).change(since)
    found = series.changes()
    scaled = find_changes(factor * series.left, series.known, series.x[:, -LATEST_ROWS:], series.beliefs(factor))
    assert np.array_equal(found.rows, scaled.rows)
    np.testing.assert_allclose(scaled.delta, factor * found.delta, rtol=1e-6, atol=1e-9 * factor)
    for i in range(4):
        one = Series(n=4, seed=seed).change(since)
        one.x, one.left, one.known = (value[i : i + 1] for value in (one.x, one.left, one.known))
        alone = one.changes()
        assert alone.rows[0] == found.rows[i]
        assert np.array_equal(alone.delta[0], found.delta[i])


def test_one_covariate_alone_is_told_from_all() -> None:
    found = Series().change(60, np.array([0.6, -0.5, 0.0, 0.0, 0.0])).changes()
    assert (found.rows > 0).all()
    assert not found.delta[:, 2:].any()
    assert found.delta[:, :2].all()


def test_a_change_is_the_ridge_regression_of_its_rows() -> None:
    """The sums row by row, as the equations have them."""
    series = Series(n=1, rows=300, seed=9).change(64)
    found = series.changes()
    n = int(found.rows[0])
    left, x = series.left[0], series.x[0]

    def around(values: Any, at: int, half: int, first: int = 0) -> Any:
        return values[max(at - half, first) : at + half + 1].mean(0)

    r = np.array([left[t] - around(left, t, HALF_LEVEL) for t in range(300)])
    bound = 4 * np.abs(r).mean()
    kept = r.clip(-bound, bound)
    rho = min(max((kept[1:] * kept[:-1]).sum() / (kept**2).sum(), 0), MOST_ALIKE)
    begin = 300 - LATEST_ROWS
    dx = np.array([x[t] - around(x, t, HALF_LEVEL, begin) for t in range(begin, 300)])
    prior = WIDER * SPREAD * np.minimum((dx**2).mean(0), 1) ** 2
    system, right = np.diag(NOISE / prior), np.zeros(K)
    for t in range(300 - n, 300):
        limit = FAR * around(np.abs(r), t, HALF_SIZE)
        w = min(1, limit / abs(r[t])) * (1 - rho) / (1 + rho)
        system += w * np.outer(dx[t - begin], dx[t - begin])
        right += w * dx[t - begin] * r[t]
    np.testing.assert_allclose(found.delta[0], np.linalg.solve(system, right), rtol=1e-8)


H = 14
DAYS = pd.date_range("2023-01-01", periods=500)


def shops(lifts: dict[str, tuple[float, float]], since: int) -> pd.DataFrame:
    """Promotions multiply sales by a lift, and by another one in the last `since` days before the last H."""
    frames = []
    for i, (name, lift) in enumerate(lifts.items()):
        random = np.random.default_rng(i)
        n = len(DAYS)
        promo = random.integers(0, 2, n)
        now = np.where(np.arange(n) < n - H - since, *lift)
        y = 100 * (i + 1) * (1 + now * promo) * random.normal(1, 0.05, n)
        frames.append(pd.DataFrame({"unique_id": name, "ds": DAYS, "y": y, "promo": promo}))
    return pd.concat(frames, ignore_index=True)


def lift_of(panel: pd.DataFrame, name: str) -> float:
    """How much a promotion raises the forecast."""
    f = Forecaster.from_pretrained("nano", h=H, freq="D", futr_exog_list=["promo"], accelerator="cpu")
    f.update(panel[panel["ds"] < DAYS[-H]])
    futr = panel[panel["ds"] >= DAYS[-H]].drop(columns="y")
    ahead = [f.predict(futr.assign(promo=p), ids=[name])["aru"].to_numpy() for p in (1, 0)]
    return float((ahead[0] / ahead[1]).mean()) - 1


@pytest.mark.parametrize(("since", "within"), [(42, 0.2), (200, 0.05)])
def test_a_forecast_follows_a_promotion_that_has_another_effect(since: int, within: float) -> None:
    """Of one shop among others: in part soon after, and when the sums have seen half of either."""
    others = {f"s{i}": (0.6, 0.6) for i in range(10)}
    panel = shops({**others, "odd": (0.6, 0.1)}, since)
    assert lift_of(panel, "odd") == pytest.approx(0.1, abs=within)
    assert lift_of(panel, "s3") == pytest.approx(0.6, abs=0.05)


def test_a_promotion_that_fails_once_is_not_forgotten() -> None:
    panel = shops({f"s{i}": (0.6, 0.6) for i in range(10)}, 0)
    odd = (panel["unique_id"] == "s3") & (panel["ds"] == DAYS[-H - 20])
    before, panel.loc[odd, "y"] = lift_of(panel, "s3"), 3 * panel.loc[odd, "y"]
    assert lift_of(panel, "s3") == pytest.approx(before, abs=0.03)
