"""SNAIL's parts against explicit loops, and what each row can see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from aru import Forecaster
from aru.models.snail import Attention, Convolution, Snail, SnailNetwork, barred_rows
from aru.nn.tree import tree_map
from tests.making import make

H, E = 4, 12
FUTURE = pd.DataFrame(
    {"unique_id": [*"aaaabbbb"], "ds": [*pd.date_range("2024-03-01", periods=H)] * 2, "promo": 0.5},
)


def rows_like(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def trained(**options: Any) -> Forecaster:
    """One training step on two series, with covariates of every kind."""
    days = pd.date_range("2024-01-01", periods=60)
    random = np.random.default_rng(0)
    frame = pd.concat(
        pd.DataFrame({"unique_id": uid, "ds": days, "y": random.gamma(3, size=60), "promo": random.random(60),
                      "temp": random.random(60)})
        for uid in "ab"
    )  # fmt: skip
    settings: dict[str, Any] = {
        "h": H, "freq": "D", "input_size": E, "max_steps": 1, "accelerator": "cpu", "futr_exog_list": ["promo"],
        "hist_exog_list": ["temp"], "lags": [7], "trainer": {"enable_progress_bar": False},
    }  # fmt: skip
    return make(**{**settings, "model": "snail", **options}).fit(frame)


@pytest.fixture(scope="module")
def network() -> SnailNetwork:
    model = trained().runtime.engine.models[0]
    assert isinstance(model, Snail)
    return model.network.double()


def windows(network: SnailNetwork, n: int = 3, first: int = 0) -> Tensor:
    """Rows of windows whose values begin with row `first` of the context."""
    rows = torch.randn(n, E + H, network.row_width, dtype=torch.float64)
    rows[:, :, 1] = 0
    rows[:, first:E, 1] = 1
    return rows


def weights(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("dilation", [1, 2, 4, 20])
def test_a_convolution_is_its_equation(dilation: int) -> None:
    layer, rows = Convolution(3, 5, dilation).double(), rows_like(2, 9, 3)
    a1, b1 = layer.now.weight.chunk(2)
    a0, b0 = layer.before.weight.chunk(2)
    a, b = layer.now.bias.chunk(2)
    expected = torch.empty(2, 9, 8, dtype=torch.float64)
    for series in range(2):
        for t in range(9):
            v = rows[series, t]
            past = rows[series, t - dilation] if t >= dilation else torch.zeros_like(v)
            c = torch.tanh(a0 @ past + a1 @ v + a) * torch.sigmoid(b0 @ past + b1 @ v + b)
            expected[series, t] = torch.cat([v, c])
    torch.testing.assert_close(layer(rows), expected)


def test_the_convolutions_reach_back_six_rows() -> None:
    """Dilations 2 and 4: row t depends on rows t, t - 2, t - 4 and t - 6, and on no others."""
    first, second = Convolution(3, 5, 2).double(), Convolution(8, 5, 4).double()
    rows = rows_like(1, 12, 3)
    for t in range(12):
        (gradient,) = torch.autograd.grad(second(first(rows))[0, t].sum(), rows)
        seen = gradient[0].abs().sum(-1).nonzero().squeeze(-1).tolist()
        assert seen == [j for j in (t - 6, t - 4, t - 2, t) if j >= 0]


def test_which_rows_may_be_read() -> None:
    """Four rows, of which the first two of the first window are padding."""
    padding = torch.tensor([[True, True, False, False], [False] * 4])
    readable = ~barred_rows(padding)
    assert readable[0].int().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert torch.equal(readable[1], torch.ones(4, 4).tril().bool())


@pytest.mark.parametrize("readers", [7, 2])
def test_attention_is_its_equation(readers: int) -> None:
    layer, rows = Attention(3, 4, 5).double(), rows_like(2, 7, 3)
    padding = torch.tensor([[True] * 3 + [False] * 4, [False] * 7])
    expected = []
    for series in range(2):
        for t in range(7 - readers, 7):
            read = [j for j in range(t + 1) if j == t or not padding[series, j]]
            q = layer.query(rows[series, t])
            sizes = [torch.exp(q @ layer.key(rows[series, j]) / math.sqrt(4)) for j in read]
            value = sum(size * layer.value(rows[series, j]) for size, j in zip(sizes, read, strict=True)) / sum(sizes)
            expected.append(torch.cat([rows[series, t], value]))
    loop = torch.stack(expected).reshape(2, readers, 8)
    out = layer(rows, barred_rows(padding)[:, -readers:])
    torch.testing.assert_close(out, loop)
    weight, wanted = torch.randn_like(out), [rows, *layer.parameters()]
    gradients = (torch.autograd.grad((v * weight).sum(), wanted) for v in (out, loop))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("first", [0, 7, E])
def test_a_later_row_never_changes_an_earlier_output(network: SnailNetwork, first: int) -> None:
    """`first` = E: the series has no value yet."""
    rows = windows(network, first=first)
    leads = network.read(rows)
    assert torch.isfinite(leads).all()
    for k in range(H):
        other = rows.clone()
        other[:, E + k :, 2:] += 1
        changed = network.read(other)
        assert torch.equal(leads[:, :k], changed[:, :k])
        assert (leads[:, k:] != changed[:, k:]).flatten(2).any(-1).all()


def test_a_later_row_never_changes_an_earlier_one_within_a_layer() -> None:
    rows = rows_like(3, 9, 4)
    convolution, attention = Convolution(4, 2, 2).double(), Attention(4, 2, 3).double()
    barred = barred_rows(torch.zeros(3, 9, dtype=torch.bool))
    for at in (1, 5, 8):
        other = rows.detach().clone()
        other[:, at:] += 1
        assert torch.equal(convolution(rows)[:, :at], convolution(other)[:, :at])
        assert torch.equal(attention(rows, barred)[:, :at], attention(other, barred)[:, :at])


def test_every_lead_reads_the_whole_context(network: SnailNetwork) -> None:
    rows = windows(network).requires_grad_()
    for k in range(H):
        (gradient,) = torch.autograd.grad(network.read(rows)[0, k].sum(), rows)
        seen = gradient.abs().sum(-1) > 0
        assert seen[0, : E + k + 1].all()
        assert not seen[0, E + k + 1 :].any()
        assert not seen[1:].any()  # nor does it read another window


def test_without_a_value_leads_read_each_other_and_the_reach_of_the_convolutions(network: SnailNetwork) -> None:
    rows = windows(network, first=E).requires_grad_()
    for k in range(H):
        (gradient,) = torch.autograd.grad(network.read(rows)[0, k].sum(), rows)
        seen = set((gradient[0].abs().sum(-1) > 0).nonzero().squeeze(-1).tolist())
        assert seen == {E + j - back for j in range(k + 1) for back in (0, 2, 4, 6)}


def test_padding_is_not_read(network: SnailNetwork) -> None:
    """Beyond the reach of the convolutions its content is of no account; within, it is zero in practice."""
    rows = windows(network, first=8)
    other = rows.clone()
    other[:, :2, 2:] += 100
    assert torch.equal(network.read(rows), network.read(other))
    other[:, 8, 2:] += 100
    assert not torch.equal(network.read(rows), network.read(other))


def test_no_windows(network: SnailNetwork) -> None:
    assert network.read(windows(network, n=0)).shape == network.read(windows(network, n=1))[:0].shape


def test_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    f, seen, forecast = trained(), [], Snail.forecast
    monkeypatch.setattr(Snail, "forecast", lambda *arguments: seen.append(arguments) or forecast(*arguments))
    f.predict(FUTURE)
    model, _, *some = seen[0]
    nobody = [tree_map(lambda v: v[:0], tree) for tree in some]
    assert forecast(model, model.init_state(0), *nobody).forecast.mean().shape == (0, H)


def test_leads_know_no_values_and_rows_know_their_time() -> None:
    """What the layers are given: the context with its values, then leads without, the time since the origin at last."""
    f = trained()
    model, given = f.runtime.engine.models[0], []
    assert isinstance(model, Snail)
    model.sessions = None  # to hear what the modules say
    handle = model.network.convolutions[0].register_forward_hook(lambda _, inputs, __: given.append(inputs[0]))
    f.predict(FUTURE)
    handle.remove()
    (rows,) = given
    assert rows.shape == (2, E + H, model.network.row_width)
    assert (rows[:, :E, 1] == 1).all()
    assert (rows[:, :E, 0] != 0).all()
    assert (rows[:, E:, :2] == 0).all()
    np.testing.assert_allclose(rows[0, :, -1], np.arange(1 - E, H + 1) / E, rtol=1e-6)
    # The lag of seven days is known for leads, too: the value of the row seven before.
    np.testing.assert_allclose(rows[:, 7:, -3], rows[:, :-7, 0][:, : E + H - 7], rtol=1e-6)
    assert (rows[:, 7:, -2] == 1).all()


@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_the_number_of_weights_is_about_that_of_the_baseline(size: str) -> None:
    options: dict[str, Any] = {"size": size}
    snail = weights(trained(**options).runtime.engine.models[0])
    assert snail == pytest.approx(weights(trained(**options, model="baseline").runtime.engine.models[0]), rel=0.25)


def test_a_longer_context_needs_no_more_weights() -> None:
    short, long = (trained(input_size=n).runtime.engine.models[0] for n in (5, 40))
    assert weights(short) == weights(long)
