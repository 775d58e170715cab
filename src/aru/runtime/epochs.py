"""What series have in common, and when it is learned anew. Between two such epochs it stays as it is.

A series' record never depends on it: the two meet when a forecast is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aru.nn.tree import take
from aru.pretrained.effects import CommonEffects
from aru.runtime.state import SeriesState

EPOCH_GROWTH = 1.1  # growth of observations after which it is time
EPOCH_SAMPLE = 2**9  # series from which it is learned, evenly spread over all of them


class Common(NamedTuple):
    """What the series of a panel have in common."""

    effects: CommonEffects | None = None  # of covariates, if the model learns them
    scores: Tensor | None = None  # (1, bin): where actual values lie in their forecasts, for calibration
    epoch: int = 0  # how often it was learned
    observations: float = 0.0  # of all series, when it was learned

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        effects = None if self.effects is None else self.effects.to_json()
        scores = None if self.scores is None else self.scores.tolist()
        return {**self._asdict(), "effects": effects, "scores": scores}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Common:
        """The inverse of `to_json`."""
        effects, scores = values["effects"], values["scores"]
        return cls(
            None if effects is None else CommonEffects.from_json(effects),
            None if scores is None else torch.tensor(scores, dtype=torch.float64),
            values["epoch"],
            values["observations"],
        )


def is_due(common: Common, observations: float) -> bool:
    """Whether series have grown enough since `common` was learned."""
    return observations >= EPOCH_GROWTH * common.observations


def sampled(state: SeriesState) -> SeriesState:
    """The series to learn from."""
    n = len(state.last)
    if n <= EPOCH_SAMPLE:
        return state
    chosen: SeriesState = take(state, torch.linspace(0, n - 1, EPOCH_SAMPLE, device=state.last.device).long())
    return chosen
