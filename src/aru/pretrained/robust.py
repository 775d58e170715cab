"""Location and scale of a series that one outlier does not ruin, the map to the network's units, and that outlier."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from aru.nn.distributions import inverse_transform, transform
from aru.pretrained.patches import HORIZON

WILD = 4  # scales by which a value must stick out of its neighbours to count as missing
LONE, DUE = 2, 5  # how many times further than any other; and if it may be the first of one in every season
FAR_AWAY = 10  # how many times further from the median than the next value,
LEAST_AWAY = 0.25  # or than this share of the median, a lone value of a young series is
DRIFT = 2  # rows by which such a value may come early or late
CLOSE = {torch.float32: 1e-6, torch.float64: 1e-10}  # deviations below this share of the location count as zero
TO_SIGMA = 1.4826  # from the median deviation of normal values to their standard deviation
FARTHEST_RATIO = math.sinh(10)  # values further away than so many double scales count as that far
LARGEST_OUTPUT = 30  # in the network's units


class RobustScale(NamedTuple):
    """Location and scale of each series, (series, 1)."""

    location: Tensor
    scale: Tensor

    def squash(self, values: Tensor) -> Tensor:
        """From the user's units to the network's."""
        ratio = ((values - self.location) / (2 * self.scale)).clamp(-FARTHEST_RATIO, FARTHEST_RATIO)
        return 2 * transform("asinh", ratio.float())

    def restore(self, z: Tensor) -> Tensor:
        """From the network's units to the user's; z may have further dimensions at the end."""
        shape = (-1,) + (1,) * (z.dim() - 1)
        ratio = inverse_transform("asinh", z.clamp(-LARGEST_OUTPUT, LARGEST_OUTPUT) / 2)
        return 2 * ratio * self.scale.view(shape) + self.location.view(shape)


def median_of(values: Tensor, mask: Tensor) -> Tensor:
    """Median of the values where the mask is true, (series, 1); NaN where it never is."""
    known = torch.where(mask, values, torch.nan)
    on_cpu = known.device.type == "cpu" and not known.requires_grad
    ordered = torch.from_numpy(np.sort(known.numpy())) if on_cpu else known.sort(1).values  # numpy is 4 times as fast
    count = mask.sum(1, keepdim=True)
    low, high = ((count - 1) // 2).clamp(min=0), (count // 2).clamp(max=values.shape[1] - 1)
    return (ordered.gather(1, low) + ordered.gather(1, high)) / 2


def robust_scale(values: Tensor, mask: Tensor) -> RobustScale:
    """Median, and 1.48 times the median of the deviations that are not zero.

    A constant series is scaled by its size, an empty one by 1.
    """
    location = median_of(values, mask).nan_to_num(nan=0.0)
    away = (values - location).abs()
    spread = median_of(away.float(), mask & (away > CLOSE[values.dtype] * location.abs())).to(away)
    constant = torch.where(location != 0, location.abs(), 1.0)
    return RobustScale(location, torch.where(spread.isnan(), constant, TO_SIGMA * spread))


def protrusion(values: Tensor, mask: Tensor) -> Tensor:
    """How far each value but the last is above both of its neighbours, or below both; 0 where one is missing.

    Where the row before is missing, the row after the next stands in for it.
    """
    here, after = values[:, :-1], values[:, 1:]
    there, stand_in = F.pad(mask[:, :-2], (1, 0)), F.pad(mask[:, 2:], (0, 1))
    other = torch.where(there, F.pad(values[:, :-2], (1, 0)), F.pad(values[:, 2:], (0, 1)))
    out = torch.maximum(here - torch.maximum(other, after), torch.minimum(other, after) - here)
    return torch.where(mask[:, :-1] & mask[:, 1:] & (there | stand_in), out.clamp(min=0), 0.0)


def without_lone(values: Tensor, mask: Tensor) -> Tensor:
    """The mask of the few values of a young series without the one, if any, that is far from all others.

    Of two values none is.
    """
    if values.shape[1] < 3:
        return mask
    location = median_of(values, mask).nan_to_num(nan=0.0)
    away: Tensor = torch.where(mask, (values - location).abs(), 0.0)
    most, second = away.topk(2, 1).values.split(1, 1)
    near = torch.maximum(second, LEAST_AWAY * location.abs())  # 0 of a series of zeros: its first value may be usual
    far = (near > 0) & (most > FAR_AWAY * near) & (mask.sum(1, keepdim=True) > 2)
    without: Tensor = mask & ~((away == most) & far)
    return without


def credible(values: Tensor, mask: Tensor, scale: RobustScale, periods: Tensor | None) -> Tensor:
    """The mask without the one value, if any, that is too wild to be read.

    It sticks out of its neighbours by more than 4 scales, and twice as far as any other value; 5 times if it may come
    again in the steps that a network forecasts (`_due`), however many are asked for. The last row never does: it may be
    the first of a new level.
    """
    out = protrusion(values, mask)
    furthest = out.topk(2, 1)
    most, second = furthest.values.split(1, 1)
    factor = torch.where(_due(furthest.indices[:, :1], mask, periods), DUE, LONE)
    wild = (out == most) & (most > torch.maximum(factor * second, WILD * scale.scale))
    return mask & ~F.pad(wild, (0, 1))


def _due(row: Tensor, mask: Tensor, periods: Tensor | None) -> Tensor:
    """Whether what came once, in this row of each series, may be yearly, say, and come again in the steps ahead.

    The season must be longer than what is known before the row, or it would have come then, and end in these steps. Of
    unknown seasons, periods of 0 or None, one may be so.
    """
    before = row - mask.to(torch.int8).argmax(1, keepdim=True) - DRIFT
    low, high = mask.shape[1] - row - DRIFT, mask.shape[1] - row + HORIZON + DRIFT
    if periods is None:
        return before < high
    fits = (periods > before) & (periods >= low) & (periods < high)
    return torch.where((periods > 0).any(1, keepdim=True), fits.any(1, keepdim=True), before < high)
