"""Records of a shard in buckets: what is read is what was written last, in few calls and few bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.spark.fakes import FakeMapState

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'aru-forecast[spark]'")


class CountedState(FakeMapState):
    calls = 0

    def getValue(self, key: Any) -> Any:
        self.calls += 1
        return super().getValue(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self.calls += 1
        super().updateValue(key, value)


class Shard:
    """The states of a shard. Every access begins with nothing remembered, as a batch does."""

    def __init__(self) -> None:
        from aru.spark.buckets import Counts

        self.base, self.recent, self.counts = CountedState(), CountedState(), Counts()

    def buckets(self) -> Any:
        from aru.spark.buckets import Buckets

        return Buckets(self.base, self.recent, 3, self.counts)

    def load(self, keys: list[Any]) -> list[bytes | None]:
        return list(self.buckets().load(keys))

    def apply(self, changed: dict[Any, bytes | None]) -> int:
        """The number of calls."""
        before = self.base.calls + self.recent.calls
        buckets = self.buckets()
        list(buckets.load(list(changed)))
        buckets.apply(changed)
        self.counts = buckets.counts()
        return self.base.calls + self.recent.calls - before


def record(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("integer", [False, True])
def test_what_was_written_last_is_read(integer: bool) -> None:
    """Any order of dense, sparse and removing changes, while series become more."""
    shard, wanted, dice = Shard(), {}, random.Random(0)
    every = [i if integer else f"ä-{i}" for i in range(1500)]
    for turn in range(120):
        present = every[: 5 + 12 * turn]
        some = present if turn % 10 == 9 else dice.sample(present, min(len(present), dice.choice([1, 5, 100])))
        gone = dice.sample(some, 1) if turn % 7 == 6 else []
        changed: dict[Any, Any] = {key: record(dice.choice([0, 7, 200]), dice.random()) for key in some}
        changed |= dict.fromkeys(gone)
        shard.apply(changed)
        wanted.update(changed)
        wanted = {key: value for key, value in wanted.items() if value is not None}
        assert shard.load([*every, "none"]) == [wanted.get(key) for key in [*every, "none"]]
        assert shard.buckets().keys() == set(wanted)
        assert (shard.counts.bases, shard.counts.recents) == (len(shard.base), len(shard.recent))
    assert shard.counts.buckets >= 32


def test_dense_batches_take_few_calls_and_sparse_ones_write_little() -> None:
    from aru.spark.buckets import SIZE

    shard, series, size = Shard(), 64 * SIZE, 1000
    assert shard.apply({i: record(size, i) for i in range(series)}) <= 2 * 64
    assert shard.apply({i: record(size, -i) for i in range(series)}) == 2 * 64
    assert not shard.recent
    before = dict(shard.base)
    shard.apply({5: record(size, 0)})
    assert shard.base == before
    ((text,),) = shard.recent.values()
    assert len(text) < 2 * size
    for turn in range(SIZE):  # the same series again and again stays apart
        shard.apply({5: record(size, turn)})
    assert shard.base == before
    shard.apply({i: record(size, i) for i in range(series)})
    assert not shard.recent
