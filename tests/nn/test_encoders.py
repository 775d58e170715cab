"""Each encoder against an explicit loop over series and steps, written from its paper's equations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from aru.errors import ConfigError
from aru.nn.encoders import LAYERS, Encoder
from tests.making import make_settings

KINDS = ("lstm", "gru", "sru", "fru")
Loop = Callable[[nn.Module, Tensor], list[Tensor]]


def lstm(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Hochreiter and Schmidhuber (1997), with a forget gate."""
    rnn = layer.rnn
    w_i, w_f, w_g, w_o = rnn.weight_ih_l0.chunk(4)
    u_i, u_f, u_g, u_o = rnn.weight_hh_l0.chunk(4)
    b_i, b_f, b_g, b_o = (rnn.bias_ih_l0 + rnn.bias_hh_l0).chunk(4)
    h = c = torch.zeros(len(b_i), dtype=x.dtype)
    out = []
    for x_t in x:
        i = torch.sigmoid(w_i @ x_t + u_i @ h + b_i)
        f = torch.sigmoid(w_f @ x_t + u_f @ h + b_f)
        o = torch.sigmoid(w_o @ x_t + u_o @ h + b_o)
        c = f * c + i * torch.tanh(w_g @ x_t + u_g @ h + b_g)
        h = o * torch.tanh(c)
        out.append(h)
    return out


