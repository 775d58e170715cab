"""Training: the loss from its equations, what it may see, what it survives, and that it can be repeated."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import jaxtyping
import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from aru import PAPER, Forecaster
from aru.data.frequency import Frequency
from aru.data.learning import learn_schema
from aru.data.panel import read_panel
from aru.errors import AruWarning, ConfigError, NotFittedError, NumericalError, StorageError, TooLittleDataError
from aru.models import build
from aru.models.aru import ARU
from aru.training.batches import Batch, Batches, SeriesOfPart, TrainingData
from aru.training.module import Training
from tests.making import make, make_settings

pytestmark = pytest.mark.usefixtures("in_torch")

H, E = 4, 5
BASE: dict[str, Any] = {
    "h": H,
    "freq": 1,
    "input_size": E,
    "size": (4, 5, 4, 3),
    "max_steps": 6,
    "accelerator": "cpu",
    "trainer": {"enable_progress_bar": False},
    "futr_exog_list": ["price"],
}


def frame(lengths: dict[str, int] | None = None, seed: int = 0) -> pd.DataFrame:
    """Seasonal series of integer time, with a known covariate and a few missing values."""
    generator = np.random.default_rng(seed)
    parts = []
    for uid, n in (lengths or {"a": 40, "b": 31, "c": 26}).items():
        t = np.arange(n)
        price = generator.uniform(1, 2, n)
        y = 10 + 4 * np.sin(2 * np.pi * t / 7) - 3 * price + generator.normal(0, 0.5, n)
        y[3::9] = np.nan
        parts.append(pd.DataFrame({"unique_id": uid, "ds": t, "y": y, "price": price}))
    return pd.concat(parts, ignore_index=True)


def prepare(
    df: pd.DataFrame, val_size: int = 0, share: float | None = None, **changed: Any
) -> tuple[Training, TrainingData]:
    """A module that could be trained, with weights that are not special.

    `share`: how far the loss of the global head shapes the network, if not as far as it does by itself.
    """
    settings = make_settings(**{**BASE, "weight_average": 0.0, **changed})
    panel = read_panel(df, Frequency(settings.freq), settings.futr_exog_list)
    inside = np.arange(len(panel.ds)) < np.repeat(panel.starts + panel.lengths - val_size, panel.lengths)
    schema = learn_schema(panel, {}, settings, Frequency(settings.freq), inside)
    data = TrainingData(
        names=list(panel.ids),
        rows=schema.encode(panel),
        static=schema.encode_static({}, panel.ids),
        starts=torch.from_numpy(panel.starts),
        lengths=torch.from_numpy(panel.lengths),
        val_size=val_size,
    )
    torch.manual_seed(3)
    model = build(settings, schema)
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # also where a layer starts at zero
            if "out_" in name or "mix" in name:
                parameter.add_(torch.randn_like(parameter) / 3)
    if isinstance(model, ARU) and share is not None:
        model.joint.global_share = share
    module = Training(model, data, settings, schema)
    module.log = lambda *_, **__: None  # type: ignore[method-assign,assignment]
    return module, data


def make_batch(cold_start_row: tuple[int, ...], begin: tuple[int, ...], rows: int, phase: int) -> Batch:
    return Batch(torch.arange(len(begin)), torch.tensor(cold_start_row), torch.tensor(begin), rows, phase)


class Naive:
    """The loss of one batch, series by series, window by window, row by row."""

    def __init__(self, module: Training, data: TrainingData) -> None:
        self.model, self.data, self.settings = module.model, data, module.settings
        self.schema = module.schema
        self.total, self.values = torch.zeros((), dtype=torch.float64), 0

    def loss(self, batch: Batch) -> Tensor:
        for series, cold_start_row, begin in zip(*(v.tolist() for v in batch[:3]), strict=True):
            start = int(self.data.starts[series]) + cold_start_row
            n = int(self.data.lengths[series]) - self.data.val_size - cold_start_row
            rows = slice(start, start + n)
            self.y = self.data.rows.y[rows]
            self.seen = self.data.rows.observed[rows].tolist()
            self.x = self.data.rows.futr[rows]
            self.begin = begin
            self._series(range(begin + batch.phase, begin + batch.rows, self.settings.window_stride))
        return self.total / self.values

    def _series(self, origins: range) -> None:
        J, dim = len(self.settings.network.alphas), self.settings.network_size.hidden[2] + 1
        self.sxx = torch.zeros(J, dim, dim, dtype=torch.float64)
        self.sxy = torch.zeros(J, dim, dtype=torch.float64)
        self.sn, self.ss = torch.zeros(J, dtype=torch.float64), torch.zeros(J, dtype=torch.float64)
        self.recent = [0.0, 0.0]  # aged sum of |r|, and number
        for origin in origins:
            self._window(origin)

    def _window(self, o: int) -> None:
        past = [abs(float(self.y[t])) for t in range(max(o, 0)) if self.seen[t]]
        scale = self.schema.unit + sum(past) / len(past) if past else self.schema.typical_scale
        informed = len(past) >= min(self.settings.window_stride, self.schema.input_size)
        h = self._decode(o, scale)
        ahead = [t for t in range(o, o + H) if 0 <= t < len(self.y) and self.seen[t]]
        z = {t: (self.y[t] / scale).float() for t in ahead}
        if isinstance(self.model, ARU):
            self._adaptive(o, h, z, informed)
        else:
            for t, value in z.items():
                self._score(self.model.head(h[t - o]), value)
        self.values += len(z)

    def _decode(self, o: int, scale: float) -> Tensor:
        """h of the leads: g = RNN([y/s, observed, x]); three ReLU layers on [g, x], x skipping to the second."""
        none = torch.zeros(self.x.shape[1])
        context = []
        for t in range(o - E, o):
            inside = 0 <= t < len(self.y)
            value = float(self.y[t]) / scale if inside and self.seen[t] else 0.0
            known = torch.tensor([value, float(inside and self.seen[t])])
            context.append(torch.cat([known, self.x[t] if inside else none]))
        net = self.model.network
        g = net.encoder(torch.stack(context)[None])[0]
        decoder = net.decoder
        first = decoder.widths[0]
        out = []
        for t in range(o, o + H):
            x = self.x[t] if 0 <= t < len(self.y) else none
            a1 = torch.relu(x @ decoder.from_x[:, :first] + decoder.from_g(g))
            a2 = torch.relu(x @ decoder.from_x[:, first:] + decoder.layer2(a1))
            out.append(torch.relu(decoder.layer3(a2)))
        return torch.stack(out)

    def _adaptive(self, o: int, h: Tensor, z: dict[int, Tensor], informed: bool) -> None:
        model, joint = self.model, self.model.joint
        J, dim = self.sxy.shape
        ridge, alphas = model.cell.ridge, model.cell.alphas
        eye = torch.eye(dim, dtype=torch.float64)
        theta = torch.stack([torch.linalg.solve(self.sxx[j] + ridge[j] * eye, self.sxy[j]) for j in range(J)])
        x = torch.cat([h.double(), torch.ones(H, 1, dtype=torch.float64)], 1)
        m = x @ theta.T
        empty = self.sn == 0
        a = torch.where(empty, 0.0, self.ss / torch.where(empty, 1.0, self.sn))
        sn = self.sn
        spread = ((a * sn + 0.1) / (sn + 1)).sqrt().clamp(0.01, 10).float()
        for t, value in z.items():
            k = t - o
            local = m[k].float()
            prior = None if joint.global_head is None else joint.global_head(h[k])
            if self.settings.network.integration == "direct":
                mu, raw = (joint.mix * local).sum()[None], joint.out_sigma(spread.log())
            else:
                mu = joint.out_mu(joint.ff_mu(torch.cat([h[k], local])))
                raw = joint.out_sigma(joint.ff_sigma(torch.cat([h[k], spread])))
            if self.settings.network.integration == "residual":
                assert prior is not None
                mu = prior[:1] + ((joint.mix + mu) * local).sum()
                raw = prior[1:] + (sn / (sn + 1)).mean().float() * raw
            elif self.settings.network.integration == "skip":
                mu = mu + (joint.mix * local).sum()
            self._score(torch.cat([mu, raw]), value)
            if prior is not None:
                self._score(prior, value)
        for t in range(o, o + self.settings.window_stride):
            self._absorb(x[t - o], m[t - o], h[t - o], z.get(t) if informed else None, alphas)

    def _absorb(self, x: Tensor, m: Tensor, h: Tensor, z: Tensor | None, alphas: Tensor) -> None:
        self.sxx, self.sxy = alphas[:, None, None] * self.sxx, alphas[:, None] * self.sxy
        self.sn, self.ss = alphas * self.sn, alphas * self.ss
        late = max(1.0, self.recent[0] / (self.recent[1] + 1))
        self.recent = [0.5 ** (1 / 4) * value for value in self.recent]
        if z is None:
            return
        weight, u = torch.ones((), dtype=torch.float64), z
        if self.model.joint.global_head is not None:
            mu, raw = self.model.joint.global_head(h)
            sigma = torch.nn.functional.softplus(raw) + 1e-3
            if self.settings.network.robust:
                r = float(((z - mu) / sigma).detach())
                weight = torch.tensor(5 / (4 + (r / late) ** 2), dtype=torch.float64)
                self.recent = [self.recent[0] + min(abs(r), 10.0), self.recent[1] + 1]
                kept = min(1.0, (2 / late) ** 0.5)
                self.sxx, self.sxy, self.sn, self.ss = (kept * v for v in (self.sxx, self.sxy, self.sn, self.ss))
            if self.settings.network.integration == "residual":
                u = z - mu
        self.sxx = self.sxx + weight * x[:, None] * x
        self.sxy = self.sxy + weight * x * u.double()
        self.sn = self.sn + weight
        self.ss = self.ss + weight * (u.double() - m).square()

    def _score(self, out: Tensor, z: Tensor) -> None:
        mu, sigma = out[0], torch.nn.functional.softplus(out[1]) + 1e-3
        if self.schema.distribution == "gaussian":
            likelihood: Any = torch.distributions.Normal(mu, sigma)
        else:
            likelihood = torch.distributions.StudentT(4.0, mu, sigma)
        self.total = self.total - likelihood.log_prob(z)


WAYS: dict[str, dict[str, Any]] = {
    "baseline": {"model": "baseline"},
    "skip": {"integration": "skip"},
    "skip-stride-1": {"integration": "skip", "stride": 1},
    "skip-plain": {"integration": "skip", "robust": False, "learn_ridge": False, "distribution": "gaussian"},
    "direct": {"integration": "direct"},
    "residual": {"integration": "residual", "stride": 3},
    "residual-plain": {"integration": "residual", "robust": False},
    "paper": {"integration": "paper", "robust": False, "distribution": "gaussian", "learn_alphas": True},
    "paper-robust": {"integration": "paper", "stride": 3},
}


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize(
    "batch",
    [
        make_batch(cold_start_row=(0, 0, 0), begin=(0, -9, -14), rows=40, phase=2),
        make_batch(cold_start_row=(3, 0, 20), begin=(5, 11, -7), rows=13, phase=0),
    ],
    ids=["ends", "crops"],
)
def test_the_loss_is_that_of_every_window(way: str, batch: Batch) -> None:
    """Value and gradients, for series that end together, for crops, and for series that begin late."""
    module, data = prepare(frame(), share=1.0, **WAYS[way])
    module.eval()
    loss = module.training_step(batch, 0)
    expected = Naive(module, data).loss(batch)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)
    parameters = dict(module.model.named_parameters())
    got = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    want = torch.autograd.grad(expected, list(parameters.values()), allow_unused=True)
    for name, one, other in zip(parameters, got, want, strict=True):
        one, other = (torch.zeros_like(parameters[name]) if g is None else g for g in (one, other))
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_the_global_head_learns_without_shaping_the_network() -> None:
    """With a share of 0 its loss is there for the head alone."""
    batch = make_batch(cold_start_row=(0, 0, 0), begin=(0, -9, -14), rows=40, phase=1)
    grads = {}
    for share in (0.0, 1.0):
        module, _ = prepare(frame(), share=share)
        module.eval()
        module.training_step(batch, 0).backward()
        grads[share] = {k: p.grad.clone() for k, p in module.model.named_parameters() if p.grad is not None}
    assert torch.equal(grads[0.0]["joint.global_head.weight"], grads[1.0]["joint.global_head.weight"])
    assert not torch.equal(grads[0.0]["network.decoder.layer3.weight"], grads[1.0]["network.decoder.layer3.weight"])


@pytest.mark.parametrize(("integration", "share"), [("residual", 0.3), ("paper", 0.3), ("skip", 1.0)])
def test_how_far_the_global_head_shapes_the_network(integration: str, share: float) -> None:
    """Gradients are linear in the share: one of 1 weighs its loss like the final one."""
    batch = make_batch(cold_start_row=(0, 0, 0), begin=(0, -9, -14), rows=40, phase=1)
    grads = []
    for given in (0.0, 1.0, None):
        module, _ = prepare(frame(), share=given, integration=integration)
        module.eval()
        module.training_step(batch, 0).backward()
        grads.append(module.model.network.decoder.layer3.weight.grad)
    without, whole, found = grads
    torch.testing.assert_close(found, torch.lerp(without, whole, share), rtol=1e-4, atol=1e-6)


def fit(df: pd.DataFrame, val_size: int = 0, checkpoint_dir: Path | None = None, **changed: Any) -> Forecaster:
    return make(**{**BASE, **changed}).fit(df, val_size=val_size, checkpoint_dir=checkpoint_dir)


def weights(f: Forecaster) -> dict[str, Tensor]:
    return {f"{i}.{k}": v for i, m in enumerate(f.runtime.engine.models) for k, v in m.state_dict().items()}


def crop_to(windows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let series with more windows be cropped."""
    for module in ("batches", "module"):
        monkeypatch.setattr(f"aru.training.{module}.MAX_WINDOWS", windows)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(v, other[k]) for k, v in one.items())


