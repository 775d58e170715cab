"""Location and scale of a series that one outlier does not ruin, the map to the network's units, and that outlier."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

WILD = 5
"""How many times further than anything else a value must stick out to count as missing."""


class Scale(NamedTuple):
    """Location and scale of each series, (batch, 1)."""

    location: Tensor
    scale: Tensor

    def squash(self, values: Tensor) -> Tensor:
        """From the user's units to the network's; what is further away than 22,000 scales counts as that far."""
        return 2 * torch.asinh((values - self.location) / (2 * self.scale)).clamp(-10, 10)

    def restore(self, z: Tensor) -> Tensor:
        """From the network's units to the user's; z may have further dimensions at the end."""
        shape = (-1,) + (1,) * (z.dim() - 1)
        return 2 * torch.sinh(z.clamp(-30, 30) / 2) * self.scale.view(shape) + self.location.view(shape)


def middle(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Median of the values where the mask is true, and how many these are, both (batch, 1)."""
    ordered = torch.where(mask, values, torch.inf).sort(1).values
    count = mask.sum(1, keepdim=True)
    low, high = ((count - 1) // 2).clamp(min=0), (count // 2).clamp(max=values.shape[1] - 1)
    return (ordered.gather(1, low) + ordered.gather(1, high)) / 2, count


def robust_scale(values: Tensor, mask: Tensor) -> Scale:
    """Median, and 1.48 times the median of the deviations that are not zero.

    A constant series is scaled by its size, an empty one by 1.
    """
    location, count = middle(values, mask)
    location = torch.where(count > 0, location, 0.0)
    away = (values - location).abs()
    spread, varied = middle(away, mask & (away > 1e-6 * location.abs()))
    constant = torch.where(location != 0, location.abs(), 1.0)
    return Scale(location, torch.where(varied > 0, 1.4826 * spread, constant))


def protrusion(values: Tensor, mask: Tensor) -> Tensor:
    """How far each value but the last is above both of its neighbours, or below both; 0 where one is missing.

    Where the row before is missing, the row after the next stands in for it.
    """
    here, after = values[:, :-1], values[:, 1:]
    there, stand_in = F.pad(mask[:, :-2], (1, 0)), F.pad(mask[:, 2:], (0, 1))
    other = torch.where(there, F.pad(values[:, :-2], (1, 0)), F.pad(values[:, 2:], (0, 1)))
    out = torch.maximum(here - torch.maximum(other, after), torch.minimum(other, after) - here)
    return torch.where(mask[:, :-1] & mask[:, 1:] & (there | stand_in), out.clamp(min=0), 0.0)


def credible(values: Tensor, mask: Tensor, scale: Scale) -> Tensor:
    """The mask without the one value, if any, that is too wild to be read.

    It sticks out of its neighbours by more than 5 scales, and 5 times further than any other value. The last row never
    does: it may be the first of a new level.
    """
    out = protrusion(values, mask)
    most, second = out.topk(2, 1).values.split(1, 1)
    wild = (out == most) & (most > WILD * torch.maximum(second, scale.scale))
    return mask & ~F.pad(wild, (0, 1))
