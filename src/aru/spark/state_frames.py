"""States as Spark DataFrames: read from a checkpoint, an export or a model, and written to an export."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from aru.errors import StorageError, verbatim
from aru.forecaster import Forecaster
from aru.runtime.records import begin
from aru.spark import shipping
from aru.spark.buckets import unpack
from aru.spark.dataframes import KeyTypes, build, refuse_unlearned, sampled_rows, states_schema
from aru.spark.shard import STATE
from aru.spark.state_store import ABOUT_VARIABLE, BASE_VARIABLE, RECENT_VARIABLE
from aru.store import About, exchange


def read_checkpoint(spark: SparkSession, path: str | Path, model: Forecaster | str | Path) -> DataFrame:
    """The states in the checkpoint of `forecast_stream`: `unique_id` and `record`."""
    reader = spark.read.format("statestore").option("path", str(path))
    described = reader.option("stateVarName", ABOUT_VARIABLE).load().select("value.description").distinct().collect()
    runtime = shipping.load(model).runtime
    for (text,) in described:
        theirs = About.from_json(text)
        runtime.describe(theirs.correctable_steps).require(theirs, path)
    base, recent = (reader.option("stateVarName", name).load() for name in (BASE_VARIABLE, RECENT_VARIABLE))
    both = base.join(recent, ["key", "user_map_key"], "full_outer")
    both = both.select(base["user_map_value.records"].alias("base"), recent["user_map_value.records"].alias("recent"))
    return both.mapInPandas(_records, states_schema(KeyTypes.of(shipping.load(model))))


def _records(parts: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The series of buckets: recent records count in place of those of the base."""
    for part in parts:
        for base, recent in zip(part["base"], part["recent"], strict=True):
            found = {key: record for text in (base, recent) if pd.notna(text) for key, record in unpack(text).items()}
            yield build(["unique_id", "record"], STATE, {"unique_id": list(found), "record": list(found.values())})


def read_export(spark: SparkSession, path: str | Path, model: Forecaster | str | Path) -> DataFrame:
    """The states in a file that `Stream.export`, `aru state export` or `write_export` wrote."""
    theirs, panel = exchange.read_notes(path)
    if panel and not shipping.load(model).runtime.engine.shares:  # which brings what series have in common along
        raise StorageError(
            f"{verbatim(path)} has records that the whole panel shares, which a shard on Spark cannot keep",
            "Use a Stream in one process.",
        )
    shipping.load(model).runtime.describe(theirs.correctable_steps).require(theirs, path)
    return spark.read.parquet(str(path))


def write_export(
    states_df: DataFrame, model: Forecaster | str | Path, path: str | Path, correctable_steps: int = 0
) -> int:
    """Write states to a file that `Stream.import_` and `aru state import` read. Returns the number of series."""
    rows = states_df.select("unique_id", "record").toLocalIterator()
    batches = iter(lambda: list(itertools.islice(rows, exchange.ROW_GROUP)), [])
    about = shipping.load(model).runtime.describe(correctable_steps)
    return exchange.write_export(
        path, about, (([row[0] for row in some], [bytes(row[1]) for row in some]) for some in batches)
    )


def learned_from(states_df: DataFrame, forecaster: Forecaster, correctable_steps: int) -> Forecaster:
    """The model with what the series of these states have in common: an epoch, as a Stream of them would begin it."""
    refuse_unlearned(forecaster, "A sample of states")
    if not forecaster.runtime.engine.shares:
        return forecaster
    found = sampled_rows(states_df.select("unique_id", "record")).toPandas()
    ids, records = found["unique_id"].tolist(), [bytes(record) for record in found["record"]]
    twin = copy.copy(forecaster)
    assert forecaster.trained is not None
    twin.trained = forecaster.trained.copy()
    twin.runtime.engine.learn_common(twin.runtime.decode(records, ids, correctable_steps).now, ids, now=True)
    return twin


def states_of_model(spark: SparkSession, forecaster: Forecaster, correctable_steps: int) -> DataFrame:
    """The states of the model's series."""
    records = forecaster.runtime.encode(begin(forecaster.table.states, correctable_steps), forecaster.ids)
    table = pd.DataFrame({"unique_id": pd.Series(forecaster.ids, dtype=object), "record": records})
    return spark.createDataFrame(table, states_schema(KeyTypes.of(forecaster)))
