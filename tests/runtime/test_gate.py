"""The gate: weights are weights, and the mixture is hardly worse than the best expert."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aru.runtime import gate


def run(experts: torch.Tensor, y: torch.Tensor, delay: int) -> tuple[torch.Tensor, gate.GateState]:
    """(time, batch, expert) forecasts whose truth arrives `delay` steps later; the mixtures, and the last state."""
    state = gate.new_gate(experts.shape[1], experts.shape[2])
    mixed = []
    for t in range(len(y)):
        if t >= delay:
            old = t - delay
            state = gate.update(state, gate.regret(mixed[old], experts[old], y[old]))
        mixed.append((gate.weights(state) * experts[t]).sum(-1))
    return torch.stack(mixed), state


def test_without_feedback_all_weigh_the_same() -> None:
    state = gate.new_gate(3, 2)
    assert torch.equal(gate.weights(state), torch.full((3, 2), 0.5).double())
    same = gate.update(state, torch.zeros(3, 2).double())
    assert torch.equal(gate.weights(same), gate.weights(state))


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), scale=st.floats(1e-6, 1e6), delay=st.integers(1, 20))
def test_weights_sum_to_one_and_units_do_not_matter(seed: int, scale: float, delay: int) -> None:
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.standard_t(2, (40, 4)))
    experts = torch.from_numpy(rng.standard_t(2, (40, 4, 3)))
    mixed, state = run(experts, y, delay)
    assert torch.allclose(gate.weights(state).sum(-1), torch.ones(4).double())
    assert (gate.weights(state) >= 0).all()
    scaled, _ = run(scale * experts, scale * y, delay)
    assert torch.allclose(scaled, scale * mixed, rtol=1e-6, atol=1e-9 * scale)


@pytest.mark.parametrize("delay", [1, 10])
@pytest.mark.parametrize("case", ["good", "useless", "alternating", "drifting"])
def test_the_regret_is_bounded(case: str, delay: int) -> None:
    """Against the better expert: c sqrt((delay + 1) ln 2 sum r^2), for data made to hurt the adapted forecast too."""
    rng = np.random.default_rng(0)
    T, batch = 600, 20
    y = torch.from_numpy(rng.normal(size=(T, batch)))
    frozen = torch.zeros(T, batch).double()
    noise = torch.from_numpy(rng.normal(size=(T, batch)))
    time = torch.arange(T)[:, None]
    adapted = {
        "good": 0.7 * y + 0.3 * noise,
        "useless": noise,
        "alternating": torch.where(time % 40 < 20, y, -y),
        "drifting": torch.where(time < T // 2, 0.8 * y, 2 * noise),
    }[case]
    experts = torch.stack([frozen, adapted], -1)
    mixed, _ = run(experts, y, delay)
    loss = (mixed - y).square().sum(0)
    best = (experts - y.unsqueeze(-1)).square().sum(0).min(-1).values
    r = gate.regret(mixed, experts, y)
    bound = 4 * torch.sqrt((delay + 1) * math.log(2) * r.square().sum(0)).max(-1).values
    assert (loss - best < bound).all()
    if case in ("useless", "drifting"):
        assert (loss < 1.12 * best).all()
    if case == "useless":
        assert (loss < 0.6 * (adapted - y).square().sum(0)).all()
