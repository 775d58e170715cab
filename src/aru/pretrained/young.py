"""Forecasts of young series by their level alone, and mixed with those of the network.

The level is an aged mean of the values without the effects of covariates. It begins with a part of a row at the level
that is usual for the traits of a series.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aru.pretrained.effects import LOGS, shown
from aru.pretrained.newcomers import Newcomers
from aru.pretrained.patches import MEDIAN
from aru.pretrained.restraint import GROWN
from aru.pretrained.robust import without_lone

HALF_LIFE = 10.0  # rows
NEARLY_NONE = -0.999  # the smallest y whose log1p is taken


class YoungSeries(NamedTuple):
    """What a forecast of the level reads."""

    read: Float[Tensor, "series row"]  # values without the effects of their covariates
    observed: Bool[Tensor, "series row"]
    usual: Float[Tensor, " series"]  # the usual level of such rows, as z is: a logarithm where effects multiply
    effect: Float[Tensor, "series step"]  # of the rows ahead
    way: int


def usual_level(usual: Tensor, logs: bool, middle: Tensor, way: int) -> Tensor:
    """`YoungSeries.usual`, from the usual level where regressors are 0 and the mean effect of the rows."""
    if way == LOGS:
        return usual + middle
    return (usual.expm1() if logs else usual) + middle


def level_ahead(young: YoungSeries, rows: Tensor) -> Float[Tensor, "series step"]:
    """The median of y in the rows ahead, if the level stays."""
    age = torch.arange(young.read.shape[1] - 1, -1, -1, dtype=torch.float64, device=young.read.device)
    weight = torch.where(without_lone(young.read, young.observed), 0.5 ** (age / HALF_LIFE), 0.0)
    z = young.read.clamp(min=NEARLY_NONE).log1p() if young.way == LOGS else young.read
    begin = torch.where(young.observed.any(1), rows.to(young.read), 1.0)
    level = ((weight * z).sum(1) + begin * young.usual) / (weight.sum(1) + begin)
    level = level.expm1() if young.way == LOGS else level
    return shown(level.unsqueeze(1).expand_as(young.effect), young.effect, young.way)


def sizes(young: YoungSeries, typical: Tensor) -> Float[Tensor, " series"]:
    """Mean |y| of each series, a typical one without values."""
    known = without_lone(young.read, young.observed)
    total = torch.where(known, young.read.abs(), 0.0).sum(1)
    mean = total / known.sum(1).clamp(min=1)
    return torch.where(mean > 0, mean, typical)


def spread(median: Tensor, errors: Tensor, logs: bool, size: Tensor) -> Float[Tensor, "series step level"]:
    """Quantiles around a median, from those of errors (series or 1, level)."""
    away = errors.unsqueeze(1)
    if logs:
        return (median.clamp(min=NEARLY_NONE).log1p().unsqueeze(-1) + away).expm1()
    return median.unsqueeze(-1) + size.reshape(-1, 1, 1) * away


def mixed(
    quantiles: Float[Tensor, "series step level"],
    young: YoungSeries,
    count: Float[Tensor, " series"],
    newcomers: Newcomers,
) -> Float[Tensor, "series step level"]:
    """Forecasts of the network, mixed with those of the level where a series is young. All others stay."""
    some = (count < GROWN).nonzero().squeeze(-1)
    if not len(some):
        return quantiles
    read, observed, usual, effect = (value[some] for value in young[:4])
    few = YoungSeries(read, observed, usual, effect, young.way)
    weight, errors = newcomers.after(count[some])
    size = sizes(few, newcomers.size.to(errors))
    level = spread(level_ahead(few, newcomers.rows), errors, newcomers.logs, size)
    out = quantiles.clone()
    out[some] = blend(quantiles[some], level, weight)
    return out


def blend(one: Tensor, other: Tensor, weight: Tensor) -> Float[Tensor, "series step level"]:
    """Mix two forecasts by the weights (series or 1, 2) of the other's median and of its distances from it."""
    middle, width = weight.reshape(-1, 1, 2).unbind(-1)
    m, n = one[..., MEDIAN], other[..., MEDIAN]
    away, far = one - m.unsqueeze(-1), other - n.unsqueeze(-1)
    return (m + middle * (n - m)).unsqueeze(-1) + away + width.unsqueeze(-1) * (far - away)
