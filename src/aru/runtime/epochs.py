"""When what series have in common is learned anew. Between two such epochs it stays as it is."""

from __future__ import annotations

from typing import Any

import torch

from aru.nn.tree import take
from aru.runtime.state import SeriesState

EPOCH_GROWTH = 1.1  # growth of observations after which it is time
EPOCH_SAMPLE = 2**9  # series from which it is learned, evenly spread over all of them


def is_due(common: Any, observations: float) -> bool:
    """Whether series have grown enough since `common` was learned."""
    return common is None or observations >= EPOCH_GROWTH * common.observations


def sampled(state: SeriesState) -> SeriesState:
    """The series to learn from."""
    n = len(state.last)
    if n <= EPOCH_SAMPLE:
        return state
    chosen: SeriesState = take(state, torch.linspace(0, n - 1, EPOCH_SAMPLE, device=state.last.device).long())
    return chosen
