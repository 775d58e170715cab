"""The gate: weights are weights, the better expert wins, and no round decides for long."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aru.runtime import gate


def run(
    experts: torch.Tensor, y: torch.Tensor, delay: int = 1, rounds: float = 1.0
) -> tuple[torch.Tensor, gate.GateState]:
    """(time, batch, expert) forecasts whose truth arrives `delay` steps later; the weights, and the last state."""
    state = gate.new_gate(experts.shape[1], experts.shape[2])
    share = torch.full((experts.shape[1],), rounds).double()
    weights = []
    for t in range(len(y)):
        if t >= delay:
            old = t - delay
            state = gate.update(state, (experts[old] - y[old].unsqueeze(-1)).abs(), share)
        weights.append(gate.weights(state))
    return torch.stack(weights), state


def test_without_feedback_the_last_expert_is_favoured_mildly() -> None:
    state = gate.new_gate(3, 2)
    first = gate.weights(state)
    assert (first[:, 1] > 0.6).all()
    assert (first[:, 1] < 0.9).all()
    none = gate.update(state, torch.full((3, 2), torch.nan).double(), torch.ones(3).double())
    assert all(torch.equal(a, b) for a, b in zip(none, state, strict=True))
    even = gate.update(state, torch.full((3, 2), 7.0).double(), torch.ones(3).double())
    assert torch.equal(gate.weights(even), first)


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), scale=st.floats(1e-6, 1e6), delay=st.integers(1, 20))
def test_weights_sum_to_one_and_units_do_not_matter(seed: int, scale: float, delay: int) -> None:
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.standard_t(2, (40, 4)))
    experts = torch.from_numpy(rng.standard_t(2, (40, 4, 3)))
    weights, _ = run(experts, y, delay)
    assert torch.allclose(weights.sum(-1), torch.ones(40, 4).double())
    assert (weights >= 0).all()
    scaled, _ = run(scale * experts, scale * y, delay)
    assert torch.allclose(scaled, weights, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("case", ["good", "useless", "drifting"])
def test_the_mixture_is_hardly_worse_than_the_better_expert(case: str) -> None:
    rng = np.random.default_rng(0)
    T, batch = 600, 20
    y = torch.from_numpy(rng.normal(size=(T, batch)))
    frozen = torch.zeros(T, batch).double()
    noise = torch.from_numpy(rng.normal(size=(T, batch)))
    time = torch.arange(T)[:, None]
    adapted = {
        "good": 0.7 * y + 0.3 * noise,
        "useless": noise,
        "drifting": torch.where(time < T // 2, 0.8 * y, 2 * noise),
    }[case]
    experts = torch.stack([frozen, adapted], -1)
    weights, _ = run(experts, y)
    loss = ((weights * experts).sum(-1) - y).abs().sum(0)
    single = (experts - y.unsqueeze(-1)).abs().sum(0)
    assert (loss < 1.03 * single.min(-1).values).all()
    if case == "drifting":
        assert (loss < 0.75 * single.min(-1).values).all()  # it changes sides


@pytest.mark.parametrize("outlier", [1e2, 1e6, 1e12])
def test_an_outlier_is_no_argument(outlier: float) -> None:
    """The adapted forecast is worse; then comes an outlier that it is nearer to, for one round."""
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.normal(size=(100, 50)))
    experts = torch.stack([torch.zeros(100, 50).double(), 1.5 * torch.from_numpy(rng.normal(size=(100, 50))).abs()], -1)
    plain, _ = run(experts, y)
    y[60] = outlier
    hit, _ = run(experts, y)
    assert (plain[60, :, 1] < 0.1).double().mean() > 0.9
    assert (hit[61:63, :, 1] - plain[61:63, :, 1]).abs().max() < 0.1
    assert (hit[65:, :, 1] - plain[65:, :, 1]).abs().max() < 0.1


def test_what_a_round_adds_is_bounded_and_forgotten() -> None:
    """A hundred rounds for one side, and the other side has won after some dozen."""
    y = torch.zeros(200, 1).double()
    time = torch.arange(200)[:, None]
    first = torch.where(time < 100, 0.0, 1e9).double()
    second = torch.where(time < 100, 1e9, 0.0).double()
    weights, _ = run(torch.stack([first, second], -1), y)
    assert weights[99, 0, 0] > 0.999
    assert weights[160, 0, 1] > 0.999


def test_half_a_round_counts_for_half() -> None:
    """Forecasts that overlap are given twice, each for half of a round."""
    losses = torch.tensor([[[1.0, 2.0]]]).double().expand(60, 1, 2)
    zero = torch.zeros(120, 1).double()
    _, once = run(losses, zero[:60])
    _, twice = run(losses.repeat_interleave(2, 0), zero, rounds=0.5)
    torch.testing.assert_close(once.gain, twice.gain, rtol=0.02, atol=0.0)
