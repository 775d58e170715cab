"""Seasonal naive and MASE: by the definition, row by row, and by utilsforecast."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from utilsforecast.losses import mase as utilsforecast_mase

from aru.data.frequency import Frequency
from aru.data.naive import SeasonalNaive
from aru.data.panel import Panel, read_panel
from aru.data.scores import Judged, Scorecard, mase, pooled


def panel(gaps: bool = True) -> tuple[Panel, pd.DataFrame]:
    generator = np.random.default_rng(0)
    frames = []
    for name, n, size in (("a", 30, 1.0), ("b", 17, 1e12), ("c", 9, 1e-6), ("d", 5, 1.0)):
        y = size * generator.normal(5, 1, n)
        if gaps:
            y[3::4] = np.nan
        frames.append(pd.DataFrame({"unique_id": name, "ds": np.arange(n), "y": y}))
    df = pd.concat(frames, ignore_index=True)
    return read_panel(df, Frequency(1), []), df


def latest(values: list[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return known[-1] if known else math.nan


@pytest.mark.parametrize("season", [1, 4, 7])
@pytest.mark.parametrize("gaps", [True, False])
def test_every_lead_repeats_its_season(season: int, gaps: bool) -> None:
    rows, _ = panel(gaps)
    h = 10
    cutoffs = np.array([rows.starts[i] + at for i, at in ((0, 19), (0, 3), (1, 12), (2, 6), (3, 0))])
    got = SeasonalNaive(rows, season).forecast(cutoffs, h)
    for i, cutoff in enumerate(cutoffs):
        start = int(rows.starts[rows.starts <= cutoff].max())
        past = rows.y[start : cutoff + 1].tolist()
        for lead in range(1, h + 1):
            same = latest(past[(len(past) - 1 + lead) % season :: season])
            assert got.point[i, lead - 1] == (latest(past) if math.isnan(same) else same)
        for lag in (season, 1):
            steps = [b - a for a, b in zip(past, past[lag:], strict=False) if not math.isnan(a + b)]
            if steps:
                assert got.unit[i] == pytest.approx(np.mean(np.abs(steps)), rel=1e-12)
                spread = [math.sqrt(np.mean(np.square(steps)) * math.ceil(lead / season)) for lead in range(1, h + 1)]
                assert got.spread[i] == pytest.approx(spread, rel=1e-12)
                break
        else:
            assert math.isnan(got.unit[i])
            assert not got.spread[i].any()


def test_mase_is_that_of_utilsforecast() -> None:
    rows, df = panel(gaps=False)
    h, season = 3, 4
    cutoffs = (rows.starts + rows.lengths - h - 1)[:3]  # the last series has no seasonal difference
    naive = SeasonalNaive(rows, season).forecast(cutoffs, h)
    y = rows.y[cutoffs[:, None] + 1 + np.arange(h)]
    frame = pd.DataFrame(
        {
            "unique_id": np.repeat(rows.ids[:3], h),
            "ds": rows.ds[cutoffs[:, None] + 1 + np.arange(h)].ravel(),
            "y": y.ravel(),
            "naive": naive.point.ravel(),
        }
    )
    train = df[df.groupby("unique_id").cumcount(ascending=False) >= h]
    expected = utilsforecast_mase(frame, ["naive"], season, train)["naive"].mean()
    assert mase(y, naive.point, naive.unit) == pytest.approx(expected, rel=1e-12)


def test_what_cannot_be_scaled_is_left_out() -> None:
    y = np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, np.nan], [1.0, 1.0]])
    forecast = np.array([[2.0, 9.0], [4.0, 4.0], [1.0, 1.0], [9.0, 9.0]])
    assert mase(y, forecast, np.array([2.0, 4.0, 1.0, 0.0])) == pytest.approx((0.5 + 0.25) / 2)
    assert mase(y, forecast, np.array([2.0, 4.0, 1.0, np.nan])) == pytest.approx((0.5 + 0.25) / 2)
    assert math.isnan(mase(y, forecast, np.zeros(4)))


def test_scores_of_nothing_are_unknown() -> None:
    none = np.full((2, 3), np.nan)
    got = pooled(Judged(none, none, none, {90.0: (none, none)}))
    assert got.pop("values") == 0
    assert all(math.isnan(value) for value in got.values())
    card = Scorecard("aru", "nothing", 1, 0, 0, {**got, "mase": math.nan}, {**got, "mase": math.nan})
    assert not card.loses
    back = Scorecard.from_json(card.to_json())
    assert str(back) == str(card)
    assert back.naive_name == "latest value"
