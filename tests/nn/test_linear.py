"""Our linear layer against torch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from aru.nn import linear
from aru.nn.linear import Linear, affine


@pytest.mark.parametrize("shape", [(3,), (7, 3), (2, 5, 3), (2, 1, 4, 3), (0, 4, 3)])
@pytest.mark.parametrize("worthwhile", [0, linear.WORTHWHILE])
def test_values_and_gradients_are_those_of_torch(
    shape: tuple[int, ...], worthwhile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "WORTHWHILE", worthwhile if len(shape) > 1 else linear.WORTHWHILE)
    ours, theirs = Linear(3, 5), nn.Linear(3, 5)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(shape)

    def run(layer: nn.Module) -> tuple[Tensor, ...]:
        given = x.clone().requires_grad_()
        out = layer(given)
        weight, bias = layer.parameters()
        return out, *torch.autograd.grad(out.square().sum(), (given, weight, bias))

    for value, other in zip(run(ours), run(theirs), strict=True):
        torch.testing.assert_close(value, other)


def test_the_next_layer_finds_its_input_the_same_way() -> None:
    x = torch.randn(2**13, 2, 4)
    out = torch.relu(affine(x, torch.randn(6, 4), torch.randn(6)))
    assert out.stride() == (2, 1, 2**14)
    assert out.shape == (2**13, 2, 6)
