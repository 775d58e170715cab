"""Random numbers of one seeded generator, on one device, in whole batches."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor


@cache
def constant(values: tuple, device: torch.device) -> Tensor:
    """A tensor of given numbers; copied to the device once, since a recorded CUDA graph must not copy."""
    return torch.tensor(values, device=device)


class Dice:
    """Draws tensors; the same seed on the same device gives the same draws.

    On a GPU the device's default generator is seeded and used, because CUDA graphs can replay it.
    """

    def __init__(self, seed: int, device: str | torch.device = "cpu"):
        self.device = torch.device(device)
        self._generator = None
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        else:
            self._generator = torch.Generator().manual_seed(seed)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Uniform on [low, high)."""
        return torch.rand(*shape, generator=self._generator, device=self.device) * (high - low) + low

    def normal(self, *shape: int) -> Tensor:
        """Standard normal."""
        return torch.randn(*shape, generator=self._generator, device=self.device)

    def log_uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Uniform in the logarithm."""
        return torch.exp(self.uniform(*shape, low=math.log(low), high=math.log(high)))

    def chance(self, probability: float | Tensor, *shape: int) -> Tensor:
        """True with a probability."""
        return self.uniform(*shape) < probability

    def index(self, below: int, *shape: int) -> Tensor:
        """Integers from 0 on, below a bound."""
        return torch.randint(below, shape, generator=self._generator, device=self.device)

    def pick(self, values: tuple[float, ...], weights: tuple[float, ...], *shape: int) -> Tensor:
        """One of the values, by weight."""
        edges = constant(tuple(map(float, weights)), self.device).cumsum(0)
        return constant(values, self.device)[torch.bucketize(self.uniform(*shape) * edges[-1], edges[:-1])]

    def permutation(self, n: int) -> Tensor:
        """Numbers below n in random order."""
        return torch.argsort(self.uniform(n))

    def poisson(self, rate: Tensor) -> Tensor:
        """Poisson counts."""
        return torch.poisson(rate, generator=self._generator)

    def gamma(self, shape: Tensor) -> Tensor:
        """Gamma variables of scale 1."""
        return torch._standard_gamma(shape, generator=self._generator)
