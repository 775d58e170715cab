"""Families of synthetic series by their mathematics, each a small function from clocks to values, (series, steps)."""

from __future__ import annotations

import torch
from torch import Tensor

from pretraining.clocks import HORIZON, Clock, mixture
from pretraining.dice import Dice
from pretraining.parts import (
    TAU,
    calm,
    changing,
    coloured,
    direction,
    filtered,
    level,
    noise,
    profile,
    reverting,
    season,
    shocks,
    standard,
    trend,
)

REGIMES = 64
"""Columns of the table of growth rates that hold for some years each."""


def amount(dice: Dice, n: int, low: float, high: float, often: float | Tensor) -> Tensor:
    """PatchShape of a part: log-uniform where it is present, 0 elsewhere."""
    return dice.log_uniform(low, high, n, 1) * dice.chance(often, n, 1)


def positive(dice: Dice, x: Tensor, clock: Clock, low: float = 0.05, high: float = 0.9) -> Tensor:
    """Exponential of a series: growth in percent, and swings in proportion to the level."""
    return torch.exp((standard(x, clock) * dice.log_uniform(low, high, len(x), 1)).clamp(-6, 6))


def either(dice: Dice, x: Tensor, clock: Clock, share: float = 0.45) -> Tensor:
    """A share of the series multiplicative, the others as they are."""
    return torch.where(dice.chance(share, len(x), 1), positive(dice, x, clock), x)


def structural(dice: Dice, clock: Clock) -> Tensor:
    """Trend, wandering level, one or two seasons, feasts and noise; additive or multiplicative."""
    n, _ = clock.size
    quiet = calm(dice, n)
    path = amount(dice, n, 0.1, 4, 0.65) * trend(dice, clock)
    path = path + quiet * amount(dice, n, 0.1, 2, 0.6) * level(dice, clock)
    path = path + amount(dice, n, 0.1, 3, 0.75) * season(dice, clock, clock.period)
    path = path + amount(dice, n, 0.1, 2, 0.5) * profile(dice, clock, clock.second)
    path = path + quiet * dice.log_uniform(0.03, 1.8, n, 1) * changing(dice, clock, noise(dice, clock))
    return either(dice, path + quiet * amount(dice, n, 0.3, 2, 0.12) * shocks(dice, clock), clock)


def innovations(dice: Dice, clock: Clock) -> Tensor:
    """Exponential smoothing and ARIMA: shocks that change level, slope and season for good, or fade, or swing."""
    n, _ = clock.size
    lag = torch.arange(clock.size[1], device=dice.device).float()
    damping = dice.pick((0.8, 0.9, 0.95, 0.98, 1.0), (1, 1, 1, 1, 1), n, 1)
    ramp = torch.where(damping == 1, lag, (1 - damping**lag) / (1 - damping).clamp(min=1e-3))
    alpha = dice.uniform(n, 1) ** 1.5 * dice.chance(0.8, n, 1)
    beta = alpha * dice.uniform(n, 1) ** 2 * 0.4 * dice.chance(0.4, n, 1)
    gamma = dice.uniform(n, 1) * 0.5 * dice.chance(0.5, n, 1) * (clock.period > 1)
    response = alpha * (lag > 0) + beta * ramp + gamma * ((lag > 0) & (torch.remainder(lag, clock.period) < 0.5))
    fading = dice.uniform(n, 1, low=-0.6, high=0.97) ** lag
    swing = dice.uniform(n, 1, low=0.7, high=0.99) ** lag * torch.cos(TAU * lag / dice.log_uniform(2.5, 60, n, 1))
    response = response + amount(dice, n, 0.2, 1, 0.3) * fading + amount(dice, n, 0.2, 1, 0.15) * swing
    response = response.clamp(-1e4, 1e4)
    response[:, 0] = 1
    new = changing(dice, clock, noise(dice, clock)) * (clock.time >= -clock.length - 1)
    slope = amount(dice, n, 0.02, 1, 0.5) * direction(dice, clock)
    steady = slope * torch.where(
        damping == 1, clock.time, (1 - damping ** clock.progress.mul(clock.length).clamp(min=0))
    )
    start = amount(dice, n, 0.3, 8, 0.7) * season(dice, clock, clock.period)
    second = amount(dice, n, 0.3, 5, 0.4) * profile(dice, clock, clock.second)
    path = calm(dice, n) * filtered(new, response) + steady + start + second
    return either(dice, path + amount(dice, n, 1, 10, 0.1) * shocks(dice, clock), clock)


