"""Synthetic series: finite, seeded, of the shapes that training expects."""

from __future__ import annotations

import pytest
import torch

from pretraining.clocks import HORIZON, KINDS, draw, mixture
from pretraining.dice import Dice
from pretraining.domains import counted, offered, totals
from pretraining.families import growth
from pretraining.generator import RECIPE, generate, seasonal_change, spoil, turns
from pretraining.parts import CALM, calm, filtered, standard


@pytest.mark.parametrize("context", [256, 1024])
@pytest.mark.parametrize("name", list(RECIPE))
def test_every_family_is_finite_and_varied(name: str, context: int) -> None:
    dice = Dice(1)
    clock = draw(dice, 64, context, RECIPE[name][2])
    values = RECIPE[name][3](dice, clock)
    assert values.shape == (64, context + HORIZON)
    assert torch.isfinite(values).all()
    assert (values.std(1) > 0).float().mean() > 0.8


@pytest.mark.parametrize("context", [256, 1024])
def test_batches_fit_together(context: int) -> None:
    batch = generate(Dice(2), 128, context)
    n = len(batch.values)
    assert n == 128
    assert batch.values.shape == batch.mask.shape == (n, context)
    assert batch.future.shape == batch.weight.shape == (n, HORIZON)
    assert batch.periods.shape == (n, 2)
    assert not batch.periods.is_floating_point()
    assert torch.isfinite(batch.values).all()
    assert torch.isfinite(batch.future).all()
    assert (batch.values[~batch.mask] == 0).all()
    assert (batch.weight >= 0).all()
    assert (batch.periods >= 0).all()
    assert (batch.mask.sum(1) > 0).float().mean() > 0.99


def test_the_same_seed_gives_the_same_series() -> None:
    one, same, other = (generate(Dice(seed), 64, 256) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not torch.equal(one.values[:32], other.values[:32])


def test_histories_have_lengths_of_their_frequency() -> None:
    dice = Dice(5)
    for name, kind in KINDS.items():
        clock = draw(dice, 200, 256, (name,))
        assert clock.length.min() >= min(kind.lengths[0], 256)
        assert clock.length.max() <= min(kind.lengths[1], 256)
        assert clock.past.sum(1).tolist() == clock.length[:, 0].tolist()


def test_errors_of_measurement_stay_in_the_history() -> None:
    dice = Dice(6)
    clock = draw(dice, 400, 256)
    values = dice.normal(*clock.size)
    spoiled = spoil(dice, values, clock)
    assert torch.equal(spoiled[:, 256:], values[:, 256:])
    assert not torch.equal(spoiled[:, :256], values[:, :256])


def test_a_mixture_uses_each_part_by_weight() -> None:
    dice = Dice(7)
    clock = draw(dice, 1000, 256)
    parts = [(3.0, lambda d, c: torch.ones(c.size)), (1.0, lambda d, c: torch.zeros(c.size))]
    share = mixture(dice, clock, parts)[:, 0].mean().item()
    assert share == pytest.approx(0.75, abs=0.002)


def test_filtered_is_the_causal_convolution() -> None:
    noise, response = torch.randn(3, 50), torch.randn(3, 50)
    slow = torch.stack([sum(response[:, j] * noise[:, t - j] for j in range(t + 1)) for t in range(50)], 1)
    torch.testing.assert_close(filtered(noise, response), slow, rtol=1e-4, atol=1e-4)


def test_standard_looks_at_the_history_alone() -> None:
    dice = Dice(8)
    clock = draw(dice, 32, 256)
    values = dice.normal(*clock.size)
    changed = torch.where(clock.past, values, 0.0)
    one, two = standard(values, clock), standard(changed, clock)
    past = clock.past
    mean = (one * past).sum(1) / past.sum(1)
    assert mean.abs().max() < 1e-3
    torch.testing.assert_close(one[past], two[past], rtol=1e-2, atol=1e-2)


def test_what_is_counted_by_the_year_mostly_grows() -> None:
    dice = Dice(9)
    clock = draw(dice, 400, 256, ("yearly",))
    values = growth(dice, clock)
    first = values.gather(1, (256 - clock.length).long())
    assert 0.7 < (values[:, 255:256] > first).float().mean() < 0.95


def test_some_series_are_far_more_regular_than_others() -> None:
    sizes = calm(Dice(11), 4000)
    assert (sizes < 1).float().mean() == pytest.approx(CALM, abs=0.03)
    assert sizes.min() < 0.02
    assert (sizes.unique() <= 1).all()


def test_turns_come_near_the_origin_and_by_the_chance_of_the_frequency() -> None:
    dice = Dice(10)
    clock = draw(dice, 1000, 256, ("yearly",))
    values = dice.normal(*clock.size)
    changed = turns(dice, values, clock) != values
    assert not changed[clock.time.expand_as(values) < -0.1 * clock.length].any()
    assert changed.any(1).float().mean() == pytest.approx(KINDS["yearly"].turns, abs=0.05)


def test_turns_are_measured_by_the_change_from_season_to_season() -> None:
    clock = draw(Dice(11), 50, 256, ("monthly",))
    long = clock.length[:, 0] > 12
    season, trend = torch.sin(torch.pi / 6 * clock.time).expand(clock.size), clock.time.expand(clock.size)
    assert seasonal_change(season, clock)[long].max() < 1e-3
    assert (seasonal_change(trend, clock)[long] == 12).all()


def test_totals_never_fall() -> None:
    dice = Dice(12)
    values = totals(dice, draw(dice, 200, 256))
    assert (values.diff(dim=1) >= -1e-5 * values[:, 1:]).all()


def test_counts_are_whole_and_survive_rates_that_are_not_finite() -> None:
    rates = torch.tensor([[0.5, torch.nan, torch.inf, 3.0]]).repeat(50, 1)
    values = counted(Dice(13), rates)
    assert torch.equal(values, values.round())
    assert values.isfinite().all()
    assert (values[:, 1] == 0).all()


def test_few_things_cannot_be_had_for_a_while() -> None:
    dice = Dice(14)
    clock = draw(dice, 500, 256, ("daily",))
    there = offered(dice, clock)
    gaps = ((there == 0) & clock.past).any(1).float().mean()
    assert 0.1 < gaps < 0.45
    assert (there[:, 256:] == 0).any()
