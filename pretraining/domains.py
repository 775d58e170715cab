"""Families of synthetic series by where they come from: people, sun, shops, parts, incidents, machines, tariffs."""

from __future__ import annotations

import torch
from torch import Tensor

from pretraining.clocks import Clock
from pretraining.dice import Dice
from pretraining.families import amount, either, positive
from pretraining.parts import (
    TAU,
    calm,
    changing,
    coloured,
    feasts,
    filtered,
    level,
    noise,
    profile,
    reverting,
    season,
    standard,
    steps,
    trend,
)

YEARS_OF_DAYS = 1200
"""Rows of the tables of values that differ from day to day."""


def bumps(dice: Dice, phase: Tensor) -> Tensor:
    """A daily curve of people: one to three smooth peaks over a low night, as a function of the time of day."""
    n = len(phase)
    curve = dice.uniform(n, 1, high=0.4) * torch.ones_like(phase)
    for low, high, often in ((0.25, 0.45, 0.75), (0.45, 0.65, 0.6), (0.65, 0.92, 0.75)):
        away = torch.remainder(phase - dice.uniform(n, 1, low=low, high=high) + 0.5, 1) - 0.5
        width = dice.log_uniform(0.02, 0.14, n, 1)
        curve = curve + amount(dice, n, 0.2, 1.5, often) * torch.exp(-0.5 * (away / width) ** 2)
    office = torch.sigmoid((phase - dice.uniform(n, 1, low=0.25, high=0.4)) * 60)
    office = office * torch.sigmoid((dice.uniform(n, 1, low=0.65, high=0.9) - phase) * 60)
    return torch.where(dice.chance(0.25, n, 1), curve * 0.3 + office, curve)


def climate(dice: Dice, clock: Clock) -> Tensor:
    """Weather: the year's slow course, spells of days, and a daily cycle that is stronger under a clear sky.

    Where a row is a day, the year takes the place of that cycle.
    """
    n, _ = clock.size
    daily = clock.period < 10
    day, round_trip = torch.where(daily, 1.0, clock.period), torch.where(daily, clock.second, clock.period)
    turn = clock.time / round_trip.clamp(min=1) + dice.uniform(n, 1)
    cycle = torch.sin(TAU * turn) + dice.uniform(n, 1, high=0.4) * torch.sin(2 * TAU * turn + TAU * dice.uniform(n, 1))
    sky = torch.exp(dice.uniform(n, 1, high=0.8) * reverting(dice, clock, dice.log_uniform(0.3, 4, n, 1) * day))
    spells = reverting(dice, clock, dice.log_uniform(0.5, 6, n, 1) * day)
    bright = torch.where(daily, cycle * sky, standard(cycle * sky, clock))
    path = dice.log_uniform(0.2, 2, n, 1) * spells + amount(dice, n, 0.1, 2, 0.9) * bright
    path = path + amount(dice, n, 0.1, 2, 0.7) * standard(coloured(dice, clock, 2.5, 3.5), clock)
    path = path + amount(dice, n, 0.02, 0.5, 0.8) * reverting(dice, clock, dice.log_uniform(0.3, 5, n, 1))
    return standard(path, clock)


def weather(dice: Dice, clock: Clock) -> Tensor:
    """Temperature, humidity near its ceiling, wind that is never below zero; a little noise of measurement."""
    n, _ = clock.size
    path = climate(dice, clock)
    kind, edge = dice.uniform(n, 1), dice.uniform(n, 1, low=-0.5, high=1.5)
    wind = torch.exp((dice.uniform(n, 1, low=0.2, high=0.9) * path).clamp(max=6))
    path = torch.where(kind < 0.6, path, torch.where(kind < 0.8, -torch.relu(edge - path), wind))
    return path + amount(dice, n, 0.01, 0.3, 0.7) * noise(dice, clock)


def heating(dice: Dice, clock: Clock) -> Tensor:
    """What weather costs: nothing while it is mild, more the colder or the hotter it is."""
    n, _ = clock.size
    outside, mild = climate(dice, clock), dice.uniform(n, 1, low=-1.5, high=1.5)
    cooling = amount(dice, n, 0.3, 1, 0.5) * torch.relu(outside - mild)
    return standard(torch.relu(mild - outside) + cooling, clock)