def growth(dice: Dice, clock: Clock) -> Tensor:
    """Economies, people, travel: growth in percent that speeds up, slows down and turns; with a season and noise."""
    n, _ = clock.size
    year = clock.period
    wobble = dice.log_uniform(0.01, 0.25, n, 1)  # of a year, in logarithms
    pace = (wobble * dice.log_uniform(0.3, 6, n, 1)).minimum(4 * year / clock.length) * direction(dice, clock)
    cycle = reverting(dice, clock, dice.log_uniform(0.5, 8, n, 1) * year)
    turn = torch.cumsum(dice.chance(1 / (dice.log_uniform(3, 20, n, 1) * year), *clock.size), 1)
    regime = dice.normal(n, REGIMES).gather(1, torch.remainder(turn, REGIMES))
    swings = (amount(dice, n, 0.2, 1.5, 0.9) * torch.where(dice.chance(0.5, n, 1), cycle, regime)).clamp(-3, 3)
    swings = torch.where(dice.chance(0.5, n, 1), torch.exp(swings), 1 + swings)
    lasting = amount(dice, n, 0.1, 1, 0.8) * changing(dice, clock, noise(dice, clock)) / year.sqrt()
    path = torch.cumsum(pace * swings / year + wobble * lasting, 1)
    path = path + wobble * amount(dice, n, 0.1, 5, 0.8) * season(dice, clock, year)
    path = path + wobble * amount(dice, n, 0.05, 1, 0.8) * changing(dice, clock, noise(dice, clock))
    path = path - path[:, -HORIZON : 1 - HORIZON]
    return torch.where(dice.chance(0.75, n, 1), torch.exp(path.clamp(-7, 7)), path)


def kernels(dice: Dice, clock: Clock) -> Tensor:
    """Gaussian processes of composed kernels, by random Fourier features.

    A feature's frequency is drawn from the spectrum of a kernel. In a sum of kernels it comes from one of them; in a
    product the frequencies of both add.
    """
    n, _ = clock.size
    features = 40
    scale = dice.log_uniform(0.03, 2, n, 1) * clock.length
    rough = dice.normal(n, features) * torch.exp(0.6 * dice.normal(n, features)) / (TAU * scale)
    longer = dice.normal(n, features) / (TAU * dice.log_uniform(0.3, 3, n, 1) * clock.length)
    harmonic = 1 + torch.floor(dice.log_uniform(1, 6, n, features) - 0.5).clamp(min=0)
    other = torch.where(dice.chance(0.5, n, 1), clock.second, dice.log_uniform(3, 200, n, 1))
    first, second = harmonic / clock.period.clamp(min=2), harmonic / other.clamp(min=2)
    seasonal = torch.where(dice.chance(0.7, n, 1), first, second)
    product = dice.chance(0.4, n, 1)
    share = dice.uniform(n, 1) * dice.chance(0.75, n, 1) * (clock.period > 1)
    frequency = torch.where(dice.chance(share, n, features), seasonal + product * longer, rough)
    turn, size = dice.uniform(n, features), dice.normal(n, features)
    path = torch.zeros(clock.size, device=dice.device)
    for k in range(features):
        angle = clock.time * frequency[:, k : k + 1] + turn[:, k : k + 1]
        path = path + size[:, k : k + 1] * torch.cos(TAU * angle)
    path = standard(path, clock) * (1 + amount(dice, n, 0.2, 2, 0.25) * clock.progress)
    path = (
        path + amount(dice, n, 0.3, 4, 0.4) * trend(dice, clock) + amount(dice, n, 0.005, 1, 0.85) * noise(dice, clock)
    )
    return either(dice, path, clock, 0.3)


def breaks(dice: Dice, clock: Clock) -> Tensor:
    """A series that changes for good, also after the origin: another level, slope, season's size or noise."""
    n, _ = clock.size
    path = standard(mixture(dice, clock, [(2, structural), (2, innovations), (1, kernels)]), clock)
    for often in (1.0, 0.5, 0.25):
        when = dice.uniform(n, 1, high=1.0) * (clock.length + clock.horizon) - clock.length
        after = clock.time >= when
        since = (clock.time - when).clamp(min=0) / clock.length
        stretch = torch.where(after, torch.exp(amount(dice, n, 0.1, 1, 0.4) * dice.normal(n, 1)), 1.0)
        shift = amount(dice, n, 0.2, 3, 0.5) * dice.normal(n, 1) * after
        bend = amount(dice, n, 0.5, 4, 0.5) * dice.normal(n, 1) * since
        path = torch.where(dice.chance(often, n, 1), path * stretch + shift + bend, path)
    return path


