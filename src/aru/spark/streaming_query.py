"""A stream of forecasts from a stream of observations, with the states in Spark's state store."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from aru.forecaster import Forecaster
from aru.spark import dataframes, shipping
from aru.spark.dataframes import KeyTypes, latest_rows
from aru.spark.shard import Part, ShardOptions, forecast_shard
from aru.spark.state_frames import states_of_model
from aru.spark.state_store import ShardProcessor, process_store, transform
from aru.stream import Stream


def forecast_stream(
    observations: DataFrame,
    model: Forecaster | str | Path,
    shards: int = 256,
    level: Sequence[float] | None = None,
    *,
    futr_df: DataFrame | None = None,
    states_df: DataFrame | None = None,
    correctable_steps: int = 0,
    allow_jump: bool = False,
) -> DataFrame:
    """Take in a stream of observations. Every batch gives new forecasts of the series that it changed.

    Args:
        observations: Streaming frame with `unique_id`, `ds`, `y` and the covariates of the model, static ones included.
        model: A forecaster, or the folder that `Forecaster.save` wrote.
        shards: Number of groups of series that are updated together. Fixed for the life of a checkpoint.
        level: Central intervals in percent.
        futr_df: Static frame of known-future covariates, if the model needs them.
        states_df: Initial states of a new checkpoint (`read_export`, `read_checkpoint`, `forecast_batch`); None: those
            of the model. An existing checkpoint ignores them.
        correctable_steps: How many of the latest steps of a series can be corrected by late rows.
        allow_jump: Take in rows far ahead of all series of their shard, too.

    Returns:
        Rows of kind "forecast", "no_forecast" and "left_out"; see `aru.spark.shard`.
    """
    spark = observations.sparkSession
    forecaster = dataframes.suited(shipping.load(model), observations)
    dataframes.refuse_unlearned(forecaster, "A stream")
    options = ShardOptions.of(level, correctable_steps, states=False, allow_jump=allow_jump)
    output = dataframes.output_schema(KeyTypes.of(forecaster), dataframes.forecasts_of(forecaster, level), states=False)
    rows = dataframes.by_shard(observations, forecaster, shards, "observations")
    futr_columns: tuple[str, ...] = ()
    if futr_df is None:
        forecaster.runtime.read_futr(None)  # an error if the model needs it
    else:
        futr_columns = ("ds", *forecaster.settings.futr_exog_list)
        futr = dataframes.by_shard(futr_df, forecaster, shards, "futr_df", future=True)
        rows = dataframes.with_future(rows, futr, futr_columns)
    if states_df is None:
        states_df = states_of_model(spark, forecaster, options.correctable_steps)
    name = shipping.ship(spark, forecaster)
    return transform(rows, _ForecasterShards(shards, output, name, options, futr_columns), states_df)


class _ForecasterShards(ShardProcessor):
    """Updates shards with a trained model."""

    def __init__(
        self, shards: int, output: T.StructType, name: str, options: ShardOptions, futr_columns: Sequence[str]
    ) -> None:
        super().__init__(shards, output)
        self._name, self._options, self._futr_columns = name, options, futr_columns

    def take_in(self, rows: pd.DataFrame) -> Iterator[Part]:
        """Update the series and forecast those that changed."""
        return forecast_shard(self._stream(), rows, _future(rows, self._futr_columns), self._options)

    def begin(self, ids: list[Any], records: list[bytes]) -> None:
        """Write the initial records."""
        with self._stream().store.writing() as change:
            change.put(ids, records)

    def _stream(self) -> Stream:
        """The stream of this process on the current shard, which may be new or of another model."""
        store = self.attached()
        stream = _open(self._name, self._options.correctable_steps)
        with store.reading() as view:
            about = view.about()
        if about is None:
            with store.writing() as change:
                change.describe(stream.about)
        else:
            stream.about.require(about, store)
        return stream


@functools.lru_cache(maxsize=2)
def _open(name: str, correctable_steps: int) -> Stream:
    return Stream(shipping.received(name), process_store(), correctable_steps)


def _future(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame | None:
    """Future rows, unpacked from the arrays in the latest row of each series."""
    if not columns:
        return None
    latest = latest_rows(frame)
    first = dataframes.NEXT + columns[0]
    some = latest[latest[first].notna()]
    if len(some) == 0:
        return pd.DataFrame({"unique_id": [], **{name: [] for name in columns}})
    lengths = some[first].map(len).to_numpy(dtype=np.int64)
    data = {name: np.concatenate(some[dataframes.NEXT + name].tolist()) for name in columns}
    return pd.DataFrame({"unique_id": np.repeat(some["unique_id"].to_numpy(), lengths), **data})
