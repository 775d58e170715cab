"""The global network that every method shares: input layer, encoder RNN, decoder of three ReLU layers.

    g_o = RNN([z_t, x_t] : t = o - E + 1 .. o)          z_t = f(y_t / s_o), the value observed at t
    h_k = FF([g_o, x_{o+k}])                            k = 1 .. K

The encoder pairs x_t with y_t, where the paper's equation pairs it with y_{t-1}: the last observed value is read, too.
FF has three ReLU layers; x enters the first beside g, and by a skip connection the second.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from aru.distributions import transform
from aru.encoders import Embeddings, Encoder
from aru.models.linear import Linear, affine
from aru.schema import Schema
from aru.settings import Settings
from aru.windows import Block, Grid, Scaling, contexts, leads, scales


class Origins(NamedTuple):
    """What the network knows at each origin: the encoder's summary, the scale, and whether that is enough to go by."""

    g: Float[Tensor, "batch window units"]
    scale: Float[Tensor, "batch window"]
    informed: Bool[Tensor, "batch window"]  # by as many values as a window has rows, or the context


class Features(NamedTuple):
    """Inputs of the rows after origin 0, what each origin knew, and h of the leads after it."""

    x: Float[Tensor, "batch ahead x"]
    origins: Origins
    h: Float[Tensor, "batch window lead dim"]


class Targets(NamedTuple):
    """Scaled targets after each origin, and which of them were observed."""

    z: Float[Tensor, "batch window lead"]
    observed: Bool[Tensor, "batch window lead"]


class Numbers(NamedTuple):
    """Inputs that numeric covariates take: each has a second one, whether it is missing."""

    futr: int
    static: int
    hist: int


class Inputs(nn.Module):
    """What every method reads: embedded covariates, scaled contexts and lags, scaled targets."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__()
        self.h = settings.h
        self.stride = settings.window_stride
        self.input_size = schema.input_size
        self.transform = settings.transform
        enough = min(schema.input_size, settings.window_stride)
        prior = {"mean": None, "level": 1.0}.get(settings.scaler, schema.scale_prior)
        self.scaling = Scaling(prior, schema.input_size, schema.unit, schema.typical_scale, enough)
        self.futr_embeddings = Embeddings(tuple(len(c.values) for c in (*schema.futr[1], *schema.calendar)))
        self.hist_embeddings = Embeddings(tuple(len(c.values) for c in schema.hist[1]))
        self.static_embeddings = Embeddings(tuple(len(c.values) for c in schema.stat[1]))
        self.numbers = Numbers(2 * len(schema.futr[0]), 2 * len(schema.stat[0]), 2 * len(schema.hist[0]))
        self.lags = schema.lags
        self.x_width = (
            self.numbers.futr + self.numbers.static + self.futr_embeddings.width + self.static_embeddings.width
        )
        self.lag_width = 2 * len(schema.lags)
        hist_width = self.numbers.hist + self.hist_embeddings.width
        self.context_width = 2 + self.x_width + self.lag_width + hist_width

    def inputs(self, block: Block, first: int = 0) -> Float[Tensor, "batch time x"]:
        """x_t of the rows from `first` on: known covariates, embedded categories and calendar, static covariates."""
        futr, codes = block.futr[:, first:], block.futr_cat[:, first:]
        static = torch.cat([block.static, self.static_embeddings(block.static_cat)], -1)
        static = static.unsqueeze(1).expand(-1, futr.shape[1], -1)
        return torch.cat([futr, self.futr_embeddings(codes), static], -1)

    def contexts(
        self, block: Block, x: Tensor, grid: Grid, scale: Float[Tensor, "batch window"]
    ) -> Float[Tensor, "batch window row features"]:
        """The rows up to each origin: value and mask, x, historic covariates, lags."""
        E = self.input_size
        past = self._scaled(contexts(block.y, grid, E), contexts(block.observed, grid, E), scale.unsqueeze(-1))
        lag = self._lag(contexts(block.lag, grid, E), contexts(block.lag_observed, grid, E), scale)
        hist = torch.cat([block.hist, self.hist_embeddings(block.hist_cat)], -1)
        return torch.cat([past, contexts(torch.cat([x, hist], -1), grid, E), lag], -1)

    def future_lags(self, block: Block, grid: Grid, scale: Tensor, n: int) -> Float[Tensor, "batch window lead lags"]:
        """Scaled lags, and whether they were observed, of the `n` rows after each origin."""
        E = self.input_size
        return self._lag(leads(block.lag, grid, E, n), leads(block.lag_observed, grid, E, n), scale)

    def targets(self, block: Block, grid: Grid, scale: Tensor, n: int) -> Targets:
        """z of the `n` rows after each origin."""
        y, observed = leads(block.y, grid, self.input_size, n), leads(block.observed, grid, self.input_size, n)
        if grid.skipped is not None:
            observed = observed & (torch.arange(grid.count, device=y.device) >= grid.skipped).unsqueeze(-1)
        z, seen = self._scaled(y, observed, scale.unsqueeze(-1)).unbind(-1)
        return Targets(z, seen > 0)

    def _scaled(self, y: Tensor, observed: Tensor, scale: Tensor) -> Tensor:
        """(*) -> (*, 2): f(y / s), and whether it was observed. A ratio beyond float32's comfort counts as missing."""
        ratio = y / scale
        seen = observed & (ratio.abs() < 1e9)
        z = transform(self.transform, torch.where(seen, ratio, 0.0))
        return torch.stack([z, seen.to(z.dtype)], -1).float()

    def _lag(self, lag: Tensor, observed: Tensor, scale: Tensor) -> Tensor:
        return self._scaled(lag, observed, scale[:, :, None, None]).flatten(-2)