def regimes(dice: Dice, clock: Clock) -> Tensor:
    """A series that switches between two others, for good, at random or by rule."""
    n, _ = clock.size
    one, two = structural(dice, clock), structural(dice, clock)
    one, two = standard(one, clock), standard(two, clock) + 2 * dice.normal(n, 1)
    long = dice.log_uniform(0.05, 1, n, 1) * clock.length
    flips = torch.remainder(torch.cumsum(dice.chance(1 / long.clamp(min=3), *clock.size), 1), 2) == 0
    return torch.where(flips, one, two * dice.log_uniform(0.3, 3, n, 1))


def prices(dice: Dice, clock: Clock) -> Tensor:
    """Random walks with drift, clustered volatility and jumps: prices, rates, stocks."""
    n, _ = clock.size
    new = changing(dice, clock, noise(dice, clock))
    new = new + dice.chance(amount(dice, n, 0.002, 0.03, 0.3), *clock.size) * dice.normal(*clock.size) * 6
    drift = amount(dice, n, 0.005, 0.4, 0.6) * direction(dice, clock)
    path = torch.cumsum(new + drift, 1)
    returning = filtered(
        new + drift, torch.exp(-torch.arange(clock.size[1], device=dice.device) / dice.log_uniform(5, 300, n, 1))
    )
    path = torch.where(dice.chance(0.3, n, 1), returning, path)
    return either(dice, path, clock, 0.5)


def bounded(dice: Dice, clock: Clock) -> Tensor:
    """Shares and percentages: values that crowd near a floor or a ceiling."""
    x = standard(structural(dice, clock), clock) * dice.log_uniform(0.3, 3, len(clock.period), 1)
    x = torch.sigmoid(x + dice.uniform(len(x), 1, low=-3, high=3))
    return torch.where(dice.chance(0.3, len(x), 1), (1.3 * x - 0.15).clamp(0, 1), x)


def waves(dice: Dice, clock: Clock) -> Tensor:
    """Machines and nature: sines, saws and squares of any period, whose pace and size drift a little."""
    n, _ = clock.size
    path = torch.zeros(clock.size, device=dice.device)
    for often in (1.0, 0.4):
        period = torch.where(
            dice.chance(0.5, n, 1),
            clock.period.clamp(min=3),
            dice.log_uniform(3, 1, n, 1) * clock.length.clamp(min=12) / 3,
        )
        period = period.clamp(min=3)
        slow = standard(coloured(dice, clock, 2.5, 3.5), clock) * amount(dice, n, 0.01, 0.2, 0.4)
        turn = torch.remainder(clock.time / period + slow + dice.uniform(n, 1), 1)
        edge = dice.uniform(n, 1, low=0.1, high=0.9)
        saw = torch.where(turn < edge, turn / edge, (1 - turn) / (1 - edge))
        shape = dice.uniform(n, 1)
        form = torch.where(shape < 0.5, torch.sin(TAU * turn), torch.where(shape < 0.8, saw, (turn < edge).float()))
        swell = 1 + standard(coloured(dice, clock, 2, 3), clock) * amount(dice, n, 0.05, 0.4, 0.5)
        path = path + standard(form, clock) * swell * amount(dice, n, 0.3, 1, often)
    return (
        path
        + dice.log_uniform(0.005, 0.8, n, 1) * noise(dice, clock)
        + amount(dice, n, 0.1, 1, 0.3) * level(dice, clock)
    )


def blend(dice: Dice, clock: Clock) -> Tensor:
    """Sum of two series of the same clock from different families."""
    one = mixture(dice, clock, [(2, structural), (2, innovations), (1, kernels)])
    two = mixture(dice, clock, [(1, structural), (1, prices), (1, kernels), (1, waves)])
    share = dice.uniform(len(one), 1)
    return share * standard(one, clock) + (1 - share) * standard(two, clock)
