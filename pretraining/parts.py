"""Building blocks of synthetic series: noise, levels, trends, seasonal profiles, feasts. All are (series, steps)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pretraining.clocks import Clock, mixture
from pretraining.dice import Dice

TAU = 2 * math.pi
CALM = 0.3
"""Share of the series that are far more regular than the others."""
YEARS = 96
"""Rows of the tables of values that differ from year to year."""


def standard(x: Tensor, clock: Clock) -> Tensor:
    """Mean 0 and standard deviation 1 over the history of each series; what hardly varies there becomes small."""
    past = clock.past.to(x)
    mean = (x * past).sum(1, keepdim=True) / clock.length
    centred = x - mean
    spread = ((centred**2 * past).sum(1, keepdim=True) / clock.length).sqrt()
    return centred / (spread + 1e-3 * centred.abs().amax(1, keepdim=True) + 1e-6)


def fast_size(least: int) -> int:
    """The smallest product of powers of 2, 3 and 5 that is not below a number: lengths that are fast to transform."""
    return min(2**a * 3**b * 5**c for a in range(14) for b in range(4) for c in range(3) if 2**a * 3**b * 5**c >= least)


def filtered(noise: Tensor, response: Tensor) -> Tensor:
    """Causal convolution of innovations with the impulse response of each series."""
    count = noise.shape[1]
    size = fast_size(2 * count)
    return torch.fft.irfft(torch.fft.rfft(noise, size) * torch.fft.rfft(response, size), size)[:, :count]


def coloured(dice: Dice, clock: Clock, low: float, high: float) -> Tensor:
    """Noise of the spectrum f^-beta, beta uniform between two bounds: 0 white, 1 pink, 2 a random walk, 3 smooth."""
    n, count = clock.size
    size = fast_size(2 * count)
    frequency = torch.arange(1, size // 2 + 1, device=dice.device).float()
    exponent = -dice.uniform(n, 1, low=low, high=high) / 2
    wave = torch.complex(dice.normal(n, size // 2), dice.normal(n, size // 2)) * frequency**exponent
    return torch.fft.irfft(torch.nn.functional.pad(wave, (1, 0)), size)[:, :count] * math.sqrt(size)


def noise(dice: Dice, clock: Clock) -> Tensor:
    """Independent noise of unit scale: Gaussian, heavy-tailed, Laplace, uniform, skewed, or with rare large values."""

    def heavy(d: Dice, c: Clock) -> Tensor:
        return d.normal(*c.size) * torch.exp(d.normal(*c.size) * d.uniform(len(c.period), 1, low=0.3, high=1.0) - 0.3)

    def skewed(d: Dice, c: Clock) -> Tensor:
        width = d.uniform(len(c.period), 1, low=0.2, high=0.9)
        sign = torch.where(d.chance(0.75, len(c.period), 1), 1.0, -1.0)
        return sign * (torch.exp(width * d.normal(*c.size)) - torch.exp(width**2 / 2)) / width

    def rare(d: Dice, c: Clock) -> Tensor:
        often = d.log_uniform(0.003, 0.05, len(c.period), 1)
        return d.normal(*c.size) * torch.where(d.chance(often, *c.size), 5.0, 1.0)

    def laplace(d: Dice, c: Clock) -> Tensor:
        u = d.uniform(*c.size, low=-0.4999, high=0.4999)
        return -0.7 * u.sign() * torch.log1p(-2 * u.abs())

    return mixture(
        dice,
        clock,
        [
            (5, lambda d, c: d.normal(*c.size)),
            (2, heavy),
            (1, laplace),
            (0.3, lambda d, c: d.uniform(*c.size, low=-1.7, high=1.7)),
            (1, skewed),
            (1, rare),
        ],
    )


def changing(dice: Dice, clock: Clock, shocks: Tensor) -> Tensor:
    """Noise whose scale changes: slowly, by season, or in clusters after large shocks."""

    def volatility(low: float, high: float, most: float):
        return lambda d, c: standard(coloured(d, c, low, high), c) * d.uniform(len(c.period), 1, high=most)

    scale = mixture(
        dice,
        clock,
        [
            (6, lambda d, c: torch.zeros(c.size, device=d.device)),
            (2, volatility(1.5, 3, 0.8)),
            (1, volatility(0.8, 1.5, 0.8)),
            (1, lambda d, c: 0.7 * profile(d, c, c.period)),
        ],
    )
    return shocks * torch.exp(scale.clamp(-2.5, 2.5))


def direction(dice: Dice, clock: Clock) -> Tensor:
    """1 for up, -1 for down, by the chance of the frequency."""
    return torch.where(dice.chance(clock.up, len(clock.period), 1), 1.0, -1.0)


def calm(dice: Dice, n: int) -> Tensor:
    """How strongly chance acts on a series: in most as it does, in some hardly at all, as in machines or large sums."""
    return torch.where(dice.chance(CALM, n, 1), dice.log_uniform(0.01, 0.4, n, 1), 1.0)


def trend(dice: Dice, clock: Clock) -> Tensor:
    """Trends: straight, broken, with a slope that wanders, exponential, levelling off, S-shaped, or a power of time."""

    def straight(d: Dice, c: Clock) -> Tensor:
        return c.progress

    def broken(d: Dice, c: Clock) -> Tensor:
        n = len(c.period)
        path = c.progress * d.normal(n, 1)
        for _ in range(3):
            bend = torch.relu(c.progress - d.uniform(n, 1, high=1.25)) * d.normal(n, 1) * 2
            path = path + bend * d.chance(0.6, n, 1)
        return path

    def wandering(d: Dice, c: Clock) -> Tensor:
        return standard(coloured(d, c, 2.8, 4.2), c) + c.progress * d.uniform(len(c.period), 1, high=4)

    def exponential(d: Dice, c: Clock) -> Tensor:
        return torch.exp((d.uniform(len(c.period), 1, low=-3, high=3) * c.progress).clamp(max=6))

    def levelling(d: Dice, c: Clock) -> Tensor:
        return -torch.exp(-d.log_uniform(0.5, 8, len(c.period), 1) * c.progress.clamp(min=-0.3))

    def logistic(d: Dice, c: Clock) -> Tensor:
        middle, speed = d.uniform(len(c.period), 1, high=1.3), d.log_uniform(4, 40, len(c.period), 1)
        return torch.sigmoid((c.progress - middle) * speed)

    def power(d: Dice, c: Clock) -> Tensor:
        return c.progress.clamp(min=0) ** d.uniform(len(c.period), 1, low=0.4, high=2.2)

    parts = [
        (4, straight),
        (3, broken),
        (4, wandering),
        (2, exponential),
        (2, levelling),
        (1, logistic),
        (1, power),
    ]
    return standard(mixture(dice, clock, parts), clock) * direction(dice, clock)


def steps(dice: Dice, clock: Clock) -> Tensor:
    """Level shifts at random times, a few per history."""
    n, _ = clock.size
    often = dice.log_uniform(0.3, 6, n, 1) / clock.length
    return torch.cumsum(dice.chance(often, *clock.size) * dice.normal(*clock.size), 1)


def shocks(dice: Dice, clock: Clock) -> Tensor:
    """Sudden drops and rises that are made good again: strikes, epidemics, closures, campaigns. 0 otherwise."""
    n, _ = clock.size
    path = torch.zeros(clock.size, device=dice.device)
    for _ in range(2):
        since = clock.time + clock.length * dice.uniform(n, 1, low=-0.1, high=1)
        stay, heal = (dice.log_uniform(0.01, 0.2, n, 1) * clock.length for _ in range(2))
        shape = torch.where(since < 0, 0.0, torch.exp(-(since - stay).clamp(min=0) / (heal + 0.3)))
        path = path + shape * torch.where(dice.chance(0.7, n, 1), -1.0, 1.0) * dice.log_uniform(0.3, 3, n, 1)
    return path


def reverting(dice: Dice, clock: Clock, memory: Tensor) -> Tensor:
    """Noise that returns to its mean within some steps, smooth in half of the series."""
    n, count = clock.size
    age = torch.arange(count, device=dice.device) / memory
    response = torch.where(dice.chance(0.5, n, 1), torch.exp(-age), (age + 0.1) * torch.exp(-age))
    return standard(filtered(dice.normal(n, count), response), clock)


def level(dice: Dice, clock: Clock) -> Tensor:
    """A wandering level: random walks, smoother and rougher ones, mean-reverting ones, steps."""
    parts = [
        (4, lambda d, c: coloured(d, c, 1.9, 2.1)),
        (3, lambda d, c: coloured(d, c, 1.0, 3.2)),
        (2, lambda d, c: reverting(d, c, d.log_uniform(2, 60, len(c.period), 1))),
        (1, steps),
    ]
    return standard(mixture(dice, clock, parts), clock)


def profile(dice: Dice, clock: Clock, period: Tensor) -> Tensor:
    """A pattern that repeats with a period of each series: smooth, by table, spiky, or on and off. Unit scale."""

    def phase(d: Dice, c: Clock) -> Tensor:
        p = c.period
        return torch.remainder(c.time + torch.floor(d.uniform(len(p), 1) * p), p) / p

    def smooth(d: Dice, c: Clock) -> Tensor:
        n, where = len(c.period), phase(d, c)
        decay, most = d.uniform(n, 1, low=0.5, high=2.5), c.period / 2 + 0.01
        path = torch.zeros(c.size, device=d.device)
        for k in range(1, 9):
            size = d.normal(n, 1) * k**-decay * (k <= most)
            path = path + size * torch.sin(TAU * (k * where + d.uniform(n, 1)))
        return path

    def table(d: Dice, c: Clock) -> Tensor:
        values = d.normal(len(c.period), 400)
        return values.gather(1, (phase(d, c) * c.period + 0.5).long().clamp(max=399))

    def spiky(d: Dice, c: Clock) -> Tensor:
        n, where = len(c.period), phase(d, c)
        path = torch.zeros(c.size, device=d.device)
        for _ in range(3):
            away = torch.remainder(where - d.uniform(n, 1) + 0.5, 1) - 0.5
            width = torch.maximum(d.log_uniform(0.01, 0.15, n, 1), 0.35 / c.period)
            path = path + torch.exp(-0.5 * (away / width) ** 2) * d.normal(n, 1) * d.chance(0.6, n, 1)
        return path

    def switched(d: Dice, c: Clock) -> Tensor:
        return (phase(d, c) < d.uniform(len(c.period), 1, low=0.1, high=0.9)).float()

    inner = clock._replace(period=period.clamp(min=1))
    shape = mixture(dice, inner, [(5, smooth), (2, table), (2, spiky), (0.5, switched)])
    return standard(shape, inner) * (period > 1)


def season(dice: Dice, clock: Clock, period: Tensor) -> Tensor:
    """A profile whose size grows, shrinks or wanders, or that turns slowly into another one."""
    n, _ = clock.size
    path = profile(dice, clock, period)
    wander = standard(coloured(dice, clock, 2, 3), clock) * dice.uniform(n, 1, high=0.4) * dice.chance(0.3, n, 1)
    growth = clock.progress * dice.uniform(n, 1, low=-0.8, high=0.8) * dice.chance(0.2, n, 1)
    path = path * (1 + wander + growth).clamp(0, 4)
    turning = dice.chance(0.15, n, 1) * (clock.progress - dice.uniform(n, 1)).clamp(0, 1)
    return path * (1 - turning) + profile(dice, clock, period) * turning


def feasts(dice: Dice, clock: Clock, year: Tensor) -> Tensor:
    """Peaks and dips at the same place of every year, or moving a little: holidays, sales, closures."""
    n, _ = clock.size
    start = clock.time + dice.uniform(n, 1) * year
    number = torch.remainder(torch.floor(start / year), YEARS).long()
    path = torch.zeros(clock.size, device=dice.device)
    for _ in range(3):
        move = dice.uniform(n, YEARS, low=-0.045, high=0.045) * dice.chance(0.4, n, 1)
        centre = dice.uniform(n, 1, low=0.06, high=0.94) + move.gather(1, number)
        away = (torch.remainder(start, year) / year - centre) * year
        width = dice.log_uniform(0.3, 5, n, 1)
        shape = torch.where(dice.chance(0.5, n, 1), torch.exp(-0.5 * (away / width) ** 2), (away.abs() < width).float())
        path = path + shape * dice.normal(n, 1) * dice.chance(0.6, n, 1)
    return path
