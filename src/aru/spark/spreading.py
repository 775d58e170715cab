"""Numbers of shards that Spark spreads evenly over its partitions.

Spark puts a key into the partition `hash(key) % partitions`: of the keys 0 to 3 it puts three into one of two
partitions. So shards have other numbers, whose hashes modulo `PERIOD` are 0, 1, 2 and so on. Then shard s lies in
partition s % partitions, for all numbers of partitions that divide `PERIOD`.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

PERIOD = 960  # 64 * 3 * 5
MOST_NUMBERED = 4096  # more shards are spread well enough by chance
SEED = 42  # Spark's


@functools.cache
def shard_numbers(shards: int) -> tuple[int, ...]:
    """The number of each shard, always the same ones."""
    wanted, candidates = np.arange(shards) % PERIOD, 16 * (PERIOD + shards)
    rests = spark_hash(np.arange(candidates, dtype=np.uint32)) % PERIOD
    order = np.argsort(rests, kind="stable")
    first = np.searchsorted(rests[order], wanted)
    return tuple(order[first + np.arange(shards) // PERIOD].tolist())


def spark_hash(keys: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """Spark's hash of integers: Murmur3 with 32 bits."""

    def turn(x: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
        return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))

    mixed = np.uint32(SEED) ^ (turn(keys * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593))
    mixed = (turn(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)) ^ np.uint32(4)
    mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (mixed ^ (mixed >> np.uint32(16))).view(np.int32)
