"""Newcomers to a panel: the level of a series without values, and what its first values are worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aru.pretrained.restraint import GROWN

KNOWN = (1, 2, 4, 8, 16, 32)  # numbers of values for which it is learned; from `GROWN` values on it does not count


class Newcomers(NamedTuple):
    """Learned from series of the panel as if they began anew (`aru.pretrained.rehearsal`)."""

    usual: Float[Tensor, " trait"]  # level by traits, where regressors are 0; of logarithms if `logs`
    rows: Float[Tensor, ""]  # rows of the usual level with which the mean of a series begins
    weight: Float[Tensor, "known 2"]  # of the level beside the network: in the median, in the width of intervals
    errors: Float[Tensor, "none_and_known level"]  # quantiles of the level's errors; first without any value
    size: Float[Tensor, ""]  # mean |y| of a typical series
    logs: bool  # errors are those of logarithms; else in units of a series' mean |y|
    nonnegative: bool  # as all series are
    whole: bool

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        return {name: value.tolist() if isinstance(value, Tensor) else value for name, value in self._asdict().items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Newcomers:
        """The inverse of `to_json`."""
        found: dict[str, Any] = dict(values)
        for name in ("usual", "rows", "weight", "errors", "size"):
            found[name] = torch.tensor(values[name], dtype=torch.float64)
        return cls(**found)

    def after(self, count: Float[Tensor, " series"]) -> tuple[Tensor, Tensor]:
        """Weights (series, 2) and quantiles of errors (series, level) after so many values, fewer than `GROWN`."""
        ends = torch.tensor([*KNOWN, GROWN], dtype=torch.float64, device=count.device).log2()
        weight = torch.cat([self.weight, self.weight.new_zeros(1, 2)]).to(count.device)
        errors = torch.cat([self.errors[1:], self.errors[-1:]]).to(count.device)
        place = count.double().clamp(1, GROWN).log2()
        at = torch.searchsorted(ends, place, right=True).clamp(1, len(ends) - 1)
        part = ((place - ends[at - 1]) / (ends[at] - ends[at - 1])).unsqueeze(-1)
        begun = (count > 0).unsqueeze(-1)
        known = torch.where(begun, errors[at - 1] + part * (errors[at] - errors[at - 1]), self.errors[0].to(errors))
        share = weight[at - 1] + part * (weight[at] - weight[at - 1])
        return torch.where(begun, share, 1.0), known
