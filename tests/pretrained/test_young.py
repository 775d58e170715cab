"""Young series: what a network says is kept within reason, and the panel's series say how one begins."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aru import Forecaster, Stream
from aru.errors import FutureError
from aru.pretrained.effects import LOGS, PLAIN_VALUES
from aru.pretrained.newcomers import KNOWN, Newcomers
from aru.pretrained.patches import LEVELS, MEDIAN
from aru.pretrained.rehearsal import usual_levels
from aru.pretrained.restraint import GROWN, RANGES, restrained
from aru.pretrained.robust import without_lone
from aru.pretrained.young import HALF_LIFE, YoungSeries, blend, level_ahead, mixed, spread

H = 7
DAYS = pd.date_range("2024-01-01", periods=200)
LEVEL_OF = {"north": 100.0, "south": 1000.0}


def shop(name: str, seed: int, region: str, noise: float = 0.05, days: pd.DatetimeIndex = DAYS) -> pd.DataFrame:
    """A level that its region suggests, promotions of 60 %, and nothing else but noise."""
    random = np.random.default_rng(seed)
    promo = random.integers(0, 2, len(days))
    y = LEVEL_OF[region] * random.lognormal(0, 0.2) * (1 + 0.6 * promo) * random.lognormal(0, noise, len(days))
    return pd.DataFrame({"unique_id": name, "ds": days, "y": y, "promo": promo})


REGIONS = {f"s{i}": ("north", "south")[i % 2] for i in range(30)}
PANEL = pd.concat([shop(name, i, region) for i, (name, region) in enumerate(REGIONS.items())], ignore_index=True)
NEW = {f"new{i}": ("north", "south")[i % 2] for i in range(40)}
STATIC = pd.DataFrame([{"unique_id": name, "region": region} for name, region in {**REGIONS, **NEW}.items()])
COMING = pd.concat([shop(name, 100 + i, region) for i, (name, region) in enumerate(NEW.items())], ignore_index=True)
FUTR = COMING[COMING["ds"] < DAYS[H]].drop(columns="y")


def opened(**options: Any) -> Forecaster:
    covariates = {"futr_exog_list": ["promo"], "stat_exog_list": ["region"]}
    return Forecaster.from_pretrained("nano", **{"h": H, "freq": "D", "accelerator": "cpu", **covariates, **options})


@pytest.fixture(scope="module")
def told() -> Forecaster:
    """A forecaster that knows the panel."""
    f = opened()
    f.update(PANEL, STATIC)
    return f


def newcomers_of(f: Forecaster) -> Newcomers:
    found = f.runtime.engine.common.effects.newcomers
    assert found is not None
    return found


# What the network says


def test_a_short_series_is_kept_within_reason() -> None:
    random = np.random.default_rng(0)
    values = torch.from_numpy(np.sort(random.normal(0, 1e4, (3, 5, len(LEVELS))), -1))
    y = torch.zeros(3, 80, dtype=torch.float64)
    y[0, -3:] = torch.tensor([10.0, 30.0, 20.0])
    y[1, -3:] = torch.tensor([-10.0, 30.0, 20.0])
    y[2, -70:] = 5.0
    known = torch.zeros_like(y, dtype=torch.bool)
    known[:2, -3:] = True
    known[2, -70:] = True
    out = restrained(values, y, known, torch.tensor([[True], [False], [True]]), 7)
    assert torch.equal(out[2], values[2])  # has grown
    for i, (low, high, reach) in enumerate([(10, 30, 30), (-10, 30, RANGES * 40)]):
        assert ((out[i, :, MEDIAN] >= low) & (out[i, :, MEDIAN] <= high)).all()
        assert ((out[i] - out[i, :, MEDIAN, None]).abs() <= reach + 1e-9).all()
        assert (out[i].diff(dim=-1) >= 0).all()
    later = restrained(values, y, known, torch.tensor([[True], [False], [True]]), 2)  # a whole season is known
    assert torch.equal(later[:2, :, MEDIAN], values[:2, :, MEDIAN])


@pytest.mark.parametrize("freq", ["D", "h", "MS", None])
def test_one_value_is_no_reason_to_expect_a_multiple(freq: str | None) -> None:
    f = Forecaster.from_pretrained("mini", h=14, freq=freq, accelerator="cpu")
    ds = pd.date_range("2024-01-01", periods=15, freq=freq or "D")
    f.update(pd.DataFrame({"unique_id": "a", "ds": ds[:1], "y": 100.0}))
    out = f.predict(pd.DataFrame({"unique_id": "a", "ds": ds[1:]}), level=[90])
    assert out["aru-median"].tolist() == [100.0] * 14
    assert out["aru"].between(70, 140).all()
    assert out["aru-hi-90"].max() <= 200


def test_a_rise_within_the_first_season_is_not_taken_on() -> None:
    """Eight hours of a morning: what comes after is not more and more of it."""
    y = 100 + 50 * np.arange(8.0)
    df = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2024-01-01", periods=8, freq="h"), "y": y})
    f = Forecaster.from_pretrained("mini", h=48, freq="h", accelerator="cpu")
    f.update(df)
    assert f.predict()["aru-median"].between(y.min(), y.max()).all()
    yearly = Forecaster.from_pretrained("mini", h=6, freq="YS", accelerator="cpu")  # there is no season
    yearly.update(df.assign(ds=pd.date_range("2001-01-01", periods=8, freq="YS")))
    assert yearly.predict()["aru-median"].iloc[-1] > 1.2 * y.max()


# The level


@pytest.mark.parametrize("way", [LOGS, PLAIN_VALUES])
def test_the_level_is_an_aged_mean_that_begins_with_a_part_of_a_row(way: int) -> None:
    random = np.random.default_rng(1)
    read, usual, effect = random.uniform(1, 9, (2, 6)), np.array([2.0, 1.0]), random.normal(0, 0.1, (2, 3))
    known = np.array([[False, True, True, False, True, True], [False] * 6])
    young = YoungSeries(*(torch.from_numpy(v) for v in (read, known, usual, effect)), way)
    got = level_ahead(young, torch.tensor(0.2, dtype=torch.float64)).numpy()
    z = np.log(1 + read) if way == LOGS else read
    weight = 0.5 ** (np.arange(5, -1, -1) / HALF_LIFE) * known[0]
    level = np.array([((weight * z[0]).sum() + 0.2 * 2.0) / (weight.sum() + 0.2), 1.0])[:, None]
    expected = np.exp(level + effect) - 1 if way == LOGS else level + effect
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_usual_levels_by_traits_and_without_oneself() -> None:
    """Against least squares with and without each series; a trait without meaning is hardly used."""
    random = np.random.default_rng(2)
    useful, useless = random.choice([-0.5, 0.5], 80), random.normal(size=80)
    traits = np.stack([np.ones(80), useful, useless], 1)
    z = 5 + 2 * useful + 0.1 * random.normal(size=80)
    usual, left_out = usual_levels(z, traits)
    np.testing.assert_allclose(usual, [5, 2, 0], atol=0.05)
    for i in (0, 17, 79):
        rest = np.arange(80) != i
        alone = np.linalg.lstsq(traits[rest, :2], z[rest], rcond=None)[0]
        np.testing.assert_allclose(left_out[i], traits[i, :2] @ alone, atol=0.03)
        assert abs(left_out[i] - z[i]) > 0


def made(weight: Any, errors: Any, **options: Any) -> Newcomers:
    parts = {"usual": torch.zeros(1), "rows": torch.zeros(()), "size": torch.ones(()), "logs": False}
    flags = {"nonnegative": False, "whole": False}
    parts = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in parts.items()}
    return Newcomers(**{**parts, "weight": weight.double(), "errors": errors.double(), **flags, **options})


def test_weights_change_with_every_value() -> None:
    weight = torch.rand(len(KNOWN), 2)
    errors = torch.rand(1 + len(KNOWN), len(LEVELS)).sort(-1).values
    begin = made(weight, errors)
    shares, away = begin.after(torch.tensor([0.0, *KNOWN, 3.0, 48.0, GROWN]))
    torch.testing.assert_close(shares[0], torch.ones(2).double())
    torch.testing.assert_close(away[0], errors[0].double())
    torch.testing.assert_close(shares[1:7], weight.double())
    torch.testing.assert_close(away[1:7], errors[1:].double())
    part = np.log2(3 / 2)
    torch.testing.assert_close(shares[7], ((1 - part) * weight[1] + part * weight[2]).double())
    assert (shares[8] < shares[6]).all()
    assert not shares[9].any()
    again = Newcomers.from_json(begin.to_json())
    for name, value in begin._asdict().items():
        assert torch.equal(value, getattr(again, name)) if isinstance(value, torch.Tensor) else value is False


def test_medians_and_widths_are_mixed_apart_and_grown_series_stay() -> None:
    random = np.random.default_rng(3)
    one, other = (torch.from_numpy(np.sort(random.normal(size=(2, 3, len(LEVELS))), -1)) for _ in range(2))
    out = blend(one, other, torch.tensor([0.25, 1.0], dtype=torch.float64))
    m = 0.75 * one[..., MEDIAN] + 0.25 * other[..., MEDIAN]
    torch.testing.assert_close(out[..., MEDIAN], m)
    torch.testing.assert_close(out - m[..., None], other - other[..., MEDIAN, None])
    young = YoungSeries(
        torch.ones(2, 9).double(), torch.ones(2, 9).bool(), torch.zeros(2).double(), torch.zeros(2, 3).double(), LOGS
    )
    begin = made(torch.ones(len(KNOWN), 2), torch.zeros(1 + len(KNOWN), len(LEVELS)))
    found = mixed(one, young, torch.tensor([9.0, 64.0]), begin)
    assert torch.equal(found[1], one[1])
    assert not torch.equal(found[0], one[0])
    up = torch.tensor([[0.1]], dtype=torch.float64)
    torch.testing.assert_close(
        spread(torch.full((1, 1), 3.0).double(), up, True, up)[0, 0, 0], (4 * up.exp() - 1)[0, 0]
    )


# What a panel learns


def test_a_panel_of_levels_trusts_them_and_one_of_walks_does_not(told: Forecaster) -> None:
    """Sales around a fixed level against sales whose changes stay."""
    random = np.random.default_rng(4)

    def walk(name: str) -> pd.DataFrame:
        promo = random.integers(0, 2, len(DAYS))
        y = 100 * np.exp(random.normal(0, 0.08, len(DAYS)).cumsum()) * (1 + 0.6 * promo)
        return pd.DataFrame({"unique_id": name, "ds": DAYS, "y": y, "promo": promo})

    f = opened(stat_exog_list=[])
    f.update(pd.concat([walk(f"s{i}") for i in range(30)]))
    levels, walks = newcomers_of(told), newcomers_of(f)
    assert levels.weight[2:, 0].min() > 0.6
    assert walks.weight[2:, 0].max() < 0.5
    wide = [b.errors[:, -3] - b.errors[:, 2] for b in (levels, walks)]  # of 90 % intervals
    assert wide[0][0] > 3 * wide[0][1] > 0  # one value says a lot about a level
    assert wide[1][-1] > 2 * wide[0][-1]


@pytest.mark.parametrize(("kinds", "trusted"), [(("flat", "flat", "flat"), True), (("flat", "walk", "grows"), False)])
def test_a_few_series_are_believed_if_they_agree(kinds: tuple[str, ...], trusted: bool) -> None:
    rng, row = np.random.default_rng(1), np.arange(60)
    made_up = {
        "flat": lambda: 100 + 10 * rng.normal(size=60),
        "walk": lambda: 100 * np.exp(np.cumsum(0.08 * rng.normal(size=60))),
        "grows": lambda: 100 * 1.02**row * np.exp(0.03 * rng.normal(size=60)),
    }
    quarters = pd.date_range("2010-01-01", periods=60, freq="QS")
    df = pd.concat(
        pd.DataFrame({"unique_id": f"{kind}{i}", "ds": quarters, "y": made_up[kind](), "flag": rng.integers(0, 2, 60)})
        for i, kind in enumerate(kinds)
    )
    f = Forecaster.from_pretrained("nano", h=8, freq="QS", futr_exog_list=["flag"])
    f.update(df)
    weights = newcomers_of(f).weight[:, 0]
    assert weights.min() >= 0.5 if trusted else weights.max() <= 0.1


def without_newcomers(f: Forecaster) -> Forecaster:
    """The same effects, but nothing about how series begin."""
    twin, common = copy.copy(f), f.runtime.engine.common
    twin.runtime.engine.common = common._replace(effects=common.effects._replace(newcomers=None), observations=np.inf)
    assert f.runtime.engine.common.effects.newcomers is not None
    return twin


def test_the_first_values_are_worth_more_with_a_panel() -> None:
    """Against the network alone with the same effects; and intervals of young series cover what they say."""
    panel, coming = (
        pd.concat([shop(name, seed + i, region, 0.3) for i, (name, region) in enumerate(regions.items())])
        for seed, regions in ((0, REGIONS), (100, NEW))
    )
    f = opened()
    f.update(panel, STATIC)
    for n in (1, 2, 5):
        past = coming[coming["ds"] < DAYS[n]]
        futr = coming[(coming["ds"] >= DAYS[n]) & (coming["ds"] < DAYS[n + H])]
        error, inside = [], []
        for model in (copy.copy(f), without_newcomers(f)):
            model.update(past, STATIC)
            out = model.predict(futr.drop(columns="y"), [90], list(NEW)).merge(futr, on=["unique_id", "ds"])
            error.append(float((out["aru-median"] - out["y"]).abs().sum() / out["y"].sum()))
            inside.append(float(out["y"].between(out["aru-lo-90"], out["aru-hi-90"]).mean()))
        assert error[0] < 0.95 * error[1], (n, error)
        assert 0.84 < inside[0] < 0.96


def test_series_with_many_values_are_forecast_as_before(told: Forecaster) -> None:
    futr = pd.concat([shop(n, i, r, days=DAYS + pd.Timedelta(days=200)) for i, (n, r) in enumerate(REGIONS.items())])
    out, other = (f.predict(futr.drop(columns="y"), level=[80]) for f in (told, without_newcomers(told)))
    pd.testing.assert_frame_equal(out, other, check_exact=True)


# Before the first value


def test_a_new_series_has_a_forecast_before_its_first_value(told: Forecaster) -> None:
    before = told.ids
    out = told.predict_new(FUTR, STATIC, level=[80]).merge(COMING, on=["unique_id", "ds"])
    assert told.ids == before
    assert len(out) == len(NEW) * H
    region = out["unique_id"].map(NEW)
    for name, level in LEVEL_OF.items():
        quiet = out[(region == name) & (out["promo"] == 0)]
        assert 0.85 * level < quiet["aru-median"].median() < 1.15 * level
    lift = out[out["promo"] == 1].groupby(region)["aru-median"].mean()
    lift /= out[out["promo"] == 0].groupby(region)["aru-median"].mean()
    assert lift.between(1.45, 1.75).all()
    assert 0.7 < out["y"].between(out["aru-lo-80"], out["aru-hi-80"]).mean() < 0.92
    assert (out["aru-lo-80"] > 0).all()
    assert told.predict_new(FUTR, STATIC).attrs["epoch"] == told.runtime.epoch


def test_before_the_first_value_the_panel_says_what_y_can_be() -> None:
    counts = PANEL.assign(y=(PANEL["y"] / 50).round())
    f = opened()
    f.update(counts, STATIC)
    out = f.predict_new(FUTR, STATIC, level=[98])
    bounds = out[["aru-median", "aru-lo-98", "aru-hi-98"]].to_numpy()
    assert (bounds >= 0).all()
    np.testing.assert_array_equal(bounds, bounds.round())
    signed = opened()
    signed.update(PANEL.assign(y=PANEL["y"] - 300), STATIC)
    found = signed.predict_new(FUTR, STATIC, level=[80])
    south = found["unique_id"].map(NEW) == "south"
    assert found.loc[south, "aru-median"].mean() > 400 > 0 > found.loc[~south, "aru-median"].mean()
    assert (found["aru-lo-80"] < found["aru-median"]).all()
    real = opened(support="real")
    real.update(PANEL, STATIC)
    assert np.isfinite(real.predict_new(FUTR, STATIC, level=[80]).drop(columns=["unique_id", "ds"])).all(axis=None)


def test_what_is_needed_before_the_first_value() -> None:
    with pytest.raises(FutureError, match="No series is known"):
        opened().predict_new(FUTR, STATIC)
    plain = opened(futr_exog_list=[], stat_exog_list=[])
    plain.update(PANEL[["unique_id", "ds", "y"]])
    with pytest.raises(FutureError, match="without covariates forecasts from past values"):
        plain.predict_new(FUTR)
    one = opened()
    one.update(PANEL[PANEL["unique_id"] == "s0"], STATIC)
    with pytest.raises(FutureError, match="two of them must have two values"):
        one.predict_new(FUTR, STATIC)
    told_little = opened()
    told_little.update(PANEL[PANEL["ds"] < DAYS[2]], STATIC)
    assert np.isfinite(told_little.predict_new(FUTR, STATIC)["aru"]).all()
    with pytest.raises(FutureError, match="have values already"):
        told_little.predict_new(FUTR.replace("new0", "s0"), STATIC)


def test_saves_copies_and_streams_know_how_series_begin(told: Forecaster, tmp_path: Path) -> None:
    truth = told.predict_new(FUTR, STATIC, level=[80])
    told.save(tmp_path / "model")
    others = [Forecaster.load(tmp_path / "model", accelerator="cpu"), copy.copy(told)]
    for other in others:
        pd.testing.assert_frame_equal(truth, other.predict_new(FUTR, STATIC, level=[80]), check_exact=True)
    past, futr = COMING[COMING["ds"] < DAYS[3]], COMING[(COMING["ds"] >= DAYS[3]) & (COMING["ds"] < DAYS[3 + H])]
    with Stream(copy.copy(told), tmp_path / "state.db") as stream:
        stream.update(past, STATIC)
        wanted = stream.predict(futr.drop(columns="y"), level=[80], ids=list(NEW))
        stream.export(tmp_path / "states.parquet")
    with Stream(opened(), tmp_path / "state.db") as stream:  # from the store alone
        again = stream.predict(futr.drop(columns="y"), level=[80], ids=list(NEW))
    with Stream(opened(), tmp_path / "other.db") as stream:
        stream.import_(tmp_path / "states.parquet")
        moved = stream.predict(futr.drop(columns="y"), level=[80], ids=list(NEW))
    for other in (again, moved):
        pd.testing.assert_frame_equal(wanted, other.astype(wanted.dtypes), check_exact=True)


def test_calibrated_forecasts_before_the_first_value() -> None:
    f = opened(calibration="online")
    f.update(PANEL, STATIC)
    out = f.predict_new(FUTR, STATIC, level=[80])
    assert np.isfinite(out.drop(columns=["unique_id", "ds"]).to_numpy()).all()
    assert (out["aru-lo-80"] < out["aru-median"]).all()


# Nothing from later


def test_no_young_series_sees_what_came_later_in_others() -> None:
    """Series that have begun a few days before the cutoff are forecast by what the panel knew then."""
    begun = DAYS[150]
    late = pd.concat([shop(f"late{i}", 50 + i, "north") for i in range(4)])
    panel = pd.concat([PANEL[PANEL["unique_id"].isin([f"s{i}" for i in range(8)])], late[late["ds"] >= begun]])
    static = pd.concat([STATIC, pd.DataFrame({"unique_id": [f"late{i}" for i in range(4)], "region": "north"})])
    panel = panel[panel["ds"] < begun + pd.Timedelta(days=24)]
    truth = opened().cross_validation(panel, n_windows=3, step_size=H, static_df=static, level=[80])
    young = truth["unique_id"].str.startswith("late").to_numpy()
    numbers = ["aru", "aru-median", "aru-lo-80", "aru-hi-80"]
    for cutoff in sorted(truth["cutoff"].unique()):
        changed = panel.copy()
        after = changed["ds"] > cutoff
        changed.loc[after, "y"] = 7 + 5 * changed.loc[after, "y"].to_numpy()[::-1]
        other = opened().cross_validation(changed, n_windows=3, step_size=H, static_df=static, level=[80])
        early = (truth["cutoff"] <= cutoff).to_numpy() & young
        assert early.any()
        pd.testing.assert_frame_equal(truth.loc[early, numbers], other.loc[early, numbers], check_exact=True)
    changed = panel.copy()  # but what came before, in other series, does matter
    before = (changed["ds"] <= truth["cutoff"].min()) & ~changed["unique_id"].str.startswith("late")
    changed.loc[before, "y"] *= np.random.default_rng(5).lognormal(0, 0.5, int(before.sum()))
    other = opened().cross_validation(changed, n_windows=3, step_size=H, static_df=static, level=[80])
    assert (truth.loc[young, numbers] != other.loc[young, numbers]).to_numpy().any()


def test_rows_that_come_later_change_no_forecast_that_was_made(told: Forecaster) -> None:
    """Neither that of a new series, nor what the panel had learned: an epoch makes a new one."""
    f = copy.copy(told)
    made_before, was = f.predict_new(FUTR, STATIC, level=[80]), f.runtime.engine.common
    kept = copy.copy(f)
    later = pd.concat([shop(n, i, r, days=DAYS + pd.Timedelta(days=200)) for i, (n, r) in enumerate(REGIONS.items())])
    f.update(later.assign(y=1.8 * later["y"]))
    assert f.runtime.engine.common.epoch > was.epoch
    pd.testing.assert_frame_equal(kept.predict_new(FUTR, STATIC, level=[80]), made_before, check_exact=True)
    assert (f.predict_new(FUTR, STATIC)["aru-median"] > 1.3 * made_before["aru-median"]).all()


@pytest.mark.parametrize(
    ("values", "lone"),
    [
        ([10.0, 11.0, 1e6], 2),
        ([-1e6, 10.0, 10.0, 10.0], 0),
        ([10.0, 1e6], None),  # either may be right
        ([0.0, 0.0, 0.0, 5.0], None),  # its first sale
        ([10.0, 11.0, 20.0, 9.0], None),
        ([10.0, 1e6, 1e6, 11.0], None),
    ],
)
def test_a_lone_value_far_from_all_others_is_no_part_of_the_level(values: list[float], lone: int | None) -> None:
    row = torch.tensor([[7e7, *values]], dtype=torch.float64)
    known = torch.tensor([[False, *(True for _ in values)]])
    left = without_lone(row, known)
    assert (known & ~left)[0].nonzero().flatten().tolist() == ([] if lone is None else [1 + lone])
