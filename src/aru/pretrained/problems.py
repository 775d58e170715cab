"""Forecasts that a network was to make, with what came: what it is tuned and judged on.

Past values are kept in single precision, as distances from a value in double precision.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aru.pretrained.effects import LOGS, PLAIN_VALUES, shown
from aru.pretrained.robust import median_of, robust_scale


class Reading(NamedTuple):
    """Past values as a network reads them, and those that came, in the same units. NaN is missing."""

    base: Float[Tensor, " problem"]  # in double precision; all others are distances from it
    past: Float[Tensor, "problem rows"]
    came: Float[Tensor, "problem h"]

    @classmethod
    def of(cls, past: Tensor, observed: Tensor, came: Tensor, known: Tensor) -> Reading:
        """Of values in double precision, where `observed` and `known` are true."""
        base = median_of(past, observed).nan_to_num(nan=0.0)
        past, came = (torch.where(there, v - base, torch.nan).float() for v, there in ((past, observed), (came, known)))
        return cls(base[:, 0], past, came)


class Problems(NamedTuple):
    """(problem, ...): each is a series at one of its origins."""

    plain: Reading  # the values themselves
    hidden: Reading  # without the effects of covariates; the same if there are none
    y: Float[Tensor, "problem h"]  # what came, in double precision; NaN is missing
    effect: Float[Tensor, "problem h"]  # of the rows ahead
    x: Float[Tensor, "problem h k"]  # their covariates
    unit: Float[Tensor, " problem"]  # in which errors are counted: the scale of the past values
    way: Float[Tensor, " problem"]  # whether effects multiply or add (`aru.pretrained.effects`)

    @classmethod
    def of(cls, plain: Reading, hidden: Reading, y: Tensor, effect: Tensor, x: Tensor, way: int) -> Problems:
        """Of one origin of each series."""
        known = plain.past.isfinite()
        unit = robust_scale(torch.where(known, plain.past, 0.0), known).scale[:, 0]
        return cls(plain, hidden, y, effect, x, unit, torch.full_like(unit, way))

    def reading(self, effects: bool) -> Reading:
        """What the network reads, without effects or with them."""
        return self.hidden if effects else self.plain

    def errors(self, quantiles: Float[Tensor, "problem h level"], effects: bool, levels: Tensor) -> Tensor:
        """Mean pinball loss of each problem, in its unit, of quantiles in the units of its reading, (problem,)."""
        values = quantiles + self.reading(effects).base.view(-1, 1, 1)
        if effects:
            plain, logs = (shown(values, self.effect.unsqueeze(-1), way) for way in (PLAIN_VALUES, LOGS))
            values = torch.where(self.way.view(-1, 1, 1) == LOGS, logs, plain)
        gap = self.y[:, : values.shape[1]].unsqueeze(-1) - values
        loss = torch.maximum(levels * gap, (levels - 1) * gap).mean(-1)
        return loss.nanmean(1) / self.unit