class Network(Inputs):
    """Inputs, encoder and decoder. Heads are the models' own."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        size = settings.network_size
        self.encoder = Encoder(
            settings.encoder, self.context_width, size.rnn, settings.encoder_layers, settings.dropout
        )
        self.season = settings.season
        lag_width = self.lag_width + (2 if self.season else 0)
        self.decoder = Decoder(self.x_width, lag_width, size.rnn, size.hidden, settings.dropout, settings.decoder_rnn)

    def run(self, block: Block, grid: Grid) -> Features:
        """Encode every origin and decode all of its leads."""
        x = self.inputs(block)
        origins = self.origins(block, x, grid)
        ahead = x[:, self.input_size :]
        return Features(ahead, origins, self.decode(block, ahead, grid, origins, self.h)[0])

    def origins(self, block: Block, x: Tensor, grid: Grid) -> Origins:
        """Encode the context of every origin of the grid, in parallel."""
        scale, informed = scales(block, grid, self.scaling)
        context = self.contexts(block, x, grid, scale)
        g = self.encoder(context.flatten(0, 1))
        return Origins(g.unflatten(0, context.shape[:2]), scale, informed)

    def decode(
        self,
        block: Block,
        x: Tensor,
        grid: Grid,
        origins: Origins,
        n: int,
        carry: Tensor | None = None,
        passed: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch window lead dim"], Tensor]:
        """h of the `n` rows after each point of the grid, and the decoder's memory after each row, if it has an RNN.

        `x` belongs to the rows after the first of these points. The origins lie `passed` rows before the points; by
        default they are the points themselves.
        """
        projected = leads(self.decoder.project(x), grid, 0, n)
        lag = self.future_lags(block, grid, origins.scale, n)
        if self.season:
            lag = torch.cat([lag, self._last_season(block, grid, origins.scale, n, passed)], -1)
        h: tuple[Tensor, Tensor] = self.decoder(origins.g.unsqueeze(2), projected, lag, carry)
        return h

    def _last_season(
        self, block: Block, grid: Grid, scale: Tensor, n: int, passed: Tensor | None
    ) -> Float[Tensor, "batch window lead 2"]:
        """For leads passed + 1, passed + 2, ...: the latest value up to the origin that lies whole seasons before."""
        assert self.season is not None
        E = self.input_size
        passed = torch.zeros_like(block.count, dtype=torch.long) if passed is None else passed
        lead = passed[:, None] + torch.arange(1, n + 1, device=passed.device)
        seasons = -(-lead // self.season)
        row = E - 1 + lead - passed[:, None] - seasons * self.season  # of the context
        row = row.unsqueeze(1).expand(-1, grid.count, -1)
        y, observed = (contexts(v, grid, E).gather(2, row) for v in (block.y, block.observed))
        return self._scaled(y, observed, scale.unsqueeze(-1))


class Decoder(nn.Module):
    """FF([g, x]). Products with x and with g are computed apart: once per row, once per origin, never concatenated."""

    def __init__(
        self, x_width: int, lag_width: int, units: int, hidden: tuple[int, int, int], dropout: float, rnn: bool
    ) -> None:
        super().__init__()
        first, second, third = hidden
        self.widths = (first, second)
        self.from_x = nn.Parameter(torch.empty(x_width, first + second))
        self.from_lag = nn.Parameter(torch.empty(lag_width, first + second))
        self.from_g = Linear(units, first)
        self.rnn = nn.GRU(first, first, batch_first=True) if rnn else None
        self.layer2 = Linear(first, second)
        self.layer3 = Linear(second, third)
        self.dropout = nn.Dropout(dropout)
        self._initialise(x_width + lag_width + units, x_width + lag_width + first)

    def _initialise(self, fan_in1: int, fan_in2: int) -> None:
        """As one linear layer over the concatenated inputs would start."""
        bound1, bound2 = 1 / math.sqrt(fan_in1), 1 / math.sqrt(fan_in2)
        with torch.no_grad():
            for weight in (self.from_x, self.from_lag):
                in1, in2 = weight.split(self.widths, -1)
                in1.uniform_(-bound1, bound1)
                in2.uniform_(-bound2, bound2)
            self.from_g.weight.uniform_(-bound1, bound1)
            self.layer2.weight.uniform_(-bound2, bound2)

    def project(self, x: Tensor) -> Tensor:
        """The part of the first two layers that depends on x alone: once per row, whatever the number of windows."""
        return affine(x, self.from_x.T)

    def forward(self, g: Tensor, projected: Tensor, lag: Tensor, carry: Tensor | None) -> tuple[Tensor, Tensor]:
        """g (batch, window, 1 or lead, units), rows and lags (batch, window, lead, .) -> h and the RNN's memory."""
        if lag.shape[-1]:
            projected = projected + affine(lag, self.from_lag.T)
        in1, in2 = projected.split(self.widths, -1)
        a1 = torch.relu(in1 + self.from_g(g))
        memory = a1[..., :0]
        if self.rnn is not None:
            shape = a1.shape
            start = None if carry is None else carry.flatten(0, -2).unsqueeze(0).contiguous()
            a1 = memory = self.rnn(a1.flatten(0, 1), start)[0].reshape(shape)
        a2 = torch.relu(in2 + self.layer2(self.dropout(a1)))
        return torch.relu(self.layer3(self.dropout(a2))), memory
