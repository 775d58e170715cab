"""Intervals that keep their coverage while data drift, on batched state.

How far the truth lies outside an end of an interval (negative: inside) is a score. Its running mean m and spread d
(from the mean absolute deviation, outliers cut off) give the offset by which the end moves outwards. The misses correct
it: with their nominal share a,

    offset = n / (n + 3) (m + (z + c) d)      c <- c + rate (missed - a)      z: normal quantile of 1 - a

n counts feedback, so that intervals about which nothing is known stay as they are. Whatever the data do, c adds up the
misses: over T rounds of feedback their share differs from a by (c now - c at first) / (rate T). Late feedback only
delays the sum. Every series, lead and end has its own offset.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

RATE = 0.1  # at which c follows the misses
LIMIT, WARM = 3.0, 5.0  # deviations at which a score is cut off, once there were some
NORMAL = 1.2533  # standard deviation of a normal distribution in mean absolute deviations
MEMORY = 0.02  # weight of a new score in mean and variance
TRUST = 3.0  # rounds of feedback until half of an offset is applied


class CalibrationState(NamedTuple):
    """What is known of the scores of each end (low, high): (*, 2, lead) float64; zero at birth."""

    mean: Tensor
    deviation: Tensor  # mean absolute
    correction: Tensor  # c
    count: Tensor  # type: ignore[assignment]  # hides tuple.count


def new_calibration(*shape: int) -> CalibrationState:
    """Intervals as they are. `shape` ends with the number of leads."""
    *batch, lead = shape
    return CalibrationState(*(torch.zeros(*batch, 2, lead, dtype=torch.float64) for _ in CalibrationState._fields))


def move(state: CalibrationState, share: Tensor, ends: Tensor) -> Tensor:
    """Calibrated (*, 2, lead) intervals; where their ends would cross, both are their middle.

    `share` is the nominal share of misses at each end; it broadcasts against the intervals.
    """
    z = torch.special.ndtri(1 - share)
    known = state.mean + (z + state.correction) * NORMAL * state.deviation
    offset = state.count / (state.count + TRUST) * known
    low, high = ends[..., 0, :] - offset[..., 0, :], ends[..., 1, :] + offset[..., 1, :]
    middle = (low + high) / 2
    return torch.stack([torch.minimum(low, middle), torch.maximum(high, middle)], -2)


def update(state: CalibrationState, share: Tensor, given: Tensor, issued: Tensor, y: Tensor) -> CalibrationState:
    """Take in the truth of (*, 2, lead) intervals, as the model gave them and as they were issued; NaN for none."""
    out = torch.tensor([[-1.0], [1.0]], dtype=torch.float64, device=given.device)
    score, missed = out * (y - given), (out * (y - issued) > 0).double()
    known = score.isfinite() & issued.isfinite()
    weight = (1 / (state.count + 1)).clamp(min=MEMORY)
    most = torch.where(state.count > WARM, LIMIT * state.deviation, torch.inf)
    change = torch.maximum(torch.minimum(score - state.mean, most), -most)
    new = CalibrationState(
        mean=state.mean + weight * change,
        deviation=state.deviation + weight * (change.abs() - state.deviation),
        correction=state.correction + RATE * (missed - share),
        count=state.count + 1,
    )
    return CalibrationState(*(torch.where(known, n, o) for n, o in zip(new, state, strict=True)))
