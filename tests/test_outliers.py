"""One outlier is gone after 3 h rows, whatever its size: of trained and pretrained models, with what they learn."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aru import Forecaster, Stream
from aru.errors import AruWarning
from tests.making import flat, make

H, ROWS, AT = 7, 140, 112
LEVEL = 90
pytestmark = pytest.mark.filterwarnings("ignore:y lies far outside", "ignore:New values are negative")


def history(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Weeks, a promotion and noise, of size 10."""
    generator, t = np.random.default_rng(seed), np.arange(rows)
    promo = (generator.random(rows) < 0.3).astype(float)
    y = 10 * (1 + 0.2 * np.sin(2 * np.pi * t / 7) + 0.15 * promo + generator.normal(0, 0.05, rows))
    return pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2024", periods=rows), "y": y, "promo": promo})


def panel() -> pd.DataFrame:
    return pd.concat([history(seed=i).assign(unique_id=name) for i, name in enumerate("abcd")], ignore_index=True)


def trained(**options: Any) -> Forecaster:
    options = {"h": H, "freq": "D", "size": "small", "max_steps": 30, "accelerator": "cpu", **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(**options).fit(panel()).without_series()


@pytest.fixture(scope="module")
def models() -> dict[str, Forecaster]:
    promo = {"futr_exog_list": ["promo"]}
    pretrained = {"h": H, "freq": "D", "accelerator": "cpu"}
    return {
        "trained": trained(),
        "mean scale": trained(scaler="mean"),
        "with everything": trained(**promo, gate=True, calibration="online"),
        "pretrained": Forecaster.from_pretrained("nano", **pretrained),
        "pretrained, covariates": Forecaster.from_pretrained("nano", **pretrained, **promo),
    }


MODELS = ["trained", "mean scale", "with everything", "pretrained", "pretrained, covariates"]


def after(model: Forecaster, df: pd.DataFrame) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Median and width of the forecast after these rows."""
    f = model.without_series()
    f.update(df)
    out = f.predict(ahead(df, model), level=[LEVEL])
    return out["aru-median"].to_numpy(), (out[f"aru-hi-{LEVEL}"] - out[f"aru-lo-{LEVEL}"]).to_numpy()


def with_outlier(y: float) -> pd.DataFrame:
    df = history()
    df.loc[AT, "y"] = y
    return df[: AT + 1 + 3 * H]


@pytest.mark.parametrize("y", [50.0, 200.0, 999999.0, 1e25, -10.0, -1e7])
@pytest.mark.parametrize("name", MODELS)
def test_median_and_width_are_back_after_three_horizons(models: dict[str, Forecaster], name: str, y: float) -> None:
    median, width = after(models[name], with_outlier(float(history().y[AT])))
    found, wide = after(models[name], with_outlier(y))
    assert np.abs(found - median).max() < 0.1 * median.mean()
    assert wide.mean() == pytest.approx(width.mean(), rel=0.1)


def among_others(df: pd.DataFrame) -> tuple[float, float]:
    """Mean median and width of this young series, in a panel whose covariates are known."""
    f = Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu", futr_exog_list=["promo"])
    others = [history(seed=i).assign(unique_id=f"b{i}", y=lambda d, i=i: d.y * (1 + i)) for i in range(8)]
    f.update(pd.concat(others)[["unique_id", "ds", "y", "promo"]].query("ds <= @df.ds.iloc[-1]"))
    f.update(df)
    out = f.predict(ahead(df, f), level=[LEVEL], ids=["a"])
    return out["aru-median"].mean(), (out[f"aru-hi-{LEVEL}"] - out[f"aru-lo-{LEVEL}"]).mean()


@pytest.mark.parametrize("at", [0, 1, 2, 4, 6])
def test_the_first_values_may_hold_an_outlier(at: int) -> None:
    """Nothing tells it from the level yet."""
    young = history(seed=99)[ROWS - at - 1 - 3 * H :].reset_index(drop=True)
    usual = among_others(young)
    for y in (999999.0, -1e6, 500.0):
        young.loc[at, "y"] = y
        assert among_others(young) == pytest.approx(usual, rel=0.1)


@pytest.mark.parametrize("name", MODELS)
def test_a_value_that_is_large_but_not_held_back_has_bounded_influence(
    models: dict[str, Forecaster], name: str
) -> None:
    df = with_outlier(22.0)
    f = models[name].without_series()
    assert len(f.update(df).held_back) == 0
    median, width = after(models[name], with_outlier(float(history().y[AT])))
    found, wide = after(models[name], df)
    assert np.abs(found - median).max() < 0.1 * median.mean()
    assert wide.mean() == pytest.approx(width.mean(), rel=0.25)


@pytest.mark.parametrize("name", ["with everything", "pretrained, covariates"])
def test_the_record_does_not_depend_on_delivery(models: dict[str, Forecaster], name: str, tmp_path: Path) -> None:
    """All at once; row by row through a store; corrected; resent; rewound."""
    df = with_outlier(999999.0)
    model = models[name].without_series()
    model.update(df[:60])
    whole = model.without_series()
    whole.update(df[:60])
    whole.update(df[60:])
    with Stream(model, tmp_path / "state.db", correctable_steps=3) as stream:
        for i in range(60, len(df)):
            row = df[i : i + 1]
            wrong = i % 10 == 5
            done = stream.update(row.assign(y=-5e6) if wrong else row)
            assert len(done.held_back) == (wrong or i == AT)
            if wrong:
                assert stream.update(row, late="correct").corrected == 1
        assert stream.update(df[-10:]).duplicates == 10
        _, state = stream.states(["a"])
        same(state, whole.table.states)
        before = stream.predict_columns(ahead(df, model), [LEVEL]).columns
        stream.update(after_end(df))
        stream.rewind("a", after_end(df).ds.iloc[0])
        assert_equal(stream.predict_columns(ahead(df, model), [LEVEL]).columns, before)


def ahead(df: pd.DataFrame, model: Forecaster) -> pd.DataFrame | None:
    ds = pd.date_range(df.ds.iloc[-1], periods=H + 1)[1:]
    return pd.DataFrame({"unique_id": "a", "ds": ds, "promo": 0.0}) if model.settings.futr_exog_list else None


def after_end(df: pd.DataFrame) -> pd.DataFrame:
    return df[-1:].assign(ds=df.ds.iloc[-1] + pd.Timedelta("1D"), y=-7e5)


def same(one: Any, other: Any) -> None:
    for path, value in flat(one).items():
        assert torch.equal(value.nan_to_num(7.0), flat(other)[path].nan_to_num(7.0)), path


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name])


@pytest.mark.parametrize("name", ["trained", "pretrained"])
def test_rows_sent_again_are_duplicates(models: dict[str, Forecaster], name: str) -> None:
    df = with_outlier(999999.0)[: AT + 5]
    f = models[name].without_series()
    done = f.update(df)
    assert done.held_back.to_dict("list") == {"unique_id": ["a"], "ds": [df.ds[AT]], "y": [999999.0]}
    kept = 10 if name == "trained" else 90
    again = f.update(df[-kept:])
    assert (again.duplicates, len(again.held_back)) == (kept, 0)
    late = f.update(df[-1:].assign(y=999999.0), late="skip").late
    assert late.reason.tolist() == ["another value was consumed for this time"]


def test_a_lasting_change_is_taken_in(models: dict[str, Forecaster]) -> None:
    df = history()
    df.loc[AT:, "y"] *= 20
    f = models["pretrained"].without_series()
    assert f.update(df).held_back.ds.tolist() == [df.ds[AT]]
    assert f.predict()["aru-median"].mean() > 150


def test_training_does_not_see_outliers() -> None:
    df = panel()
    df.loc[df.unique_id.eq("b") & (df.ds == df.ds[AT]), "y"] = 200.0
    clean = df.assign(y=df.y.where(df.y < 100))
    options = {"h": H, "freq": "D", "size": "small", "max_steps": 3, "accelerator": "cpu", "scaler": "mean", "lags": []}
    ours, theirs = (make(**options).fit(rows, val_size=0) for rows in (df, clean))
    weights = [flat_weights(f) for f in (ours, theirs)]
    for one, other in zip(*weights, strict=True):  # the typical size of values in the schema differs a little
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


def flat_weights(f: Forecaster) -> list[torch.Tensor]:
    return list(f.runtime.engine.models[0].state_dict().values())


def test_update_warns(models: dict[str, Forecaster]) -> None:
    f = models["pretrained"].without_series()
    with pytest.warns(AruWarning, match=r"far outside the range of its series at \(a, 2024-04-22\)\. It is held back"):
        f.update(with_outlier(999999.0))
