"""Online calibration: intervals that keep their coverage while data drift, on batched state.

A forecast distribution is known by a few quantiles, the knots. Its normal deviate z(y) is linear between knots; beyond
them it grows in proportion to the distance from the median. Were the forecasts right, the deviates of actual values
would be standard normal. In fact they have some other distribution G, of which a histogram is kept: a round of feedback
adds one, spread over the leads of a block, and earlier rounds are aged. The quantile at the nominal deviate v becomes

    y(G^-1(N(v + c)))      counts <- AGING counts + mass      G ~ counts + common      c <- c + .1 (missed - share)

Deviates have no unit, so the histograms of series can be added: `common` is what a panel's series have in common, at
most PANEL_ROUNDS rounds of it. With no feedback at all, G is normal and intervals are unchanged. c is of each end of an
interval and adds up what a series' own histogram misses more often than it should, while data drift; it counts by the
share of its own rounds in G. However far an actual value lies outside, it counts as one value, twice as far out as the
outer end of the intervals.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

AGING = 0.96  # weight of earlier rounds after each round
NOMINAL_ROUNDS, PANEL_ROUNDS = 10.0, 25.0
LEAST_NOMINAL = 1e-3  # share of the nominal rounds that is never forgotten
MOST_DEVIATE = 115.0  # largest deviate
INNER = (0.1, 0.2, 0.32, 0.47, 0.6745, 0.95, 1.2816, 1.6449, 1.96, 2.5758, 3.3)
OUTER = (4.2, 5.5, 7.2, 9.4, 12.3, 16.0, 21.0, 28.0, 37.0, 49.0, 65.0, 86.0)
MISS_RATE, MOST_DRIFT = 0.1, 2.0  # of c
CUT, OUTERMOST = 2.0, 1.96  # deviates are cut off at CUT times the outer ends; these lie at OUTERMOST at least
BLUR = 0.1  # half the width over which a deviate is spread, so that rounding errors move little mass
TAILS = 1e-3  # weight of distance against probability when mass is spread


class CalibrationState(NamedTuple):
    """What was learned of the deviates; zero for an empty state."""

    counts: Tensor  # (*, block, bin) float32: their histograms
    drift: Tensor  # (*, level, end, block) float32: c


def edges(like: Tensor) -> Tensor:
    """(bin - 1,) edges between the bins."""
    side = like.new_tensor([*INNER, *OUTER])
    return torch.cat([-side.flip(0), like.new_zeros(1), side])


BINS = 2 * len(INNER + OUTER) + 2


def new_calibration(levels: int, *shape: int) -> CalibrationState:
    """The initial state, which leaves intervals unchanged. `shape` ends with the number of blocks."""
    return CalibrationState(torch.zeros(*shape, BINS), torch.zeros(*shape[:-1], levels, 2, shape[-1]))


def pooled(counts: Tensor) -> Tensor:
    """What (series, block, bin) histograms have in common: (block, bin) float64, at most PANEL_ROUNDS rounds of it."""
    known = counts.double().sum(0)
    return known * (PANEL_ROUNDS / known.sum(-1, keepdim=True).clamp(min=PANEL_ROUNDS))


def with_nominal(counts: Tensor) -> Tensor:
    """The same histograms, had they begun with NOMINAL_ROUNDS rounds of the normal distribution, now aged."""
    normal = torch.special.ndtr(edges(counts))
    nominal = torch.cat([normal, normal.new_ones(1)]).diff(prepend=normal.new_zeros(1))
    aged = (1 - (1 - AGING) * counts.sum(-1, keepdim=True)).clamp(min=LEAST_NOMINAL)  # AGING^rounds
    return counts + NOMINAL_ROUNDS * aged * nominal


def tidy(knots: Tensor, z: Tensor) -> Tensor:
    """(*, knot) values at the deviates z that do not fall. A missing end is as far out as its neighbour says.

    The number of knots is odd; the one in the middle is the median.
    """
    middle = len(z) // 2
    centre = knots[..., middle : middle + 1]
    sides = []
    for side in (knots[..., :middle].flip(-1) - centre, knots[..., middle + 1 :] - centre):
        size = z[middle + 1 :]
        unit = (side / size).unbind(-1)
        filled = list(unit)
        for order in (range(len(unit)), reversed(range(len(unit)))):
            last = torch.full_like(centre[..., 0], torch.nan)
            for i in order:
                last = torch.where(filled[i].isnan(), last, filled[i])
                filled[i] = last
        sides.append(torch.stack(filled, -1) * size)
    low, high = sides[0].clamp(max=0).cummin(-1).values, sides[1].clamp(min=0).cummax(-1).values
    return torch.cat([centre + low.flip(-1), centre, centre + high], -1)


def deviate(knots: Tensor, z: Tensor, y: Tensor, right: bool) -> Tensor:
    """(*) normal deviates of y among (*, knot) values; where knots are equal, the first or last (`right`) one."""
    middle = len(z) // 2
    at = torch.searchsorted(knots, y.unsqueeze(-1).contiguous(), right=right)
    here = at.clamp(1, len(z) - 1)
    a, b = knots.gather(-1, here - 1).squeeze(-1), knots.gather(-1, here).squeeze(-1)
    part = torch.where(b > a, (y - a) / (b - a), 0.5)
    between = z[here - 1].squeeze(-1) + part * (z[here] - z[here - 1]).squeeze(-1)
    first, centre, last = knots[..., 0], knots[..., middle], knots[..., -1]
    below = torch.where(first < centre, z[0] * (centre - y) / (centre - first), -MOST_DEVIATE)
    above = torch.where(last > centre, z[-1] * (y - centre) / (last - centre), MOST_DEVIATE)
    # A whole share of the distribution may lie on an outer knot: as much of it as is there counts.
    below = torch.where((y == first) & (knots[..., 1] == first), -MOST_DEVIATE, below)
    above = torch.where((y == last) & (knots[..., -2] == last), MOST_DEVIATE, above)
    at = at.squeeze(-1)
    found = torch.where(at == 0, below, torch.where(at == len(z), above, between))
    return found.clamp(-MOST_DEVIATE, MOST_DEVIATE)


def value_at(knots: Tensor, z: Tensor, at: Tensor) -> Tensor:
    """(*, q) values at the deviates `at`: the inverse of `deviate`."""
    middle = len(z) // 2
    here = torch.bucketize(at.contiguous(), z).clamp(1, len(z) - 1)
    a, b = knots.gather(-1, here - 1), knots.gather(-1, here)
    between = a + (b - a) * (at - z[here - 1]) / (z[here] - z[here - 1])
    centre = knots[..., middle : middle + 1]
    below = centre + (knots[..., :1] - centre) * at / z[0]
    above = centre + (knots[..., -1:] - centre) * at / z[-1]
    return torch.where(at < z[0], below, torch.where(at > z[-1], above, between))


class Spans(NamedTuple):
    """Where (*, lead) actual values lie in their forecasts, as spans of deviates in the measure of `_spread`.

    A value has some width: a span has one because knots are equal, because values are whole, and to blur rounding.
    """

    low: Tensor
    high: Tensor
    known: Tensor  # bool

    def below(self, at: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
        """(*, block, v): share of the values of a block below deviates (*, lead, v), and how many values there are."""
        low, high = self.low.unsqueeze(-1), self.high.unsqueeze(-1)
        share = ((_spread(at) - low) / (high - low)).clamp(0, 1)
        member = torch.nn.functional.one_hot(block).T.to(share)  # (block, lead)
        number = member @ self.known.to(share).unsqueeze(-1)
        return member @ torch.where(self.known.unsqueeze(-1), share, 0.0) / number.clamp(min=1), number


def spans(knots: Tensor, z: Tensor, y: Tensor, outer: Tensor) -> Spans:
    """Of (*, lead) actual values of tidy (*, lead, knot) forecasts. NaN in either is not known.

    Deviates are cut off at CUT times the calibrated outer ones (*, lead, 2), which follow if such values last. Whole
    numbers stand for all that is rounded to them, if the knots are whole, too.
    """
    known = y.isfinite() & knots.isfinite().all(-1)
    y, knots = torch.where(known, y, 0.0), torch.where(known.unsqueeze(-1), knots, 0.0).contiguous()
    whole = (y == y.round()) & (knots == knots.round()).all(-1)
    half = torch.where(whole, 0.5, 0.0)
    least, most = CUT * outer[..., 0].clamp(max=-OUTERMOST), CUT * outer[..., 1].clamp(min=OUTERMOST)
    low = deviate(knots, z, y - half, right=False).clamp(least, most)
    high = deviate(knots, z, y + half, right=True).clamp(least, most)
    return Spans(_spread(low - BLUR * (1 + low.abs())), _spread(high + BLUR * (1 + high.abs())), known)


def add(counts: Tensor, found: Spans, block: Tensor, rounds: Tensor) -> Tensor:
    """Histograms after actual values. Those of a block count together for `rounds` (block,) rounds, at most one."""
    below, number = found.below(edges(found.low), block)
    below = torch.nn.functional.pad(torch.nn.functional.pad(below, (1, 0)), (0, 1), value=1.0)
    rounds = rounds.unsqueeze(-1)
    new = (counts * AGING**rounds + rounds * below.diff(dim=-1)).to(counts)
    return torch.where(number > 0, new, counts)


def calibrated(counts: Tensor, at: Tensor) -> Tensor:
    """(*, block, v) deviates G^-1(N(v)) of nominal ones, from histograms G that begin as normal ones."""
    below = torch.nn.functional.pad(with_nominal(counts).cumsum(-1), (1, 0))
    below = below / below[..., -1:]
    wanted = torch.special.ndtr(at).contiguous()
    here = torch.searchsorted(below, wanted, right=True).clamp(1, BINS)
    a, b = below.gather(-1, here - 1), below.gather(-1, here)
    part = ((wanted - a) / (b - a)).nan_to_num(nan=0.5).clamp(0, 1)
    far = at.new_tensor([MOST_DEVIATE])
    ends = torch.cat([-far, edges(at), far])
    left, right = ends[here - 1], ends[here]
    # Inside bins the distribution is normal near the middle, even farther out.
    low, high = torch.special.ndtr(left), torch.special.ndtr(right)
    near = torch.special.ndtri(low + part * (high - low))
    found = torch.where((left >= -INNER[-1]) & (right <= INNER[-1]), near, left + part * (right - left))
    return torch.where(counts.sum(-1, keepdim=True) > 0, found, at)  # not moved by rounding


def _spread(z: Tensor) -> Tensor:
    """The measure by which mass is spread between two deviates."""
    measure: Tensor = torch.special.ndtr(z) + TAILS * z.asinh()
    return measure
