"""DeepState: seasons, forecasts from prior and filter, and that it learns. The filter has tests of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from aru import Forecaster
from aru.data.frequency import Frequency
from aru.data.learning import learn_schema
from aru.data.panel import read_panel
from aru.data.rows import Rows
from aru.errors import ConfigError
from aru.models import MODELS, build, resolve
from aru.models.deepstate import HARMONICS, DeepState, fourier
from aru.nn.windows import NOW, Block, Context, Grid, gather_block, running_sums
from aru.runtime.state import empty_context, move_on
from aru.settings import Settings
from tests.making import make, make_settings

H, E = 4, 6
BASE: dict[str, Any] = {
    "h": H,
    "freq": "D",
    "input_size": E,
    "model": "deepstate",
    "size": (4, 5, 4, 3),
    "max_steps": 1,
    "weight_average": 0.0,
    "accelerator": "cpu",
    "trainer": {"enable_progress_bar": False},
}


def series(y: Any, uid: str = "a", freq: str = "D", start: str = "2024-01-01") -> pd.DataFrame:
    return pd.DataFrame({"unique_id": uid, "ds": pd.date_range(start, periods=len(y), freq=freq), "y": y})


class Prepared(NamedTuple):
    """An untrained model, a block whose origin 0 stands before the first row of each series, and empty contexts."""

    model: DeepState
    block: Block
    empty: Context


def prepare(df: pd.DataFrame, n: int, **changed: Any) -> Prepared:
    settings = resolve(make_settings(**{**BASE, **changed}))
    freq = Frequency(settings.freq)
    panel = read_panel(df, freq, [*settings.futr_exog_list, *settings.hist_exog_list])
    schema = learn_schema(panel, {}, settings, freq, np.ones(len(panel.ds), bool))
    model = build(settings, schema).eval()
    assert isinstance(model, DeepState)
    rows, starts = schema.encode(panel), torch.from_numpy(panel.starts)
    static = schema.encode_static({}, panel.ids)
    block = gather_block(
        rows,
        static,
        starts,
        torch.from_numpy(panel.lengths),
        torch.zeros(len(starts), dtype=torch.int64),
        n,
        schema.input_size,
        schema.lags,
        running_sums(rows, starts),
    )
    return Prepared(model, block, empty_context(schema, static, schema.input_size, 0, starts.device))


def after(prepared: Prepared, at: int) -> tuple[Context, Rows]:
    """What is known after the first `at` rows of each series, and the H rows that follow."""
    rows = Rows(*(v[:, E:] for v in prepared.block.rows))
    first, future = (Rows(*(v[:, part] for v in rows)) for part in (slice(at), slice(at, at + H)))
    return move_on(prepared.empty, first, torch.full((len(rows.y),), at)), future


def noisy(n: int, uid: str = "a", freq: str = "D") -> pd.DataFrame:
    y = 10 + np.random.default_rng(sum(map(ord, uid))).normal(size=n)
    y[5::7] = np.nan
    return series(y, uid, freq)


@pytest.mark.parametrize("values", range(1, 2 * HARMONICS + 2))
def test_few_seasonal_values_may_form_any_pattern_that_sums_to_zero(values: int) -> None:
    table = fourier(values).double()
    assert table.shape == (values + 1, values - 1)
    assert (table[0] == 0).all()  # an unknown code
    if values > 1:
        torch.testing.assert_close(table[1:].norm(dim=1), torch.ones(values, dtype=torch.float64))
        torch.testing.assert_close(table.sum(0), torch.zeros(values - 1, dtype=torch.float64), atol=1e-6, rtol=0)
        assert torch.linalg.matrix_rank(table[1:]) == values - 1


@pytest.mark.parametrize("values", [24, 53, 60])
def test_long_seasons_are_smooth_and_small(values: int) -> None:
    table = fourier(values)
    assert table.shape == (values + 1, 2 * HARMONICS)
    near = (table[1:] * table[1:].roll(1, 0)).sum(1)
    torch.testing.assert_close(near, near[:1].expand(values))  # all neighbours are alike, around the end too
    assert near[0] > 0.3


@pytest.mark.parametrize(
    ("freq", "n", "latent"),
    [
        ("15min", 96 * 14, 2 + 3 + 12 + 6),  # minute, hour, day of week
        ("h", 24 * 14, 2 + 12 + 6),
        ("D", 40, 2 + 6),
        ("D", 400, 2 + 6),
        ("B", 40, 2 + 4),
        ("W", 110, 2 + 12),
        ("MS", 40, 2 + 11),
        ("QS", 40, 2 + 3),
        ("YS", 20, 2),
        ("D", 9, 2),  # hardly more than one cycle
    ],
)
def test_seasons_follow_the_calendar(freq: str, n: int, latent: int) -> None:
    model, block, _ = prepare(noisy(n, freq=freq), n, freq=freq)
    net = model.network
    assert len(net.part) == latent
    terms = net.seasons(block.rows.futr_cat)
    assert terms.shape == (*block.rows.y.shape, latent - 2)
    assert (terms[:, :E] == 0).all()  # padding has no calendar
    if latent > 2:
        assert (terms[:, E:].norm(dim=-1) > 0.99).all()


def test_integer_times_have_no_season() -> None:
    df = noisy(30).assign(ds=np.arange(30))
    assert prepare(df, 30, freq=1).model.network.seasons.widths == []


def pinned(f: Forecaster, damping: float = 0.0) -> Forecaster:
    """The same parameters at every row: hardly any noise, no shocks, a vague prior."""
    net = f.runtime.engine.models[0].network
    with torch.no_grad():
        for layer in (net.offset, net.noise, net.shock, net.mean, net.spread):
            layer.weight.zero_()
            layer.bias.zero_()
        net.noise.bias.fill_(-20.0)
        net.shock.bias.fill_(-30.0)
        net.damping.fill_(damping)
    return f


def weekly(ds: pd.DatetimeIndex) -> Any:
    return 50 + np.array([3.0, -8.0, 1.0, 9.0, 4.0, -2.0, 5.0])[ds.day_of_week]


def yearly(ds: pd.DatetimeIndex) -> Any:
    return 50 + 10 * np.random.default_rng(0).normal(size=12)[ds.month - 1]


def daily_and_weekly(ds: pd.DatetimeIndex) -> Any:
    hour = 2 * np.pi * ds.hour.to_numpy() / 24
    return weekly(ds) + 6 * np.cos(hour) - 4 * np.sin(2 * hour) + 3 * np.cos(5 * hour)


@pytest.mark.parametrize(
    ("freq", "pattern", "context"), [("D", weekly, 28), ("MS", yearly, 36), ("h", daily_and_weekly, 24 * 10)]
)
def test_a_seasonal_series_continues(freq: str, pattern: Any, context: int) -> None:
    ds = pd.date_range("2024-01-03", periods=2 * context + 30, freq=freq)
    df = pd.DataFrame({"unique_id": "a", "ds": ds, "y": pattern(ds)})
    f = pinned(make(**{**BASE, "freq": freq, "h": 30, "input_size": context}).fit(df[:-30]))
    out = f.predict(level=[90])
    np.testing.assert_allclose(out["deepstate"], df["y"][-30:], rtol=2e-3)
    assert (out["deepstate-hi-90"] - out["deepstate-lo-90"] < 1).all()


@pytest.mark.parametrize("damping", [1.0, 0.8])
def test_a_trend_continues(damping: float) -> None:
    y = 50 + 2 * np.cumsum(damping ** np.arange(28))
    f = make(**{**BASE, "h": 8, "input_size": 12, "freq": 1}).fit(series(y).assign(ds=np.arange(28))[:20])
    out = pinned(f, damping=20.0 if damping == 1 else float(np.log(damping / (1 - damping)))).predict()
    np.testing.assert_allclose(out["deepstate"], y[20:], rtol=2e-3)


def moved_on(model: DeepState, m: Tensor, P: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the state, by hand."""
    F = torch.eye(len(m), dtype=torch.float64)
    F[0, 1] = F[1, 1] = model.network.damping.detach().double().sigmoid()
    return F @ m, F @ P @ F.T + torch.outer(g, g)


