"""The global network that every method shares: input layer, encoder RNN, decoder of three ReLU layers.

    g_o = RNN([z_t, x_t] : t = o - E + 1 .. o)          z_t = f(y_t / s_o), the value observed at t
    h_k = FF([g_o, x_{o+k}])                            k = 1 .. K

The encoder pairs x_t with y_t, where the paper pairs it with y_{t-1}: so it reads the last observed value, too. FF has
three ReLU layers; x is an input of the first, with g, and by a skip connection of the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from aru.data.rows import Rows, Static
from aru.data.schema import Schema
from aru.nn.distributions import transform
from aru.nn.encoders import Embeddings, Encoder
from aru.nn.linear import Linear, affine, beside
from aru.nn.windows import (
    Block,
    Context,
    Grid,
    Scaling,
    Values,
    all_values,
    contexts,
    join_block,
    leads,
    scale_now,
    scales,
)
from aru.settings import Settings


class Origins(NamedTuple):
    """The encoder's summary g and the scale at each origin, and whether its warm-up is over."""

    g: Float[Tensor, "batch *window units"]
    scale: Float[Tensor, " batch *window"]
    informed: Bool[Tensor, " batch *window"]  # whether it has seen `stride` values, or `input_size` if that is less


class Features(NamedTuple):
    """Inputs x of the rows after origin 0, the encoded origins, and h of the leads after each.

    A forecast has a single origin and no dimension for windows.
    """

    x: Float[Tensor, "batch ahead x"]
    origins: Origins
    h: Float[Tensor, "batch *window lead dim"]


class Targets(NamedTuple):
    """Scaled targets after each origin, and which of them were observed."""

    z: Float[Tensor, "batch window lead"]
    observed: Bool[Tensor, "batch window lead"]


