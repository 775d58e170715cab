"""Batches of synthetic series: families by clock, wear and tear, lost values, and what the network is told."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pretraining import domains, families
from pretraining.clocks import HORIZON, KINDS, SUBDAILY, Clock, Part, draw
from pretraining.dice import Dice
from pretraining.parts import standard


class Batch(NamedTuple):
    """Series to learn from.

    Attributes:
        values: History, (n, context).
        mask: Which of it is known, (n, context).
        future: The next values, (n, HORIZON).
        weight: How much each step ahead matters, (n, HORIZON).
        periods: What the network is told, 0 for unknown, (n, 2), whole numbers.
    """

    values: Tensor
    mask: Tensor
    future: Tensor
    weight: Tensor
    periods: Tensor

    def rows(self, which: slice | Tensor) -> Batch:
        """Some of the series."""
        return Batch(*(field[which] for field in self))

    def part(self, i: int, parts: int) -> Batch:
        """Part i of so many equal ones."""
        n = len(self.values) // parts
        return self.rows(slice(i * n, (i + 1) * n))


ANY = tuple(KINDS)
YEARS = ("yearly", "quarterly")
SALES = ("weekly", "daily", "business")
RECIPE: dict[str, tuple[float, float, tuple[str, ...], Part]] = {
    "structural": (5, 4, ANY, families.structural),
    "innovations": (6, 3, ANY, families.innovations),
    "growth": (6, 0, YEARS, families.growth),
    "economy": (0, 0.5, ("monthly",), families.growth),
    "kernels": (2, 2, ANY, families.kernels),
    "activity": (1, 5, SUBDAILY, domains.activity),
    "weather": (0.5, 1.8, (*SUBDAILY, "daily"), domains.weather),
    "daylight": (0.2, 0.6, SUBDAILY, domains.daylight),
    "retail": (2.2, 3.5, SALES, domains.retail),
    "counts": (1.5, 1, ANY, domains.counts),
    "intermittent": (1.5, 1, ANY, domains.intermittent),
    "totals": (0.5, 0.5, ANY, domains.totals),
    "breaks": (1.5, 0.6, ANY, families.breaks),
    "regimes": (0.7, 0.4, ANY, families.regimes),
    "prices": (1.2, 1.2, ANY, families.prices),
    "bounded": (0.7, 0.7, ANY, families.bounded),
    "events": (0.5, 0.7, ANY, domains.events),
    "waves": (0.6, 1, ANY, families.waves),
    "held": (0.4, 0.4, ANY, domains.held),
    "blend": (1.5, 1.5, ANY, families.blend),
}
"""Family -> weight in short and in long batches, frequencies, function."""


WHOLE = ("counts", "intermittent", "totals", "daylight", "held")
"""Families that never leave their course, since zeros and whole numbers are their nature."""
SHIFTS = 0.0
"""Share of the other series that jump to another level within the latest rows."""


def wear(dice: Dice, x: Tensor, clock: Clock) -> Tensor:
    """What happens to whole series: upside down, backward, cut off at a floor or ceiling, rounded; digits are few."""
    n, _ = clock.size
    digit = 1e-4 * ((x * x * clock.past).sum(1, keepdim=True) / clock.length).sqrt() + 1e-9
    x = torch.round(x / digit) * digit
    x = torch.where(dice.chance(0.06, n, 1), -x, x)
    back = HORIZON - 1 - clock.length - clock.time  # first row of the history becomes the last step ahead
    index = (back - clock.time[0]).long().clamp(0, len(clock.time) - 1)
    x = torch.where(dice.chance(0.05, n, 1), x.gather(1, index), x)
    unit = standard(x, clock)
    cut = dice.chance(0.06, n, 1)
    x = torch.where(cut & dice.chance(0.6, n, 1), unit.clamp(min=dice.uniform(n, 1, low=-1.5, high=0.3)), x)
    x = torch.where(cut & dice.chance(0.5, n, 1), unit.clamp(max=dice.uniform(n, 1, low=-0.3, high=1.5)), x)
    grain = dice.log_uniform(0.03, 0.7, n, 1)
    return torch.where(dice.chance(0.08, n, 1) & ~cut, torch.round(unit / grain), x)


def seasonal_change(x: Tensor, clock: Clock) -> Tensor:
    """Mean absolute change from one season to the next over the history, (n, 1); of all values, where there is none."""
    rows = torch.arange(len(clock.time), device=x.device)
    before = (rows - clock.period.round()).long().clamp(min=0)
    both = clock.past & (clock.time - clock.period >= -clock.length)
    change = ((x - x.gather(1, before)).abs() * both).sum(1, keepdim=True) / both.sum(1, keepdim=True).clamp(min=1)
    mean = (x * clock.past).sum(1, keepdim=True) / clock.length
    spread = ((x - mean).abs() * clock.past).sum(1, keepdim=True) / clock.length
    return torch.where(both.any(1, keepdim=True), change, spread)


def turns(dice: Dice, x: Tensor, clock: Clock) -> Tensor:
    """The future is less like the past than any model says: some series leave their course near the origin.

    They do so by a bend, a walk, a step or mere noise, from a time on that lies in the last tenth of the history or
    ahead. How far is measured by the change from season to season, so that a regular series stays one to rely on.
    """
    n, _ = clock.size
    when = dice.uniform(n, 1) * clock.horizon - dice.uniform(n, 1, high=0.1) * clock.length
    since = (clock.time - when).clamp(min=0) / clock.horizon
    later, rough = (since > 0).float(), dice.normal(*clock.size)
    walk = torch.cumsum(rough * later, 1) / clock.horizon.sqrt()
    far = (clock.horizon / clock.period).clamp(min=1).sqrt()
    kind = dice.uniform(n, 1)
    leaving = torch.where(kind < 0.3, since, walk) * far
    path = torch.where(kind < 0.6, leaving, torch.where(kind < 0.8, later, rough * later))
    size = dice.log_uniform(0.3, 4, n, 1) * torch.where(dice.chance(0.5, n, 1), 1.0, -1.0) * seasonal_change(x, clock)
    return x + path * size * dice.chance(clock.turns, n, 1)


def shifted(dice: Dice, x: Tensor, clock: Clock, share: float) -> Tensor:
    """Some series jump to another level within the latest rows, and stay there: by a factor, or by a step."""
    n, _ = clock.size
    later = (clock.time >= -torch.minimum(dice.log_uniform(1, 128, n, 1), clock.length / 2)) & dice.chance(share, n, 1)
    far = dice.log_uniform(0.1, 0.8, n, 1) * torch.where(dice.chance(0.5, n, 1), 1.0, -1.0)
    size = (x.abs() * clock.past).sum(1, keepdim=True) / clock.length
    times = (x.amin(1, keepdim=True) >= 0) & dice.chance(0.7, n, 1)
    return torch.where(later, torch.where(times, x * torch.exp(far), x + far * size), x)


def spoil(dice: Dice, x: Tensor, clock: Clock) -> Tensor:
    """Errors of measurement in the history alone: outliers and stuck values, which the future does not share."""
    n, _ = clock.size
    size = standard(x, clock).abs().amax(1, keepdim=True).clamp(min=1)
    unit = (x.amax(1, keepdim=True) - x.amin(1, keepdim=True)) / size / 2
    hit = dice.chance(dice.log_uniform(0.3, 8, n, 1) / clock.length, *clock.size) & dice.chance(0.1, n, 1)
    error = dice.log_uniform(2, 60, *clock.size) * torch.where(dice.chance(0.6, n, 1), 1.0, -1.0) * unit
    history = clock.time < 0
    x = torch.where(hit & history, x + error, x)
    begin = -clock.length * dice.uniform(n, 1)
    stuck = (clock.time > begin) & (clock.time < begin + clock.length * 0.15) & dice.chance(0.02, n, 1)
    held = x.gather(1, (begin - clock.time[0]).long().clamp(0, x.shape[1] - 1))
    return torch.where(stuck & history, held, x)


def known(dice: Dice, clock: Clock) -> Tensor:
    """Which steps are observed: the history, in some series without single values, stretches, or a day of the week."""
    n, _ = clock.size
    lost = dice.chance(dice.log_uniform(0.001, 0.5, n, 1), *clock.size) & dice.chance(0.15, n, 1)
    for share in (0.06, 0.04):
        begin, wide = -clock.length * dice.uniform(n, 1), clock.length * dice.log_uniform(0.01, 0.4, n, 1)
        lost = lost | ((clock.time > begin) & (clock.time < begin + wide) & dice.chance(share, n, 1))
    phase = torch.remainder(clock.time + torch.floor(dice.uniform(n, 1) * clock.period), clock.period)
    wide = torch.ceil(clock.period * dice.uniform(n, 1, high=0.3))
    lost = lost | ((phase < wide) & (clock.period > 3) & dice.chance(0.015, n, 1))
    return clock.past & ~lost


def weights(clock: Clock) -> Tensor:
    """1 up to the horizon that people ask for at this frequency, less beyond."""
    ahead = clock.time[-HORIZON:]
    return torch.exp(-(ahead - clock.horizon).clamp(min=0) / 12).clamp(min=0.03)


def hints(dice: Dice, clock: Clock) -> Tensor:
    """The periods, unknown in a share of the series, of which the second may be missing alone."""
    n, _ = clock.size
    told = dice.chance(0.85, n, 1)
    periods = torch.cat([clock.period * told, clock.second * (told & dice.chance(0.9, n, 1))], 1)
    return periods.round().long()


def generate(dice: Dice, n: int, context: int, recipe: dict[str, float] | None = None) -> Batch:
    """N series in random order, with at most `context` rows of history each.

    Args:
        dice: Random numbers.
        n: How many.
        context: 256 gives short series, more gives long ones.
        recipe: Other weights of some families, and another share of "shifts".
    """
    shares = {name: (recipe or {}).get(name, row[context > 256]) for name, row in RECIPE.items()}
    total, reached, made = sum(shares.values()), 0.0, 0
    shifts = (recipe or {}).get("shifts", SHIFTS)
    values, clocks = [], []
    for name, share in shares.items():
        reached += share
        count = round(reached / total * n) - made
        if count:
            clock = draw(dice, count, context, RECIPE[name][2])
            x = RECIPE[name][3](dice, clock)
            values.append(x if name in WHOLE else shifted(dice, turns(dice, x, clock), clock, shifts))
            clocks.append(clock)
            made += count
    clock = Clock(clocks[0].time, *(torch.cat(field) for field in zip(*(c[1:] for c in clocks), strict=True)))
    x = wear(dice, torch.cat(values), clock)
    mask, told = known(dice, clock)[:, :context], hints(dice, clock)
    history = torch.where(mask, spoil(dice, x, clock)[:, :context], 0.0)
    fine = torch.isfinite(x).all(1, keepdim=True) & (x.abs().amax(1, keepdim=True) < 1e7)
    batch = Batch(
        torch.where(fine, history, 0.0), mask, torch.where(fine, x[:, context:], 0.0), weights(clock) * fine, told
    )
    return batch.rows(dice.permutation(len(x)))
