"""The adaptive linear layer: torch's own without a state, a ridge regression of its residuals with one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from torch import nn

from aru import AdaptiveLinear
from aru.errors import NumericalError


def stream(layer: AdaptiveLinear, steps: int, batch: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(steps, batch, layer.in_features), torch.randn(steps, batch, layer.out_features)


def test_without_a_state_it_is_torchs_layer() -> None:
    torch.manual_seed(0)
    theirs = nn.Linear(4, 2)
    torch.manual_seed(0)
    mine = AdaptiveLinear(4, 2)
    h = torch.randn(5, 7, 4)
    assert torch.equal(mine(h), theirs(h))
    assert torch.equal(AdaptiveLinear.of(theirs)(h), theirs(h))
    assert AdaptiveLinear.of(theirs).weight is theirs.weight
    assert set(theirs.state_dict()) <= set(mine.state_dict())


@pytest.mark.parametrize("bias", [True, False])
def test_an_empty_state_changes_nothing(bias: bool) -> None:
    layer = AdaptiveLinear(4, 2, bias=bias)
    state = layer.init_state(3)
    for shape in ((3, 4), (3, 6, 4), (3, 2, 5, 4)):
        h = torch.randn(shape)
        assert torch.equal(layer(h, state), layer(h))


def test_the_correction_is_a_ridge_regression_of_the_residuals() -> None:
    layer = AdaptiveLinear(4, 2, alpha=0.9, ridge=0.5)
    h, y = stream(layer, 12)
    state = layer.init_state(3)
    for t in range(12):
        state = layer.update(state, h[t], y[t])
    new = torch.randn(3, 4)
    mine = layer(new, state)
    weight = 0.9 ** np.arange(11, -1, -1)
    for series in range(3):
        x = np.column_stack([h[:, series].numpy(), np.ones(12)])
        for out in range(2):
            missed = (y[:, series, out] - layer(h[:, series])[:, out]).detach().numpy()
            oracle = Ridge(alpha=0.5, fit_intercept=False).fit(x, missed, sample_weight=weight)
            expected = layer(new)[series, out].item() + oracle.predict(np.append(new[series], 1.0)[None])[0]
            assert mine[series, out].item() == pytest.approx(expected, abs=1e-5)


def test_missing_values_only_age_the_statistics() -> None:
    layer = AdaptiveLinear(2, 2, alpha=0.5)
    h, y = stream(layer, 2, 1)
    state = layer.update(layer.init_state(1), h[0], y[0])
    y[1, 0, 0] = torch.nan
    after = layer.update(state, h[1], y[1], ~y[1].isnan())
    assert torch.equal(after.sxx[0, 0], 0.5 * state.sxx[0, 0])
    assert not torch.equal(after.sxx[0, 1], 0.5 * state.sxx[0, 1])


def test_gradients_reach_the_layer_through_its_state() -> None:
    layer = AdaptiveLinear(3, 1)
    h, y = stream(layer, 5)
    state = layer.init_state(3)
    for t in range(4):
        state = layer.update(state, h[t], y[t])
    (layer(h[4], state) - y[4]).square().sum().backward()
    through = layer.weight.grad
    assert through is not None
    plain = torch.autograd.grad((layer(h[4]) - y[4]).square().sum(), layer.weight)[0]
    assert not torch.allclose(through, plain)


def test_a_state_that_cannot_be_solved_is_named() -> None:
    layer = AdaptiveLinear(2, 1)
    state = layer.init_state(2)
    state = state._replace(sxx=state.sxx + torch.inf)
    with pytest.raises(NumericalError, match="rows 0, 1"):
        layer(torch.ones(2, 2), state)


def test_ten_lines_adapt_the_last_layer_of_a_network() -> None:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))  # trained elsewhere, for all series
    body, head = network[:-1], AdaptiveLinear.of(network[-1], ridge=0.1)
    state = head.init_state(batch_size=5)
    local = torch.randn(5, 8)  # what is particular to each of five series
    errors = []
    with torch.no_grad():
        for _ in range(60):
            h = body(torch.randn(5, 3))
            y = head(h) + (h * local).sum(1, keepdim=True)
            errors.append((head(h, state) - y).square().mean())  # forecast first, then learn
            state = head.update(state, h, y)
    assert torch.stack(errors[-10:]).mean() < 0.01 * torch.stack(errors[:10]).mean()
