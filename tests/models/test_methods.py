"""What is particular to single methods; what all of them promise is in test_contract.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from aru import Forecaster
from aru.data.rows import Rows
from aru.data.scores import scores
from aru.errors import ConfigError
from aru.models import MODELS
from aru.models.deepar import PATHS, DeepAR
from aru.models.finetuned import STEP_RATE, Examples, FineTuned, Moved
from aru.models.interface import Empty
from aru.nn.windows import NOW
from tests.making import make

BASE: dict[str, Any] = {
    "h": 3,
    "freq": "D",
    "input_size": 5,
    "size": (4, 5, 4, 3),
    "max_steps": 5,
    "weight_average": 0.0,
    "accelerator": "cpu",
    "trainer": {"enable_progress_bar": False},
}


def panel(n: int = 40, series: int = 4, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    ds = pd.date_range("2024-01-01", periods=n, freq="D")
    parts = []
    for i in range(series):
        y = (10 + 5 * i) * (1 + 0.3 * np.sin(2 * np.pi * np.arange(n) / 7)) + random.normal(size=n)
        parts.append(pd.DataFrame({"unique_id": f"s{i}", "ds": ds, "y": y}))
    return pd.concat(parts, ignore_index=True)


def fit(model: str, **changed: Any) -> Forecaster:
    return make(**{**BASE, "model": model, **changed}).fit(panel())


def weights(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_registry_describes_every_method(name: str) -> None:
    m = MODELS[name]
    assert m.about.endswith(".")
    assert m.cost
    assert m.reference


@pytest.mark.parametrize("name", ["aru", "baseline-finetuned", "deepar"])
def test_the_forecast_of_no_series_is_empty(name: str) -> None:
    f = fit(name)
    assert list(f.predict(ids=[], level=[80])) == list(f.predict(level=[80]))
    assert len(f.predict(ids=[], level=[80])) == len(f.without_series().predict(level=[80])) == 0


def test_the_control_has_arus_weights_but_for_theta() -> None:
    """Theta is what ARU fits and the control shares; ARU learns a ridge instead, and the control a spread."""
    aru, control = (fit(m).runtime.engine.models[0] for m in ("aru", "aru-control"))
    J, dim = 3, 3
    assert weights(control) - weights(aru) == J * (dim + 2) - J


def test_generated_parameters_depend_on_the_context_alone() -> None:
    f = fit("aru-generated")
    model = f.runtime.engine.models[0]
    g = torch.randn(2, 3, 4)
    theta = model.parameters_at(g)
    assert theta.shape == (2, 3, 3, 5)
    torch.testing.assert_close(theta[1, 2], (model.generator.weight @ g[1, 2] + model.generator.bias).reshape(3, 5))
    assert not f.runtime.engine.models[0].adapts


def test_the_direct_forecast_is_the_local_regression() -> None:
    """Its mean is the mixture of the ridge fits to what the state has seen, whatever the global network thinks."""
    f = fit("aru-direct", robust=False, scaler="mean", alphas=(1.0,))
    engine = f.runtime.engine
    model = engine.models[0]
    stats = f.table.states.members[0].local.stats
    model.sessions = None  # to hear what the modules say
    caught: list[torch.Tensor] = []
    handle = model.network.decoder.register_forward_hook(lambda _, __, out: caught.append(out))
    out = f.predict()
    handle.remove()
    h = caught[0].squeeze(1).double()
    theta = np.linalg.solve(
        (stats.sxx + torch.diag_embed(model.cell.ridge[:, None].expand(1, 4))).detach().numpy()[:, 0],
        stats.sxy.numpy()[:, 0, :, None],
    )[..., 0]
    x = np.concatenate([h.detach().numpy(), np.ones((*h.shape[:2], 1))], -1)
    scale = engine.schema.unit + (f.table.states.context.total / f.table.states.context.count).numpy()
    expected = np.einsum("bkd,bd->bk", x, theta) * model.joint.mix.item() * scale[:, None]
    np.testing.assert_allclose(out["aru-direct"].to_numpy().reshape(4, 3), expected.clip(0), rtol=1e-4)


def test_finetuning_is_gradient_descent_on_the_output_layer() -> None:
    """Against plain autograd on a copy of the layer, row by row."""
    f = fit("baseline-finetuned", distribution="gaussian", max_steps=20)
    model = f.runtime.engine.models[0]
    assert isinstance(model, FineTuned)
    torch.manual_seed(1)
    delta, h = 0.1 * torch.randn(1, 2, 4), torch.randn(1, 6, 3).relu()
    z, observed = torch.randn(1, 6), torch.tensor([[True, True, False, True, True, True]])
    rows = Examples(h, z, observed, torch.ones(1, 6, dtype=torch.float64))
    got = model.learn(Moved(delta), rows, torch.tensor([5])).delta
    layer = torch.cat([model.head.weight, model.head.bias[:, None]], 1).detach() + delta[0]
    for t in (0, 1, 3, 4):  # the third was not observed, the sixth does not exist
        w = layer.clone().requires_grad_()
        x = torch.cat([h[0, t], torch.ones(1)])
        mu, raw = w @ x
        sigma = nn.functional.softplus(raw) + 1e-3
        (-torch.distributions.Normal(mu, sigma).log_prob(z[0, t])).backward()
        g = w.grad / x.norm()
        layer = layer - STEP_RATE * g / g.norm().clamp(min=1) / x.norm()
    common = torch.cat([model.head.weight, model.head.bias[:, None]], 1).detach()
    torch.testing.assert_close(got[0], layer - common, rtol=1e-4, atol=1e-6)


def test_finetuning_starts_from_the_baseline() -> None:
    """The same training, and the same forecast of a series that has taught nothing yet."""
    frozen, tuned = fit("baseline"), fit("baseline-finetuned", alias="baseline")
    one = pd.DataFrame({"unique_id": ["new"], "ds": [pd.Timestamp("2024-02-10")], "y": [12.0]})
    for f in (frozen, tuned):
        f.update(one)
    pd.testing.assert_frame_equal(frozen.predict(ids=["new"]), tuned.predict(ids=["new"]), rtol=1e-5)
    assert (frozen.predict(ids=["s0"])["baseline"] != tuned.predict(ids=["s0"])["baseline"]).any()


def test_finetuning_follows_a_shift() -> None:
    """A level that rises by half for good: gradient steps bring the forecast closer than the frozen baseline's."""
    df = panel(80)
    df.loc[df["ds"] >= "2024-02-20", "y"] *= 1.5
    before = df[df["ds"] < "2024-02-20"]
    options = {**BASE, "max_steps": 150, "input_size": 1, "learning_rate": 0.02}
    frozen, tuned = (make(**options, model=m).fit(before) for m in ("baseline", "baseline-finetuned"))
    nd = [scores(f.cross_validation(df, n_windows=8), f.settings.name)["nd"] for f in (frozen, tuned)]
    assert nd[1] < 0.8 * nd[0]


