"""The scorecard of a training and of a backtest: which rows, which weights, which numbers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from utilsforecast.losses import mase

from aru import Forecaster, fit_recurrent
from aru.data.scores import Scorecard, scores
from aru.errors import AruWarning
from aru.models import MODELS
from aru.runtime import marks
from aru.runtime.engine import NetworkEngine
from aru.training.batches import LONG
from tests.making import flat, make
from tests.shops import BASE, COVARIATES, STATIC, H, both

ROWS = 40
STEPS = {**BASE, "max_steps": 20}


def trained(monkeypatch: pytest.MonkeyPatch, df: pd.DataFrame, **changed: Any) -> tuple[Forecaster, NetworkEngine]:
    """A forecaster, and the engine whose forecasts were scored."""
    engines = []
    judge = fit_recurrent.judge_ends

    def spy(engine: NetworkEngine, *arguments: Any) -> Scorecard | None:
        engines.append(engine)
        return judge(engine, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(fit_recurrent, "judge_ends", spy)
        f = make(**{**STEPS, **COVARIATES, **changed}).fit(df, STATIC)
    return f, engines[0]


def weights(engine: NetworkEngine) -> list[np.ndarray[Any, Any]]:
    return [value.numpy() for model in engine.models for value in model.state_dict().values()]


def equal(one: NetworkEngine, other: NetworkEngine) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


@pytest.mark.parametrize("changed", [{}, {"ensemble": 2}, {"model": "baseline", "size_weight": 1.0}])
def test_the_scored_weights_have_not_seen_the_scored_rows(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    df = both(range(ROWS))
    last = df.ds > df.ds.max() - pd.Timedelta(days=H)
    f, scored = trained(monkeypatch, df, **changed)
    g, also = trained(monkeypatch, df.assign(y=df.y.where(~last, 3 * df.y)), **changed)
    assert equal(scored, also)  # not one bit depends on them
    assert scored.schema == also.schema
    assert not equal(f.runtime.engine, g.runtime.engine)  # the final weights have seen them
    assert f.scorecard is not None
    assert g.scorecard is not None
    assert f.scorecard.model["nd"] != g.scorecard.model["nd"]
    assert f.scorecard.about == (
        f"the last {H} rows of 2 series, forecast by weights that had not seen them "
        "(the last 2 of 20 steps trained on them, too)"
    )
    earlier = df.ds == df.ds.max() - pd.Timedelta(days=H)
    assert not equal(scored, trained(monkeypatch, df.assign(y=df.y.where(~earlier, 3 * df.y)), **changed)[1])


def test_training_goes_on_as_if_nothing_had_been_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    f, _ = trained(monkeypatch, both(range(ROWS)))
    monkeypatch.setattr(fit_recurrent, "judge_ends", lambda *_: None)
    g = make(**STEPS, **COVARIATES).fit(both(range(ROWS)), STATIC)
    assert equal(f.runtime.engine, g.runtime.engine)
    assert g.scorecard is None
    assert all(bool((v == flat(g.table.states)[k]).all()) for k, v in flat(f.table.states).items())


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_method_has_a_scorecard(model: str) -> None:
    f = make(**{**BASE, "model": model, "max_steps": 3}).fit(both(range(ROWS)).drop(columns=["promo", "temp"]))
    assert f.scorecard is not None
    assert f.scorecard.name == model
    assert all(np.isfinite(value) for value in f.scorecard.model.values())
    assert f.scorecard.model["values"] == f.scorecard.naive["values"] == 2 * H


def test_the_numbers_are_those_of_a_backtest_and_of_utilsforecast(tmp_path: Path) -> None:
    df = both(range(ROWS)).drop(columns=["promo", "temp"])
    df.loc[[7, 38], "y"] = np.nan
    f = make(**STEPS).fit(df, val_size=H)
    card = f.scorecard
    assert card is not None
    frame, backtest = f.backtest(df, n_windows=1, level=[90])
    pd.testing.assert_frame_equal(frame, f.cross_validation(df, n_windows=1, level=[90]))
    assert backtest is not None
    assert (backtest.series, backtest.forecasts, backtest.season) == (card.series, card.forecasts, card.season)
    assert backtest.about == "2 forecasts of 2 series, rows that training has not seen"
    assert card.about == f"the last {H} rows of 2 series, forecast by weights that had not seen them"
    for key, value in card.model.items():
        assert backtest.model[key] == pytest.approx(value, rel=1e-6)
    expected = scores(frame, "aru", 90)
    assert {k.partition("-")[0]: v for k, v in backtest.model.items() if k != "mase"} == expected
    train = df[df.ds <= frame.cutoff.max()]
    known = frame[frame.y.notna()]
    by_hand = mase(known, ["aru-median"], 7, train)["aru-median"].mean()
    assert backtest.model["mase"] == pytest.approx(by_hand, rel=1e-9)
    week_ago = df.set_index(["unique_id", "ds"]).y
    naive = [week_ago[uid, ds - pd.Timedelta(days=7)] for uid, ds in zip(known.unique_id, known.ds, strict=True)]
    error = np.abs(known.y - naive).sum() / known.y.abs().sum()
    assert card.naive["nd"] == pytest.approx(error, rel=1e-12)
    f.save(tmp_path / "model")
    assert Forecaster.load(tmp_path / "model").scorecard == card
    assert f.__copy__().scorecard is card


def test_some_rows_of_the_validation_are_less_than_a_horizon_and_some_more() -> None:
    df = both(range(ROWS)).drop(columns=["promo", "temp"])
    for val_size, forecasts in ((1, 1), (H + 1, 2), (3 * H, 3)):
        card = make(**BASE).fit(df, val_size=val_size).scorecard
        assert card is not None
        assert card.forecasts == 2 * forecasts
        assert card.model["values"] == 2 * val_size


def test_short_series_are_trained_on_and_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    df = pd.concat([both(range(LONG * H), "a"), both(range(LONG * H - 1), "b")])
    f, scored = trained(monkeypatch, df)
    assert f.scorecard is not None
    assert f.scorecard.about.startswith(f"the last {H} rows of 1 of 2 series")
    last = (df.unique_id == "b") & (df.ds == df.ds[df.unique_id == "b"].max())
    assert not equal(scored, trained(monkeypatch, df.assign(y=df.y.where(~last, 3 * df.y)))[1])
    for short in ({"df": both(range(LONG * H - 1))}, {"df": df, "val_size": 0}):
        assert make(**STEPS, **COVARIATES).fit(**short, static_df=STATIC).scorecard is None


def test_a_season_longer_than_history_is_the_latest_value() -> None:
    df = both(range(ROWS)).drop(columns=["promo", "temp"])
    df["ds"] = df.ds.min() + (df.ds - df.ds.min()) * 7
    f = make(**{**BASE, "freq": "W-MON"}).fit(df)
    assert f.scorecard is not None
    assert f.scorecard.season == 1
    assert "latest value" in str(f.scorecard)
    latest = df.groupby("unique_id").y.nth(-H - 1).to_numpy().repeat(H)
    y = df[df.groupby("unique_id").cumcount(ascending=False) < H].y
    assert f.scorecard.naive["nd"] == pytest.approx(np.abs(y - latest).sum() / y.sum())


def test_large_panels_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "JUDGED", 3)
    df = both(range(LONG * H), "abcdefg").drop(columns=["promo", "temp"])
    card = make(**BASE).fit(df).scorecard
    assert card is not None
    assert card.about.startswith(f"the last {H} rows of 3 of 7 series")
    assert card.model["values"] == 3 * H


def test_forecasts_worse_than_seasonal_naive_are_told() -> None:
    days = pd.date_range("2024-01-01", periods=60)
    week = np.array([1.0, 50, 3, 70, 5, 90, 7])
    df = pd.concat([pd.DataFrame({"unique_id": i, "ds": days, "y": week[days.day_of_week]}) for i in "ab"])
    f = make(**BASE)
    with pytest.warns(AruWarning, match=r"worse than seasonal naive on the last 3 rows .*: ND 0\.\d+ against 0\.0000"):
        f.fit(df)
    with pytest.warns(AruWarning, match="worse than seasonal naive on 8 forecasts of 2 series, rows"):
        f.cross_validation(pd.concat([df, df.assign(ds=df.ds + pd.Timedelta(days=60), y=week[df.ds.dt.day_of_week])]))
    noise = np.random.default_rng(0).normal(0, 3, (50, 60))
    df = pd.concat([pd.DataFrame({"unique_id": i, "ds": days, "y": 100 + noise[i]}) for i in range(50)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f = make(**{**BASE, "max_steps": 60}).fit(df)
    assert f.scorecard is not None
    assert not f.scorecard.loses


def test_a_training_that_ends_early_has_not_seen_the_rows() -> None:
    df = both(range(ROWS)).drop(columns=["promo", "temp"])
    f = make(**{**STEPS, "trainer": {"enable_progress_bar": False, "max_steps": 5}}).fit(df)
    assert f.scorecard is not None
    assert f.scorecard.about.endswith("forecast by weights that had not seen them")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*worse than seasonal naive")
        f.cross_validation(df, n_windows=1)
    with pytest.warns(AruWarning, match="cutoffs inside the training data"):
        f.cross_validation(df, n_windows=2)


def test_checkpoints_keep_the_scored_weights(tmp_path: Path) -> None:
    df = both(range(ROWS)).drop(columns=["promo", "temp"])
    first = make(**STEPS).fit(df, checkpoint_dir=tmp_path)
    again = make(**STEPS).fit(df, checkpoint_dir=tmp_path)
    assert first.scorecard is not None
    assert again.scorecard == first.scorecard
    assert equal(again.runtime.engine, first.runtime.engine)