def gru(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Cho et al. (2014), the reset gate after the product, as in torch and cuDNN."""
    rnn = layer.rnn
    w_r, w_z, w_n = rnn.weight_ih_l0.chunk(3)
    u_r, u_z, u_n = rnn.weight_hh_l0.chunk(3)
    b_r, b_z, b_n = rnn.bias_ih_l0.chunk(3)
    c_r, c_z, c_n = rnn.bias_hh_l0.chunk(3)
    h = torch.zeros(len(b_r), dtype=x.dtype)
    out = []
    for x_t in x:
        r = torch.sigmoid(w_r @ x_t + b_r + u_r @ h + c_r)
        z = torch.sigmoid(w_z @ x_t + b_z + u_z @ h + c_z)
        n = torch.tanh(w_n @ x_t + b_n + r * (u_n @ h + c_n))
        h = (1 - z) * n + z * h
        out.append(h)
    return out


def statistics(layer: nn.Module, summaries: list[Tensor], x_t: Tensor) -> Tensor:
    """r and phi, alike in the SRU and in the FRU of its authors' code."""
    r = torch.relu(layer.from_state.weight @ torch.cat(summaries) + layer.from_state.bias)
    return torch.relu(layer.from_r.weight @ r + layer.from_x.weight @ x_t + layer.from_x.bias)


def sru(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Oliva, Poczos and Schneider (2017): moving averages at five rates."""
    alphas = (0.0, 0.25, 0.5, 0.9, 0.99)
    mu = [torch.zeros(len(layer.from_x.bias), dtype=x.dtype) for _ in alphas]
    out = []
    for x_t in x:
        phi = statistics(layer, mu, x_t)
        mu = [alpha * m + (1 - alpha) * phi for alpha, m in zip(alphas, mu, strict=True)]
        out.append(torch.relu(layer.out.weight @ torch.cat(mu) + layer.out.bias))
    return out


def fru(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Zhang, Lin, Song and Dhillon (2018): sums weighted by waves; for frequency 0 the latest statistics alone."""
    T = len(x)
    frequencies = [0.0, *(0.25 * (T / 3 / 0.25) ** (i / 3) for i in range(4))]
    u = [torch.zeros(len(layer.from_x.bias), dtype=x.dtype) for _ in frequencies]
    out = []
    for t, x_t in enumerate(x, start=1):
        h = statistics(layer, u, x_t)
        u = [
            (u_f if f else 0 * u_f) + torch.cos(2 * math.pi * f * t / T + theta) * h / T
            for u_f, f, theta in zip(u, frequencies, layer.theta, strict=True)
        ]
        out.append(torch.relu(layer.out.weight @ torch.cat(u) + layer.out.bias))
    return out


LOOPS: dict[str, Loop] = {"lstm": lstm, "gru": gru, "sru": sru, "fru": fru}


def in_loops(kind: str, layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    """g of every series, one series and one step at a time."""
    summaries = []
    for series in x:
        outputs = series
        for layer in layers:
            outputs = torch.stack(LOOPS[kind](layer, outputs))
        summaries.append(outputs[-1])
    return torch.stack(summaries)


def make(kind: str, inputs: int = 3, units: int = 8, layers: int = 1, dropout: float = 0.0) -> Encoder:
    return Encoder(kind, inputs, units, layers, dropout).double()


def contexts(batch: int = 5, time: int = 9, inputs: int = 3) -> Tensor:
    return torch.randn(batch, time, inputs, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("time", [1, 2, 9])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients_are_those_of_the_equations(kind: str, time: int, layers: int) -> None:
    encoder, x = make(kind, layers=layers), contexts(time=time)
    g, expected = encoder(x), in_loops(kind, encoder.layers, x)
    torch.testing.assert_close(g, expected, rtol=1e-9, atol=1e-12)
    assert (g != 0).any()
    weight = torch.randn_like(g)
    wanted = [x, *encoder.parameters()]
    # With a single step nothing has come back yet, and weights of the recurrence have no gradient.
    got, right = (torch.autograd.grad((out * weight).sum(), wanted, materialize_grads=True) for out in (g, expected))
    for one, other in zip(got, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-11)
    if time > 2:
        assert all((gradient != 0).any() for gradient in got)


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_of_a_layer_is_that_of_the_equations(kind: str) -> None:
    """Upper layers read all outputs of the lower ones; the top computes its last output alone."""
    layer, x = LAYERS[kind](3, 8).double(), contexts()
    outputs = layer(x)
    assert outputs.shape == (5, 9, 8)
    for series, output in zip(x, outputs, strict=True):
        torch.testing.assert_close(output, torch.stack(LOOPS[kind](layer, series)), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(layer.last(x), outputs[:, -1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_later_row_never_changes_an_earlier_output(kind: str) -> None:
    layer, x = LAYERS[kind](3, 8).double(), contexts()
    for at in (0, 4, 8):
        other = x.detach().clone()
        other[:, at:] += 1
        before, after = layer(x), layer(other)
        assert torch.equal(before[:, :at], after[:, :at])
        assert (before[:, at:] != after[:, at:]).any()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_series_is_summarised_alike_alone_and_among_others(kind: str, layers: int) -> None:
    encoder, x = make(kind, layers=layers), contexts()
    together = encoder(x)
    alone = torch.cat([encoder(series.unsqueeze(0)) for series in x])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)
    assert torch.equal(together[2:], encoder(torch.cat([contexts(batch=2), x[2:]]))[2:])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch(kind: str, layers: int) -> None:
    g = make(kind, layers=layers)(contexts(batch=0))
    assert g.shape == (0, 8)
    assert g.dtype == torch.float64


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_acts_between_layers_and_only_in_training(kind: str) -> None:
    x = contexts(batch=20)
    one, two = make(kind, dropout=0.5), make(kind, layers=2, dropout=0.5)
    assert torch.equal(one(x), one(x))
    assert not torch.equal(two(x), two(x))
    two.eval()
    torch.testing.assert_close(two(x), in_loops(kind, two.layers, x))


@pytest.mark.parametrize("kind", KINDS)
def test_long_contexts_and_large_inputs_stay_finite(kind: str) -> None:
    encoder = Encoder(kind, 3, 8)
    x = 100 * torch.randn(4, 400, 3, requires_grad=True)
    g = encoder(x)
    gradients = torch.autograd.grad(g.sum(), [x, *encoder.parameters()])
    assert all(torch.isfinite(v).all() for v in (g, *gradients))


@pytest.mark.usefixtures("as_users_run_it")
def test_settings_allow_these_encoders_and_no_others() -> None:
    assert set(LAYERS) == set(KINDS)
    for kind in KINDS:
        assert make_settings(h=4, freq="D", encoder=kind).network.encoder == kind
    with pytest.raises(ConfigError, match=r"encoder='rnn' is not known\. Choose one of 'lstm', 'gru', 'sru', 'fru'\."):
        make_settings(h=4, freq="D", encoder="rnn")
