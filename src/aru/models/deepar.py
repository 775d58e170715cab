"""DeepAR (Salinas et al. 2020): an autoregressive RNN, trained by likelihood, that forecasts by sampling paths.

    r_t = RNN(r_{t-1}, [z_{t-1}, x_t, lags_t, history_{t-1}])       [mu_t, raw_t] = W [r_t, 1]

x_t holds known covariates, calendar and static covariates (with `series_id` also the series); history_{t-1} holds the
historic covariates, which are 0 after the origin. A window is the context up to an origin and the h rows after it;
z = f(y / s) with the causal scale s of the origin. Training reads the true z_{t-1} and scores the rows after the
origin; a forecast reads its own samples. All series share the same random levels, so that a forecast repeats exactly
and does not depend on the other series.

Departures from the paper: the loss covers only the rows after the origin, not the context, so that all methods have the
same targets; windows start at every origin of the grid instead of being sampled by the series' scale; a missing z_{t-1}
is 0 with an indicator; the distribution is Student-t by default. Of `size` only the RNN's width is used.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aru.data.rows import Rows
from aru.data.schema import Schema
from aru.models.interface import CELL, Empty, Losses, Output, TrainedModel, sum_losses
from aru.models.network import Inputs
from aru.nn.distributions import Params, Samples, inverse_transform
from aru.nn.linear import beside
from aru.nn.tree import tree_map
from aru.nn.windows import NOW, Block, Context, Grid, leads, scales
from aru.settings import Settings

PATHS = 200
PATHS_AT_ONCE = 2**17  # paths of all series together in one RNN step, which bounds memory


class Sequence(NamedTuple):
    """Inputs of the RNN, from the second row of each context on. Value and mask of the row before come first."""

    past: Float[Tensor, "batch window past features"]
    future: Float[Tensor, "batch window lead features"]


class DeepAR(TrainedModel):
    """DeepAR. It does not adapt: new observations only move its context.

    It cannot be exported to ONNX: each step of a path reads a sample of the step before, and quantiles of counts have
    no graph.
    """

    adapts = False
    network_class = Inputs
    encoders = ("lstm", "gru")  # sampling needs the RNN step by step
    ignores = CELL | {"stride"}

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        options = settings.network
        units, layers = settings.network_size.rnn, options.encoder_layers
        cell = {"lstm": nn.LSTM, "gru": nn.GRU}[options.encoder]
        self.rnn: nn.RNNBase = cell(
            self.network.context_width,
            units,
            num_layers=layers,
            batch_first=True,
            dropout=options.dropout if layers > 1 else 0.0,
        )
        self.dropout = nn.Dropout(options.dropout)
        self.head = nn.Linear(units, 2)
        self.levels: Tensor
        self.register_buffer("levels", _levels(PATHS, settings.h), persistent=False)

    def init_state(self, n: int) -> Empty:
        """No state beyond the context."""
        return Empty()

    def losses(self, block: Block, grid: Grid, scored: slice = slice(None)) -> Losses:
        """One-step-ahead likelihood of the rows after every origin, given the true rows before them."""
        net = self.network
        scale, _ = scales(block, grid, net.scaling)
        sequence = self._sequence(block, grid, scale)
        targets = net.targets(block, grid, scale, net.h)
        # Row k reads the value of the row before it.
        value = torch.stack([targets.z, targets.observed.to(targets.z.dtype)], -1)[:, :, :-1]
        value = torch.where(targets.observed.unsqueeze(-1)[:, :, :-1], value, 0.0)
        later = torch.cat([value, sequence.future[:, :, 1:, 2:]], -1)
        rows = torch.cat([sequence.past, sequence.future[:, :, :1], later], 2)
        output, _ = self.rnn(rows.flatten(0, 1))
        params = self._params(output[:, -net.h :].unflatten(0, rows.shape[:2]))
        return sum_losses(self.value_losses(params, targets, scale.unsqueeze(-1)), targets.observed, scored)

    def forecast(self, state: Empty, context: Context, future: Rows) -> Output:
        """Sample paths, some series at a time."""
        n, size = len(context.total), max(1, PATHS_AT_ONCE // PATHS)
        block = self.block(context, future)
        parts = [self._paths(tree_map(lambda v, lo=lo: v[lo : lo + size], block)) for lo in range(0, max(n, 1), size)]
        paths = torch.cat(parts, 1)
        return Output(Samples(paths, self.nonnegative), torch.zeros(n, dtype=torch.bool, device=paths.device))

    def _paths(self, block: Block) -> Float[Tensor, "path series lead"]:
        """Ancestral sampling, lead by lead: each row's sample is an input of the next row."""
        grid, n, h = NOW, len(block.total), self.network.h
        scale, _ = scales(block, grid, self.network.scaling)
        sequence = self._sequence(block, grid, scale)
        rows = torch.cat([sequence.past, sequence.future[:, :, :1]], 2).squeeze(1)
        future = sequence.future.squeeze(1)
        output, memory = self.rnn(rows)
        memory = _repeat(memory, PATHS)
        r, scales_ = output[:, -1].repeat(PATHS, 1), scale.repeat(PATHS, 1)
        levels = self.levels.repeat_interleave(n, 0)
        path: list[Tensor] = []
        for k in range(h):
            if k:
                value = torch.stack([path[-1], torch.ones_like(path[-1])], -1)
                step = torch.cat([value, future[:, k, 2:].repeat(PATHS, 1)], -1)
                output, memory = self.rnn(step.unsqueeze(1), memory)
                r = output[:, -1]
            params = self._params(r)
            z = self.family.quantile(params, levels[:, k], scales_.squeeze(1))
            path.append((z.clamp(min=0) if self.nonnegative else z).to(r.dtype))
        z = torch.stack(path, -1).double()
        paths: Tensor = (scales_ * inverse_transform(self.transform, z)).unflatten(0, (PATHS, n))
        return paths

    def _sequence(self, block: Block, grid: Grid, scale: Tensor) -> Sequence:
        """Value, mask and historic covariates of the row before, x and lags of the row itself."""
        net = self.network
        x = net.inputs(block.rows, block.static)
        context = net.contexts(block, x, grid, scale)
        hist_width = context.shape[-1] - 2 - net.x_width - net.lag_width
        value, x_past, hist, lag_past = context.split([2, net.x_width, hist_width, net.lag_width], -1)
        x_next = leads(x, grid, net.input_size, net.h)
        lag_next = net.future_lags(block, grid, scale, net.h)
        known = beside(torch.cat([x_past, x_next], 2), torch.cat([lag_past, lag_next], 2))
        before = torch.cat([value, hist], -1)
        before = torch.nn.functional.pad(before, (0, 0, 0, net.h - 1))  # after the origin nothing is known
        rows = torch.cat([before[..., :2], known[:, :, 1:], before[..., 2:]], -1)
        return Sequence(rows[:, :, : net.input_size - 1], rows[:, :, net.input_size - 1 :])

    def _params(self, r: Tensor) -> Params:
        mu, raw = self.head(self.dropout(r)).unbind(-1)
        return self.family.params(mu, raw)


def _levels(paths: int, h: int) -> Float[Tensor, "path lead"]:
    """Random levels in (0, 1), stratified: at every lead the paths cover the distribution evenly."""
    generator = torch.Generator().manual_seed(0)
    order = torch.stack([torch.randperm(paths, generator=generator) for _ in range(h)], -1)
    return (order + 0.5) / paths


def _repeat(memory: Tensor | tuple[Tensor, Tensor], times: int) -> Tensor | tuple[Tensor, ...]:
    """(layer, series, unit) -> (layer, times * series, unit)."""
    if isinstance(memory, tuple):
        return tuple(m.repeat(1, times, 1) for m in memory)
    return memory.repeat(1, times, 1)