def test_without_values_the_forecast_is_the_prior() -> None:
    df = pd.concat([noisy(40, "a"), noisy(40, "b")])
    prepared = prepare(df, H)
    model, block, _ = prepared
    assert not block.rows.observed[:, :E].any()
    with torch.no_grad():
        rows = model.network.rows(block, NOW, torch.ones(2, 1, dtype=torch.float64))
        system, prior = model.network.state_space(rows)
        out = model.forecast(model.init_state(2), *after(prepared, 0)).forecast
    for i in range(2):
        m, P = prior.m[:, i].double(), prior.P[..., i].double()
        for k in range(2):
            a, sigma = system.a[E + k, :, i].double(), system.sigma[E + k, i].double()
            assert float(out.params.mu[i, k]) == pytest.approx(float(a @ m + system.b[E + k, i]), rel=1e-5)
            assert float(out.params.sigma[i, k]) == pytest.approx(float((a @ P @ a + sigma**2).sqrt()), rel=1e-5)
            m, P = moved_on(model, m, P, system.g[E + k, :, i].double())


def test_the_first_value_corrects_the_prior() -> None:
    """Bayes' rule by hand; the rows before the first value have changed nothing."""
    prepared = prepare(noisy(40), 2 * H)
    model = prepared.model
    context, future = after(prepared, 1)
    assert context.rows.observed[0].tolist() == [False] * (E - 1) + [True]
    with torch.no_grad():
        out = model.forecast(model.init_state(1), context, future).forecast
        rows = model.network.rows(prepared.block, Grid(1, 1, 1), out.scale)
        system, prior = model.network.state_space(rows)
    m, P = prior.m[:, 0].double(), prior.P[..., 0].double()
    a, sigma, g = (v[E - 1, ..., 0].double() for v in (system.a, system.sigma, system.g))
    z = float(context.rows.y[0, E - 1] / out.scale)
    gain = P @ a / (a @ P @ a + sigma**2)
    m, P = m + gain * (z - a @ m - system.b[E - 1, 0]), P - torch.outer(gain, P @ a)
    m, P = moved_on(model, m, P, g)
    a, sigma = system.a[E, :, 0].double(), system.sigma[E, 0].double()
    assert float(out.params.mu[0, 0]) == pytest.approx(float(a @ m + system.b[E, 0]), rel=1e-5)
    assert float(out.params.sigma[0, 0]) == pytest.approx(float((a @ P @ a + sigma**2).sqrt()), rel=1e-5)


