"""Online calibration: intervals that keep their coverage while data drift, on batched state.

The score of an end of an interval is how far the actual value lies outside of it (negative: inside). The score's
running mean m and spread d (from the mean absolute deviation, outliers cut off) give the offset by which the end moves
outwards. With the nominal share of misses a,

    offset = n / (n + 3) (m + (z + c) d)      c <- c + rate (missed - a)      z: normal quantile of 1 - a

n is the number of actual values so far; with none, the interval is unchanged. c accumulates the misses: whatever the
data, their share over T actual values differs from a by (last c - first c) / (rate T). Feedback that comes k steps late
only delays this sum. Every series, lead and end has its own offset.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

CORRECTION_RATE = 0.1  # at which c follows the misses
SCORE_LIMIT, WARM = 3.0, 5.0  # scores are cut off at LIMIT deviations, after WARM actual values
NORMAL = 1.2533  # standard deviation of a normal distribution in mean absolute deviations
MEMORY = 0.02  # weight of a new score in mean and variance
TRUST = 3.0  # actual values after which half of an offset is applied


class CalibrationState(NamedTuple):
    """Statistics of the scores of each end (low, high): (*, 2, lead) float64; zero for an empty state."""

    mean: Tensor
    deviation: Tensor  # mean absolute
    correction: Tensor  # c
    count: Tensor  # type: ignore[assignment]  # hides tuple.count


def new_calibration(*shape: int) -> CalibrationState:
    """The initial state, which leaves intervals unchanged. `shape` ends with the number of leads."""
    *batch, lead = shape
    return CalibrationState(*(torch.zeros(*batch, 2, lead, dtype=torch.float64) for _ in CalibrationState._fields))


def move(state: CalibrationState, share: Tensor, ends: Tensor) -> Tensor:
    """Calibrated (*, 2, lead) intervals. Ends that would cross are both set to their middle.

    `share` is the nominal share of misses at each end; it broadcasts against the intervals.
    """
    z = torch.special.ndtri(1 - share)
    known = state.mean + (z + state.correction) * NORMAL * state.deviation
    offset = state.count / (state.count + TRUST) * known
    low, high = ends[..., 0, :] - offset[..., 0, :], ends[..., 1, :] + offset[..., 1, :]
    middle = (low + high) / 2
    return torch.stack([torch.minimum(low, middle), torch.maximum(high, middle)], -2)


def update(state: CalibrationState, share: Tensor, given: Tensor, issued: Tensor, y: Tensor) -> CalibrationState:
    """Learn from actual values y. `given` and `issued`: intervals before and after calibration. NaN is skipped."""
    out = torch.tensor([[-1.0], [1.0]], dtype=torch.float64, device=given.device)
    score, missed = out * (y - given), (out * (y - issued) > 0).double()
    known = score.isfinite() & issued.isfinite()
    weight = (1 / (state.count + 1)).clamp(min=MEMORY)
    most = torch.where(state.count > WARM, SCORE_LIMIT * state.deviation, torch.inf)
    change = torch.maximum(torch.minimum(score - state.mean, most), -most)
    new = CalibrationState(
        mean=state.mean + weight * change,
        deviation=state.deviation + weight * (change.abs() - state.deviation),
        correction=state.correction + CORRECTION_RATE * (missed - share),
        count=state.count + 1,
    )
    return CalibrationState(*(torch.where(known, n, o) for n, o in zip(new, state, strict=True)))
