"""What a network says about a series that is shorter than those it was trained on, kept within reason."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aru.pretrained.patches import MEDIAN

GROWN = 64  # values after which a network is taken at its word
UNKNOWN_SEASON = 10  # rows of a season that nobody knows: the network was trained on no shorter series
RANGES = 10  # of the values, by which a quantile may be away from the median if zero is a value like any other


def restrained(
    quantiles: Float[Tensor, "series step level"],
    y: Float[Tensor, "series rows"],
    observed: Bool[Tensor, "series rows"],
    nonnegative: Bool[Tensor, "series 1"],
    season: int,
) -> Float[Tensor, "series step level"]:
    """Quantiles of series with few values, closer to what these values say. All others stay.

    Before a whole season is known, a rise cannot be told from a part of the season, so that the median stays within
    the range of the values. No quantile of a young series is further from its median than its largest value from zero,
    or than ten times that range if values may be negative.
    """
    count = observed.sum(1)
    young = ((count > 0) & (count < max(GROWN, season + 1))).nonzero().squeeze(-1)
    if not len(young):
        return quantiles
    some, values, known = quantiles[young], y[young], observed[young]
    median = some[..., MEDIAN]
    low = torch.where(known, values, torch.inf).amin(1, keepdim=True)
    high = torch.where(known, values, -torch.inf).amax(1, keepdim=True)
    inside = torch.where(count[young, None] <= max(season, 1), median.clamp(low, high), median)
    size = torch.maximum(low.abs(), high.abs())
    reach = torch.where(nonnegative[young] | (high == low), size, RANGES * (high - low))
    reach = torch.where(reach > 0, reach, 1.0).unsqueeze(-1)
    out = quantiles.clone()
    out[young] = inside.unsqueeze(-1) + (some - median.unsqueeze(-1)).clamp(-reach, reach)
    return out