@pytest.mark.parametrize("stride", [3, H])
def test_the_loss_is_the_likelihood_of_what_is_forecast(stride: int) -> None:
    """Of each window, by the density of the forecast made at its origin."""
    df = pd.concat([noisy(33, "a"), noisy(25, "b")]).assign(hist=lambda d: np.sin(d["y"].fillna(3)))
    prepared = prepare(df, 33 + H, hist_exog_list=["hist"], lags=(5,))
    model, grid = prepared.model, Grid(1, stride, 6)
    expected, count = torch.zeros(2), torch.zeros(2)
    with torch.no_grad():
        losses = model.losses(prepared.block, grid, slice(1, 5))
        for window in range(1, 5):
            context, truth = after(prepared, 1 + window * stride)
            out = model.forecast(model.init_state(2), context, truth.ahead()).forecast
            z = truth.y / out.scale
            seen = truth.observed
            density = torch.distributions.Normal(*out.params).log_prob(z.float())
            expected -= torch.where(seen, density, 0.0).sum(1)
            count += seen.sum(1)
    torch.testing.assert_close(losses.total, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(losses.values, count)
    assert not losses.failed.any()


def test_historic_covariates_matter_up_to_the_origin() -> None:
    df = noisy(30).assign(hist=np.arange(30.0), kind=np.tile(["u", "v", "w"], 10))
    model, block, _ = prepare(df, 20, hist_exog_list=["hist", "kind"])
    grid = Grid(10, 1, 1)
    with torch.no_grad():
        totals = {}
        for row in (E + 9, E + 10):  # the last row before the origin, the first after it
            hist, codes = block.rows.hist.clone(), block.rows.hist_cat.clone()
            hist[:, row], codes[:, row] = 1 - hist[:, row], 0
            rows = block.rows._replace(hist=hist, hist_cat=codes)
            totals[row] = model.losses(block._replace(rows=rows), grid).total
        same = model.losses(block, grid).total
    assert torch.equal(totals[E + 10], same)
    assert not torch.equal(totals[E + 9], same)


def test_long_gaps_constants_and_zeros() -> None:
    gap = noisy(200, "gap")
    gap.loc[20:170, "y"] = np.nan
    huge = series(np.where(np.arange(60) == 30, 1e12, 1.0), "huge")
    df = pd.concat([gap, series(np.zeros(60), "zeros"), series(np.full(60, 7.0), "constant"), huge])
    f = make(**{**BASE, "max_steps": 30, "learning_rate": 0.05}).fit(df)
    out = f.predict(level=[90])
    assert np.isfinite(out.drop(columns=["unique_id", "ds"]).to_numpy()).all()
    assert (out["deepstate-hi-90"] > out["deepstate-lo-90"]).all()


@pytest.mark.parametrize(
    "changed",
    [
        {"h": 1, "input_size": 1},
        {"encoder": "gru", "encoder_layers": 2, "dropout": 0.2, "lags": (4, 9), "ensemble": 2},
        {"transform": "asinh", "scaler": "level", "h": 3, "input_size": 17},
    ],
)
def test_other_settings(changed: dict[str, Any]) -> None:
    df = pd.concat([noisy(50, "a"), noisy(50, "b")])
    f = make(**{**BASE, **changed}).fit(df, val_size=6)
    assert np.isfinite(f.val_loss)
    out = f.predict(level=[90])
    assert len(out) == 2 * f.settings.h
    assert np.isfinite(out.drop(columns=["unique_id", "ds"]).to_numpy()).all()


def test_the_identity_of_a_series_can_be_an_input() -> None:
    """Two series with the same values are told apart by it alone."""
    df = pd.concat([noisy(40, "a"), noisy(40, "a").assign(unique_id="b")])
    for series_id in (False, True):
        f = make(**{**BASE, "series_id": series_id}).fit(df)
        out = f.predict().set_index("unique_id")["deepstate"]
        assert np.allclose(out["a"], out["b"], rtol=1e-4) != series_id
    f.update(series([9.0], "never seen"))
    assert np.isfinite(f.predict(ids=["never seen"])["deepstate"]).all()


def test_it_is_gaussian() -> None:
    """Also for counts, where other models choose the negative binomial."""
    f = make(**BASE)
    assert f.settings.distribution == "gaussian"
    assert make(**BASE, distribution="gaussian").settings == f.settings
    f.fit(series(np.tile([0.0, 0.0, 1.0, 3.0], 10)))
    assert f.runtime.engine.schema.distribution == "gaussian"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"distribution": "student-t"}, r"'deepstate' does not work with distribution='student-t'\. Use .*'gaussian'"),
        ({"distribution": "negative-binomial"}, r"distribution='negative-binomial'\. Use .*'gaussian'"),
    ],
)
def test_what_it_cannot_do_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**BASE, **changed)


