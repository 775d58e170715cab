"""Shards are spread evenly over Spark's partitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spark.conftest import MARKS

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'aru-forecast[spark]'")


@pytest.mark.parametrize("shards", [1, 2, 16, 256, 4096])
def test_every_partition_has_as_many_shards(shards: int) -> None:
    from aru.spark.spreading import PERIOD, shard_numbers, spark_hash

    numbers = np.array(shard_numbers(shards))
    assert len(set(numbers)) == shards
    assert numbers.max() < 2**31
    for partitions in (1, 2, 3, 5, 8, 12, 64):
        assert PERIOD % partitions == 0
        found = spark_hash(numbers.astype(np.uint32)) % partitions
        assert found.tolist() == (np.arange(shards) % PERIOD % partitions).tolist()


class TestSpark:
    pytestmark = MARKS

    def test_the_hash_is_that_of_spark(self, spark: Any) -> None:
        from aru.spark.spreading import shard_numbers, spark_hash

        numbers = np.array([*shard_numbers(256), 2**31 - 1])
        rows = spark.createDataFrame([(int(n),) for n in numbers], "n int").selectExpr("n", "hash(n) h").collect()
        assert {r.n: r.h for r in rows} == dict(
            zip(numbers.tolist(), spark_hash(numbers.astype(np.uint32)).tolist(), strict=True)
        )
