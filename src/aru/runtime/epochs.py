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
EPOCH_SAMPLE = 2**9  # series from which it is learned


def is_due(common: Any, observations: float) -> bool:
    """Whether series have grown enough since `common` was learned."""
    return common is None or observations >= EPOCH_GROWTH * common.observations


def sample_of(keys: Sequence[Any]) -> list[int]:
    """Positions of the series to learn from: those whose names have the smallest CRC-32, in its order.

    So the sample, and the order of sums over it, depend neither on the order in which series came nor on the process.
    """
    order = ((zlib.crc32(str(key).encode()), str(key), at) for at, key in enumerate(keys))
    return [at for _, _, at in heapq.nsmallest(EPOCH_SAMPLE, order)]


def sampled(state: SeriesState, keys: Sequence[Any]) -> SeriesState:
    """Their states."""
    chosen: SeriesState = take(state, torch.tensor(sample_of(keys), dtype=torch.int64, device=state.last.device))
    return chosen
