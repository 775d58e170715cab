"""Forecasts of pretrained networks: no training, any series, any horizon, and nothing depends on the company.

All this is about the network alone; `test_hindsight` is about what it learns beside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aru import Forecaster, Stream
from aru.errors import ConfigError, FutureError, LateError, StorageError
from aru.pretrained import weights
from aru.pretrained.patches import CONTEXT, LEVELS
from aru.pretrained.zero_shot import Quantiles
from aru.runtime.records import Record

H = 12


def wave(n: int, seed: int = 0, period: int = 24) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return 50 + 10 * np.sin(np.arange(n) * 2 * np.pi / period) + rng.normal(0, 1, n)


def frame(values: dict[Any, Any], freq: str = "h") -> pd.DataFrame:
    parts = [
        pd.DataFrame({"unique_id": name, "ds": pd.date_range("2024", periods=len(y), freq=freq), "y": np.asarray(y)})
        for name, y in values.items()
    ]
    return pd.concat(parts, ignore_index=True)


def opened(name: str = "nano", **options: Any) -> Forecaster:
    alone = {"h": H, "freq": "h", "hindsight": False, "accelerator": "cpu"}
    return Forecaster.from_pretrained(name, **{**alone, **options})


def forecast(y: Any, level: list[float] | None = None, **options: Any) -> pd.DataFrame:
    f = opened(**options)
    f.update(frame({"a": y}))
    return f.predict(level=level)


@pytest.mark.parametrize("name", ["nano", "mini", "base"])
def test_a_season_is_forecast_without_training(name: str) -> None:
    """Far better than the last value, with intervals that are about as wide as the noise."""
    y = wave(400)
    f = opened(name)
    f.update(frame({"a": y[:-H]}))
    out = f.predict(level=[80])
    assert list(out.columns) == ["unique_id", "ds", "aru", "aru-median", "aru-lo-80", "aru-hi-80"]
    assert np.abs(out["aru-median"] - y[-H:]).mean() < 2
    assert np.abs(y[-H - 1] - y[-H:]).mean() > 4
    assert (out["aru-hi-80"] - out["aru-lo-80"]).between(1.5, 6).all()


@pytest.mark.parametrize("freq", ["h", None])
@pytest.mark.parametrize("h", [5, 100])
def test_a_forecast_does_not_depend_on_the_series_beside_it(freq: str | None, h: int) -> None:
    """Not by one bit: series of all lengths, alone and together, and scaled companions."""
    lengths = [1, 2, 3, 17, 64, 65, 200, 256, 257, 300, 511, 700, 1024, 1500]
    values = {f"s{n}": wave(n, n) for n in lengths}
    together, scaled = opened(h=h), opened(h=h)
    together.update(frame(values))
    scaled.update(frame({name: y * (8 if i % 2 else 1) for i, (name, y) in enumerate(values.items())}))
    whole = together.predict(level=[80, 99]).set_index("unique_id")
    other = scaled.predict(level=[80, 99]).set_index("unique_id")
    for i, name in enumerate(values):
        alone = together.predict(level=[80, 99], ids=[name]).set_index("unique_id")
        pd.testing.assert_frame_equal(whole.loc[[name]], alone, check_exact=True)
        if i % 2 == 0:
            pd.testing.assert_frame_equal(other.loc[[name]], alone, check_exact=True)


@pytest.mark.parametrize("season", [7, None])
def test_onnx_runtime_says_what_torch_says(season: int | None) -> None:
    """Over contexts of all lengths, with periods that are told and that are found."""
    values = {f"s{n}": wave(n, n, 7) for n in (1, 5, 33, 100, 256, 290, 640, 1024)}
    f = opened(freq=1 if season is None else "h", season_length=season)
    f.update(frame(values) if season else frame(values).assign(ds=lambda df: df.groupby("unique_id").cumcount()))
    here = f.predict(level=[50, 98])
    (model,) = f.runtime.engine.models
    assert set(model.sessions.graphs) == {"run_told" if season else "run_found"}
    model.sessions = None
    there = f.predict(level=[50, 98])
    numbers = [name for name in here if name.startswith("aru")]
    np.testing.assert_allclose(here[numbers], there[numbers], rtol=1e-4, atol=1e-3)


@pytest.mark.filterwarnings("ignore:y lies far outside")
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 120), st.floats(0.1, 1e3), st.floats(-1e3, 1e3), st.integers(0, 5))
def test_units_do_not_matter(n: int, scale: float, shift: float, seed: int) -> None:
    """A series in other units has the forecast in other units."""
    y = np.random.default_rng(seed).normal(0, 1, n).cumsum() + 0.25
    base = forecast(y, [80], support="real").drop(columns=["unique_id", "ds"]).to_numpy()
    other = forecast(shift + scale * y, [80], support="real").drop(columns=["unique_id", "ds"]).to_numpy()
    size = np.abs(base).max() + np.abs(y).max() + 1
    if np.ptp(y) > 0:  # a constant series is scaled by its size, which a shift changes
        np.testing.assert_allclose((other - shift) / scale, base, atol=2e-3 * size, rtol=2e-3)


def test_older_values_keep_what_a_large_level_leaves_to_them() -> None:
    """A meter that stands at a billion: its changes of 10 are in the four bytes of an older value."""
    y = 1e9 + np.cumsum(10 + wave(1000) / 10)
    small = forecast(y - 1e9, support="real")["aru-median"].to_numpy()
    large = forecast(y, support="real")["aru-median"].to_numpy()
    np.testing.assert_allclose(large - 1e9, small, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:y lies far outside")
@pytest.mark.parametrize("where", [3, 100, 250, 280, 298])
def test_one_outlier_does_not_ruin_the_rest(where: int) -> None:
    y = wave(300)
    spoiled = y.copy()
    spoiled[where] = 999_999
    clean, other = forecast(y, [80]), forecast(spoiled, [80])
    width = (clean["aru-hi-80"] - clean["aru-lo-80"]).mean()
    assert np.abs(clean["aru-median"] - other["aru-median"]).max() < width
    assert (other["aru-hi-80"] - other["aru-lo-80"]).mean() < 1.5 * width


def test_beyond_the_direct_horizon() -> None:
    """The season goes on, quantiles stay in order, intervals do not become narrower, nothing blows up."""
    y = wave(1000)
    out = forecast(y[:600], [50, 80, 95], h=400)
    assert np.isfinite(out.drop(columns=["unique_id", "ds"]).to_numpy()).all()
    assert np.abs(out["aru-median"].to_numpy() - y[600:]).mean() < 3
    order = ["aru-lo-95", "aru-lo-80", "aru-lo-50", "aru-median", "aru-hi-50", "aru-hi-80", "aru-hi-95"]
    assert (np.diff(out[order].to_numpy(), axis=1) >= -1e-9).all()
    width = (out["aru-hi-80"] - out["aru-lo-80"]).to_numpy()
    assert width[-64:].mean() >= 0.95 * width[:64].mean()
    assert width.max() < 40


@pytest.mark.parametrize("spike", [False, True])
def test_the_first_steps_do_not_depend_on_the_horizon(spike: bool) -> None:
    y = wave(300)
    if spike:  # a week before one of the steps of the longer horizon
        y = np.tile([100.0, 101, 99, 102], 75)
        y[140] = 110
    short, long = forecast(y, [90], h=5), forecast(y, [90], h=64)
    pd.testing.assert_frame_equal(short, long.head(5), check_exact=True)


@pytest.mark.parametrize("n", [1, 2, 3, 10])
@pytest.mark.parametrize("y", [0.0, 7.0, -3.5])
def test_short_and_constant_series(n: int, y: float) -> None:
    out = forecast(np.full(n, y), [80, 99.9])
    assert np.isfinite(out.drop(columns=["unique_id", "ds"]).to_numpy()).all()
    assert (out["aru-lo-80"] <= y + 1e-6).all()
    assert (out["aru-hi-80"] >= y - 1e-6).all()


@pytest.mark.filterwarnings("ignore:y lies far outside")
def test_support_is_that_of_each_series() -> None:
    rng = np.random.default_rng(0)
    values = {"count": rng.poisson(0.7, 200), "size": rng.gamma(0.5, 2, 200), "real": rng.normal(0, 1, 200)}
    f = opened(h=24)
    f.update(frame({name: y.astype(float) for name, y in values.items()}))
    out = f.predict(level=[50, 90]).set_index("unique_id")
    quantiles = [name for name in out if "-" in name]
    count = out.loc["count", quantiles].to_numpy()
    assert (count >= 0).all()
    assert (count == count.round()).all()
    assert (out.loc["count", "aru"] % 1 != 0).any()  # a mean need not be whole
    assert (out.loc["size", quantiles].to_numpy() >= 0).all()
    assert (out.loc["size", "aru-median"] % 1 != 0).any()
    assert (out.loc["real", "aru-lo-90"] < 0).all()
    free = opened(h=24, support="real")
    free.update(frame({"size": values["size"]}))
    assert (free.predict(level=[98])["aru-lo-98"] < 0).any()


def test_calibrated_intervals_keep_the_support() -> None:
    y = np.random.default_rng(0).poisson(0.7, 300).astype(float)
    out = forecast(y, [80, 95], calibration="online")
    quantiles = out[[name for name in out if "-" in name]].to_numpy()
    assert (quantiles >= 0).all()
    assert (quantiles == quantiles.round()).all()


def test_quantiles_between_and_beyond_the_levels_of_the_network() -> None:
    values = torch.special.ndtri(torch.tensor(LEVELS, dtype=torch.float64)).expand(1, 3, -1)
    no = torch.zeros(1, 1, dtype=torch.bool)
    normal = Quantiles(values, no, no)
    for q in (0.0005, 0.01, 0.123, 0.5, 0.77, 0.99, 0.999):
        expected = torch.special.ndtri(torch.tensor(q, dtype=torch.float64))
        torch.testing.assert_close(normal.quantile(q), expected.expand(1, 3))
    torch.testing.assert_close(normal.mean(), torch.zeros(1, 3, dtype=torch.float64))
    skewed = Quantiles(values.exp(), no, no)
    assert (skewed.mean() > skewed.quantile(0.5)).all()


def test_missing_values_and_gaps() -> None:
    y = wave(300)
    holes = y.copy()
    holes[np.random.default_rng(0).random(300) < 0.3] = np.nan
    holes[0] = y[0]
    full, holed = forecast(y, [80]), forecast(holes, [80])
    assert np.abs(full["aru-median"] - holed["aru-median"]).mean() < 2


@pytest.mark.parametrize("ids", ["ab", (1, 2)])
def test_ids_of_the_first_frame_decide(ids: Any, tmp_path: Path) -> None:
    """In memory, in a store, saved without series, and in a backtest, which changes nothing."""
    f = opened()
    df = frame({name: wave(60, i) for i, name in enumerate(ids)})
    assert f.cross_validation(df, n_windows=1)["unique_id"].unique().tolist() == list(ids)
    assert f.ids == []
    f.save(tmp_path / "model")
    f.update(df)
    assert f.ids == list(ids)
    with Stream(tmp_path / "model", tmp_path / "state.db") as stream:
        stream.update(df)
        pd.testing.assert_frame_equal(stream.predict(level=[80]), f.predict(level=[80]), check_exact=True)
    with Stream(opened(), tmp_path / "state.db") as again:
        assert again.keys() == list(ids)
        assert again.update(df.groupby("unique_id").tail(40)).duplicates == 80


def test_integer_times_polars_and_no_frequency() -> None:
    y = wave(100)
    counted = opened(freq=5)
    counted.update(pl.DataFrame({"unique_id": ["a"] * 100, "ds": 5 * np.arange(100), "y": y}))
    out = counted.predict()
    assert isinstance(out, pl.DataFrame)
    assert out["ds"].to_list() == [500 + 5 * i for i in range(H)]
    loose = opened(freq=None, h=2)
    loose.update(frame({"a": y}))
    with pytest.raises(FutureError, match="futr_df"):
        loose.predict()
    futr = pd.DataFrame({"unique_id": "a", "ds": pd.to_datetime(["2025-01-01", "2025-01-05"])})
    assert loose.predict(futr)["ds"].tolist() == futr["ds"].tolist()


@pytest.mark.parametrize("name", ["nano", "base"])
def test_a_state_has_less_than_five_thousand_bytes(name: str) -> None:
    """Whatever the size of the network and the length of history."""
    f = opened(name, h=200)
    f.update(frame({"a": wave(3000)}))
    (blob,) = f.runtime.encode(Record(f.table.states), f.ids)
    assert len(blob) < 5000


def test_an_update_runs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    f = opened()
    (model,) = f.runtime.engine.models
    monkeypatch.setattr(type(model), "call", lambda *_: pytest.fail("a network ran"))
    f.update(frame({"a": wave(200)}))


def test_names_and_versions() -> None:
    assert weights.full_name("mini") == "mini-1"
    assert repr(opened("nano")) == "Forecaster.from_pretrained('nano-1', h=12, freq='h', 0 series)"
    with pytest.raises(ConfigError, match=r"no pretrained weights 'tiny'\. Choose one of nano, mini, base"):
        opened("tiny")
    with pytest.raises(ConfigError, match="Choose one of aru, aru-control"):
        Forecaster(h=3, freq="D", model="pretrained")


def test_damaged_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    weights.read_weights.cache_clear()
    monkeypatch.setitem(weights.VERSIONS, "nano-1", "0" * 64)
    with pytest.raises(StorageError, match=r"nano-1\.safetensors is damaged"):
        opened("nano")
    weights.read_weights.cache_clear()


def test_states_of_other_weights_are_refused(tmp_path: Path) -> None:
    with Stream(opened("nano"), tmp_path / "state.db") as stream:
        stream.update(frame({"a": wave(50)}))
    with pytest.raises(StorageError):
        Stream(opened("mini"), tmp_path / "state.db")


def test_random_numbers_are_left_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    opened()
    assert torch.equal(torch.rand(3), expected)


def test_only_the_context_counts() -> None:
    """Values before the latest 1,024 do not matter, whatever they were."""
    y = wave(CONTEXT + 300)
    late = forecast(y[-CONTEXT:], [80])
    early = y.copy()
    early[:300] = 1e4
    pd.testing.assert_frame_equal(forecast(early, [80]).drop(columns="ds"), late.drop(columns="ds"), rtol=1e-3)


def test_rows_that_are_kept_without_their_times_are_recognised() -> None:
    f = opened()
    whole = frame({"a": np.where(np.arange(2000) % 50 == 7, np.nan, wave(2000)), "b": wave(300)})
    f.update(whole)
    recent = whole.groupby("unique_id").tail(1024)
    assert f.update(recent).duplicates == 1024 + 300
    other = recent.assign(y=recent["y"].where(recent.index != recent.index[500], 3.5))
    with pytest.raises(LateError, match="another value was consumed"):
        f.update(other)
    old = whole[whole["unique_id"] == "a"].head(10)
    with pytest.raises(LateError, match="arrived too late"):
        f.update(old)
    assert len(f.update(old, late="skip").late) == 10