def test_dedicated_parameters_are_trained_for_every_series() -> None:
    """series_id embeds the series: its entry learns, and matters for the forecast. A new series has none."""
    short, f = (fit("baseline", series_id=True, schedule="constant", max_steps=n) for n in (1, 60))
    model = f.runtime.engine.models[0]
    (table,) = model.network.static_embeddings.tables
    (early,) = short.runtime.engine.models[0].network.static_embeddings.tables
    assert table.num_embeddings == 5
    moved = (table.weight - early.weight).abs().amax(1)
    assert (moved[1:] > 0.05).all()
    f.update(pd.DataFrame({"unique_id": ["new"], "ds": [pd.Timestamp("2024-02-10")], "y": [12.0]}))
    assert f.table.states.context.static.categories[:, 0].tolist() == [1, 2, 3, 4, 0]
    model.sessions = None  # have a copy of the weights
    before = f.predict(ids=["s0"])["baseline"].to_numpy()
    with torch.no_grad():
        table.weight[1] += 1
    assert (f.predict(ids=["s0"])["baseline"].to_numpy() != before).any()


class TestDeepAR:
    """Autoregression by hand."""

    @pytest.mark.parametrize("encoder", ["lstm", "gru"])
    def test_paths_follow_the_equations(self, encoder: str) -> None:
        """One path of one series, sampled step by step from the cell's equations with the same random levels.

        A lag of 4 and a historic covariate, which is known one step later and not at all after the origin.
        """
        options = {**BASE, "encoder": encoder, "distribution": "gaussian", "max_steps": 20, "lags": [4]}
        df = panel().assign(temp=lambda d: np.cos(d["y"]))
        f = make(**options, hist_exog_list=["temp"], model="deepar").fit(df)
        model = f.runtime.engine.models[0]
        assert isinstance(model, DeepAR)
        state, future = f.table.states, _future(f)
        with torch.no_grad():
            paths = model.forecast(Empty(), state.context, future).forecast.paths
        block = model.block(state.context, future)
        y, net = block.rows.y[2], model.network
        scale = f.runtime.engine.schema.unit + state.context.total[2] / state.context.count[2]
        with torch.no_grad():
            x = net.inputs(block.rows, block.static)[2]
            memory, path = None, []
            for t in range(1, 5 + 3):  # the context has 5 rows
                last = y[t - 1] / scale if t <= 5 else path[-1]
                lag = torch.tensor([float(block.lag.y[2, t, 0] / scale), 1.0])
                hist = block.rows.hist[2, t - 1] if t <= 5 else torch.zeros(2)
                step = torch.cat([torch.tensor([float(last), 1.0]), x[t], lag, hist])
                output, memory = model.rnn(step.reshape(1, 1, -1), memory)
                if t >= 5:
                    mu, raw = model.head(output[0, 0])
                    sigma = nn.functional.softplus(raw) + 1e-3
                    level = model.levels[7, t - 5].double()
                    z = mu + sigma * torch.special.ndtri(level).float()
                    path.append(z.clamp(min=0))
        np.testing.assert_allclose(paths[7, 2].numpy(), [float(z * scale) for z in path], rtol=1e-5)

    def test_training_reads_the_true_past_and_no_more(self) -> None:
        """The likelihood of lead k depends on values before it, and not on itself or what follows."""
        f = fit("deepar", max_steps=5)
        model = f.runtime.engine.models[0]
        model.train(False)
        block = model.block(f.table.states.context, _future(f))
        observed = block.rows.observed.clone()
        observed[:, 5:] = True
        y = block.rows.y.clone()
        y[:, 5:] = 7.0
        caught: list[torch.Tensor] = []
        model.head.register_forward_hook(lambda _, __, out: caught.append(out))
        for lead in range(3):
            changed = y.clone()
            changed[:, 5 + lead] = 9.0
            for values in (y, changed):
                rows = block.rows._replace(y=values, observed=observed)
                model.losses(block._replace(rows=rows), NOW)
            differs = (caught[-1] != caught[-2]).any(-1).squeeze(1).any(0)
            assert differs.tolist() == [k > lead for k in range(3)]

    def test_levels_cover_the_distribution_evenly(self) -> None:
        model = fit("deepar").runtime.engine.models[0]
        assert model.levels.shape == (PATHS, 3)
        np.testing.assert_allclose(model.levels.sort(0).values[:, 1], (np.arange(PATHS) + 0.5) / PATHS, rtol=1e-6)
        correlation = np.corrcoef(model.levels.numpy().T)
        assert (np.abs(correlation - np.eye(3)) < 0.25).all()  # leads are drawn independently

    def test_a_context_of_one_row(self) -> None:
        out = fit("deepar", input_size=1).predict(level=[90])
        assert np.isfinite(out.drop(columns=["unique_id", "ds"]).to_numpy()).all()

    def test_forecasts_do_not_depend_on_who_else_is_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        f = fit("deepar", max_steps=20)
        whole = f.predict(level=[90])
        monkeypatch.setattr("aru.models.deepar.PATHS_AT_ONCE", 2 * PATHS)
        parts = f.predict(level=[90])
        pd.testing.assert_frame_equal(whole, parts, rtol=1e-5)
        alone = f.predict(ids=["s2"], level=[90])
        pd.testing.assert_frame_equal(whole[whole["unique_id"] == "s2"].reset_index(drop=True), alone, rtol=1e-5)

    def test_it_learns(self) -> None:
        """A weekly pattern of noisy series: clearly better than their mean."""
        df = panel(120, 8, seed=3)
        f = make(**{**BASE, "h": 7, "input_size": 14, "max_steps": 200, "learning_rate": 0.02}, model="deepar")
        train = df[df["ds"] < "2024-04-01"]
        frame = f.fit(train).cross_validation(df, n_windows=4, level=[90])
        score = scores(frame, "deepar", 90)
        mean = train.groupby("unique_id")["y"].mean()
        naive = (frame["y"] - frame["unique_id"].map(mean)).abs().sum() / frame["y"].sum()
        assert score["nd"] < 0.5 * naive
        assert 0.75 < score["coverage"] <= 1

    def test_other_encoders_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="Use 'lstm' or 'gru'"):
            make(h=3, freq="D", model="deepar", encoder="sru")


