"""Forecast distributions by their quantiles."""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aru.pretrained.patches import LEVELS


class Quantiles(NamedTuple):
    """Forecast distribution of y by its quantiles at `LEVELS`."""

    values: Float[Tensor, "series lead level"]
    nonnegative: Bool[Tensor, "series 1"]
    whole: Bool[Tensor, "series 1"]

    def quantile(self, q: float) -> Tensor:
        """Between two levels, and beyond the outer ones, the quantile of a normal distribution through both."""
        at, part = _between(q)
        low, high = self.values[..., at], self.values[..., at + 1]
        return restrict(low + part * (high - low), self.nonnegative, self.whole)

    def mean(self) -> Tensor:
        """Mean of y. Beyond the outer levels the distribution ends."""
        possible = restrict(self.values, self.nonnegative.unsqueeze(-1))
        return (possible * torch.tensor(_weights(), dtype=possible.dtype, device=possible.device)).sum(-1)


def restrict(values: Tensor, nonnegative: Tensor, whole: Tensor | None = None) -> Tensor:
    """The nearest values that y can have."""
    values = torch.where(nonnegative, values.clamp(min=0), values)
    return values if whole is None else torch.where(whole, values.round(), values)


@functools.cache
def _between(q: float) -> tuple[int, float]:
    """The level at or below q, and how far q is on the way to the next one, in standard normal deviates."""
    z, known = (torch.special.ndtri(torch.tensor(v, dtype=torch.float64)) for v in (q, LEVELS))
    at = int(torch.searchsorted(known, z, right=True).clamp(1, len(LEVELS) - 1)) - 1
    return at, float((z - known[at]) / (known[at + 1] - known[at]))


@functools.cache
def _weights() -> list[float]:
    """The weight of each quantile in the mean."""
    ends = [0.0, *((a + b) / 2 for a, b in itertools.pairwise(LEVELS)), 1.0]
    return [b - a for a, b in itertools.pairwise(ends)]