@pytest.mark.parametrize("model", sorted(name for name in MODELS if name not in ("aru-direct", "deepstate")))
def test_other_models_keep_their_choice(model: str) -> None:
    settings = Settings(h=1, freq="D", model=model, size="medium", max_steps=1000)
    assert resolve(settings) == settings


def test_it_learns_level_and_week() -> None:
    """Series with their own level and week: far better than their own mean, on days after training."""
    random = np.random.default_rng(0)
    ds = pd.date_range("2024-01-01", periods=120)
    frames = []
    for i in range(10):
        level = random.uniform(10, 40) + np.cumsum(random.normal(0, 0.3, len(ds)))
        y = level + random.normal(0, 3, 7)[ds.day_of_week] + random.normal(0, 0.5, len(ds))
        frames.append(pd.DataFrame({"unique_id": f"s{i}", "ds": ds, "y": y}))
    df = pd.concat(frames, ignore_index=True)
    past = df[df["ds"] < ds[-28]]
    settings = {**BASE, "h": 7, "input_size": 21, "size": "small", "max_steps": 40, "learning_rate": 0.03}
    f = make(**settings).fit(past)
    rolled = f.cross_validation(df, n_windows=4, step_size=7, level=[90])
    rmse = np.sqrt((rolled["y"] - rolled["deepstate"]).pow(2).mean())
    mean = rolled["unique_id"].map(past.groupby("unique_id")["y"].mean())
    assert rmse < 0.45 * np.sqrt((rolled["y"] - mean).pow(2).mean())
    inside = rolled["y"].between(rolled["deepstate-lo-90"], rolled["deepstate-hi-90"]).mean()
    assert 0.8 < inside <= 1
