"""What a fitted model makes of the covariates of the steps ahead, beyond their effects in closed form.

The effects are linear and of each series. The head learns, across all series, what they leave over: products of
covariates, and effects that depend on the state of a series. The network around it stays as it is. It has members that
learn apart and are averaged, because rows of one day share what happened on it: there are fewer days than rows to learn
from, and one member alone takes chance for a pattern. It begins with zeros, and so changes nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aru.pretrained.patches import HORIZON, LEVELS, MEDIAN, PatchShape

HEAD_WIDTH, MEMBERS = 64, 4


class CovariateHead(nn.Module):
    """Two layers over a step's covariates and what the network knows of the step, several times over."""

    def __init__(self, shape: PatchShape, covariates: int) -> None:
        super().__init__()
        self.covariates = covariates
        self.read = nn.Linear(covariates, MEMBERS * HEAD_WIDTH)
        self.step = nn.Linear(shape.step, MEMBERS * HEAD_WIDTH, bias=False)
        self.token = nn.Linear(shape.width, MEMBERS * HEAD_WIDTH, bias=False)
        self.between = nn.Parameter(torch.zeros(MEMBERS, HEAD_WIDTH, HEAD_WIDTH))
        self.between_bias = nn.Parameter(torch.zeros(MEMBERS, 1, HEAD_WIDTH))
        self.out = nn.Parameter(torch.zeros(MEMBERS, HEAD_WIDTH, len(LEVELS)))
        self.out_bias = nn.Parameter(torch.zeros(MEMBERS, 1, len(LEVELS)))
        self.wider: Tensor  # by this factor quantiles are further from the median than the members say
        self.register_buffer("wider", torch.ones(()))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def begin(self, generator: torch.Generator) -> None:
        """Weights to learn from; what comes out is still zero."""
        inner = [(self.between, HEAD_WIDTH), (self.between_bias, HEAD_WIDTH)]
        layers = [(p, layer.in_features) for layer in (self.read, self.step, self.token) for p in layer.parameters()]
        for parameter, inputs in (*layers, *inner):
            nn.init.uniform_(parameter, -(inputs**-0.5), inputs**-0.5, generator=generator)

    @property
    def idle(self) -> bool:
        """Whether it changes nothing."""
        return not bool(self.out.any() or self.out_bias.any())

    def members(self, x: Tensor, step: Tensor, token: Tensor) -> Tensor:
        """By how much each member moves the network's outputs, (member, batch, 64, level).

        x are the covariates (batch, n, k) of the first n of 64 steps; later steps are not moved.
        """
        n = x.shape[1]
        hidden = F.relu(self.read(x) + self.step(step[:, :n]) + self.token(token[:, :n]))
        apart = hidden.flatten(0, 1).unflatten(-1, (MEMBERS, HEAD_WIDTH)).transpose(0, 1)
        moved = F.relu(apart @ self.between + self.between_bias) @ self.out + self.out_bias
        return F.pad(moved.unflatten(1, (-1, n)), (0, 0, 0, HORIZON - n))

    def forward(self, x: Tensor, step: Tensor, token: Tensor) -> Tensor:
        """The mean of all members, (batch, 64, level)."""
        return self.members(x, step, token).mean(0)

    def widened(self, quantiles: Tensor) -> Tensor:
        """Quantiles (..., level) further from their median, as rows that were held back demand it."""
        median = quantiles[..., MEDIAN, None]
        return median + self.wider * (quantiles - median)
