"""Totals and sample paths: how the errors of leads hang together is learned, neither assumed away nor assumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aru import Forecaster, Stream
from aru.errors import ConfigError
from aru.runtime import outlook
from aru.runtime.dependence import KNOTS, ORIGINS, Dependence, deviates, origins_back
from tests.making import make
from tests.shops import BASE, COVARIATES, STATIC, both

H, N, SERIES = 12, 240, 200


def walks(phi: float, seed: int = 0) -> np.ndarray[Any, Any]:
    """(series, N + H) first-order autoregressions around 100."""
    random = np.random.default_rng(seed)
    y = np.zeros((SERIES, N + H))
    y[:, 0] = random.normal(size=SERIES) / np.sqrt(1 - phi**2)
    for t in range(1, N + H):
        y[:, t] = phi * y[:, t - 1] + random.normal(size=SERIES)
    return 100 + y


def frame(y: np.ndarray[Any, Any], first: int = 0) -> pd.DataFrame:
    ds = pd.date_range("2024", periods=first + y.shape[1], freq="h")[first:]
    names = np.repeat([f"s{i:03}" for i in range(len(y))], y.shape[1])
    return pd.DataFrame({"unique_id": names, "ds": np.tile(ds, len(y)), "y": y.ravel()})


def opened(y: np.ndarray[Any, Any], **options: Any) -> Forecaster:
    f = Forecaster.from_pretrained("nano", h=H, freq="h", accelerator="cpu", **options)
    f.update(frame(y))
    return f


@pytest.fixture(scope="module")
def few() -> Forecaster:
    return opened(walks(0.8)[:8, :N])


def covered(total: pd.DataFrame, y: np.ndarray[Any, Any], level: int = 90) -> float:
    return float(((total[f"aru-lo-{level}"] <= y) & (y <= total[f"aru-hi-{level}"])).mean())


def independent(runtime: Any, *_: Any) -> Callable[[Any], torch.Tensor]:
    return lambda found: torch.eye(runtime.h, dtype=torch.float64).expand(len(found[0]), -1, -1)


@pytest.mark.parametrize(("phi", "at_most"), [(0.6, 0.75), (0.9, 0.6)])
def test_totals_are_covered_where_independence_is_too_narrow(
    phi: float, at_most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = walks(phi)
    f, came = opened(y[:, :N]), y[:, N:].sum(1)
    assert 0.85 <= covered(f.predict_total(level=[90]), came) <= 0.95
    monkeypatch.setattr(outlook, "learn_dependence", independent)
    assert covered(f.predict_total(level=[90]), came) < at_most


def test_errors_that_are_independent_are_not_tied_together(monkeypatch: pytest.MonkeyPatch) -> None:
    f = opened(walks(0.0)[:, :N])
    learned = f.predict_total(level=[90])
    monkeypatch.setattr(outlook, "learn_dependence", independent)
    width = f.predict_total(level=[90])
    ratio = (learned["aru-hi-90"] - learned["aru-lo-90"]) / (width["aru-hi-90"] - width["aru-lo-90"])
    assert 0.9 < ratio.mean() < 1.2  # were they all the same error, about 3.4


@pytest.mark.parametrize(("lasting", "fading"), [(0.0, 0.0), (0.0, 0.8), (0.5, 0.3)])
def test_the_correlation_of_errors_is_found(lasting: float, fading: float) -> None:
    """By the standard deviation of their sum."""
    lead = torch.arange(H, dtype=torch.float64)
    true = lasting + (1 - lasting) * fading ** (lead[:, None] - lead).abs()
    factor = torch.linalg.cholesky(true + 1e-9 * torch.eye(H))
    z = torch.randn(64, ORIGINS, H, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) @ factor.T
    z[3, 5:] = torch.nan  # a short series
    learned = Dependence.learn(z)
    found = learned.of(z).sum((1, 2)).sqrt()
    assert float(found.mean()) == pytest.approx(float(true.sum().sqrt()), rel=0.1)
    torch.testing.assert_close(learned.of(z).diagonal(dim1=1, dim2=2), torch.ones(64, H, dtype=torch.float64))
    nothing = learned.of(torch.full((1, ORIGINS, H), torch.nan, dtype=torch.float64))
    torch.testing.assert_close(nothing[0], learned.pooled)


def test_series_that_differ_keep_their_own_correlation() -> None:
    random = torch.Generator().manual_seed(2)
    z = torch.randn(64, ORIGINS, H, dtype=torch.float64, generator=random)
    z[:32] = torch.randn(32, ORIGINS, 1, dtype=torch.float64, generator=random)  # one error for all leads
    spread = Dependence.learn(z).of(z).sum((1, 2)).sqrt()
    assert float(spread[:32].min()) > 1.5 * float(spread[32:].max())


def test_deviates_are_those_of_the_forecast() -> None:
    z = torch.special.ndtri(torch.tensor(KNOTS, dtype=torch.float64))
    y = torch.tensor([-9.0, -1.2816, 0.0, 0.5, 9.0, torch.nan], dtype=torch.float64)
    found = deviates(z.expand(6, -1), y)
    expected = torch.tensor([-3.0, -1.2816, 0.0, 0.5, 3.0], dtype=torch.float64)
    torch.testing.assert_close(found[:5], expected, atol=1e-4, rtol=0)
    assert found[5].isnan()


def test_past_origins_leave_room_for_their_horizon() -> None:
    back = origins_back(np.array([1, H, H + 3, H + 4, 100, 1000]), H)
    assert (back[:, :3] == 0).all()
    assert (back[:, 3] > 0).sum() == 1
    for column, known in zip(back[:, 3:].T, (H + 4, 100, 1000), strict=True):
        used = column[column > 0]
        assert used.min() >= H
        assert known - used.max() >= 4
        assert (np.diff(used) >= H // 2).all()


def test_the_total_of_one_step_is_its_forecast(few: Forecaster) -> None:
    one = few.predict(level=[50, 90], h=1)
    pd.testing.assert_frame_equal(few.predict_total(level=[50, 90], h=1), one, check_exact=True)


def test_totals_are_at_the_last_step_and_their_means_add_up(few: Forecaster) -> None:
    for h in (5, None):
        steps, total = few.predict(level=[80], h=h), few.predict_total(level=[80], h=h)
        assert list(total.columns) == list(steps.columns)
        by_series = steps.groupby("unique_id")
        assert list(total["unique_id"]) == few.ids
        assert list(total["ds"]) == list(by_series["ds"].max())
        np.testing.assert_allclose(total["aru"], by_series["aru"].sum(), rtol=1e-6)
        width = (steps["aru-hi-80"] - steps["aru-lo-80"]).to_numpy().reshape(8, -1)
        got = (total["aru-hi-80"] - total["aru-lo-80"]).to_numpy()
        assert (got < width.sum(1)).all()  # as if all errors were one
        assert (got > np.sqrt((width**2).sum(1))).all()  # as if they were independent


def test_paths_have_the_marginals_of_the_forecast_and_the_totals(few: Forecaster) -> None:
    paths, steps = few.predict_paths(4000), few.predict(level=[50, 80])
    assert list(paths.columns) == ["unique_id", "ds", "path", "aru"]
    assert len(paths) == 8 * 4000 * H
    values = paths["aru"].to_numpy().reshape(8, 4000, H)
    spread = (steps["aru-hi-80"] - steps["aru-lo-80"]).to_numpy().reshape(8, H)
    for column, q in (("aru-lo-80", 0.1), ("aru-lo-50", 0.25), ("aru-median", 0.5), ("aru-hi-80", 0.9)):
        error = (np.quantile(values, q, axis=1) - steps[column].to_numpy().reshape(8, H)) / spread
        assert np.abs(error).max() < 0.06, column
    total = few.predict_total(level=[80])
    width = (total["aru-hi-80"] - total["aru-lo-80"]).to_numpy()
    for column, q in (("aru-lo-80", 0.1), ("aru-median", 0.5), ("aru-hi-80", 0.9)):
        assert (np.abs(np.quantile(values.sum(2), q, axis=1) - total[column]) / width).max() < 0.05, column


def test_paths_repeat_and_do_not_depend_on_the_company(few: Forecaster) -> None:
    paths = few.predict_paths(5)
    pd.testing.assert_frame_equal(few.predict_paths(5), paths)
    assert not few.predict_paths(5, random_seed=1)["aru"].equals(paths["aru"])
    alone = few.predict_paths(5, ids="s003")
    mine = paths[paths["unique_id"] == "s003"].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, mine, rtol=1e-5)
    short = few.predict_paths(5, ids="s003", h=4)
    expected = mine[mine.groupby("path").cumcount() < 4].reset_index(drop=True)
    pd.testing.assert_frame_equal(short, expected, rtol=1e-5)


def test_whole_numbers_stay_whole_and_nothing_falls_below_zero() -> None:
    random = np.random.default_rng(0)
    f = opened(random.poisson(0.7, (4, 100)).astype(float))
    paths = f.predict_paths(200)["aru"]
    assert paths.min() >= 0
    assert (paths == paths.round()).all()
    total = f.predict_total(level=[90])
    assert (total["aru-lo-90"] >= 0).all()
    assert (total["aru-lo-90"] < total["aru-hi-90"]).all()


def test_nothing_after_the_origin_matters() -> None:
    """Rows that are given may go on: those after the latest known one are not read."""
    train, whole = both(range(40)), both(range(60))
    futr = both(range(40, 43))[["unique_id", "ds", "promo"]]
    f = make(**BASE, **COVARIATES).fit(train, STATIC)
    before = f.predict_total(futr, [80], df=train, static_df=STATIC)
    for later in (whole, whole.assign(y=lambda d: np.where(d["ds"] > train["ds"].max(), 1e4, d["y"]))):
        pd.testing.assert_frame_equal(f.predict_total(futr, [80], df=later, static_df=STATIC), before, check_exact=True)
    other = train.assign(y=train["y"].to_numpy()[::-1])
    assert not f.predict_total(futr, [80], df=other, static_df=STATIC).equals(before)  # the rows before are read


def test_asking_changes_no_state(few: Forecaster) -> None:
    before = few.predict(level=[80])
    few.predict_total(level=[80])
    few.predict_paths(3)
    pd.testing.assert_frame_equal(few.predict(level=[80]), before, check_exact=True)


def test_a_stream_gives_the_same(few: Forecaster) -> None:
    with Stream(few) as stream:
        pd.testing.assert_frame_equal(stream.predict_total(level=[80]), few.predict_total(level=[80]), rtol=1e-5)
        pd.testing.assert_frame_equal(stream.predict_paths(3), few.predict_paths(3), rtol=1e-5)


def test_a_recurrent_network_needs_the_history() -> None:
    f = make(**BASE).fit(both(range(30))[["unique_id", "ds", "y"]])
    with pytest.raises(ConfigError, match=r"remembers too few rows .* Give the history of the series as df"):
        f.predict_total()
    with pytest.raises(ConfigError, match="n_paths must"):
        f.predict_paths(0)


def test_a_series_with_hardly_any_row_has_the_panels_correlation(few: Forecaster) -> None:
    f = opened(walks(0.8)[:8, :N])
    f.update(frame(walks(0.8)[8:9, N - 2 : N], N - 2).assign(unique_id="young"))
    total = f.predict_total(level=[80], ids="young")
    assert np.isfinite(total.drop(columns=["unique_id", "ds"]).to_numpy()).all()