def activity(dice: Dice, clock: Clock) -> Tensor:
    """Load, traffic, visits: hours within weekdays, other curves at weekends, holidays like Sundays, weather."""
    n, _ = clock.size
    start = clock.time + torch.floor(dice.uniform(n, 1) * clock.period * 7)
    day = torch.floor(start / clock.period)
    weekday = torch.remainder(day, 7)
    phase = torch.remainder(start, clock.period) / clock.period
    number = torch.remainder(day, YEARS_OF_DAYS).long()
    holiday = dice.chance(dice.log_uniform(0.003, 0.05, n, 1), n, YEARS_OF_DAYS).gather(1, number)
    sunday = (weekday == 6) | holiday & dice.chance(0.8, n, 1)
    work, alike = bumps(dice, phase), dice.uniform(n, 1)
    rest = alike * work + (1 - alike) * bumps(dice, phase)
    quiet = dice.uniform(n, 1, low=0.2, high=1.1)
    weekend = torch.where(sunday, quiet, torch.where(weekday == 5, (1 + quiet) / 2, 1.0))
    no_week = dice.chance(0.25, n, 1)
    curve = torch.where((weekday >= 5) | sunday, rest * weekend, work)
    curve = torch.where(no_week, work, curve)
    factor = (1 + dice.uniform(n, 1, high=0.12) * dice.normal(n, 7)).gather(1, weekday.long())
    curve = standard(curve * torch.where(no_week, 1.0, factor), clock)
    slow = standard(coloured(dice, clock, 1.6, 3), clock)
    daily = standard(torch.exp(0.3 * dice.normal(n, YEARS_OF_DAYS)).gather(1, number), clock)
    swell = amount(dice, n, 0.03, 0.4, 0.6) * slow + amount(dice, n, 0.03, 0.4, 0.4) * daily
    chance = amount(dice, n, 0.05, 1.5, 0.7) * slow + amount(dice, n, 0.05, 0.5, 0.3) * daily
    chance = chance + amount(dice, n, 0.1, 1.5, 0.5) * heating(dice, clock)
    chance = chance + dice.log_uniform(0.02, 0.6, n, 1) * changing(dice, clock, noise(dice, clock))
    chance = chance + dice.log_uniform(0.02, 0.4, n, 1) * standard(coloured(dice, clock, 0.3, 1.5), clock)
    quiet = calm(dice, n)
    path = curve * (1 + quiet * swell) + quiet * chance + amount(dice, n, 0.1, 1.5, 0.3) * trend(dice, clock)
    rate = positive(dice, path, clock, 0.2, 1.2) * dice.log_uniform(0.3, 60, n, 1)
    return torch.where(dice.chance(0.12, n, 1), counted(dice, rate), either(dice, path, clock))


def daylight(dice: Dice, clock: Clock) -> Tensor:
    """Sun and wind: zero at night, an arch by day, dimmed by clouds that come and go."""
    n, _ = clock.size
    phase = torch.remainder(clock.time + torch.floor(dice.uniform(n, 1) * clock.period), clock.period) / clock.period
    width = dice.uniform(n, 1, low=0.3, high=0.62)
    arch = torch.sin(torch.pi * (phase / width).clamp(0, 1)).clamp(min=1e-6) ** dice.uniform(n, 1, low=0.7, high=2)
    clouds = standard(coloured(dice, clock, 0.8, 2), clock) * dice.uniform(n, 1, low=0.2, high=2)
    return arch * torch.sigmoid(clouds + dice.uniform(n, 1, low=-1, high=3)) + amount(dice, n, 0.01, 0.1, 0.2)


