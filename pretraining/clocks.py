"""Clocks: what a frequency implies, drawn jointly: periods, length of history, and how far ahead people forecast."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from aru.pretrained.patches import HORIZON as HORIZON
from pretraining.dice import Dice, constant


class Kind(NamedTuple):
    """A frequency: what its series have in common.

    Attributes:
        short: Weight in the short batches.
        long: Weight in the long batches.
        periods: Main and longer period, 0 for none.
        lengths: Shortest and longest history.
        horizon: Steps ahead that people ask for.
        up: Share of the trends that point upward: what is counted by the year mostly grows.
        turns: Share of the series that leave their course near the origin: in years more happens than in hours.
    """

    short: float
    long: float
    periods: tuple[float, float]
    lengths: tuple[int, int]
    horizon: int
    up: float = 0.6
    turns: float = 0.02


KINDS = {
    "yearly": Kind(4, 0, (1, 0), (7, 80), 8, 0.93, 0.55),
    "quarterly": Kind(4, 0, (4, 0), (8, 200), 12, 0.9, 0.5),
    "monthly": Kind(6, 1.2, (12, 0), (12, 800), 24, 0.8, 0.45),
    "weekly": Kind(2, 2, (52, 0), (16, 800), 26, 0.7, 0.04),
    "daily": Kind(2, 4.5, (7, 365), (16, 1024), 48, 0.65, 0.04),
    "business": Kind(0.5, 1, (5, 261), (16, 1024), 40, 0.65, 0.04),
    "hourly": Kind(2, 6, (24, 168), (24, 1024), 64),
    "half-hourly": Kind(0.5, 2, (48, 336), (48, 1024), 64),
    "quarter-hourly": Kind(0.5, 1, (96, 672), (96, 1024), 64),
    "ten-minutely": Kind(0, 0.5, (144, 0), (144, 1024), 64),
    "five-minutely": Kind(0, 0.5, (288, 0), (144, 1024), 64),
    "minutely": Kind(0.3, 0.5, (60, 0), (30, 1024), 64),
    "other": Kind(1.5, 2, (0, 0), (10, 1024), 48, 0.65, 0.1),
}
SUBDAILY = ("hourly", "half-hourly", "quarter-hourly", "ten-minutely", "five-minutely")


class Clock(NamedTuple):
    """Time of a batch of series; all but `time` have a row per series.

    Attributes:
        time: Steps relative to the origin, (T,): the context is negative, the first step ahead is 0.
        period: Main period in steps (1: none), (n, 1).
        second: Longer period (0: none), (n, 1).
        length: Rows of history, (n, 1).
        horizon: Steps ahead that matter, (n, 1).
        up: Chance that a trend points upward, (n, 1).
        turns: Chance that the series leaves its course near the origin, (n, 1).
    """

    time: Tensor
    period: Tensor
    second: Tensor
    length: Tensor
    horizon: Tensor
    up: Tensor
    turns: Tensor

    def rows(self, which: Tensor) -> Clock:
        """The clocks of some series."""
        return Clock(self.time, *(field[which] for field in self[1:]))

    @property
    def size(self) -> tuple[int, int]:
        """Number of series and of time steps."""
        return len(self.period), len(self.time)

    @property
    def past(self) -> Tensor:
        """Which steps are history, (n, T)."""
        return (self.time >= -self.length) & (self.time < 0)

    @property
    def progress(self) -> Tensor:
        """Time as a share of the history: 0 at its first row, 1 at the origin, (n, T)."""
        return 1 + self.time / self.length


def draw(dice: Dice, n: int, context: int, kinds: tuple[str, ...] = tuple(KINDS)) -> Clock:
    """Clocks of n series whose history has at most `context` rows; long batches hold the longer histories."""
    long = context > 256
    table = [KINDS[k] for k in kinds]
    which = dice.pick(tuple(range(len(table))), tuple(kind.long if long else kind.short for kind in table), n)
    facts = tuple(tuple(map(float, (*k.periods, *k.lengths, *k[4:]))) for k in table)
    rows = constant(facts, dice.device)[which].unsqueeze(-1)
    period, second, low, high, horizon, up, turns = rows.unbind(1)
    any_period = dice.log_uniform(2, 200, n, 1).round()
    multiple = torch.where(dice.chance(0.4, n, 1), any_period * dice.log_uniform(2, 12, n, 1).round(), 0.0)
    free = period == 0
    period, second = torch.where(free, any_period, period), torch.where(free, multiple, second)
    low = torch.maximum(low, torch.full_like(low, 200.0 if long else 1.0))
    high = torch.maximum(high.clamp(max=float(context)), low)
    length = torch.exp(torch.log(low) + dice.uniform(n, 1) * torch.log(high / low))
    length = torch.where(dice.chance(0.3, n, 1) & (high == context), high, length).round()
    time = torch.arange(-context, HORIZON, device=dice.device).float()
    return Clock(time, period, second, length, horizon, up, turns)


Part = Callable[[Dice, Clock], Tensor]
"""From random numbers and clocks to one value per series and step, (n, T)."""


def mixture(dice: Dice, clock: Clock, parts: list[tuple[float, Part]]) -> Tensor:
    """Each series from one of the parts, at random by weight; a part is computed for its own series alone.

    How many series a part gets is fixed, which ones is not, so that shapes never change.
    """
    n, steps = clock.size
    order, out = dice.permutation(n), torch.empty(n, steps, device=dice.device)
    total, start, reached = sum(weight for weight, _ in parts), 0, 0.0
    for weight, part in parts:
        reached += weight
        stop = round(reached / total * n)
        if stop > start:
            which = order[start:stop]
            out[which] = part(dice, clock.rows(which))
        start = stop
    return out
