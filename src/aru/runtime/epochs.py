"""What series have in common, when it is learned anew, and from which of them. Between such epochs it stays as it is.

A series' record never depends on it: the two meet when a forecast is made.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aru.nn.tree import take
from aru.pretrained.effects import CommonEffects
from aru.pretrained.hindsight import CommonHindsight
from aru.runtime.state import SeriesState

EPOCH_GROWTH = 1.1  # growth of observations after which it is time
EPOCH_SAMPLE, LEAST_SAMPLE = 2**9, 2**6  # most series from which it is learned, and so many of any size
EPOCH_WORK = 2**9 * 2**11  # series times squared coefficients of each: more take fewer series


class Common(NamedTuple):
    """What the series of a panel have in common."""

    effects: CommonEffects | CommonHindsight | None = None  # of covariates or of hindsight, if the model learns them
    scores: Tensor | None = None  # (1, bin): where actual values lie in their forecasts, for calibration
    epoch: int = 0  # how often it was learned
    observations: float = 0.0  # of all series, when it was learned

    @property
    def frozen(self) -> bool:
        """Whether it stays as it is, however many observations come."""
        return math.isinf(self.observations)

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        effects = None if self.effects is None else self.effects.to_json()
        scores = None if self.scores is None else self.scores.tolist()
        return {**self._asdict(), "effects": effects, "scores": scores}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Common:
        """The inverse of `to_json`."""
        effects, scores = values["effects"], values["scores"]
        kind = CommonHindsight if effects is not None and "theta" in effects else CommonEffects
        return cls(
            None if effects is None else kind.from_json(effects),
            None if scores is None else torch.tensor(scores, dtype=torch.float64),
            values["epoch"],
            values["observations"],
        )


def is_due(common: Common, observations: float) -> bool:
    """Whether series have grown enough since `common` was learned."""
    return observations >= EPOCH_GROWTH * common.observations


def sample_of(keys: Sequence[Any], coefficients: int) -> list[int]:
    """Positions of the series to learn from: those whose names have the smallest CRC-32, in its order.

    So the sample, and the order of sums over it, depend neither on the order in which series came nor on the process.
    The more coefficients each series has, the fewer they are, so that an epoch does not hold up an update for long.
    """
    most = min(EPOCH_SAMPLE, max(EPOCH_WORK // max(coefficients, 1) ** 2, LEAST_SAMPLE))
    order = ((zlib.crc32(str(key).encode()), str(key), at) for at, key in enumerate(keys))
    return [at for _, _, at in heapq.nsmallest(most, order)]


def sampled(state: SeriesState, keys: Sequence[Any], coefficients: int) -> SeriesState:
    """Their states."""
    chosen = torch.tensor(sample_of(keys, coefficients), dtype=torch.int64, device=state.last.device)
    some: SeriesState = take(state, chosen)
    return some