def _future(f: Forecaster) -> Rows:
    """The (series, h) rows to forecast."""
    return f.runtime.future(f.table.ids, f.table.states, None)[1]


def test_unknown_names_are_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match="Choose one of aru, aru-control"):
        Forecaster(h=3, freq="D", model="arima")


def test_a_name_fixes_the_settings_that_it_stands_for() -> None:
    assert make(h=3, freq="D", model="aru-direct", integration="paper").settings.network.integration == "direct"


def test_what_makes_no_difference_is_not_searched() -> None:
    search = {"ridge": (0.1, 1.0), "alphas": ((1.0,), (0.9,)), "dropout": (0.0, 0.1)}
    kept = {m: set(make(h=3, freq="D", model=m, search=search).settings.training.search or {}) for m in MODELS}
    assert kept["aru-rnn"] == set(search)
    assert kept["aru-control"] == {"alphas", "dropout"}
    assert kept["deepar"] == kept["snail"] == kept["deepstate"] == kept["baseline"] == {"dropout"}
    direct = make(h=3, freq="D", model="aru-direct", search={"integration": ("paper", "skip")})
    assert direct.settings.training.search is None


def test_quantiles_of_sample_paths_are_those_of_their_levels() -> None:
    """Paths at the levels (i + 1/2) / n of a distribution give back its quantiles."""
    from aru.nn.distributions import Samples

    levels = (torch.arange(200, dtype=torch.float64) + 0.5) / 200
    samples = Samples(torch.special.ndtri(levels).unsqueeze(1), nonnegative=False)
    for q in (0.02, 0.05, 0.1, 0.5, 0.9, 0.95, 0.98):
        assert float(torch.special.ndtr(samples.quantile(q))) == pytest.approx(q, abs=2e-4)
