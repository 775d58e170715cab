"""`fit` of the pretrained network: what is tuned, what decides, and what is refused."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aru import Forecaster
from aru.errors import ConfigError, InputError
from aru.fit_pretrained import Held, Parts, Tuning, held_back
from aru.models import all_methods
from aru.pretrained.zero_shot import ZeroShot
from aru.runtime import posing
from aru.runtime.opening import open_pretrained, suit
from aru.runtime.posing import last_origins, random_origins
from aru.settings import TrainingOptions
from aru.training import choosing
from aru.training.choosing import Candidate
from tests.making import flat

QUIET = TrainingOptions(trainer={"enable_progress_bar": False})
H = 4


def panel(series: int = 12, rows: int = 60, seed: int = 0, worth: float = 30.0) -> pd.DataFrame:
    """Series that jump between two levels every other row, with promotions: nothing that a network expects."""
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(series):
        promo = rng.random(rows) < 0.4
        level = np.where(np.arange(rows) % 4 < 2, 50.0, 100.0) * (1 + 0.2 * i)
        y = level + worth * promo + rng.normal(0, 2, rows)
        times = pd.date_range("2024-01-01", periods=rows)
        parts.append(pd.DataFrame({"unique_id": f"s{i:02}", "ds": times, "y": y, "promo": promo.astype(float)}))
    return pd.concat(parts, ignore_index=True)


def new(**given: Any) -> Forecaster:
    return Forecaster(**{"h": H, "freq": "D", "size": "nano", "accelerator": "cpu", "training": QUIET, **given})


def model_of(f: Forecaster) -> ZeroShot:
    (model,) = f.runtime.engine.models
    assert isinstance(model, ZeroShot)
    return model


def ahead(df: pd.DataFrame) -> pd.DataFrame:
    last = df.groupby("unique_id").tail(H)
    return last.assign(ds=last.ds + pd.Timedelta(days=H), promo=1.0).drop(columns="y")


@pytest.fixture(scope="module")
def plain() -> Forecaster:
    return new(max_steps=60).fit(panel(worth=0.0)[["unique_id", "ds", "y"]])


@pytest.fixture(scope="module")
def informed() -> Forecaster:
    return new(max_steps=40, futr_exog_list=["promo"]).fit(panel())


def test_tuning_helps_where_the_network_knows_little(plain: Forecaster) -> None:
    df = panel(worth=0.0, rows=60 + H)[["unique_id", "ds", "y"]]
    past, future = df[df.ds <= "2024-02-29"], df[df.ds > "2024-02-29"]
    zero = Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu")
    zero.update(past)

    def error(f: Forecaster) -> float:
        both = f.predict().merge(future, on=["unique_id", "ds"])
        return float((both["aru-median"] - both.y).abs().sum() / both.y.abs().sum())

    assert error(plain) < 0.7 * error(zero)
    network = plain.summary().set_index("what").loc["network"]
    assert network["choice"].startswith("tuned for ")
    assert "forecasts of rows held back" in network["why"]


def test_the_same_rows_give_the_same_model(plain: Forecaster) -> None:
    again = new(max_steps=60).fit(panel(worth=0.0)[["unique_id", "ds", "y"]].sample(frac=1, random_state=1))
    pd.testing.assert_frame_equal(plain.predict(level=[80]), again.predict(level=[80]), check_exact=True)
    other = new(max_steps=60, random_seed=1).fit(panel(worth=0.0)[["unique_id", "ds", "y"]])
    assert (plain.predict()["aru"] != other.predict()["aru"]).any()


def test_covariates_are_used_where_they_tell(informed: Forecaster) -> None:
    rows = informed.summary().set_index("what")
    assert rows.loc["covariates", "choice"] == "used"
    df = panel()
    with_promo = informed.predict(ahead(df))["aru-median"]
    without = informed.predict(ahead(df).assign(promo=0.0))["aru-median"]
    assert (with_promo > without).mean() > 0.95
    assert 20 < (with_promo - without).mean() < 45


def test_a_tiny_panel_stays_as_it_was() -> None:
    df = panel(series=2, rows=14)[["unique_id", "ds", "y"]]
    fitted = new().fit(df)
    zero = Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu")
    zero.update(df)
    pd.testing.assert_frame_equal(fitted.predict(level=[80]), zero.predict(level=[80]), check_exact=True)
    assert fitted.summary().set_index("what").loc["network", "choice"] == "as pretrained"
    assert fitted.scorecard is None


def test_a_panel_too_small_to_decide_is_scored_nevertheless() -> None:
    fitted = new().fit(panel(series=1, rows=200)[["unique_id", "ds", "y"]])
    assert fitted.scorecard is not None
    assert fitted.scorecard.forecasts == 7
    assert "tuned on them" not in str(fitted.scorecard)
    why = fitted.summary().set_index("what").loc["network", "why"]
    assert why == "too few forecasts of rows held back to decide: 7, 8 are needed"


def test_nothing_is_tuned_without_rows_to_decide() -> None:
    fitted = new(max_steps=20).fit(panel(worth=0.0)[["unique_id", "ds", "y"]], val_size=0)
    zero = Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu")
    for mine, theirs in zip(model_of(fitted).parameters(), model_of(zero).parameters(), strict=True):
        assert torch.equal(mine, theirs)


def tuning_of(df: pd.DataFrame, windows: int) -> Tuning:
    settings = new(max_steps=8, futr_exog_list=["promo"]).settings
    runtime = suit(open_pretrained(settings), df)
    return Tuning(runtime, Parts(runtime, [df], None, False), Held(windows, H))


def test_rows_held_back_are_not_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """What networks are tuned on before they are judged, covariates' effects included, knows none of these values."""
    seen: list[Any] = []
    choose = choosing.choose
    monkeypatch.setattr(choosing, "choose", lambda *args: (seen.append(args[1]), choose(*args))[1])
    df = panel()
    altered = df.copy()
    late = altered.groupby("unique_id").cumcount(ascending=False) < 2 * H
    altered.loc[late, "y"] = 7.0
    for rows in (df, altered):
        tuning_of(rows, 2).run(final=False)
    one, other = (flat(problems) for problems in seen)
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=0, equal_nan=True)
    early = df.assign(y=df.y.where(df.ds > "2024-01-20", 7.0))
    tuning_of(early, 2).run(final=False)
    assert any(not torch.equal(one[k].nan_to_num(), v.nan_to_num()) for k, v in flat(seen[-1]).items())


