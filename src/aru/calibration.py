"""Intervals that keep their coverage while data drift, on batched state.

Both ends of an interval are moved by offsets that follow the misses: with the nominal share a of misses at an end,

    offset <- offset + rate * size * (missed - a)        size: running mean of |y - forecast|

Whatever the data do, the share of misses over T rounds of feedback differs from a by at most
(|last offset| + |first offset|) / (sum of steps), as the offsets add up: late feedback only delays the sum. Offsets are
kept for every series, lead and end.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

RATE = 0.05  # of following, in units of the typical error
FIRST_RATE = 0.25  # it begins faster, and falls with the root of the number of misses and hits
MEMORY = 0.02  # weight of a new error in its running mean


class CalibrationState(NamedTuple):
    """Offsets of the ends (low, high), and what sets their pace; zero at birth."""

    offset: Tensor  # (*, 2, lead) float64: outwards, in units of y
    size: Tensor  # (*, lead) float64
    count: Tensor  # type: ignore[assignment]  # (*, lead) float64: feedback so far; hides tuple.count


def new_calibration(*shape: int) -> CalibrationState:
    """Offsets zero: intervals as they are. `shape` ends with the number of leads."""
    *batch, lead = shape
    none = torch.zeros(shape, dtype=torch.float64)
    return CalibrationState(torch.zeros(*batch, 2, lead, dtype=torch.float64), none, none.clone())


def move(state: CalibrationState, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Calibrated ends of (*, lead) intervals; where they would cross, both are their middle."""
    low, high = low - state.offset[..., 0, :], high + state.offset[..., 1, :]
    middle = (low + high) / 2
    return torch.minimum(low, middle), torch.maximum(high, middle)


def update(
    state: CalibrationState, share: Tensor, low: Tensor, high: Tensor, y: Tensor, error: Tensor
) -> CalibrationState:
    """Take in the truth of (*, lead) intervals as they were issued; NaN where there was none.

    `share` is the nominal share of misses at each end, `error` the error of the point forecast.
    """
    known = ~(low.isnan() | high.isnan() | y.isnan() | error.isnan())
    speed = torch.maximum(1 / (state.count + 1), torch.tensor(MEMORY, dtype=torch.float64))
    size = torch.where(known, state.size + speed * (error.abs() - state.size), state.size)
    rate = (FIRST_RATE / (state.count + 1).sqrt()).clamp(min=RATE)
    missed = torch.stack([y < low, y > high], -2).double()
    step = (rate * size).unsqueeze(-2) * (missed - share.unsqueeze(-2))
    offset = state.offset + torch.where(known.unsqueeze(-2), step, 0.0)
    return CalibrationState(offset, size, state.count + known)
