"""A store of records in Spark's state store, one shard at a time."""

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
from aru.spark.buckets import Buckets, Counts
from aru.spark.shard import Part, faulty
from aru.store import About, Key, Kind
from aru.store.staged import Changes, StagedStore

BASE_VARIABLE, RECENT_VARIABLE, ABOUT_VARIABLE, COUNTS_VARIABLE = "base", "recent", "about", "counts"  # of a shard
COUNTS = "newest bigint, buckets int, series bigint, bases int, recents int"
# Needed by transformWithState, with checkpoints that write only changes.
STATE_STORE = "spark.sql.streaming.stateStore."
CONFIGURATION = {
    f"{STATE_STORE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STATE_STORE}rocksdb.changelogCheckpointing.enabled": "true",
}


class StateStore(StagedStore):
    """A store for one shard after the other. Spark makes changes durable when the batch is complete.

    A task sees only its shard, so records that all series share are refused.
    """

    def attach(self, base: Any, recent: Any, about: Any, counts: Any, shards: int) -> None:
        """Switch to another shard: its map states of records, its value states of description and counts.

        Nothing is remembered of another time, since Spark may have restored an earlier state of the shard.
        """
        self._described, self._counts, self._shards = about, counts, shards
        newest, *found = counts.get() or (None,)
        self._newest = None if newest is None else int(newest)
        self._buckets = Buckets(base, recent, shards, Counts(*found))
        self._version += 1

    def load(self, keys: Sequence[Key], kind: Kind) -> list[bytes | None]:
        """The record of each key. There are no records that all series share."""
        return list(self._buckets.load(keys)) if kind == "series" else [None] * len(keys)

    def all_keys(self, kind: Kind) -> Iterable[Key]:
        """All series of the shard."""
        return self._buckets.keys() if kind == "series" else ()

    def description(self) -> About | None:
        """The description of the shard's records."""
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

    def load_newest(self) -> int | None:
        """The newest time of the shard's series."""
        return self._newest

    def apply(self, changed: Changes, about: About | None, newest: int | None) -> None:
        """Write and delete records."""
        if any(kind != "series" for kind, _ in changed):
            raise StorageError(
                "On Spark a shard sees its own series only: it cannot keep records that the whole panel shares",
                "Use a model without them, or a Stream in one process.",
            )
        if about is not None:
            self._described.update((about.to_json(), self._shards))
        before = (self._newest, *self._buckets.counts())
        if changed:
            self._buckets.apply({key: record for (_, key), record in changed.items()})
        self._newest = newest
        after = (newest, *self._buckets.counts())
        if after != before:
            self._counts.update(after)

    def __str__(self) -> str:
        return "The checkpoint"

    def close(self) -> None:
        """There is nothing to let go of."""


@functools.cache
def process_store() -> StateStore:
    """The one store of this worker process."""
    return StateStore()


class ShardProcessor(StatefulProcessor, abc.ABC):
    """Processes one shard after the other. Map states hold the records of its series in buckets."""

    def __init__(self, shards: int, output: T.StructType) -> None:
        self.shards, self.output = shards, output

    @abc.abstractmethod
    def take_in(self, rows: pd.DataFrame) -> Iterator[Part]:
        """Process the rows of the current shard."""

    @abc.abstractmethod
    def begin(self, ids: list[Any], records: list[bytes]) -> None:
        """Write the initial records of the current shard."""

    def attached(self) -> StateStore:
        """The store of the current shard."""
        store = process_store()
        store.attach(self._base, self._recent, self._about, self._counts, self.shards)
        return store

    def init(self, handle: Any) -> None:
        """Declare the states of a shard."""
        self._base, self._recent = (
            handle.getMapState(name, "bucket int", "records string") for name in (BASE_VARIABLE, RECENT_VARIABLE)
        )
        self._about = handle.getValueState(ABOUT_VARIABLE, "description string, shards int")
        self._counts = handle.getValueState(COUNTS_VARIABLE, COUNTS)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Process the rows of a batch for a shard."""
        frame = pd.concat(list(rows), ignore_index=True)
        unusable = key[0] == dataframes.NOWHERE
        parts = iter([faulty(frame, frame["fault"].to_numpy())]) if unusable else self.take_in(frame)
        for kind, values in parts:
            yield dataframes.build(self.output.names, kind, values)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Write the initial records of a shard, before its first rows."""
        self.begin(initialState["unique_id"].tolist(), initialState["record"].tolist())

    def close(self) -> None:
        """There is nothing to let go of."""


def transform(rows: DataFrame, processor: ShardProcessor, states_df: DataFrame) -> DataFrame:
    """Process rows by their `shard`. `states_df` holds the initial records of a new checkpoint."""
    for name, value in CONFIGURATION.items():
        rows.sparkSession.conf.set(name, value)
    shard = dataframes.shard_of(F.col("unique_id"), processor.shards).alias("shard")
    begin = states_df.select("unique_id", "record", shard)
    return rows.groupBy("shard").transformWithStateInPandas(
        processor, processor.output, "Append", "None", begin.groupBy("shard")
    )
