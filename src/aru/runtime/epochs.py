"""When what series have in common is learned anew, and from which of them. Between such epochs it stays as it is."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Sequence
from typing import Any

import torch

from aru.nn.tree import take
from aru.runtime.state import SeriesState

EPOCH_GROWTH = 1.1  # growth of observations after which it is time
EPOCH_SAMPLE, LEAST_SAMPLE = 2**9, 2**6  # most series from which it is learned, and so many of any size
EPOCH_WORK = 2**9 * 2**11  # series times squared coefficients of each: more take fewer series


def is_due(common: Any, observations: float) -> bool:
    """Whether series have grown enough since `common` was learned."""
    return common is None or observations >= EPOCH_GROWTH * common.observations


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
