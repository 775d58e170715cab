"""A stream of observations to a stream of forecasts, with the states of each shard in Spark's state store."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from aru import archive
from aru.errors import StorageError
from aru.forecaster import Forecaster
from aru.ingest import read_futr
from aru.spark import frames, shipping, states
from aru.spark.shard import Asked, faulty, latest_rows, take_in
from aru.store import About, Key
from aru.store.staged import StagedStore
from aru.stream import Stream

# What transformWithState needs, and checkpoints that write changes only.
STATE_STORE = "spark.sql.streaming.stateStore."
CONFIGURATION = {
    f"{STATE_STORE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STATE_STORE}rocksdb.changelogCheckpointing.enabled": "true",
}


def forecast_stream(
    observations: DataFrame,
    model: Forecaster | str | Path,
    shards: int = 256,
    level: Sequence[float] | None = None,
    *,
    futr_df: DataFrame | None = None,
    states_df: DataFrame | None = None,
    correctable: int = 0,
) -> DataFrame:
    """Take in a stream of observations; every batch brings new forecasts of the series that it changed.

    Args:
        observations: Streaming frame with `unique_id`, `ds`, `y` and the covariates of the model, static ones included.
        model: A forecaster, or the folder that `Forecaster.save` wrote.
        shards: Groups of series that are updated together. Fixed for the life of a checkpoint.
        level: Central intervals in percent.
        futr_df: Static frame of known-future covariates, where the model needs them.
        states_df: States to begin with (`read_export`, `read_checkpoint`, `forecast_batch`); None: those of the model.
            They count when a checkpoint is new, and are ignored after that.
        correctable: How many of the latest steps of a series can be revised.

    Returns:
        Rows of kind "forecast", "no_forecast" and "left_out"; see `aru.spark.shard`.
    """
    spark = observations.sparkSession
    forecaster = shipping.load(model)
    engine, schema = forecaster._require_fit(), forecaster._require_fit().schema
    rows = frames.by_shard(observations, forecaster, shards, "observations")
    futr_columns: tuple[str, ...] = ()
    if futr_df is None:
        read_futr(engine, forecaster._freq, None)  # refuses a model that needs it
    else:
        futr_columns = ("ds", *forecaster.settings.futr_exog_list)
        futr = frames.by_shard(futr_df, forecaster, shards, "futr_df", future=True)
        rows = frames.with_future(rows, futr, futr_columns)
    if states_df is None:
        states_df = states.of_model(spark, forecaster, correctable)
    for name, value in CONFIGURATION.items():
        spark.conf.set(name, value)
    output = frames.output_schema(forecaster, level, states=False)
    asked = Asked(None if level is None else tuple(level), correctable, states=False)
    id_type = frames.states_schema(schema)["unique_id"].dataType.simpleString()
    begin = states_df.select("unique_id", "record").withColumn(
        "shard", frames.shard_of(F.col("unique_id"), shards).cast("int")
    )
    return rows.groupBy("shard").transformWithStateInPandas(
        _Shards(shipping.ship(spark, forecaster), asked, shards, output.names, id_type, futr_columns),
        output,
        "Append",
        "None",
        begin.groupBy("shard"),
    )


class Sharded(StatefulProcessor):
    """One record per series in a map of its shard: what does not change is not written."""

    def __init__(self, shards: int, columns: Sequence[str], id_type: str) -> None:
        self._shards, self._columns, self._id_type = shards, list(columns), id_type

    def init(self, handle: Any) -> None:
        """Declare the state of a shard."""
        self._records = handle.getMapState(states.SERIES, f"unique_id {self._id_type}", "record binary")
        self._about = handle.getValueState(states.ABOUT, "description string, shards int")

    def close(self) -> None:
        """There is nothing to let go of."""

    def _attached(self) -> StateStore:
        """The states of the shard at hand, as a store."""
        store = _store()
        store.attach(self._records, self._about, self._shards)
        return store


class _Shards(Sharded):
    """A model's series."""

    def __init__(
        self, name: str, asked: Asked, shards: int, columns: Sequence[str], id_type: str, futr_columns: Sequence[str]
    ) -> None:
        super().__init__(shards, columns, id_type)
        self._name, self._asked, self._futr_columns = name, asked, futr_columns

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Take in what a batch has for a shard."""
        frame = pd.concat(list(rows), ignore_index=True)
        if key[0] == frames.NOWHERE:
            parts = iter([faulty(frame, frame["fault"].to_numpy())])
        else:
            parts = take_in(self._stream(), frame, _future(frame, self._futr_columns), self._asked)
        for kind, values in parts:
            yield frames.build(self._columns, kind, values)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Put the records of a shard in place, before its first rows."""
        with self._stream()._store.writing() as change:
            change.put(initialState["unique_id"].tolist(), initialState["record"].tolist())

    def _stream(self) -> Stream:
        store = self._attached()
        stream = _open(self._name, self._asked.correctable)
        with store.reading() as view:
            about = view.about()
        if about is None:
            with store.writing() as change:
                change.describe(stream._about)
        else:
            archive.check_same(stream._about, about, store)
        return stream


class StateStore(StagedStore):
    """Spark's state of one shard after the other, as a store. Spark itself makes changes durable, with the batch."""

    def attach(self, records: Any, about: Any, shards: int) -> None:
        """Turn to the shard at hand: both states belong to it, one of so many.

        Spark may have gone back to an earlier state of it: nothing that was read before counts.
        """
        self._records, self._described, self._shards = records, about, shards
        self._version += 1

    def load(self, keys: Sequence[Key]) -> list[bytes | None]:
        """The record of each series."""
        found = map(self._records.getValue, ((key,) for key in keys))
        return [None if value is None else bytes(value[0]) for value in found]

    def all_keys(self) -> Iterable[Key]:
        """All series of the shard."""
        return (key for (key,) in self._records.keys())  # noqa: SIM118 - a state is no dictionary

    def description(self) -> About | None:
        """What the records of the shard are."""
        found = self._described.get()
        if found is None:
            return None
        text, shards = found
        if shards != self._shards:
            raise StorageError(
                f"The checkpoint has shards={shards}, here it is {self._shards}: series would start again elsewhere. "
                f"Use shards={shards}, or begin a new checkpoint with the states of this one (read_checkpoint)."
            )
        return About.from_json(text)

    def apply(self, changed: Mapping[Key, bytes | None], about: About | None) -> None:
        """Write and remove."""
        if about is not None:
            self._described.update((about.to_json(), self._shards))
        for key, record in changed.items():
            if record is None:
                self._records.removeKey((key,))
            else:
                self._records.updateValue((key,), (record,))

    def __str__(self) -> str:
        return "The checkpoint"

    def close(self) -> None:
        """There is nothing to let go of."""


@functools.cache
def _store() -> StateStore:
    """The one store of this worker process."""
    return StateStore()


@functools.lru_cache(maxsize=2)
def _open(name: str, correctable: int) -> Stream:
    return Stream(shipping.received(name), _store(), correctable)


def _future(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame | None:
    """Future rows out of the arrays that the latest row of each series carries."""
    if not columns:
        return None
    latest = latest_rows(frame)
    some = latest[latest[frames.NEXT + columns[0]].notna()]
    if len(some) == 0:
        return pd.DataFrame({"unique_id": [], **{name: [] for name in columns}})
    lengths = some[frames.NEXT + columns[0]].map(len).to_numpy(dtype=np.int64)
    data = {name: np.concatenate(some[frames.NEXT + name].tolist()) for name in columns}
    return pd.DataFrame({"unique_id": np.repeat(some["unique_id"].to_numpy(), lengths), **data})
