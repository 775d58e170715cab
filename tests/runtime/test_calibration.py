"""Online calibration: coverage stays nominal while the data drift, whatever the intervals were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aru import Adapter
from aru.runtime import calibration
from aru.runtime.calibration import CalibrationState
from aru.runtime.truth import Judge, Learned

LEADS = 4
JUDGE = Judge(LEADS, [90.0], experts=1, calibrated=True, same=0.0, by_lead=True)


def empty(series: int) -> CalibrationState:
    state = JUDGE.empty(series).calibration
    assert isinstance(state, CalibrationState)
    return state


def learn(state: CalibrationState, knots: torch.Tensor, y: torch.Tensor, judge: Judge = JUDGE) -> CalibrationState:
    """One round of (series, lead) values."""
    learned = judge.learn(Learned((), state), knots[..., :1], knots.expand(*y.shape, len(judge.z)), y)
    return learned.calibration


def ends(state: CalibrationState, knots: torch.Tensor, common: torch.Tensor | None = None) -> torch.Tensor:
    """(series, lead, 2) calibrated 90 % intervals of forecasts with the same (knot,) values."""
    here = knots.expand(len(state.counts), JUDGE.h, 3)
    moved = JUDGE.shift(Learned((), state), common, here, [0.05, 0.95])
    return here[..., [0, 2]] + moved


def run(scale: np.ndarray, width: float, series: int = 40, shared: bool = False) -> np.ndarray:
    """Errors whose spread changes with time, intervals of one width; coverage of each third of the time."""
    rng = np.random.default_rng(0)
    state, knots = empty(series), torch.tensor([-width, 0, width]).double()
    inside = []
    for spread in scale:
        low, high = ends(state, knots, calibration.pooled(state.counts) if shared else None).unbind(-1)
        y = torch.from_numpy(rng.normal(size=(series, LEADS)) * spread)
        inside.append(((low <= y) & (y <= high)).double().mean().item())
        state = learn(state, knots, y)
    return np.array([np.mean(part) for part in np.array_split(inside, 3)])


@pytest.mark.parametrize(("drift", "width"), [("none", 0.2), ("grows", 5.0), ("jumps", 0.2), ("waves", 5.0)])
def test_coverage_over_a_drifting_stream_is_nominal(drift: str, width: float) -> None:
    T = 1500
    time = np.arange(T)
    scale = {
        "none": np.ones(T),
        "grows": np.exp(time / T * np.log(5)),
        "jumps": np.where(time % 500 < 250, 1.0, 3.0),
        "waves": 1 + 0.8 * np.sin(2 * np.pi * time / 300),
    }[drift]
    thirds = run(scale, width)
    assert thirds.mean() == pytest.approx(0.9, abs=0.015)
    assert np.abs(thirds - 0.9).max() < 0.03


@pytest.mark.parametrize("width", [0.4, 6.0])
def test_a_panel_is_calibrated_within_twenty_rounds(width: float) -> None:
    """Intervals that are four times too narrow or too wide: sharing, the second ten rounds are nearly right."""
    alone, together = (run(np.ones(30), width, series=60, shared=shared) for shared in (False, True))
    assert abs(together[1] - 0.9) < 0.03
    assert abs(together[2] - 0.9) < 0.02
    assert abs(together[1] - 0.9) < abs(alone[1] - 0.9)


def test_a_new_series_has_the_panels_calibration_at_once() -> None:
    rng, knots = np.random.default_rng(0), torch.tensor([-1.0, 0, 1.0]).double()
    state = empty(50)
    for _ in range(20):
        state = learn(state, knots, torch.from_numpy(3 * rng.normal(size=(50, 4))))
    new = ends(empty(1), knots, calibration.pooled(state.counts))
    assert torch.allclose(new, torch.tensor([-3 * 1.645, 3 * 1.645]).double().expand(1, LEADS, 2), rtol=0.15)


@pytest.mark.parametrize(("shared", "wider"), [(False, 1.2), (True, 1.1)])
@pytest.mark.parametrize("outlier", [1e2, 1e9, 1e149])
def test_an_outlier_counts_as_one_value(outlier: float, shared: bool, wider: float) -> None:
    """Three rounds after it, intervals are hardly wider than without it."""
    knots = torch.tensor([-1.645, 0, 1.645]).double()
    widths = []
    for value in (0.0, outlier):
        state, rng = empty(20), np.random.default_rng(0)
        for t in range(60):
            y = torch.from_numpy(rng.normal(size=(20, LEADS)))
            y[0, 0] += value if t == 57 else 0
            state = learn(state, knots, y)
        widths.append(ends(state, knots, calibration.pooled(state.counts) if shared else None)[0].diff(dim=-1).mean())
    assert widths[0] < widths[1] < wider * widths[0]


def test_without_feedback_nothing_moves() -> None:
    state, knots = empty(2), torch.tensor([1.0, 2.0, 5.0]).double()
    torch.testing.assert_close(ends(state, knots), knots[[0, 2]].expand(2, LEADS, 2))
    after = learn(state, knots, torch.full((2, 4), torch.nan).double())
    assert all(torch.equal(a, b) for a, b in zip(after, state, strict=True))
    after = learn(state, torch.full((3,), torch.nan).double(), torch.ones(2, 4).double())
    assert all(torch.equal(a, b) for a, b in zip(after, state, strict=True))


@settings(max_examples=50)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 4))
def test_deviate_is_the_inverse_of_the_quantile_function(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    upper = np.sort(rng.uniform(0.55, 0.99, k))
    z = torch.special.ndtri(torch.from_numpy(np.concatenate([1 - upper[::-1], [0.5], upper])))
    knots = torch.from_numpy(np.sort(rng.gamma(1, 1, (30, 2 * k + 1)), -1))
    at = torch.from_numpy(rng.normal(0, 3, (30, 1)))
    y = calibration.value_at(knots, z, at).squeeze(-1)
    for right in (False, True):
        torch.testing.assert_close(calibration.deviate(knots, z, y, right), at.squeeze(-1), rtol=1e-6, atol=1e-6)


def test_equal_quantiles_share_their_mass() -> None:
    """A forecast of mostly zeros: a zero says nothing, a one says that the upper quantiles are too low."""
    judge = Judge(1, [50.0, 90.0], experts=1, calibrated=True, same=0.0, by_lead=True)
    knots = torch.tensor([0.0, 0, 0, 0, 2]).double()
    values, outer = torch.tensor([[0.0], [1.0]]).double(), judge.z[None, [0, -1]]
    found = [calibration.spans(knots[None], judge.z, y, outer) for y in values]
    at = torch.tensor([-2.0, -1.0, 0.0]).double()
    zero, one = (spans.below(at, judge.block)[0] for spans in found)
    share = torch.special.ndtr(calibration.deviate(knots[None], judge.z, torch.tensor([0.5]).double(), right=True))
    torch.testing.assert_close(zero[0], torch.special.ndtr(at) / share, rtol=0.1, atol=0.01)
    assert (one == 0).all()


def test_missing_ends_are_told_by_their_neighbours() -> None:
    z = torch.special.ndtri(torch.tensor([0.025, 0.1, 0.5, 0.9, 0.975])).double()
    nan = float("nan")
    knots = torch.tensor([[nan, -1.2816, 0, 1.2816, 1.96], [nan, nan, 0, nan, nan], [2, 1, 0, -1, 3]]).double()
    tidy = calibration.tidy(knots, z)
    torch.testing.assert_close(tidy[0], torch.tensor([-1.96, -1.2816, 0, 1.2816, 1.96]).double(), rtol=1e-4, atol=1e-4)
    assert tidy[1, [0, 1, 3, 4]].isnan().all()
    assert (tidy[2].diff() >= 0).all()
    assert tidy[2, 2] == 0


def test_an_adapter_calibrates_the_intervals_of_its_model() -> None:
    """Intervals of a model that believes in a tenth of the noise there is, which doubles half way."""
    rng = np.random.default_rng(0)
    rows, h, series = 600, 2, 5
    days = pd.date_range("2020-01-01", periods=rows + h)
    spread = np.where(np.arange(rows + h) < rows // 2, 1.0, 2.0)
    cutoff = np.repeat(np.arange(10, rows), h)
    ahead = cutoff + np.tile(np.arange(1, h + 1), rows - 10)
    keys = {"ds": days[ahead], "cutoff": days[cutoff], "m": 0.0, "m-lo-80": -0.13, "m-hi-80": 0.13}
    names = [f"s{i}" for i in range(series)]
    frame = pd.concat([pd.DataFrame({"unique_id": name, **keys}) for name in names], ignore_index=True)
    actuals = pd.concat([pd.DataFrame({"unique_id": name, "ds": days, "y": rng.normal(0, spread)}) for name in names])
    adapted = Adapter(h, calibration="online").cross_validation(frame, actuals).merge(actuals, on=["unique_id", "ds"])
    inside = (adapted["m-lo-80"] <= adapted.y) & (adapted.y <= adapted["m-hi-80"])
    assert inside[adapted.cutoff > days[30]].mean() == pytest.approx(0.8, abs=0.01)
    assert ((frame["m-lo-80"] <= adapted.y) & (adapted.y <= frame["m-hi-80"])).mean() < 0.2


@pytest.mark.data
def test_coverage_on_real_data(data_dir: Path) -> None:
    """A seasonal naive model of exchange rates: its own intervals, from the first rows, lose their coverage."""
    df = pd.read_parquet(data_dir / "exchange_rate" / "data.parquet")[["unique_id", "ds", "y"]]
    df = df.groupby("unique_id").tail(900).reset_index(drop=True)
    h, first = 3, 100
    parts = []
    for name, one in df.groupby("unique_id"):
        y = np.log(one.y.to_numpy(np.float64))
        half = 1.645 * np.diff(y[:first]).std()
        for k in range(1, h + 1):
            at = np.arange(first, len(y) - h)
            point = y[at]
            parts.append(
                pd.DataFrame({
                    "unique_id": name, "ds": one.ds.to_numpy()[at + k], "cutoff": one.ds.to_numpy()[at],
                    "naive": point, "naive-lo-90": point - half * k**0.5, "naive-hi-90": point + half * k**0.5,
                })
            )  # fmt: skip
    forecasts, actuals = pd.concat(parts, ignore_index=True), df.assign(y=np.log(df.y.astype(np.float64)))
    adapted = Adapter(h, gate=True, calibration="online").cross_validation(forecasts, actuals)
    both = adapted.merge(actuals, on=["unique_id", "ds"])
    inside = (both["naive-lo-90"] <= both.y) & (both.y <= both["naive-hi-90"])
    assert inside.mean() == pytest.approx(0.9, abs=0.01)