def test_problems_are_the_same_however_many_are_posed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    choose = choosing.choose
    monkeypatch.setattr(choosing, "choose", lambda *args: (seen.append(args[1:3]), choose(*args))[1])
    for at_once in (1, 100):
        monkeypatch.setattr(posing, "POSED_TOGETHER", at_once)
        tuning_of(panel(series=5), 2).run(final=False)
    for one, other in zip(*seen, strict=True):
        torch.testing.assert_close(flat(one), flat(other), rtol=1e-12, atol=1e-12, equal_nan=True)


def test_the_scorecard_is_of_weights_that_did_not_see_its_rows(plain: Forecaster) -> None:
    card = plain.scorecard
    assert card is not None
    assert "rows that were held back" in str(card)
    kept = new(max_steps=60).fit(panel(worth=0.0)[["unique_id", "ds", "y"]], val_size=2 * H)
    assert kept.scorecard is not None
    assert kept.scorecard.forecasts == 2 * 12


@pytest.mark.parametrize(("lengths", "val_size", "windows"), [([60] * 12, None, 2), ([10, 9], None, 1), ([60], 9, 2)])
def test_how_much_is_held_back(lengths: list[int], val_size: int | None, windows: int) -> None:
    assert held_back(H, [np.array(lengths)], val_size).windows == windows


def test_series_that_are_too_short_keep_all_rows() -> None:
    assert Held(2, H).of(np.array([10, 19, 20, 100])).tolist() == [0, 0, 8, 8]
    with pytest.raises(ConfigError, match="shorter than h=4"):
        held_back(H, [np.array([50])], 3)


