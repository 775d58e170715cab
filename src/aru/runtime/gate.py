"""Gate: online mixing of experts (forecasts) that is never much worse than the best of them, on batched state.

Bernstein online aggregation (Wintenberger, 2017) with the gradient of the squared error. With the mixture p, the actual
value y and an expert f_i, the regret r_i = 2 (p - y)(p - f_i) is what moving towards the expert would have gained, and

    eta_i = min(1 / (2 max |r_i|), sqrt(ln E / sum r_i^2))      w_i ~ eta_i exp(eta_i sum (r_i - eta_i r_i^2))

For any data, the total squared error of the mixture exceeds that of the best expert, or the best fixed mixture, by at
most a constant times sqrt(ln E sum r_i^2), a share that falls with time. Actual values that come k steps late multiply
the sum by up to k + 1. The range of the data need not be known.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class GateState(NamedTuple):
    """Sums over the regrets of every expert so far: (*, expert) float64; zero for an empty state."""

    gain: Tensor  # sum of r - eta r^2
    square: Tensor  # sum of r^2
    largest: Tensor  # max |r|


def blocks(h: int) -> Tensor:
    """(lead,) the block of each lead. Blocks are the leads 1, 2-3, 4-7, 8-15, ...; each has one gate."""
    return torch.arange(1, h + 1).double().log2().floor().long()


def new_gate(*shape: int) -> GateState:
    """New gates, in which all experts have equal weight."""
    return GateState(*(torch.zeros(shape, dtype=torch.float64) for _ in GateState._fields))


def weights(state: GateState) -> Tensor:
    """(*, expert) weights that sum to 1."""
    rate = _rates(state)
    score = rate * state.gain + torch.where(rate > 0, rate, 1.0).log()
    return torch.where((rate > 0).all(-1, keepdim=True), score, 0.0).softmax(-1)


def regret(mixed: Tensor, experts: Tensor, y: Tensor) -> Tensor:
    """r_i of every expert, from (*) mixtures and actual values, and (*, expert) forecasts."""
    return 2 * (mixed - y).unsqueeze(-1) * (mixed.unsqueeze(-1) - experts)


def update(state: GateState, r: Tensor) -> GateState:
    """Add regrets (*, expert); they are 0 where there is no actual value."""
    largest = torch.maximum(state.largest, r.abs())
    rate = _rates(state._replace(largest=largest))  # the new regret changes the rate only by its size
    return GateState(state.gain + r - rate * r.square(), state.square + r.square(), largest)


def _rates(state: GateState) -> Tensor:
    limit = 0.5 / state.largest
    second = (math.log(state.gain.shape[-1]) / state.square).sqrt()
    return torch.where(state.largest > 0, torch.minimum(limit, second), 0.0)
