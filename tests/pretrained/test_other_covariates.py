"""Static and historic covariates and holidays of a pretrained model."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from aru import Forecaster, Stream
from aru.errors import ColumnError, ConfigError, StorageError
from tests.making import flat
from tests.pretrained.test_effects import DAYS, FUTURE, LAST, PANEL, PAST, H, opened, shop

GROUPS = pd.concat([shop(f"s{i}", i, 0.8 if i % 2 else 0.0) for i in range(30)], ignore_index=True)
STATIC = pd.DataFrame(
    {
        "unique_id": [f"s{i}" for i in range(30)],
        "kind_of_shop": ["large" if i % 2 else "small" for i in range(30)],
        "useless": np.random.default_rng(0).normal(size=30),
        "city": [f"city-{i % 7}" for i in range(30)],
    }
)
TRAITS = ("kind_of_shop", "useless", "city")


def first_lift(f: Forecaster, static: pd.DataFrame) -> float:
    """What a promotion is said to add to a series after its first value."""
    f.update(shop("new", 99).query("ds == @LAST").assign(y=100.0), static_df=static)
    futr = shop("new", 99).query("ds > @LAST").drop(columns="y")
    ahead = [f.predict(futr.assign(promo=p), ids=["new"])["aru"].sum() for p in (1, 0)]
    return ahead[0] / ahead[1] - 1


def with_static() -> Forecaster:
    f = opened(("promo",), stat_exog_list=TRAITS)
    f.update(GROUPS[GROUPS["ds"] <= LAST], static_df=STATIC)
    return f


def test_a_new_series_starts_with_the_effects_of_its_group() -> None:
    for kind, lift in (("large", 0.8), ("small", 0.0)):
        new = pd.DataFrame({"unique_id": ["new"], "kind_of_shop": [kind], "useless": [0.0], "city": ["elsewhere"]})
        with pytest.warns(match="categories that training never saw"):
            assert first_lift(with_static(), new) == pytest.approx(lift, abs=0.07)
    plain = opened(("promo",))
    plain.update(GROUPS[GROUPS["ds"] <= LAST])
    assert first_lift(plain, STATIC) == pytest.approx(np.sqrt(1.8) - 1, abs=0.1)


def test_useless_static_columns_vanish() -> None:
    f = with_static()
    engine = f.runtime.engine
    names = [r.name for r in f.runtime.schema.regressors]
    mean, spread = (v.numpy() for v in (engine.common.effects.mean, engine.common.effects.spread))
    promo = np.abs(mean[names.index("promo")])
    assert promo.shape == (1 + 1 + 1 + 6,)  # 1, the number, the rarer kind, and six of seven cities
    assert promo[2] > 20 * np.delete(promo, [0, 2]).max()
    one = opened(("promo",))
    one.update(GROUPS[GROUPS["ds"] <= LAST])
    assert spread[names.index("promo")] < 0.2 * one.runtime.engine.common.effects.spread[0]
    own = f.effects(["s0", "s1"]).query("covariate == 'promo'")["effect"].tolist()
    assert own == pytest.approx([0, 80], abs=5)


def test_static_covariates_flow_through_streams_saves_and_backtests(tmp_path: Path) -> None:
    f, past = with_static(), GROUPS[GROUPS["ds"] <= LAST]
    futr = GROUPS[GROUPS["ds"] > LAST].drop(columns="y")
    truth = f.predict(futr, level=[80])
    f.save(tmp_path / "model")
    with Stream(opened(("promo",), stat_exog_list=TRAITS), tmp_path / "state.db") as stream:
        stream.update(past, STATIC)
        streamed = stream.predict(futr, level=[80])
    with Stream(opened(("promo",), stat_exog_list=TRAITS), tmp_path / "state.db") as stream:
        again = stream.predict(futr, level=[80])
    loaded = Forecaster.load(tmp_path / "model", accelerator="cpu").predict(futr, level=[80])
    order = ["unique_id", "ds"]
    for other in (loaded, streamed, again):
        found = other.astype(truth.dtypes).sort_values(order, ignore_index=True)
        pd.testing.assert_frame_equal(truth.sort_values(order, ignore_index=True), found, check_exact=True)
    rolled = opened(("promo",), stat_exog_list=TRAITS).cross_validation(GROUPS, n_windows=2, static_df=STATIC)
    assert np.isfinite(rolled["aru"]).all()
    with pytest.raises(ColumnError, match="static_df"):
        opened(("promo",), stat_exog_list=TRAITS).update(past)
    fresh = opened(("promo",), stat_exog_list=TRAITS)
    with pytest.raises(ColumnError, match="no row for the series"):
        fresh.update(past, static_df=STATIC[3:])
    assert fresh.ids == []


def lagging(seed: int, name: str, days: pd.DatetimeIndex = DAYS) -> pd.DataFrame:
    """Visitors of today buy in h days."""
    random = np.random.default_rng(seed)
    visits = random.normal(size=len(days))
    kind = random.choice(list("ab"), len(days))
    effect = 0.3 * np.roll(visits, H) + 0.4 * (np.roll(kind, H) == "b")
    y = 100 * np.exp(effect + random.normal(0, 0.03, len(days)))
    return pd.DataFrame({"unique_id": name, "ds": days, "y": y, "visits": visits, "seen": kind})


LAGGING = pd.concat([lagging(i, f"s{i}") for i in range(6)], ignore_index=True)
HISTORIC = {"hist_exog_list": ["visits", "seen"]}


def test_historic_covariates_act_h_rows_later() -> None:
    scores = [opened((), **more).backtest(LAGGING, n_windows=3).scorecard.model["nd"] for more in ({}, HISTORIC)]
    assert scores[1] < 0.3 * scores[0]
    f = opened((), **HISTORIC)
    f.update(LAGGING[LAGGING["ds"] <= LAST])
    effects = f.effects().set_index("covariate")
    assert effects.loc["visits", "effect"] == pytest.approx(100 * np.expm1(0.3), abs=4)
    assert abs(effects.loc["seen", "effect"]) == pytest.approx(49, abs=20)
    assert np.isfinite(f.predict()["aru"]).all()  # nothing of the future is needed


@pytest.mark.filterwarnings("ignore:Covariates are unlike those of training")
@pytest.mark.parametrize("column", ["y", "visits", "seen"])
def test_no_forecast_sees_a_historic_covariate_after_its_cutoff(column: str) -> None:
    """Of no series: one of them ends early."""
    panel = LAGGING[(LAGGING["unique_id"] != "s3") | (LAGGING["ds"] <= DAYS[-31])]
    static = pd.DataFrame({"unique_id": [f"s{i}" for i in range(6)], "size": range(6)})

    def rolled(df: pd.DataFrame) -> pd.DataFrame:
        f = opened((), **HISTORIC, stat_exog_list=["size"])
        return f.cross_validation(df, n_windows=2, step_size=H, static_df=static)

    truth = rolled(panel)
    for cutoff in sorted(truth["cutoff"].unique())[::2]:
        changed, after = panel.copy(), panel["ds"] > cutoff
        values = changed.loc[after, column].to_numpy()[::-1]
        changed.loc[after, column] = np.where(values == "a", "b", "a") if column == "seen" else 3 * values
        other = rolled(changed)
        early = (truth["cutoff"] <= cutoff).to_numpy()
        pd.testing.assert_series_equal(truth.loc[early, "aru"], other.loc[early, "aru"], check_exact=True)
        assert early.all() or (truth.loc[~early, "aru"] != other.loc[~early, "aru"]).any()


@pytest.mark.parametrize("h", [3, H, 70])
def test_historic_rows_in_any_portions_leave_the_same_records(h: int) -> None:
    one, other = (opened((), **HISTORIC, h=h) for _ in range(2))
    begin, rest = LAGGING[LAGGING["ds"] < DAYS[60]], LAGGING[(LAGGING["ds"] >= DAYS[60])]
    for f in (one, other):
        f.update(begin)
    one.update(rest)
    for _, part in rest.groupby(pd.Grouper(key="ds", freq="9D")):
        other.update(part)
    found = flat(other.table.states)
    for key, value in flat(one.table.states).items():
        assert key.startswith("context.total") or torch.equal(value, found[key]), key


def test_a_historic_covariate_cannot_be_too_late() -> None:
    with pytest.raises(ConfigError, match="hist_exog_list"):
        opened((), hist_exog_list=["visits"], h=1010)


def feasts(days: pd.DatetimeIndex, name: str, seed: int) -> pd.DataFrame:
    """Shops that sell nothing but a little on German holidays, and twice as much on the day before."""
    random = np.random.default_rng(seed)
    import holidays

    known = holidays.country_holidays("DE", years=sorted({day.year for day in days}))
    feast = np.array([day in known for day in days])
    eve = np.roll(feast, -1) & ~feast
    week = random.uniform(0.7, 1.3, 7)[days.day_of_week]
    y = (
        random.uniform(50, 500)
        * week
        * np.where(feast, 0.2, np.where(eve, 2.0, 1.0))
        * random.normal(1, 0.05, len(days))
    )
    return pd.DataFrame({"unique_id": name, "ds": days, "y": y})


def test_holidays_of_a_country(tmp_path: Path) -> None:
    pytest.importorskip("holidays", reason="the package holidays is not installed")
    days = pd.date_range("2022-01-01", "2024-12-31")
    panel = pd.concat([feasts(days, f"s{i}", i) for i in range(8)], ignore_index=True)
    end = pd.Timestamp("2024-12-20")
    past, truth = panel[panel["ds"] <= end], panel[(panel["ds"] > end)]
    errors = {}
    for country in (None, "DE"):
        f = opened((), country=country)
        f.update(past)
        made = f.predict().merge(truth, on=["unique_id", "ds"])
        errors[country] = float((made["aru-median"] - made["y"]).abs().sum() / made["y"].sum())
    assert errors["DE"] < 0.5 * errors[None]
    effects = f.effects().set_index("value")["effect"]
    assert effects["Christmas Day"] == pytest.approx(-80, abs=12)
    assert effects["(day before)"] == pytest.approx(100, abs=25)
    f.save(tmp_path / "model")
    pd.testing.assert_frame_equal(Forecaster.load(tmp_path / "model", accelerator="cpu").predict(), f.predict())
    with Stream(opened((), country="DE"), tmp_path / "state.db") as stream:
        stream.update(past)
    with pytest.raises(StorageError, match="another model"):
        Stream(opened((), country="FR"), tmp_path / "state.db")


def test_hourly_holidays_have_a_day_of_their_own() -> None:
    pytest.importorskip("holidays", reason="the package holidays is not installed")
    hours = pd.date_range("2023-12-01", periods=24 * 60, freq="h")
    f = opened((), freq="h", country="DE")
    f.update(pd.DataFrame({"unique_id": "a", "ds": hours, "y": np.arange(len(hours)) % 24 + 1.0}))
    names = [r.name for r in f.runtime.schema.regressors]
    assert {"holiday", "holiday x day_wave=sin 1", "holiday_eve"} <= set(names)
    assert np.isfinite(f.predict()["aru"]).all()


def test_countries_that_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="a day or less"):
        opened((), freq="W", country="DE")
    with pytest.raises(ConfigError, match="a day or less"):
        opened((), freq=1, country="DE")
    if "holidays" in sys.modules:
        with pytest.raises(ConfigError, match="no holidays of"):
            opened((), country="Atlantis")
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(ConfigError, match="aru-forecast\\[holidays\\]"):
        opened((), country="AT")


def test_covariates_of_all_kinds_together() -> None:
    static = pd.DataFrame({"unique_id": PANEL["unique_id"].unique(), "size": range(20)})
    f = opened(("promo", "kind"), hist_exog_list=["noise"], stat_exog_list=["size"])
    f.update(PAST, static_df=static)
    plain = opened(("promo", "kind"))
    plain.update(PAST)
    a, b = (g.predict(FUTURE.drop(columns="noise"))["aru"] for g in (f, plain))
    assert np.abs(a / b - 1).mean() < 0.02  # neither says anything