def test_origins_have_rows_before_and_after_them() -> None:
    rng = np.random.default_rng(0)
    lengths = np.array([100, 8, 3, 40])
    for most in (5, 50, 500):
        found = random_origins(lengths, H, most, rng)
        assert (found >= 0).sum() <= most
        assert ((found < 0) | (found >= 2) & (found + H < lengths)).all()
        assert (found[:, 2] < 0).all()
    assert last_origins(lengths, H, 2, np.array([8, 0, 0, 8])).tolist() == [[91, -1, -1, 31], [95, -1, -1, 35]]


def test_warm_start_goes_on_and_names_series_that_are_gone(plain: Forecaster) -> None:
    twin = new(max_steps=60).fit(panel(worth=0.0)[["unique_id", "ds", "y"]])
    before = [p.clone() for p in model_of(twin).parameters()]
    some = panel(series=11, worth=0.0)[["unique_id", "ds", "y"]]
    with pytest.warns(UserWarning, match="1 series that this model knew are not in df, and are forgotten: s11"):
        twin.fit(some, warm_start=True)
    assert twin.ids == [f"s{i:02}" for i in range(11)]
    zero = Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu")
    now = list(model_of(twin).parameters())

    def distance(one: Any, other: Any) -> float:
        return sum(float((a - b).square().sum()) for a, b in zip(one, other, strict=True))

    assert distance(now, before) < distance(now, model_of(zero).parameters())
    with pytest.raises(Exception, match="has not been trained"):
        new().fit(some, warm_start=True)


def test_a_fitted_model_is_saved_and_goes_on(informed: Forecaster, tmp_path: Any) -> None:
    informed.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model", "cpu")
    df = panel()
    pd.testing.assert_frame_equal(
        informed.predict(ahead(df), level=[80]), loaded.predict(ahead(df), level=[80]), check_exact=True
    )
    pd.testing.assert_frame_equal(informed.summary(), loaded.summary())
    with pd.option_context("display.width", 20, "display.max_colwidth", 10):
        said, page = str(loaded.summary()), loaded.summary()._repr_html_()
    for words in loaded.summary().to_numpy().ravel():  # however small the screen is
        assert words in said
        assert escape(words, quote=False) in page
    assert "Forecaster(model='aru', h=4, freq='D', size='nano-1', 12 series, trained until 2024-02-29" in repr(loaded)
    loaded.update(ahead(df).assign(y=90.0))
    assert np.isfinite(loaded.predict(ahead(df).assign(ds=lambda d: d.ds + pd.Timedelta(days=H)))["aru"]).all()


def test_a_folder_of_files_is_read_in_parts(plain: Forecaster, tmp_path: Any) -> None:
    df = panel(worth=0.0)[["unique_id", "ds", "y"]]
    for i, (_, part) in enumerate(df.groupby(df.unique_id < "s06")):
        part.to_parquet(tmp_path / f"{i}.parquet")
    fitted = new(max_steps=8).fit(tmp_path)
    assert sorted(fitted.ids) == sorted(plain.ids)
    df[df.unique_id == "s01"].to_parquet(tmp_path / "9.parquet")
    with pytest.raises(InputError, match=r"duplicate rows .*s01"):
        new(max_steps=8).fit(tmp_path)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"learning_rate": 0.1}, "learning_rate=0.1 does not apply to model='aru'"),
        ({"input_size": 7}, "input_size=7 does not apply to model='aru'"),
        ({"model": "aru-rnn", "size": "small", "country": "DE"}, "country='DE' does not apply to model='aru-rnn'"),
        ({"lags": [3]}, "lags=(3,) does not apply to model='aru'"),
        ({"model": "aru-rnn", "size": "mini"}, "'aru' has nano, mini, base"),
        ({"size": "medium"}, "size='medium' is no size of model='aru'"),
    ],
)
def test_settings_that_do_not_apply(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        new(**given)
    assert says in str(caught.value)
    assert "aru-rnn" in str(caught.value) or "'aru'" in str(caught.value)


def test_every_method_is_listed_the_default_first() -> None:
    assert next(iter(all_methods())) == "aru"
    assert {"aru-rnn", "baseline"} <= set(all_methods())


def test_how_candidates_are_called() -> None:
    assert str(Candidate(True, True, 75)) == "with a head for covariates, tuned for 75 steps"
    assert str(Candidate(False, False, 0)) == "as pretrained"
