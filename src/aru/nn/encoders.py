"""Encoder RNNs, which summarise a context window as a vector g. All share one signature.

    lstm, gru   gated, as in torch
    sru         statistical recurrent unit: moving averages of statistics, at several rates
    fru         Fourier recurrent unit: sums of statistics, weighted by waves of several frequencies

Padding rows are read like others; the network tells them by their mask channel.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

ALPHAS = (0.0, 0.25, 0.5, 0.9, 0.99)  # rates of the SRU's moving averages, as in its paper
FREQUENCIES = 5  # of the FRU: zero, and four from LOWEST up, evenly spaced on a log scale
LOWEST = 0.25  # waves per context


class Layer(nn.Module, abc.ABC):
    """One layer of an RNN."""

    @abc.abstractmethod
    def forward(self, x: Float[Tensor, "batch time features"]) -> Float[Tensor, "batch time units"]:
        """Outputs at every step."""

    @abc.abstractmethod
    def last(self, x: Float[Tensor, "batch time features"]) -> Float[Tensor, "batch units"]:
        """Output at the last step alone."""


class Gated(Layer):
    """torch's LSTM or GRU."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], input_size: int, units: int) -> None:
        super().__init__()
        self.rnn = kind(input_size, units, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs at every step."""
        outputs: Tensor = self.rnn(x)[0]
        return outputs

    def last(self, x: Tensor) -> Tensor:
        """Output at the last step."""
        memory = self.rnn(x)[1]
        output: Tensor = (memory[0] if isinstance(memory, tuple) else memory)[0]
        return output


class Ungated(Layer):
    """An RNN whose state s holds several summaries of the statistics phi so far. Subclasses define the summaries.

        r_t   = relu(W_r s_{t-1} + b_r)
        phi_t = relu(W_phi r_t + W_x x_t + b_phi)
        s_t   = keep * s_{t-1} + add_t * phi_t          for each summary
        o_t   = relu(W_o s_t + b_o)

    s starts at zero. phi and o have `units` numbers, r has half as many. At the ARU paper's small and medium sizes it
    has about as many weights as an LSTM.
    """

    def __init__(self, input_size: int, units: int, summaries: int) -> None:
        super().__init__()
        self.shape = (summaries, units)
        narrow = max(units // 2, 1)
        self.from_x = nn.Linear(input_size, units)
        self.from_state = nn.Linear(summaries * units, narrow)
        self.from_r = nn.Linear(narrow, units, bias=False)
        self.out = nn.Linear(summaries * units, units)

    @abc.abstractmethod
    def rule(self, steps: int) -> tuple[Float[Tensor, " summary"], Float[Tensor, "time summary"]]:
        """`keep` of each summary, and `add_t` of each step and summary."""

    def states(self, x: Tensor) -> Iterator[Tensor]:
        """s after each step, flattened. What does not depend on the previous step is computed for all steps at once."""
        keep, add = (v.unsqueeze(-1) for v in self.rule(x.shape[1]))
        s = x.new_zeros(x.shape[0], *self.shape)
        for added, projected in zip(add, self.from_x(x).unbind(1), strict=True):
            r = torch.relu(self.from_state(s.flatten(1)))
            phi = torch.relu(torch.addmm(projected, r, self.from_r.weight.T))
            s = torch.addcmul(keep * s, added, phi.unsqueeze(1))
            yield s.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs at every step."""
        return torch.relu(self.out(torch.stack(list(self.states(x)), 1)))

    def last(self, x: Tensor) -> Tensor:
        """Output at the last step. Other outputs are not computed."""
        for state in self.states(x):
            last = state
        return torch.relu(self.out(last))


class SRU(Ungated):
    """Statistical recurrent unit (Oliva, Poczos and Schneider, ICML 2017): moving averages at several rates.

        s_t^(alpha) = alpha s_{t-1}^(alpha) + (1 - alpha) phi_t         for alpha in ALPHAS

    Equations and rates are the paper's, where s is called mu; its widths are tuned by task.
    """

    alphas: Tensor

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__(input_size, units, len(ALPHAS))
        self.register_buffer("alphas", torch.tensor(ALPHAS, dtype=torch.float64), persistent=False)

    def rule(self, steps: int) -> tuple[Tensor, Tensor]:
        """The same at every step."""
        alphas = self.alphas.to(self.from_x.weight.dtype)
        return alphas, (1 - alphas).expand(steps, -1)


class FRU(Ungated):
    """Fourier recurrent unit (Zhang, Lin, Song and Dhillon, ICML 2018): sums weighted by waves of several frequencies.

        s_t^(f) = s_{t-1}^(f) + cos(2 pi f t / T + theta_f) phi_t / T   for a few frequencies f > 0, T steps in all
        s_t^(0) =               cos(theta_0) phi_t / T

    theta is learned, the frequencies are fixed: 0, and from a quarter of a wave per context up to one wave in three
    steps, as in several of the authors' experiments. Three things follow the authors' code instead of their paper
    (where s is called u and phi is h): the layer r, frequency 0, which holds only the latest phi instead of a sum, and
    the relu of the output.
    """

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__(input_size, units, FREQUENCIES)
        self.theta = nn.Parameter(0.2 * math.pi * torch.randn(FREQUENCIES))

    def rule(self, steps: int) -> tuple[Tensor, Tensor]:
        """Waves over the context."""
        grid = torch.linspace(0, 1, FREQUENCIES - 1, dtype=self.theta.dtype, device=self.theta.device)
        f = nn.functional.pad(LOWEST * (steps / 3 / LOWEST) ** grid, (1, 0))
        t = torch.arange(1, steps + 1, dtype=f.dtype, device=f.device)
        waves = torch.cos(2 * math.pi * torch.outer(t / steps, f) + self.theta)
        return (f > 0).to(f.dtype), waves / steps


LAYERS: Mapping[str, Callable[[int, int], Layer]] = MappingProxyType(
    {"lstm": functools.partial(Gated, nn.LSTM), "gru": functools.partial(Gated, nn.GRU), "sru": SRU, "fru": FRU}
)


class Encoder(nn.Module):
    """An RNN over the context. g is the top layer's output at the origin. Dropout is applied between layers."""

    def __init__(self, kind: str, input_size: int, units: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        widths = [input_size, *[units] * (layers - 1)]
        self.layers = nn.ModuleList(LAYERS[kind](width, units) for width in widths)
        self.dropout = nn.Dropout(dropout)
        self.units = units

    def forward(self, context: Float[Tensor, "batch time features"]) -> Float[Tensor, "batch units"]:
        """Summary of each context window."""
        if len(context) == 0:
            return context.new_zeros(0, self.units)
        *lower, top = self.layers
        for layer in lower:
            context = self.dropout(layer(context))
        assert isinstance(top, Layer)
        return top.last(context)

    def outputs(self, rows: Float[Tensor, "batch time features"]) -> Float[Tensor, "batch time units"]:
        """The top layer's output at every row."""
        if len(rows) == 0:
            return rows.new_zeros(0, rows.shape[1], self.units)
        *lower, top = self.layers
        for layer in lower:
            rows = self.dropout(layer(rows))
        output: Tensor = top(rows)
        return output


def embedding_size(values: int) -> int:
    """Width of the embedding of a column with this many values: 4 for days of the week, 10 for days of the month."""
    return min(16, max(1, round(1.4 * math.exp(0.56 * math.log(max(values, 1))))))


class Embeddings(nn.Module):
    """One table per categorical column, side by side. Code 0 is "unknown".

    In training a column of a series is set to "unknown" with a small probability, so that its embedding is trained.
    """

    def __init__(self, sizes: tuple[int, ...], hidden_rate: float = 0.02) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n + 1, embedding_size(n)) for n in sizes)
        self.width = sum(embedding_size(n) for n in sizes)
        self.hidden_rate = hidden_rate

    def forward(self, codes: Tensor) -> Tensor:
        """(series, ..., column) codes -> (series, ..., width)."""
        if not len(self.tables):
            return torch.zeros(*codes.shape[:-1], 0, device=codes.device)
        if self.training:
            drawn = torch.rand(codes.shape[0], codes.shape[-1], device=codes.device) < self.hidden_rate
            codes = codes.masked_fill(drawn.reshape(codes.shape[0], *(1,) * (codes.ndim - 2), -1), 0)
        weights: list[Any] = [table.weight for table in self.tables]
        if torch.onnx.is_in_onnx_export():  # one operation
            return torch.cat([weight[codes[..., i]] for i, weight in enumerate(weights)], -1)
        # index_select, because its gradient is faster than that of nn.Embedding, which sorts the codes.
        rows = [weight.index_select(0, codes[..., i].reshape(-1)) for i, weight in enumerate(weights)]
        return torch.cat(rows, -1).reshape(*codes.shape[:-1], self.width)