def retail(dice: Dice, clock: Clock) -> Tensor:
    """Sales by day or week: weekday factors, closed days, promotions on and off, the year's course, holidays."""
    n, _ = clock.size
    week, daily = clock.period, clock.second > 0
    year = torch.where(daily, clock.second * 1.0007, clock.period)
    weekday = torch.remainder(clock.time + torch.floor(dice.uniform(n, 1) * week), week).long().clamp(max=6)
    factor = torch.exp(dice.uniform(n, 1, high=0.5) * dice.normal(n, 7)).gather(1, weekday)
    log = torch.where(daily, torch.log(factor), 0.0) * dice.chance(0.85, n, 1)
    log = log + amount(dice, n, 0.03, 0.5, 0.7) * profile(dice, clock, year)
    log = log + amount(dice, n, 0.1, 1, 0.6) * feasts(dice, clock, year)
    log = log + amount(dice, n, 0.03, 0.5, 0.6) * trend(dice, clock)
    log = log + amount(dice, n, 0.03, 0.4, torch.where(daily, 0.6, 0.4)) * level(dice, clock)
    log = log + torch.where(daily, amount(dice, n, 0.05, 0.5, 0.25) * heating(dice, clock).clamp(-4, 4), 0.0)
    weeks = torch.where(dice.chance(0.5, n, 1), dice.uniform(n, 1, low=4, high=13), dice.pick((2.0, 4.0), (2, 1), n, 1))
    every = torch.where(daily, dice.pick((7.0, 14.0, 21.0, 28.0, 30.0), (1, 4, 1, 2, 1), n, 1), weeks)
    on = torch.remainder(clock.time + torch.floor(dice.uniform(n, 1) * every), every) < every * dice.uniform(
        n, 1, low=0.2, high=0.6
    )
    at_random = standard(coloured(dice, clock, 0.8, 1.6), clock) > dice.uniform(n, 1, low=0.3, high=1.5)
    promotion = torch.where(dice.chance(0.6, n, 1), on, at_random)
    log = log + amount(dice, n, 0.05, 0.6, 0.45) * promotion
    log = log + amount(dice, n, 0.03, 0.3, 0.4) * profile(dice, clock, torch.where(daily, 30.44, 4.35))
    rough = dice.log_uniform(0.03, 0.5, n, 1) * torch.where(daily, 1.3, 1.0)
    log = log + calm(dice, n) * rough * changing(dice, clock, noise(dice, clock))
    sales = torch.exp(log.clamp(-5, 5))
    closed = (weekday == 6) & dice.chance(0.35, n, 1) | dice.chance(dice.log_uniform(0.002, 0.03, n, 1), *clock.size)
    sales = torch.where(closed & daily & dice.chance(0.6, n, 1), 0.0, sales)
    pieces = counted(dice, sales * dice.log_uniform(0.1, 60, n, 1)) * offered(dice, clock)
    return torch.where(dice.chance(0.35, n, 1), pieces, sales)


def counted(dice: Dice, rate: Tensor) -> Tensor:
    """Whole numbers around a rate: Poisson, in half of the series more dispersed than that."""
    shape = dice.log_uniform(0.3, 10, len(rate), 1).expand(rate.shape)
    spread = torch.where(dice.chance(0.5, len(rate), 1), dice.gamma(shape.contiguous()) / shape, 1.0)
    return dice.poisson((rate * spread).nan_to_num(0.0).clamp(0, 1e5))


def offered(dice: Dice, clock: Clock) -> Tensor:
    """When a thing can be had, 1 or 0: in some series not before its launch, or with stretches out of stock."""
    n, _ = clock.size
    absent = (clock.progress < dice.uniform(n, 1, high=0.9)) & dice.chance(0.12, n, 1)
    for _ in range(2):
        begin = dice.uniform(n, 1) * (clock.length + clock.horizon) - clock.length
        wide = dice.log_uniform(0.01, 0.2, n, 1) * clock.length
        absent = absent | ((clock.time > begin) & (clock.time < begin + wide) & dice.chance(0.12, n, 1))
    return (~absent).float()


def totals(dice: Dice, clock: Clock) -> Tensor:
    """Running totals: cases, installations, members. They never fall; what is new comes in waves, or steadily."""
    n, _ = clock.size
    wave = torch.zeros(clock.size, device=dice.device)
    for often in (1.0, 0.6, 0.4):
        away = clock.progress - dice.uniform(n, 1, low=-0.1, high=1.3)
        width = dice.log_uniform(0.03, 0.5, n, 1) * torch.where(away < 0, 1.0, dice.log_uniform(0.5, 3, n, 1))
        wave = wave + amount(dice, n, 0.1, 1, often) * torch.exp(-0.5 * (away / width) ** 2)
    wave = torch.where(dice.chance(0.7, n, 1), wave, 1.0) + amount(dice, n, 0.001, 0.3, 0.6)
    log = amount(dice, n, 0.1, 1, 0.6) * level(dice, clock) + amount(dice, n, 0.1, 1, 0.4) * trend(dice, clock)
    log = log + amount(dice, n, 0.1, 1, 0.5) * profile(dice, clock, clock.period)
    log = log + dice.log_uniform(0.03, 0.6, n, 1) * changing(dice, clock, noise(dice, clock))
    rate = wave * torch.exp(log.clamp(-4, 4))
    new = torch.where(dice.chance(0.6, n, 1), counted(dice, rate * dice.log_uniform(0.1, 1000, n, 1)), rate)
    begun = (clock.progress > dice.uniform(n, 1, low=-0.5, high=0.5)) | dice.chance(0.3, n, 1)
    return torch.cumsum(new * begun, 1)