@pytest.mark.parametrize("model", ["aru", "baseline"])
def test_training_repeats_bit_for_bit(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    crop_to(4, monkeypatch)
    options: dict[str, Any] = {"model": model, "dropout": 0.2, "batch_size": 2}
    first = weights(fit(frame(), **options))
    torch.rand(7)  # whatever the caller drew in between
    assert same(first, weights(fit(frame(), **options)))
    assert not same(first, weights(fit(frame(), random_seed=1, **options)))


def test_seeds_of_any_size() -> None:
    options: dict[str, Any] = {"max_steps": 1, "model": "baseline"}
    huge = [weights(fit(frame(), random_seed=2**62 + i, **options)) for i in (0, 0, 1)]
    assert same(huge[0], huge[1])
    assert not same(huge[0], huge[2])


def test_the_order_of_rows_does_not_matter() -> None:
    shuffled = frame().sample(frac=1, random_state=1)
    assert same(weights(fit(frame())), weights(fit(shuffled)))


@pytest.mark.parametrize("options", [{}, {"scaler": "level", "lags": (4, 6), "stride": 1}, {"model": "baseline"}])
def test_validation_rows_are_never_trained_on(options: dict[str, Any]) -> None:
    """Neither their values nor their covariates, also not by way of ranges and scales."""
    val_size, df = 6, frame()
    last = df.groupby("unique_id")["ds"].transform("max")
    inside = df["ds"] > last - val_size
    other = df.copy()
    other.loc[inside, "y"] = -1e4
    other.loc[inside, "price"] = 50.0
    first = fit(df, val_size, **options)
    with pytest.warns(AruWarning, match="'price' lies far outside"):
        second = fit(other, val_size, **options)
    assert same(weights(first), weights(second))
    assert first.runtime.engine.schema == second.runtime.engine.schema
    earlier = df.copy()
    earlier.loc[~inside & (df["ds"] == last - val_size), "y"] = 1.0
    assert not same(weights(first), weights(fit(earlier, val_size, **options)))


class Curve(Callback):
    """Remembers the losses of training and validation, and the batches."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.val_losses: list[float] = []
        self.batches: list[tuple[Any, ...]] = []
        self.first_step = -1

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.first_step = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, index: int) -> None:
        self.losses.append(float(outputs["loss"]))
        self.batches.append((tuple(batch.series.tolist()), tuple(batch.begin.tolist()), batch.phase))

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.val_losses.append(float(trainer.callback_metrics["val_loss"]))


def listening(*callbacks: Callback, **options: Any) -> dict[str, Any]:
    return {"trainer": {"enable_progress_bar": False, "callbacks": list(callbacks), **options}}


@pytest.mark.parametrize("options", [{"model": "baseline"}, {}, {"integration": "skip"}])
def test_the_loss_goes_down(options: dict[str, Any]) -> None:
    curve = Curve()
    fit(frame(), 6, max_steps=40, learning_rate=0.02, **options, **listening(curve))
    assert len(curve.losses) == 40
    assert np.mean(curve.losses[-10:]) < np.mean(curve.losses[:5]) - 0.2


def test_batches_differ_from_epoch_to_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window grid is shifted at random per batch, for as long as training goes on."""
    crop_to(4, monkeypatch)
    curve = Curve()
    df = frame({"a": 60, "b": 70, "c": 50})
    fit(df, max_steps=150, model="baseline", batch_size=2, **listening(curve))
    assert len(curve.batches) == 150
    assert curve.batches[:50] != curve.batches[50:100]
    assert curve.batches[50:100] != curve.batches[100:]
    assert {phase for *_, phase in curve.batches} == set(range(H))


def test_every_series_is_trained_on() -> None:
    """Also where the number of series is not a multiple of the batch's, one pass an epoch."""
    curve = Curve()
    df = frame({f"s{i:02d}": 20 for i in range(13)})
    fit(df, 4, max_steps=30, batch_size=8, snapshots=2, **listening(curve))
    assert {s for series, *_ in curve.batches for s in series} == set(range(13))


def test_crops_of_long_series_reach_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    crop_to(5, monkeypatch)
    df = frame({"a": 100, "b": 30, "c": 3})
    module, data = prepare(df, cold_starts=0.0)
    drawn = iter(Batches(data, module.settings, seed=1))
    covered, phases = set(), set()
    for _ in range(800):
        batch = next(drawn)
        assert batch.rows == 5 * H
        order = batch.series.tolist()
        begin = dict(zip(order, batch.begin.tolist(), strict=True))
        assert 0 <= begin[0] <= 100 - 5 * H
        assert 0 <= begin[1] <= 30 - 5 * H
        assert begin[2] == 3 - 5 * H
        covered |= set(range(begin[0], begin[0] + batch.rows))
        phases.add(batch.phase)
    assert covered == set(range(100))
    assert phases == set(range(H))
    # The scale of a crop is that of all history before it.
    none = torch.tensor([0])
    block = module._block(none, none, torch.tensor([70]), data.lengths[:1], 5 * H)
    y = df.loc[df["unique_id"] == "a", "y"].to_numpy()[:70]
    assert float(block.total) == pytest.approx(np.nansum(np.abs(y)))
    assert float(block.count) == np.isfinite(y).sum()
    assert np.isfinite(predict(fit(df))).all()


def test_some_series_begin_late() -> None:
    """As many as `cold_starts` says, at any time that leaves a window; they keep nothing from before."""
    df = frame({f"s{i}": 40 for i in range(8)})
    module, data = prepare(df, cold_starts=0.5)
    drawn = iter(Batches(data, module.settings, seed=1))
    first_rows = torch.stack([next(drawn).cold_start_row for _ in range(200)]).flatten()
    late = first_rows[first_rows > 0]
    assert 0.4 < len(late) / len(first_rows) < 0.55
    assert late.max() == 40 - H
    assert late.min() == 1
    block = module._block(torch.tensor([0]), torch.tensor([25]), torch.tensor([0]), torch.tensor([15]), 15)
    assert float(block.count) == 0
    assert not block.rows.observed[:, :E].any()
    never, _ = prepare(df, cold_starts=0.0)
    drawn = iter(Batches(data, never.settings, seed=1))
    assert all(int(next(drawn).cold_start_row.max()) == 0 for _ in range(20))


def test_a_neighbour_does_not_touch_the_scale_of_a_crop() -> None:
    """However enormous the values of another series are."""
    df = frame({"a": 100, "b": 100})
    absurd = df.copy()
    absurd.loc[absurd["unique_id"] == "a", "y"] *= 1e20
    blocks = []
    for data_frame in (df, absurd):
        module, data = prepare(data_frame)
        blocks.append(module._block(torch.tensor([1]), torch.tensor([0]), torch.tensor([70]), data.lengths[1:], 20))
    assert float(blocks[1].total) == pytest.approx(float(blocks[0].total), rel=1e-12)


def predict(f: Forecaster) -> Any:
    last = f.table.states.last.tolist()
    futr = pd.DataFrame(
        {"unique_id": np.repeat(f.ids, H), "ds": [t + k + 1 for t in last for k in range(H)], "price": 1.5}
    )
    return f.predict(futr, level=[80]).drop(columns=["unique_id", "ds"]).to_numpy()


@pytest.mark.parametrize("options", [{}, {"robust": False, "distribution": "gaussian"}, {"model": "baseline"}])
def test_absurd_values_of_one_series_are_contained(options: dict[str, Any]) -> None:
    df = frame()
    df.loc[(df["unique_id"] == "b") & df["ds"].isin([7, 20, 21]), "y"] = [1e29, -1e29, 1e15]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f = fit(df, max_steps=20, **options)
        out = predict(f).reshape(3, -1)
    assert all(issubclass(w.category, AruWarning) for w in caught), [str(w.message) for w in caught]
    assert all(torch.isfinite(v).all() for v in weights(f).values())
    named = any(" b" in str(w.message) for w in caught)
    assert np.isfinite(out[[0, 2]]).all()
    assert named or np.isfinite(out[1]).all()
    assert np.abs(out[[0, 2]]).max() < 1e3


def break_b(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make the loss of series b, and its gradient, not a number; how many series each call of the model sees."""
    losses = ARU.losses
    calls: list[int] = []

    def broken(self: ARU, block: Any, *rest: Any) -> Any:
        out = losses(self, block, *rest)
        calls.append(len(out.total))
        # Where series "b" takes part: it is the only one with 31 rows' worth of observations.
        bad = block.rows.observed.sum(1) == int(frame().query("unique_id == 'b'")["y"].notna().sum())
        return out._replace(total=out.total * torch.where(bad, torch.nan, 1.0))

    monkeypatch.setattr(ARU, "losses", broken)
    return calls


def break_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every loss not a number."""
    losses = ARU.losses

    def broken(self: ARU, *args: Any) -> Any:
        out = losses(self, *args)
        return out._replace(total=out.total * torch.nan)

    monkeypatch.setattr(ARU, "losses", broken)


def test_a_series_whose_loss_is_not_finite_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = break_b(monkeypatch)
    with pytest.warns(AruWarning, match=r"series b[;. ]"):
        f = fit(frame(), max_steps=3, cold_starts=0.0)
    assert calls == [3, 2] * 3
    assert all(torch.isfinite(v).all() for v in weights(f).values())


def test_training_that_diverges_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    break_all(monkeypatch)
    with pytest.raises(NumericalError, match="learning_rate"):
        fit(frame())


class Poison(Callback):
    """Makes one gradient infinite."""

    def __init__(self, step: int = 2) -> None:
        self.step = step

    def on_after_backward(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.global_step == self.step:
            next(p for p in module.parameters() if p.grad is not None).grad.fill_(torch.inf)


def test_a_gradient_that_is_not_finite_is_dropped_and_counted() -> None:
    with pytest.warns(AruWarning, match="1 training step"):
        f = fit(frame(), **listening(Poison()))
    assert all(torch.isfinite(v).all() for v in weights(f).values())
    assert np.isfinite(predict(f)).all()


class Interrupt(Callback):
    """Breaks training off after a number of steps."""

    def __init__(self, step: int, error: type[BaseException]) -> None:
        self.step, self.error = step, error

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise self.error("the power went out")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_training_resumes_where_it_was_interrupted(tmp_path: Path, error: type[BaseException]) -> None:
    options: dict[str, Any] = {"max_steps": 100, "batch_size": 2, "model": "baseline"}
    f = make(**{**BASE, **options, **listening(Interrupt(70, error))})
    with pytest.raises(error):
        f.fit(frame(), val_size=0, checkpoint_dir=tmp_path)
    with pytest.raises(NotFittedError):
        f.predict()
    again = Curve()
    resumed = fit(frame(), checkpoint_dir=tmp_path, **options, **listening(again))
    assert 0 < again.first_step <= 70
    assert again.first_step + len(again.losses) == 100
    assert np.isfinite(predict(resumed)).all()


@pytest.mark.parametrize("weight_average", [0.0, 0.9])
def test_a_finished_training_is_not_trained_again(tmp_path: Path, weight_average: float) -> None:
    options: dict[str, Any] = {"max_steps": 50, "weight_average": weight_average}
    first = fit(frame(), checkpoint_dir=tmp_path, **options)
    again = Curve()
    reread = fit(frame(), checkpoint_dir=tmp_path, **options, **listening(again))
    assert again.losses == []
    assert same(weights(first), weights(reread))


def test_snapshots_survive_an_interruption(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_steps": 8, "snapshots": 3}
    first = fit(frame(), H, checkpoint_dir=tmp_path, **options)
    again = fit(frame(), H, checkpoint_dir=tmp_path, **options)
    assert len(again.runtime.engine.models) == 3
    assert again.val_loss == first.val_loss


def test_a_search_that_is_resumed_chooses_the_same(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_steps": 15, "weight_average": 0.0, "search": {"learning_rate": (1e-9, 0.03)}}
    first = fit(frame(), 6, checkpoint_dir=tmp_path, **options)
    again = fit(frame(), 6, checkpoint_dir=tmp_path, **options)
    assert again.settings.learning_rate == first.settings.learning_rate == 0.03
    assert again.val_loss == pytest.approx(first.val_loss)


def test_checkpoints_of_other_settings_are_refused(tmp_path: Path) -> None:
    fit(frame(), checkpoint_dir=tmp_path)
    with pytest.raises(ConfigError, match="checkpoint_dir"):
        fit(frame(), checkpoint_dir=tmp_path, size="small")


def changed(df: pd.DataFrame, column: str, value: Any) -> pd.DataFrame:
    df = df.copy()
    df.loc[7, column] = value
    return df


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda df: changed(df, "y", 99.0), id="a value"),
        pytest.param(lambda df: changed(df, "y", np.nan), id="a missing value"),
        pytest.param(lambda df: changed(df, "price", 1.5), id="a covariate"),
        pytest.param(lambda df: df.assign(ds=df["ds"] + 1), id="times"),
        pytest.param(lambda df: df.replace({"unique_id": {"c": "d"}}), id="a name"),
        pytest.param(lambda df: df[:-1], id="a row less"),
        pytest.param(lambda df: df.assign(price=(df["price"] > 1.5).astype(str)), id="another schema"),
    ],
)
def test_other_data_are_trained_on_from_the_beginning(tmp_path: Path, other: Any) -> None:
    options: dict[str, Any] = {"max_steps": 2, "model": "baseline"}
    fit(frame(), checkpoint_dir=tmp_path, **options)
    with pytest.warns(AruWarning, match="checkpoint of other training data: training begins anew"):
        found = fit(other(frame()), checkpoint_dir=tmp_path, **options)
    assert same(weights(found), weights(fit(other(frame()), **options)))
    again = Curve()  # the checkpoint is now that of the other data
    reread = fit(other(frame()).sample(frac=1, random_state=0), checkpoint_dir=tmp_path, **options, **listening(again))
    assert again.losses == []
    assert same(weights(found), weights(reread))


def test_other_validation_rows_are_other_data(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_steps": 2, "model": "baseline"}
    fit(frame(), H, checkpoint_dir=tmp_path, **options)
    with pytest.warns(AruWarning, match="other training data"):
        fit(frame(), 0, checkpoint_dir=tmp_path, **options)


def test_an_interruption_resumes_the_data_that_it_interrupted(tmp_path: Path) -> None:
    """Also where the folder held a finished training of other data: one file is replaced, none is added."""
    options: dict[str, Any] = {"max_steps": 100, "model": "baseline"}
    fit(frame(), checkpoint_dir=tmp_path, **options)
    other = make(**{**BASE, **options, **listening(Interrupt(70, RuntimeError))})
    with pytest.warns(AruWarning, match="begins anew"), pytest.raises(RuntimeError, match="power"):
        other.fit(frame(seed=1), val_size=0, checkpoint_dir=tmp_path)
    again = Curve()
    fit(frame(seed=1), checkpoint_dir=tmp_path, **options, **listening(again))
    assert again.first_step == 50
    assert [path.name for path in (tmp_path / "member-0").iterdir()] == ["last.ckpt"]


class Trap:
    """What runs where a pickle is read without care."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    fit(frame(), checkpoint_dir=tmp_path)
    (last,) = tmp_path.rglob("last.ckpt")
    kept = torch.load(last, weights_only=True)  # numbers, texts and tensors are all that we write
    torch.save({**kept, "more": Trap(tmp_path / "sprung")}, last)
    with pytest.raises(StorageError, match=r"last\.ckpt is no checkpoint"):
        fit(frame(), checkpoint_dir=tmp_path)
    assert not (tmp_path / "sprung").exists()
    torch.load(last, weights_only=False)  # the trap works
    assert (tmp_path / "sprung").exists()


def test_what_cannot_hold_checkpoints_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file.* cannot hold checkpoints .*\. Choose another checkpoint_dir"):
        fit(frame(), checkpoint_dir=tmp_path / "file")
    (tmp_path / "member-0").mkdir()
    (tmp_path / "member-0" / "last.ckpt").write_text("text")
    with pytest.raises(StorageError, match=r"last\.ckpt is no checkpoint"):
        fit(frame(), checkpoint_dir=tmp_path)
    torch.save({"epoch": 1}, tmp_path / "member-0" / "last.ckpt")
    with pytest.raises(ConfigError, match="of other settings or of another version"):
        fit(frame(), checkpoint_dir=tmp_path)


def test_the_papers_preset_searches_and_averages_epochs() -> None:
    options = {k: v for k, v in BASE.items() if k != "futr_exog_list"}
    f = make(**{**options, **PAPER, "max_steps": 7, "learning_rate": 0.01, "alias": "aru"})
    assert f.fit(frame(), val_size=H) is f
    search = PAPER["training"].search
    assert f.settings.network.ridge in search["ridge"]
    assert f.settings.network.alphas in search["alphas"]
    assert f.settings.training.search is None
    assert len(f.runtime.engine.models) == PAPER["training"].snapshots == 5
    mine = weights(f)
    assert not torch.equal(mine["0.joint.ff_mu.0.weight"], mine["1.joint.ff_mu.0.weight"])
    assert np.isfinite(f.predict(level=[80])["aru"]).all()


def test_the_search_takes_the_best_validation_loss() -> None:
    """A candidate that cannot learn loses, wherever it stands among the candidates."""
    for rates in ((1e-9, 0.03), (0.03, 1e-9)):
        f = fit(frame(), 6, max_steps=15, weight_average=0.0, search={"learning_rate": rates})
        assert f.settings.learning_rate == 0.03


def test_search_and_snapshots_need_validation() -> None:
    for options in ({"search": {"ridge": (0.1, 1.0)}}, {"snapshots": 2}):
        with pytest.raises(ConfigError, match="val_size"):
            fit(frame(), **options)


def test_snapshots_are_the_epochs_that_validated_best() -> None:
    curve = Curve()
    f = fit(frame(), 6, max_steps=9, snapshots=3, weight_average=0.0, learning_rate=0.05, **listening(curve))
    assert len(curve.val_losses) == 9
    assert len(f.runtime.engine.models) == 3
    assert f.val_loss == pytest.approx(min(curve.val_losses))


def test_validation_scores_the_windows_of_the_last_rows() -> None:
    """The validation loss is the loss of the windows that start in the validation part, statistics running on."""
    val_size = 2 * H
    module, data = prepare(frame(), val_size)
    module.eval()
    logged = {}
    module.log = lambda name, value, **_: logged.update({name: float(value)})  # type: ignore[method-assign,assignment]
    with torch.no_grad():
        module.validation_step(SeriesOfPart(0, torch.tensor([0, 1, 2])), 0)
        # The same windows, without those before: a training on all rows, from which the earlier windows are taken off.
        whole, _ = prepare(frame(), 0)
        n = 40
        grid = whole._grid(n % H, n)
        series, cold_start_row = torch.arange(3), torch.zeros(3, dtype=torch.int64)
        block = whole._block(series, cold_start_row, data.lengths - n, data.lengths, n)
        module.model.eval()
        late = module.model.losses(block, grid, slice(grid.count - 2, None))
    assert logged["val_loss"] == pytest.approx(float(late.total.sum() / late.values.sum()), rel=1e-6)


def test_the_callers_random_numbers_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # beartype draws random numbers
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    f = fit(frame(), dropout=0.3)
    predict(f)
    assert not any(model.training for model in f.runtime.engine.models)
    after = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_options_go_through_to_the_trainer(tmp_path: Path) -> None:
    from lightning.pytorch.loggers import CSVLogger

    logger = CSVLogger(tmp_path, name="run", version="1")
    f = fit(frame(), 6, max_steps=8, **listening(logger=logger, log_every_n_steps=1))
    curve = pd.read_csv(tmp_path / "run" / "1" / "metrics.csv")
    assert curve["train_loss"].notna().sum() == 8
    assert curve["val_loss"].notna().sum() >= 1
    assert f.val_loss == pytest.approx(curve["val_loss"].dropna().iloc[-1])
    with pytest.raises(ConfigError, match="no_such_option"):
        fit(frame(), **listening(no_such_option=3))


def test_an_ensemble_is_its_members_trained_one_by_one() -> None:
    both = weights(fit(frame(), ensemble=2))
    alone = weights(fit(frame()))
    assert same({k: v for k, v in both.items() if k.startswith("0.")}, alone)
    assert not torch.equal(both["0.joint.ff_mu.0.weight"], both["1.joint.ff_mu.0.weight"])


def test_weights_are_averaged_along_the_way() -> None:
    """weight_average=0 keeps the last weights; the average lags behind them."""
    last, averaged = (weights(fit(frame(), max_steps=20, weight_average=w)) for w in (0.0, 0.9))
    started = weights(fit(frame(), max_steps=20, weight_average=0.0, learning_rate=1e-12))
    key = "0.network.decoder.layer3.weight"
    assert not torch.equal(last[key], averaged[key])
    assert (averaged[key] - started[key]).norm() < (last[key] - started[key]).norm()


def test_the_average_spans_a_tenth_of_the_steps_so_far() -> None:
    """By hand, from the weights after every step: a short training is not spoiled by the weights it began with."""
    seen: list[torch.Tensor] = []

    class Listen(Callback):
        def on_train_batch_end(self, _: Any, module: Any, *__: Any) -> None:
            seen.append(module.model.network.decoder.layer3.weight.detach().clone())

    averaged = weights(fit(frame(), max_steps=40, weight_average=0.95, **listening(Listen())))
    expected = torch.zeros_like(seen[0])
    for step, weight in enumerate(seen):
        expected = torch.lerp(expected, weight, max(0.05, 10 / (10 + step)))
    torch.testing.assert_close(averaged["0.network.decoder.layer3.weight"], expected)


def test_validation_rows_that_leave_nothing_to_train_on_are_refused() -> None:
    with pytest.raises(TooLittleDataError, match=r"0 rows to train on besides val_size=500, but h=4 needs at least 5"):
        fit(frame(), 500)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_large_series_count_more(power: float) -> None:
    """The loss is the mean over values, each weighted by its series' mean |y| to the power `size_weight`."""
    df = frame()
    df.loc[df.unique_id == "b", "y"] *= 100
    batch = make_batch((0, 0, 0), (0, -9, -14), 40, 1)
    module, _ = prepare(df, size_weight=power)
    losses = module._planned(10, torch.stack([batch.series, batch.cold_start_row, batch.begin + 1]))
    size = df.y.abs().groupby(df.unique_id).mean().to_numpy() ** power
    expected = (size * losses.total.detach().numpy()).sum() / (size * losses.values.numpy()).sum()
    assert float(module.training_step(batch, 0).detach()) == pytest.approx(expected, rel=1e-5)


def test_series_of_zeros_count_little_but_break_nothing() -> None:
    df = frame().assign(y=0.0)
    module, _ = prepare(df, size_weight=1.0)
    assert module.weights.tolist() == [1.0, 1.0, 1.0]
