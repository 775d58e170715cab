"""Spark's state store as a store of records, one shard at a time."""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from aru.errors import StorageError
from aru.spark import dataframes
from aru.spark.shard import Part, faulty
from aru.store import About, Key, Kind
from aru.store.staged import Changes, StagedStore

SERIES, ABOUT = "series", "about"  # state variables of a shard
# What transformWithState needs, and checkpoints that write changes only.
STATE_STORE = "spark.sql.streaming.stateStore."
CONFIGURATION = {
    f"{STATE_STORE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STATE_STORE}rocksdb.changelogCheckpointing.enabled": "true",
}


class StateStore(StagedStore):
    """The state of one shard after the other, as a store. Spark itself makes changes durable, with the batch.

    A shard is all that a task sees. Records that belong to the whole panel have no place in it and are refused.
    """

    def attach(self, records: Any, about: Any, shards: int) -> None:
        """Turn to another shard, with its map state of records and its value state of the description.

        Spark may have gone back to an earlier state of the shard, so nothing that was read before counts.
        """
        self._records, self._described, self._shards = records, about, shards
        self._version += 1

    def load(self, keys: Sequence[Key], kind: Kind) -> list[bytes | None]:
        """The record of each key; there are none of the whole panel."""
        if kind != "series":
            return [None] * len(keys)
        found = map(self._records.getValue, ((key,) for key in keys))
        return [None if value is None else bytes(value[0]) for value in found]

    def all_keys(self, kind: Kind) -> Iterable[Key]:
        """All series of the shard."""
        if kind != "series":
            return ()
        return (key for (key,) in self._records.keys())  # noqa: SIM118 - a state is no dictionary

    def description(self) -> About | None:
        """What the records of the shard are."""
        found = self._described.get()
        if found is None:
            return None
        text, shards = found
        if shards != self._shards:
            raise StorageError(
                f"The checkpoint has `shards={shards}`, here it is {self._shards}: series would begin again in other "
                "shards",
                f"Use `shards={shards}`, or begin a new checkpoint with the states of this one (read_checkpoint).",
            )
        return About.from_json(text)

    def apply(self, changed: Changes, about: About | None) -> None:
        """Write and remove."""
        if any(kind != "series" for kind, _ in changed):
            raise StorageError(
                "On Spark a shard sees its own series only: it cannot keep records that the whole panel shares",
                "Use a model without them, or a Stream in one process.",
            )
        if about is not None:
            self._described.update((about.to_json(), self._shards))
        for (_, key), record in changed.items():
            if record is None:
                self._records.removeKey((key,))
            else:
                self._records.updateValue((key,), (record,))

    def __str__(self) -> str:
        return "The checkpoint"

    def close(self) -> None:
        """There is nothing to let go of."""


@functools.cache
def process_store() -> StateStore:
    """The one store of this worker process."""
    return StateStore()


class ShardProcessor(StatefulProcessor, abc.ABC):
    """Takes in the rows of shard after shard. A map state holds one record per series: only changes are written."""

    def __init__(self, shards: int, output: T.StructType) -> None:
        self.shards, self.output = shards, output

    @abc.abstractmethod
    def take_in(self, rows: pd.DataFrame) -> Iterator[Part]:
        """What becomes of the rows of the shard at hand."""

    @abc.abstractmethod
    def begin(self, ids: list[Any], records: list[bytes]) -> None:
        """Put the first records of the shard at hand in place."""

    def attached(self) -> StateStore:
        """The states of the shard at hand."""
        store = process_store()
        store.attach(self._records, self._about, self.shards)
        return store

    def init(self, handle: Any) -> None:
        """Declare the states of a shard."""
        id_type = self.output["unique_id"].dataType.simpleString()
        self._records = handle.getMapState(SERIES, f"unique_id {id_type}", "record binary")
        self._about = handle.getValueState(ABOUT, "description string, shards int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Take in what a batch has for a shard."""
        frame = pd.concat(list(rows), ignore_index=True)
        unusable = key[0] == dataframes.NOWHERE
        parts = iter([faulty(frame, frame["fault"].to_numpy())]) if unusable else self.take_in(frame)
        for kind, values in parts:
            yield dataframes.build(self.output.names, kind, values)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Put the records of a shard in place, before its first rows."""
        self.begin(initialState["unique_id"].tolist(), initialState["record"].tolist())

    def close(self) -> None:
        """There is nothing to let go of."""


def transform(rows: DataFrame, processor: ShardProcessor, states_df: DataFrame) -> DataFrame:
    """Let a processor take in rows that have a `shard`. `states_df`: the records that a new checkpoint begins with."""
    for name, value in CONFIGURATION.items():
        rows.sparkSession.conf.set(name, value)
    shard = dataframes.shard_of(F.col("unique_id"), processor.shards).cast("int").alias("shard")
    begin = states_df.select("unique_id", "record", shard)
    return rows.groupBy("shard").transformWithStateInPandas(
        processor, processor.output, "Append", "None", begin.groupBy("shard")
    )