def counts(dice: Dice, clock: Clock) -> Tensor:
    """Counts around a changing rate: Poisson, overdispersed, with more zeros, from rare to frequent."""
    n, _ = clock.size
    log = amount(dice, n, 0.1, 1, 0.5) * level(dice, clock) + amount(dice, n, 0.1, 1, 0.4) * trend(dice, clock)
    log = log + amount(dice, n, 0.1, 1, 0.5) * season(dice, clock, clock.period)
    log = log + amount(dice, n, 0.1, 0.7, 0.3) * profile(dice, clock, clock.second)
    rate = torch.exp(log.clamp(-4, 4)) * dice.log_uniform(0.05, 50, n, 1)
    here = ~(dice.chance(0.25, n, 1) & dice.chance(dice.uniform(n, 1, high=0.8), *clock.size))
    return counted(dice, rate * here) * offered(dice, clock)


def intermittent(dice: Dice, clock: Clock) -> Tensor:
    """Demand that comes now and then, in sizes of its own: spare parts, also in bursts, dying out, or waking up."""
    n, _ = clock.size
    often = dice.log_uniform(0.03, 0.6, n, 1)
    drift = amount(dice, n, 0.3, 2, 0.4) * trend(dice, clock) + amount(dice, n, 0.3, 2, 0.4) * level(dice, clock)
    drift = drift + amount(dice, n, 0.3, 1.5, 0.2) * profile(dice, clock, clock.period)
    drift = drift + amount(dice, n, 0.3, 1.5, 0.3) * profile(dice, clock, clock.second)
    demand = dice.chance(torch.sigmoid(torch.logit(often) + drift), *clock.size)
    every = dice.log_uniform(2, 30, n, 1).round()
    regular = torch.remainder(clock.time + torch.floor(dice.uniform(n, 1) * every), every) < 0.5
    demand = torch.where(dice.chance(0.12, n, 1), regular, demand)
    whole = 1 + dice.poisson(dice.log_uniform(0.05, 8, n, 1) * torch.exp(0.7 * dice.normal(*clock.size)))
    real = torch.exp(dice.uniform(n, 1, low=0.1, high=1.2) * dice.normal(*clock.size))
    ended = (clock.progress > dice.uniform(n, 1, low=0.3, high=1.2)) & dice.chance(0.07, n, 1)
    return torch.where(dice.chance(0.7, n, 1), whole, real) * demand * ~ended


def events(dice: Dice, clock: Clock) -> Tensor:
    """Shocks that fade, on a quiet ground: rain, queues, incidents, rivers."""
    n, _ = clock.size
    often = dice.log_uniform(0.01, 0.3, n, 1) * torch.exp(
        dice.log_uniform(0.1, 1, n, 1) * profile(dice, clock, clock.period)
    )
    hits = dice.chance(often, *clock.size) * torch.exp(dice.uniform(n, 1, low=0.2, high=1.3) * dice.normal(*clock.size))
    lag = torch.arange(clock.size[1], device=dice.device)
    path = filtered(hits, torch.exp(-lag / dice.log_uniform(0.2, 40, n, 1))).clamp(min=0)
    return (
        path + amount(dice, n, 0.02, 0.5, 0.6) * noise(dice, clock) + amount(dice, n, 0.1, 1, 0.3) * level(dice, clock)
    )


def held(dice: Dice, clock: Clock) -> Tensor:
    """Values that stay until somebody changes them: tariffs, list prices, stocks that are filled up."""
    n, _ = clock.size
    change = dice.chance(dice.log_uniform(0.01, 0.3, n, 1), *clock.size)
    path = torch.cumsum(change * (dice.normal(*clock.size) + dice.uniform(n, 1, low=-0.3, high=0.8)), 1)
    level_now = torch.where(dice.chance(0.3, n, 1), path, steps(dice, clock))
    number = torch.remainder(torch.cumsum(change, 1), 256).long()
    drawn = dice.normal(n, 256).gather(1, number)
    since = clock.time - torch.cummax(torch.where(change, clock.time, -1e4), 1).values
    stock = drawn - dice.log_uniform(0.01, 0.3, n, 1) * since.clamp(max=200)
    kind = dice.uniform(n, 1)
    path = torch.where(kind < 0.4, level_now, torch.where(kind < 0.75, drawn, stock))
    return path + amount(dice, n, 0.005, 0.2, 0.3) * noise(dice, clock)
