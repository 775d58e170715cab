"""DeepState: an RNN over covariates gives the parameters of a small state space model for every window.

After Rangapuram et al., "Deep State Space Models for Time Series Forecasting" (NeurIPS 2018). Rows of a window are
counted from the first of its context, t = 1, to its last lead, t = E + h:

    o_t = FF([RNN(w_1 .. w_t), w_t])    w_t: known, static and historic covariates, calendar, lags; never y itself
    z_t = level + season . c_t + b_t + sigma_t e_t            c_t: Fourier terms of the calendar
    level  <- level + phi trend + gamma_t(level) eps_t
    trend  <- phi trend         + gamma_t(trend) eps_t
    season <- season            + gamma_t(season) c_t eps_t   for each season; one shock moves them all
    b_t, sigma_t, gamma_t = f(o_t)      mean and spread of the state before t = 1: f(o_1)

Only the Kalman filter (`aru.models.kalman`) reads the values of the context. Its predictions of the rows after the
context are the forecast, Gaussian in closed form.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

from aru.data.schema import Schema
from aru.models.interface import CELL, Stateless
from aru.models.kalman import Latent, System, kalman_filter
from aru.models.network import Inputs
from aru.nn.distributions import MIN_SIGMA, Params
from aru.nn.encoders import Encoder
from aru.nn.linear import beside
from aru.nn.windows import Block, Grid, contexts, leads, scales
from aru.settings import Settings

HARMONICS = 6  # per season: a cycle of more than 13 values is smoothed, which bounds the size of the state
# Initial values and upper limits, in units of z, for level, trend and each season. The limits keep the filter's
# covariances numerically stable with the smallest noise.
SHOCK, MOST_SHOCK = (0.05, 0.005, 0.02), (1.0, 0.1, 1.0)
SPREAD, MOST_SPREAD = (0.5, 0.02, 0.2), (10.0, 1.0, 10.0)
NOISE = 0.3
DAMPING = 0.95


class Filtering(NamedTuple):
    """The rows of all windows, context and leads. Only rows of the context have values."""

    inputs: Float[Tensor, "window row features"]
    season: Float[Tensor, "window row terms"]
    z: Float[Tensor, "window row"]
    observed: Bool[Tensor, "window row"]


class Seasons(nn.Module):
    """Which calendar codes are seasons of the state, and their Fourier terms.

    Minute, hour, day of week and week, if the data's calendar has them; month if it has none of these. Other codes are
    inputs of the RNN only: a context of days is too short to estimate the months of a series.
    """

    columns: Tensor
    table: Tensor
    first: Tensor

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        names = [c.name for c in schema.calendar]
        chosen = [f for f in names if f in ("minute", "hour", "day_of_week", "week")] or [
            f for f in names if f == "month"
        ]
        tables = [fourier(len(schema.calendar[names.index(f)].values)) for f in chosen]
        self.widths = [table.shape[1] for table in tables]
        columns = torch.tensor([len(schema.futr[1]) + names.index(f) for f in chosen], dtype=torch.long)
        rows = torch.tensor([0, *map(len, tables)]).cumsum(0)
        # Not saved: they follow from the schema.
        self.register_buffer("columns", columns, persistent=False)
        self.register_buffer("table", torch.block_diag(*tables), persistent=False)
        self.register_buffer("first", rows[:-1], persistent=False)

    def forward(self, codes: Tensor) -> Float[Tensor, "batch time terms"]:
        """The terms of each row, from its codes of known covariates and calendar."""
        terms: Tensor = self.table[codes[..., self.columns].long() + self.first].sum(-2)
        return terms


def fourier(values: int) -> Float[Tensor, "code terms"]:
    """Terms of the codes 1 .. `values` of a cycle, each row of length 1; code 0, unknown, is in no season.

    All harmonics together (up to 13 values) span every pattern that sums to zero over the cycle.
    """
    phase = 2 * math.pi * torch.arange(values, dtype=torch.float64).unsqueeze(-1) / max(values, 1)
    j = torch.arange(1, min(values // 2, HARMONICS) + 1)
    sines = j[2 * j < values]  # the fastest sine of an even cycle is 0
    table = torch.cat([(j * phase).cos(), (sines * phase).sin()], -1)
    return pad(table / table.norm(dim=-1, keepdim=True), (0, 0, 1, 0)).float()


class Emitter(Inputs):
    """The RNN over the rows of a window, and the maps from its outputs to a state space model."""

    part: Tensor
    most_shock: Tensor
    most_spread: Tensor

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        units, width, options = settings.network_size.rnn, settings.network_size.hidden[0], settings.network
        inputs = self.context_width - 2 + 1  # without y and its mask; the constant is there if nothing else is
        self.encoder = Encoder(options.encoder, inputs, units, options.encoder_layers, options.dropout)
        self.layers = nn.Sequential(
            nn.Linear(units + inputs, width),
            nn.ReLU(),
            nn.Dropout(options.dropout),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.seasons = Seasons(schema)
        sizes = [1, 1, *self.seasons.widths]
        kind = torch.arange(len(sizes)).clamp(max=2)  # level, trend or season
        part = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))  # part of each component
        self.register_buffer("part", part, persistent=False)
        self.register_buffer("most_shock", torch.tensor(MOST_SHOCK)[kind], persistent=False)
        self.register_buffer("most_spread", torch.tensor(MOST_SPREAD)[kind[part]], persistent=False)
        self.offset = nn.Linear(width, 1)
        self.noise = nn.Linear(width, 1)
        self.shock = nn.Linear(width, len(sizes))
        self.mean = nn.Linear(width, len(part))
        self.spread = nn.Linear(width, len(part))
        self.damping = nn.Parameter(torch.tensor(DAMPING).logit())
        nn.init.constant_(self.noise.bias, math.log(math.expm1(NOISE)))
        with torch.no_grad():
            self.shock.bias.copy_((torch.tensor(SHOCK)[kind] / self.most_shock).logit())
            self.spread.bias.copy_((torch.tensor(SPREAD)[kind[part]] / self.most_spread).logit())

    def rows(self, block: Block, grid: Grid, scale: Float[Tensor, "batch window"]) -> Filtering:
        """The context and the leads of every origin. After the origin historic covariates are unknown."""
        E, h = self.input_size, self.h
        x = self.inputs(block.rows, block.static)
        context = self.contexts(block, x, grid, scale)
        hist = self._unknown_hist(block).expand(*scale.shape, h, -1)
        lead = beside(leads(x, grid, E, h), hist, self.future_lags(block, grid, scale, h))
        inputs = pad(torch.cat([context[..., 2:], lead], 2), (0, 1), value=1.0)
        season = contexts(self.seasons(block.rows.futr_cat), grid, E + h)
        z, seen = pad(context[..., :2], (0, 0, 0, h)).flatten(0, 1).unbind(-1)
        return Filtering(inputs.flatten(0, 1), season.flatten(0, 1), z, seen > 0)

    def state_space(self, rows: Filtering) -> tuple[System, Latent]:
        """The state space model of every window, and its prior.

        The state does not change before the first value of the context: without any, the forecast is that of the prior.
        """
        output = self.layers(torch.cat([self.encoder.outputs(rows.inputs), rows.inputs], -1))
        moves = rows.observed.cumsum(1) > 0
        moves[:, self.input_size :] = True
        shock = moves.unsqueeze(-1) * self.most_shock * self.shock(output).sigmoid()
        damping = self.damping.double().sigmoid()
        system = System(
            a=_last(pad(pad(rows.season, (1, 0)), (1, 0), value=1.0)),
            b=_last(self.offset(output).squeeze(-1)),
            g=_last(shock[..., self.part] * pad(rows.season, (2, 0), value=1.0)),
            sigma=_last(softplus(self.noise(output).squeeze(-1)) + MIN_SIGMA),
            drift=_last(torch.where(moves, damping, 0.0)),
            damping=_last(torch.where(moves, damping, 1.0)),
        )
        spread = self.most_spread * self.spread(output[:, 0]).sigmoid()
        return system, Latent(_last(self.mean(output[:, 0])), _last(torch.diag_embed(spread.square())))

    def _unknown_hist(self, block: Block) -> Float[Tensor, " hist"]:
        """A row of historic covariates, encoded as one where all are missing."""
        hist, hist_cat = block.rows.hist, block.rows.hist_cat
        numbers = torch.arange(2.0, device=hist.device).repeat(hist.shape[-1] // 2)
        codes = hist_cat.new_zeros(1, hist_cat.shape[-1])
        return torch.cat([numbers, self.hist_embeddings(codes).squeeze(0)])


class DeepState(Stateless):
    """DeepState. It does not adapt: every forecast filters its context again. It cannot be exported to ONNX."""

    network_class = Emitter
    ignores = CELL | {"stride"}
    distributions = ("gaussian",)
    exported = MappingProxyType({})  # the filter is a recurrence in double precision
    network: Emitter

    def params(self, block: Block, grid: Grid) -> tuple[Params, Float[Tensor, "batch window"]]:
        """Filter the context of every origin and predict its leads."""
        net = self.network
        scale, _ = scales(block, grid, net.scaling)
        rows = net.rows(block, grid, scale)
        system, prior = net.state_space(rows)
        filtered = kalman_filter(system, prior, _last(rows.z), _last(rows.observed))
        mean, variance = (v[net.input_size :].T.unflatten(0, scale.shape) for v in filtered[:2])
        return Params(mean.float(), variance.sqrt().float()), scale


def _last(x: Tensor) -> Tensor:
    """Move the windows to the last dimension, as the filter needs them."""
    return x.movedim(0, -1)
