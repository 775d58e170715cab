"""States between Spark and streams: out of a checkpoint, an export or a model, and into an export."""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from aru import archive
from aru.forecaster import Forecaster
from aru.spark import frames, shipping
from aru.store import About
from aru.store.memory import MemoryStore
from aru.stream import Stream

SERIES, ABOUT = "series", "about"  # state variables of a shard


def read_checkpoint(spark: SparkSession, path: str | Path, model: Forecaster | str | Path) -> DataFrame:
    """The states in the checkpoint of `forecast_stream`: `unique_id` and `record`."""
    reader = spark.read.format("statestore").option("path", str(path))
    described = reader.option("stateVarName", ABOUT).load().select("value.description").distinct().collect()
    forecaster = shipping.load(model)
    for (text,) in described:
        theirs = About.from_json(text)
        archive.check_same(_about(forecaster, theirs.correctable), theirs, path)
    return reader.option("stateVarName", SERIES).load().selectExpr("user_map_key.unique_id", "user_map_value.record")


def read_export(spark: SparkSession, path: str | Path, model: Forecaster | str | Path) -> DataFrame:
    """The states in a file that `Stream.export`, `aru state export` or `write_export` wrote."""
    theirs = archive.describe(path)
    archive.check_same(_about(shipping.load(model), theirs.correctable), theirs, path)
    return spark.read.parquet(str(path))


def write_export(states_df: DataFrame, model: Forecaster | str | Path, path: str | Path, correctable: int = 0) -> int:
    """Write states to a file that `Stream.import_` and `aru state import` read. Returns the number of series."""
    rows = states_df.select("unique_id", "record").toLocalIterator()
    batches = iter(lambda: list(itertools.islice(rows, archive.ROWS)), [])
    about = _about(shipping.load(model), correctable)
    return archive.write(path, about, (([r[0] for r in some], [bytes(r[1]) for r in some]) for some in batches))


def of_model(spark: SparkSession, forecaster: Forecaster, correctable: int) -> DataFrame:
    """The states that a model brings along."""
    with Stream(forecaster, MemoryStore(), correctable)._store.reading() as view:
        keys = view.keys()
        table = pd.DataFrame({"unique_id": pd.Series(keys, dtype=object), "record": view.get(keys)})
    return spark.createDataFrame(table, frames.states_schema(forecaster._require_fit().schema))


def _about(forecaster: Forecaster, correctable: int) -> About:
    return Stream(forecaster.without_series(), MemoryStore(), correctable)._about
