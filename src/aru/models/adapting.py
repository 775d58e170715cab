"""Models that learn about each series as it goes: which h belongs to which row, and when.

Every row is learned from once, with the h of the latest grid origin before it (docs/method.md, "Windows"). This module
walks the grid; what is learned from a row is the model's own.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aru.models.base import Model
from aru.models.network import Network, Origins, Targets
from aru.state import put, take
from aru.windows import Block, Grid, shift_block


class AdaptingState(NamedTuple):
    """What was learned about a series, and what its latest grid origin knew."""

    local: Any
    g: Float[Tensor, "batch units"]
    scale: Float[Tensor, " batch"]  # 0: it knew too little for what follows it to be learned from
    carry: Float[Tensor, "batch _"]  # memory of the decoder's RNN, if it has one


class Decoded(NamedTuple):
    """Rows of consecutive windows, ready to be learned from."""

    h: Float[Tensor, "batch window row dim"]
    x: Tensor  # inputs of the rows after origin 0
    grid: Grid
    targets: Targets
    scale: Float[Tensor, "batch window 1"]


class AdaptingModel(Model):
    """A global network beside something local that each observation changes."""

    adapts = True
    network: Network

    @abc.abstractmethod
    def init_local(self, n: int) -> Any:
        """What is known about `n` series that have seen nothing: a NamedTuple of tensors."""

    @abc.abstractmethod
    def learn(self, local: Any, rows: Decoded, steps: Int[Tensor, " batch"]) -> Any:
        """Take in the first `steps` rows of the window that `local` stands in."""

    @abc.abstractmethod
    def learn_windows(
        self, local: Any, rows: Decoded, steps: Int[Tensor, "batch window"], last: Int[Tensor, " batch"]
    ) -> Any:
        """Take in the first `steps` rows of each of several windows; `last` is the one whose window stays open."""

    def init_state(self, n: int) -> AdaptingState:
        """Nothing learned, no origin yet."""
        device = next(self.parameters()).device
        carry = self.network.decoder.widths[0] if self.network.decoder.rnn is not None else 0
        return AdaptingState(
            local=self.init_local(n),
            g=torch.zeros(n, self.network.encoder.units, device=device),
            scale=torch.zeros(n, dtype=torch.float64, device=device),
            carry=torch.zeros(n, carry, device=device),
        )

    def update(
        self, state: AdaptingState, block: Block, position: Int[Tensor, " batch"], steps: Int[Tensor, " batch"]
    ) -> AdaptingState:
        """First the rest of the current window, whose origin the state remembers, then all further windows at once."""
        S = self.network.stride
        left = S - position  # rows until the next origin; a new series reaches its first one with its first value
        state = self._finish_window(state, block, position, torch.minimum(left, steps))
        reached = (steps >= left).nonzero().squeeze(-1)
        if len(reached) == 0:
            return state
        rest = steps[reached] - left[reached]
        windows = int(rest.max()) // S + 1
        further = shift_block(
            Block._make(v[reached] for v in block), left[reached], windows * S, self.network.input_size
        )
        return put(state, reached, self._run_windows(take(state, reached), further, rest, windows))

    def _finish_window(self, state: AdaptingState, block: Block, position: Tensor, steps: Tensor) -> AdaptingState:
        """Learn from rows that follow the origin in the state, `position` rows after it."""
        net, n, grid = self.network, int(steps.max()), Grid(0, 1, 1)
        x = net.inputs(block, net.input_size)
        informed = state.scale > 0
        scale = torch.where(informed, state.scale, 1.0)
        origins = Origins(state.g.unsqueeze(1), scale.unsqueeze(1), informed.unsqueeze(1))
        carry = state.carry if net.decoder.rnn is not None else None
        h, memory = net.decode(block, x, grid, origins, n, carry, position)
        targets = _to_learn(net.targets(block, grid, origins.scale, n), origins)
        local = self.learn(state.local, Decoded(h, x, grid, targets, origins.scale.unsqueeze(-1)), steps)
        after = state.carry if carry is None else pick(memory.squeeze(1), steps - 1)
        return state._replace(local=local, carry=after)

    def _run_windows(self, state: AdaptingState, block: Block, rest: Tensor, windows: int) -> AdaptingState:
        """From a grid origin on: learn from `rest` rows in up to `windows` windows, and remember the last origin."""
        net, S = self.network, self.network.stride
        grid = Grid(0, S, windows)
        x = net.inputs(block)
        origins = net.origins(block, x, grid)
        ahead = x[:, net.input_size :]
        h, memory = net.decode(block, ahead, grid, origins, S)
        targets = _to_learn(net.targets(block, grid, origins.scale, S), origins)
        steps = (rest[:, None] - S * torch.arange(windows, device=rest.device)).clamp(0, S)
        last = rest // S
        rows = Decoded(h, ahead, grid, targets, origins.scale.unsqueeze(-1))
        local = self.learn_windows(state.local, rows, steps, last)
        carry = state.carry
        if net.decoder.rnn is not None:
            inside = rest % S
            carry = torch.where((inside > 0).unsqueeze(1), pick(pick(memory, last), (inside - 1).clamp(min=0)), 0.0)
        scale = torch.where(origins.informed, origins.scale, 0.0)
        return AdaptingState(local, pick(origins.g, last), pick(scale, last), carry)


def _to_learn(targets: Targets, origins: Origins) -> Targets:
    """Rows after an origin that knew too little are not learned from: its forecasts are no guide to later ones."""
    return targets._replace(observed=targets.observed & origins.informed.unsqueeze(-1))


def pick(x: Tensor, index: Tensor) -> Tensor:
    """x[b, index[b]] for every b."""
    return x[torch.arange(x.shape[0], device=x.device), index]
