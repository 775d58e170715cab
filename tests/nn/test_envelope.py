"""Single outliers are held back, lasting changes and recurring spikes are not, however rows are delivered."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aru.data.rows import Ragged, Rows
from aru.nn.envelope import Envelope, hold_back

Array = NDArray[np.float64]


def ragged(*series: Array) -> Ragged:
    """Rows of several series without covariates; NaN is missing."""
    y = torch.from_numpy(np.concatenate(series))
    lengths = torch.tensor([len(values) for values in series])
    none = torch.zeros(len(y), 0)
    rows = Rows(
        torch.arange(len(y)), y.nan_to_num(0.0), ~y.isnan(), torch.zeros(len(y), dtype=torch.bool),
        none, none.int(), none, none.int(),
    )  # fmt: skip
    return Ragged(rows, lengths.cumsum(0) - lengths, lengths, torch.zeros(len(y), dtype=torch.int64))


def held(*series: Array) -> list[list[int]]:
    """The rows of each series that are held back."""
    data = hold_back(Envelope.empty(len(series)), ragged(*series))[1]
    return [part.nonzero().flatten().tolist() for part in data.rows.held.split(data.lengths.tolist())]


def usual(n: int = 60, level: float = 10.0, seed: int = 0) -> Array:
    """A week, and noise."""
    noise = np.random.default_rng(seed).normal(0, 0.05, n)
    out: Array = level * (1 + 0.2 * np.sin(2 * np.pi * np.arange(n) / 7) + noise)
    return out


@pytest.mark.parametrize("value", [50.0, 999999.0, -10.0, -1e6, 1e25, 1e30, -1e30])
@pytest.mark.parametrize("at", [20, 45])
def test_a_single_outlier_is_held_back(value: float, at: int) -> None:
    y = usual()
    y[at] = value
    assert held(y) == [[at]]


@pytest.mark.parametrize("factor", [1.5, 4.0, 0.1, 1e4, -1.0])
def test_a_lasting_change_costs_a_row_at_most(factor: float) -> None:
    y = usual()
    y[30:] *= factor
    assert set(held(y)[0]) <= {30}


def test_a_lasting_change_of_the_spread_costs_few_rows() -> None:
    y = usual()
    y[30:] += 1e3 * np.random.default_rng(1).choice([-1, 1], 30)
    assert len(held(y)[0]) <= 2


def test_spikes_that_recur_are_accepted_from_the_second_on() -> None:
    y = usual(400)
    y[30::52] *= 6
    assert held(y) == [[30]]


def test_the_further_out_the_sooner_it_must_be_confirmed() -> None:
    y = usual(400)
    y[[100, 300]] = 999999.0
    assert held(y) == [[100, 300]]
    y[101] = 999999.0
    assert held(y) == [[100]]


@pytest.mark.parametrize(
    "y",
    [
        np.zeros(50),
        np.r_[np.zeros(20), 7.0, np.zeros(30), 3.0],
        np.random.default_rng(0).poisson(0.3, 300).astype(float),
        np.where(np.random.default_rng(1).random(300) < 0.1, np.random.default_rng(2).lognormal(2, 1, 300), 0.0),
        np.cumsum(np.random.default_rng(3).normal(0, 1, 500)),
        np.exp(0.03 * np.arange(300)),
        np.random.default_rng(4).standard_t(3, 500),
        np.r_[5.0, 5e5],
    ],
    ids=["zeros", "nearly zeros", "counts", "lumpy", "random walk", "growth", "heavy tails", "two values"],
)
def test_what_is_usual_for_a_series_is_not_held_back(y: Array) -> None:
    assert held(y) == [[]]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), cut=st.integers(0, 60), scale=st.sampled_from([-1.0, 1e-6, 1e6]))
def test_neither_delivery_nor_units_nor_a_second_look_matter(seed: int, cut: int, scale: float) -> None:
    generator = np.random.default_rng(seed)
    y = usual(60, seed=seed)
    y[generator.integers(0, 60, 6)] *= generator.choice([-50.0, 7.0, 30.0, 40.0, np.nan], 6)
    y[0] = 10.0
    whole, data = hold_back(Envelope.empty(1), ragged(y))
    first, left = hold_back(Envelope.empty(1), ragged(y[:cut]))
    second, right = hold_back(first, ragged(y[cut:]))
    assert torch.equal(data.rows.held, torch.cat([left.rows.held, right.rows.held]))
    assert all(map(torch.equal, whole, second))
    again, twice = hold_back(Envelope.empty(1), data)
    assert torch.equal(data.rows.held, twice.rows.held)
    assert torch.equal(data.rows.observed, twice.rows.observed)
    assert all(map(torch.equal, whole, again))
    assert held(scale * y) == held(y)
    assert not bool((data.rows.held & data.rows.observed).any())
    assert torch.equal(data.rows.came, ragged(y).rows.came)


def test_series_do_not_matter_to_each_other() -> None:
    a, b = usual(40), usual(50, seed=1)
    a[30], b[20] = 1e6, np.nan
    assert held(a, b, a[:10]) == [*held(a), *held(b), *held(a[:10])]


def test_skipped_steps_are_waited_for_too() -> None:
    near = ragged(np.r_[usual(60)[:40], 6 * 10.0, usual(4), 6 * 10.0])
    assert hold_back(Envelope.empty(1), near)[1].rows.held.nonzero().flatten().tolist() == [40]
    far = near._replace(skipped=torch.where(torch.arange(46) == 43, 10**6, 0))
    assert hold_back(Envelope.empty(1), far)[1].rows.held.nonzero().flatten().tolist() == [40, 45]
