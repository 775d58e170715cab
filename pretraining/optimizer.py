"""Muon for the matrices inside the blocks, Adam for the rest; all on the device, so that a graph can replay it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
BETAS = (0.9, 0.98)
ROUNDS = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
"""Coefficients of the iterations x <- a x + b (x x^T) x + c (x x^T)^2 x that drive all singular values towards 1."""


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest matrices whose singular values are all about 1, for a stack of wide or square matrices."""
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) * 1.01 + 1e-7)
    for a, b, c in ROUNDS:
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x


class Muon:
    """Momentum whose steps are made orthogonal; matrices of one shape are handled together.

    A step is scaled to the size of one of Adam, so that both share a learning rate.
    """

    def __init__(self, matrices: Iterable[nn.Parameter], weight_decay: float):
        groups: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
        for matrix in matrices:
            groups[tuple(matrix.shape)].append(matrix)
        self.groups = list(groups.values())
        self.momenta = [torch.zeros_like(torch.stack(list(group))) for group in self.groups]
        self.weight_decay = weight_decay

    def step(self, rate: Tensor, shrink: Tensor) -> None:
        """One step along the gradients, which are first multiplied by `shrink`."""
        for group, momentum in zip(self.groups, self.momenta, strict=True):
            gradient = torch.stack([matrix.grad for matrix in group]).nan_to_num(0, 0, 0) * shrink
            momentum.lerp_(gradient, 1 - MOMENTUM)
            update = gradient.lerp(momentum, MOMENTUM)
            tall = update.shape[-2] > update.shape[-1]
            update = update.mT if tall else update
            update = orthogonal(update.bfloat16() if update.is_cuda else update).to(momentum)
            update = update.mT if tall else update
            update = update * (rate * 0.2 * max(update.shape[-2:]) ** 0.5)
            torch._foreach_mul_(group, 1 - rate * self.weight_decay)
            torch._foreach_sub_(group, list(update.unbind()))


class Adam:
    """Adam with decoupled weight decay, its state in one flat piece."""

    def __init__(self, parameters: list[nn.Parameter], weight_decay: float):
        self.parameters, self.weight_decay = parameters, weight_decay
        self.sizes = [p.numel() for p in parameters]
        self.mean = torch.zeros(sum(self.sizes), device=parameters[0].device)
        self.square = torch.zeros_like(self.mean)
        self.steps = torch.zeros((), device=self.mean.device)

    def step(self, rate: Tensor, shrink: Tensor) -> None:
        """One step along the gradients, which are first multiplied by `shrink`."""
        gradient = torch.cat([p.grad.flatten() for p in self.parameters]).nan_to_num(0, 0, 0) * shrink
        self.steps += 1
        self.mean.lerp_(gradient, 1 - BETAS[0])
        self.square.lerp_(gradient.square(), 1 - BETAS[1])
        mean, square = (s / (1 - b**self.steps) for s, b in zip((self.mean, self.square), BETAS, strict=True))
        update = rate * mean / (square.sqrt() + 1e-8)
        torch._foreach_mul_(self.parameters, 1 - rate * self.weight_decay)
        parts = [u.view_as(p) for u, p in zip(update.split(self.sizes), self.parameters, strict=True)]
        torch._foreach_sub_(self.parameters, parts)


class Both:
    """Both optimizers of a network.

    Attributes:
        rate: Learning rate of the next step, a tensor that may be filled.
    """

    def __init__(self, network: nn.Module, weight_decay: float = 0.05, muon: bool = True):
        inside = {name: p for name, p in network.named_parameters() if muon and p.dim() == 2 and "coder." in name}
        others = [p for name, p in network.named_parameters() if name not in inside]
        self.parameters = list(network.parameters())
        self.rate = torch.zeros((), device=self.parameters[0].device)
        self.muon, self.adam = Muon(inside.values(), weight_decay), Adam(others, weight_decay)

    @torch.no_grad()
    def step(self) -> None:
        """Clip the gradients to norm 1, step, and clear them; a step whose gradients are not finite changes nothing."""
        norm = torch.stack(torch._foreach_norm([p.grad for p in self.parameters])).norm()
        fine = torch.isfinite(norm)
        shrink = torch.where(fine, 1 / norm.clamp(min=1.0), 0.0)
        rate = self.rate * fine
        self.muon.step(rate, shrink)
        self.adam.step(rate, shrink)
        for parameter in self.parameters:
            parameter.grad = None
