"""Gate: online mixing of experts (forecasts) by their recent errors, on batched state.

Expert i has the mean absolute error l_i in a round of feedback; m is the mean of l_i over experts and s its usual size.

    w_i ~ p_i exp(RATE gain_i)      gain_i <- MEMORY gain_i + (m - l_i) / (s + m)      s <- s + .1 clip(m - s, -s, 2 s)

What a round adds lies between -1 and 1 and is forgotten again, so that no round can decide for long: an outlier, which
is as far from all experts, adds next to nothing. p favours the last expert: adaptation pays on average. The losses are
those of the experts, not of their mixture, and absolute: squares would let the largest errors decide alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

MEMORY = 0.98  # weight of earlier rounds after each round
RATE = 16.0
FAVOUR = 1.0  # logarithm of the weight of the last expert over that of another one, before any feedback
SPEED, GROWTH = 0.1, 2.0  # at which the usual size of losses follows the latest, and its largest change in sizes


class GateState(NamedTuple):
    """Zero for an empty state."""

    gain: Tensor  # (*, expert) float64
    size: Tensor  # (*) float64: usual size of losses


def blocks(h: int) -> Tensor:
    """(lead,) the block of each lead. Blocks are the leads 1, 2-3, 4-7, 8-15, ...; each has one gate."""
    return torch.arange(1, h + 1).double().log2().floor().long()


def new_gate(*shape: int) -> GateState:
    """New gates. `shape` ends with the number of experts."""
    return GateState(torch.zeros(shape, dtype=torch.float64), torch.zeros(shape[:-1], dtype=torch.float64))


def weights(state: GateState) -> Tensor:
    """(*, expert) weights that sum to 1."""
    favour = torch.zeros_like(state.gain)
    favour[..., -1] = FAVOUR
    return (favour + RATE * state.gain).softmax(-1)


def update(state: GateState, loss: Tensor, rounds: Tensor) -> GateState:
    """Add (*, expert) losses, NaN where there is none. They count for `rounds` (*) rounds, at most one."""
    mean = loss.mean(-1)
    usual = torch.where(state.size > 0, state.size, mean)
    gain = (mean.unsqueeze(-1) - loss) / (usual + mean).clamp(min=torch.finfo(torch.float64).tiny).unsqueeze(-1)
    change = torch.minimum((mean - usual).clamp(min=-usual), GROWTH * usual)
    new = GateState(
        state.gain * (MEMORY**rounds).unsqueeze(-1) + gain * rounds.unsqueeze(-1), usual + SPEED * rounds * change
    )
    known = mean.isfinite()
    return GateState(torch.where(known.unsqueeze(-1), new.gain, state.gain), torch.where(known, new.size, state.size))