class Numbers(NamedTuple):
    """Numbers of inputs of numeric covariates: two for each, the value and whether it is missing."""

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
        prior = {"mean": None, "level": 1.0}.get(settings.network.scaler, schema.scale_prior)
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

    def inputs(self, rows: Rows, static: Static) -> Float[Tensor, "batch time x"]:
        """x_t of each row: known covariates, embedded categories and calendar, static covariates."""
        fixed = beside(static.numbers, self.static_embeddings(static.categories))
        if fixed.shape[-1]:
            fixed = fixed.unsqueeze(1).expand(-1, rows.futr.shape[1], -1)
            return beside(rows.futr, self.futr_embeddings(rows.futr_cat), fixed)
        return beside(rows.futr, self.futr_embeddings(rows.futr_cat))

    def contexts(
        self, block: Block, x: Tensor, grid: Grid, scale: Float[Tensor, "batch window"]
    ) -> Float[Tensor, "batch window row features"]:
        """The rows up to each origin: value and mask, x, historic covariates, lags."""
        E, rows = self.input_size, block.rows
        known = contexts(beside(x, rows.hist, self.hist_embeddings(rows.hist_cat)), grid, E)
        values, lag = (
            Values(*(contexts(v, grid, E) for v in pair)) for pair in (Values(rows.y, rows.observed), block.lag)
        )
        return self._context(values, known, lag, scale)

    def context_now(self, block: Block, scale: Float[Tensor, " batch"]) -> Float[Tensor, "batch row features"]:
        """The same for a block that is a single context."""
        rows = block.rows
        known = beside(self.inputs(rows, block.static), rows.hist, self.hist_embeddings(rows.hist_cat))
        return self._context(Values(rows.y, rows.observed), known, block.lag, scale)

    def _context(self, values: Values, known: Tensor, lag: Values, scale: Tensor) -> Tensor:
        """(..., row, features) from (..., row) values, covariates `known` of these rows, lags and the (...) scale."""
        parts = [self._scaled(*values, scale.unsqueeze(-1)), known]
        return beside(*parts, self._lag(*lag, scale)) if self.lags else beside(*parts)

    def future_lags(self, block: Block, grid: Grid, scale: Tensor, n: int) -> Float[Tensor, "batch window lead lags"]:
        """Scaled lags, and whether they were observed, of the `n` rows after each origin."""
        E = self.input_size
        return self._lag(leads(block.lag.y, grid, E, n), leads(block.lag.observed, grid, E, n), scale)

    def targets(self, block: Block, grid: Grid, scale: Tensor, n: int) -> Targets:
        """z of the `n` rows after each origin."""
        y, observed = (leads(v, grid, self.input_size, n) for v in (block.rows.y, block.rows.observed))
        if grid.skipped is not None:
            observed = observed & (torch.arange(grid.count, device=y.device) >= grid.skipped).unsqueeze(-1)
        return self.scaled_targets(y, observed, scale.unsqueeze(-1))

    def scaled_targets(self, y: Tensor, observed: Tensor, scale: Tensor) -> Targets:
        """z, and which of them were observed."""
        ratio, seen = self._ratio(y, observed, scale)
        return Targets(transform(self.transform, ratio).float(), seen)

    def _scaled(self, y: Tensor, observed: Tensor, scale: Tensor) -> Tensor:
        """(*) -> (*, 2): f(y / s), and whether it was observed."""
        ratio, seen = self._ratio(y, observed, scale)
        return torch.stack([transform(self.transform, ratio).float(), seen.float()], -1)

    def _ratio(self, y: Tensor, observed: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """y / s, 0 where missing. A ratio too large for float32 arithmetic counts as missing."""
        ratio = y / scale
        seen = observed & (ratio.abs() < 1e9)
        return torch.where(seen, ratio, 0.0), seen

    def _lag(self, lag: Tensor, observed: Tensor, scale: Tensor) -> Tensor:
        return self._scaled(lag, observed, scale[..., None, None]).flatten(-2)


class Network(Inputs):
    """Inputs, encoder and decoder. Heads are the models' own."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        size, options = settings.network_size, settings.network
        self.encoder = Encoder(options.encoder, self.context_width, size.rnn, options.encoder_layers, options.dropout)
        self.season_length = settings.season_length
        self.reads_back = bool(self.lags or settings.season_length)
        lag_width = self.lag_width + (2 if self.season_length else 0)
        self.decoder = Decoder(self.x_width, lag_width, size.rnn, size.hidden, options.dropout)

    def run(self, block: Block, grid: Grid) -> Features:
        """Encode every origin and decode all of its leads."""
        x = self.inputs(block.rows, block.static)
        origins = self.origins(block, x, grid)
        ahead = x[:, self.input_size :]
        parts = [self.future_lags(block, grid, origins.scale, self.h)] if self.lags else []
        if self.season_length:
            parts.append(self._last_season(block, grid, origins.scale))
        h = self.decoder(origins.g.unsqueeze(2), leads(self.decoder.project(ahead), grid, 0, self.h), parts)
        return Features(ahead, origins, h)

    def run_now(self, context: Context, future: Rows) -> Features:
        """The same for a single origin, the end of the context, and the (series, h) rows that follow."""
        origins = self.origin_now(context)
        x = self.inputs(future, context.static)
        lead = torch.arange(1, self.h + 1, device=x.device)
        parts = []
        if self.reads_back:
            back, (y, observed) = self.back(lead), all_values(context)
            at = (int(y.shape[1]) - 1 + back).flatten()
            values = Values(*(v[:, at].reshape(-1, *back.shape) for v in (y, observed)))
            parts.append(self.lag_features(values, origins.scale.unsqueeze(1)))
        return Features(x, origins, self.decoder(origins.g.unsqueeze(1), self.decoder.project(x), parts))

    def origin_now(self, context: Context) -> Origins:
        """Encode the end of the context."""
        block = join_block(context, None, self.input_size, self.lags)
        scale, informed = scale_now(block, self.scaling)
        return Origins(self.encoder(self.context_now(block, scale)), scale, informed)

    def row_features(
        self,
        rows: Rows,
        lag: Values | tuple[()],
        static: Static,
        g: Float[Tensor, "row units"],
        scale: Float[Tensor, "row 1"],
    ) -> tuple[Float[Tensor, "row 1 dim"], Float[Tensor, "row 1 x"]]:
        """h and x of single (row, 1) rows, each with g and scale of its origin and the past values of `back`."""
        x = self.inputs(rows, static)
        parts = [self.lag_features(lag, scale)] if isinstance(lag, Values) else []
        return self.decoder(g.unsqueeze(1), self.decoder.project(x), parts), x

    def origins(self, block: Block, x: Tensor, grid: Grid) -> Origins:
        """Encode the context of every origin of the grid, in parallel."""
        scale, informed = scales(block, grid, self.scaling)
        context = self.contexts(block, x, grid, scale)
        g = self.encoder(context.reshape(-1, *(int(n) for n in context.shape[2:])))
        return Origins(g.reshape(-1, grid.count, self.encoder.units), scale, informed)

    def back(self, lead: Int[Tensor, "*rows"]) -> Int[Tensor, "*rows values"]:
        """Positions, relative to the origin (0 or less), of the past values that a row at this lead reads.

        These are its lags, and with `season_length` the latest known value at its position in the season.
        """
        back = [lead - lag for lag in self.lags]
        if self.season_length:
            back.append(lead - self.season_length * ((lead + self.season_length - 1) // self.season_length))
        return torch.stack(back, -1) if back else lead.unsqueeze(-1)[..., :0]

    def lag_features(self, lag: Values, scale: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch row features"]:
        """Past values of (batch, row, value), scaled, each with whether it was observed."""
        pairs = self._scaled(lag.y, lag.observed, scale.unsqueeze(-1))
        return pairs.reshape(-1, int(pairs.shape[1]), 2 * int(pairs.shape[2]))

    def _last_season(self, block: Block, grid: Grid, scale: Tensor) -> Float[Tensor, "batch window lead 2"]:
        """For every lead the latest value up to the origin that lies a whole number of seasons before."""
        E, lead = self.input_size, torch.arange(1, self.h + 1, device=scale.device)
        row = (E - 1 + self.back(lead)[:, -1]).expand(len(scale), grid.count, -1)  # of the context
        y, observed = (contexts(v, grid, E).gather(2, row) for v in (block.rows.y, block.rows.observed))
        return self._scaled(y, observed, scale.unsqueeze(-1))


class Decoder(nn.Module):
    """FF([g, x]). Products with x are computed once per row and products with g once per origin."""

    def __init__(self, x_width: int, lag_width: int, units: int, hidden: tuple[int, int, int], dropout: float) -> None:
        super().__init__()
        first, second, third = hidden
        self.widths = (first, second)
        self.from_x = nn.Parameter(torch.empty(x_width, first + second))
        self.from_lag = nn.Parameter(torch.empty(lag_width, first + second))
        self.from_g = Linear(units, first)
        self.layer2 = Linear(first, second)
        self.layer3 = Linear(second, third)
        self.dropout = nn.Dropout(dropout)
        self._initialise(x_width + lag_width + units, x_width + lag_width + first)

    def _initialise(self, fan_in1: int, fan_in2: int) -> None:
        """Initialise like a linear layer over the concatenated inputs."""
        bound1, bound2 = 1 / math.sqrt(fan_in1), 1 / math.sqrt(fan_in2)
        with torch.no_grad():
            for weight in (self.from_x, self.from_lag):
                in1, in2 = weight.split(self.widths, -1)
                in1.uniform_(-bound1, bound1)
                in2.uniform_(-bound2, bound2)
            self.from_g.weight.uniform_(-bound1, bound1)
            self.layer2.weight.uniform_(-bound2, bound2)

    def project(self, x: Tensor) -> Tensor:
        """The part of the first two layers that depends only on x; computed once per row, not per window."""
        return affine(x, self.from_x.T) if x.shape[-1] else x.new_zeros(*x.shape[:-1], sum(self.widths))

    def forward(self, g: Tensor, projected: Tensor, lags: Sequence[Tensor]) -> Tensor:
        """h (..., row, dim) from g (..., 1 or row, units), projected rows, and the features of their past values."""
        if lags:
            projected = projected + affine(torch.cat([*lags], -1) if len(lags) > 1 else lags[0], self.from_lag.T)
        in1, in2 = projected.split(self.widths, -1)
        a1 = torch.relu(in1 + self.from_g(g))
        inner = [int(n) for n in a1.shape[1:-1]]  # matrices from here on: they are fastest in exported networks
        a2 = torch.relu(in2.reshape(-1, self.widths[1]) + self.layer2(self.dropout(a1.reshape(-1, self.widths[0]))))
        return torch.relu(self.layer3(self.dropout(a2))).reshape(-1, *inner, self.layer3.out_features)
