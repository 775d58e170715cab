"""Spark frames in and out: columns checked and cast before any task runs, rows marked that no series can take in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from aru.errors import ColumnError, ConfigError, listing
from aru.forecaster import Forecaster
from aru.frames import forecast_names
from aru.schema import Group

NOWHERE = -1  # the shard of rows that no series can take in
NEXT = "next_"  # before the names of columns that hold the future rows of a series as arrays


@runtime_checkable
class Kinds(Protocol):
    """What is known of `unique_id` and `ds`: the schema of a model or of an adapter."""

    @property
    def integer_ids(self) -> bool:
        """Whether ids are integers or strings."""
        ...

    @property
    def datetime(self) -> bool:
        """Whether times are timestamps or integers."""
        ...


def by_shard(df: DataFrame, forecaster: Forecaster, shards: int, name: str, *, future: bool = False) -> DataFrame:
    """The columns that the model reads, as it reads them, with `shard` and, where a row is faulty, `fault`."""
    schema = forecaster._require_fit().schema
    groups = [schema.futr] if future else [schema.futr, schema.hist, schema.stat]
    wanted = [*keys_of(df, schema, name), *([] if future else [number(df, "y", name)])]
    wanted += [column for group in groups for column in _covariates(df, group, name)]
    return sharded(df.select(*wanted), schema, shards)


def sharded(rows: DataFrame, schema: Kinds, shards: int) -> DataFrame:
    """Rows whose columns were cast, with `shard` and, where a row is faulty, `fault`."""
    if isinstance(shards, bool) or shards < 1:
        raise ConfigError(f"shards must be a whole number of at least 1, got {shards!r}.")
    faults = _faults(rows, schema, [c for c in rows.columns if rows.schema[c].dataType == T.DoubleType()])
    shard = F.when(F.col("fault").isNotNull(), NOWHERE).otherwise(shard_of(F.col("unique_id"), shards))
    rows = rows.withColumn("fault", F.coalesce(*faults)).withColumn("shard", shard.cast("int"))
    # A worker cannot hold a time that lies too far away; its text is in the fault.
    return rows.withColumn("ds", F.when(F.col("fault").isNull() | ~_far(schema), F.col("ds")))


def shard_of(unique_id: Column, shards: int) -> Column:
    """CRC-32 of the id's text modulo `shards`: the same whatever Spark's partitions are, and outside Spark."""
    return F.crc32(unique_id.cast("string").cast("binary")) % shards


def keys_of(df: DataFrame, schema: Kinds, name: str) -> list[Column]:
    """`unique_id` and `ds` in the types that are known of them."""
    kinds = {"unique_id": id_type(schema), "ds": time_type(schema)}
    allowed: dict[str, tuple[type[T.DataType], ...]] = {
        "unique_id": (T.IntegralType,) if schema.integer_ids else (T.StringType,),
        "ds": (T.TimestampNTZType, T.TimestampType, T.DateType) if schema.datetime else (T.IntegralType,),
    }
    for column, types in allowed.items():
        found = type_of(df, column, name)
        if not isinstance(found, types):
            raise ColumnError(
                f"{column} of {name} has type {found.simpleString()}, where {kinds[column].simpleString()} is known: "
                "cast the column."
            )
    return [F.col(column).cast(kind).alias(column) for column, kind in kinds.items()]


def output_schema(forecaster: Forecaster, level: Sequence[float] | None, states: bool) -> T.StructType:
    """All columns of the result; of each kind of rows the others are null."""
    schema = forecaster._require_fit().schema
    time = time_type(schema)
    fields = [("kind", T.StringType()), ("unique_id", id_type(schema)), ("ds", time), ("cutoff", time)]
    fields += [(name, T.DoubleType()) for name in forecast_names(forecaster.settings.name, level)]
    fields += [("y", T.DoubleType()), ("reason", T.StringType())]
    fields += [("record", T.BinaryType())] if states else []
    return T.StructType([T.StructField(name, kind) for name, kind in fields])


def backtest_schema(forecaster: Forecaster, level: Sequence[float] | None) -> T.StructType:
    """The columns of `cross_validation`."""
    schema = forecaster._require_fit().schema
    time = time_type(schema)
    fields = [("unique_id", id_type(schema)), ("ds", time), ("cutoff", time), ("y", T.DoubleType())]
    fields += [(name, T.DoubleType()) for name in forecast_names(forecaster.settings.name, level)]
    return T.StructType([T.StructField(name, kind) for name, kind in fields])


def states_schema(schema: Kinds) -> T.StructType:
    """`unique_id` and `record`, as in an export."""
    return T.StructType([T.StructField("unique_id", id_type(schema)), T.StructField("record", T.BinaryType())])


def build(columns: Sequence[str], kind: str, values: Mapping[str, Any]) -> pd.DataFrame:
    """Rows of one kind with all columns of the result."""
    given = {"kind": [kind] * len(values["unique_id"]), **values}
    return pd.DataFrame({name: _plain(given.get(name), len(given["kind"])) for name in columns})


def _plain(values: Any, rows: int) -> pd.Series[Any]:
    """Text as objects: PySpark does not know the strings of pandas 3."""
    column = np.full(rows, None) if values is None else np.asarray(values)
    return pd.Series(column, dtype=object if column.dtype.kind in "OUS" else None)


def with_future(rows: DataFrame, futr: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Let every row carry all future rows of its series, as one array for each of `columns`."""
    nested = futr.where("fault is null").groupBy("unique_id").agg(F.collect_list(F.struct(*columns)).alias("future"))
    arrays = [F.col("future")[column].alias(NEXT + column) for column in columns]
    return rows.join(nested.select("unique_id", *arrays), "unique_id", "left")


def _covariates(df: DataFrame, group: Group, name: str) -> list[Column]:
    numbers, categories = group
    return [number(df, c.name, name) for c in numbers] + [_category(df, c.name, name) for c in categories]


def number(df: DataFrame, column: str, name: str) -> Column:
    """A numeric column."""
    found = type_of(df, column, name)
    if not isinstance(found, (T.NumericType, T.BooleanType)):
        raise ColumnError(f"Column {column!r} of {name} has type {found.simpleString()}: it must be numeric.")
    return F.col(f"`{column}`").cast("double").alias(column)


def _category(df: DataFrame, column: str, name: str) -> Column:
    found, text = type_of(df, column, name), F.col(f"`{column}`").cast("string")
    if isinstance(found, T.BooleanType):
        text = F.initcap(text)  # True and False, as training wrote them
    elif not isinstance(found, (T.StringType, T.IntegralType)):
        raise ColumnError(
            f"Column {column!r} of {name} has type {found.simpleString()}, but was categorical in training: cast it to "
            "string."
        )
    return text.alias(column)


def type_of(df: DataFrame, column: str, name: str) -> T.DataType:
    """The type of a column that must be there."""
    if column not in df.columns:
        raise ColumnError(f"{name} has no column {column!r}; it has {listing(df.columns, 20)}. Rename or add it.")
    return df.schema[column].dataType


def _faults(rows: DataFrame, schema: Kinds, numbers: Sequence[str]) -> list[Column]:
    text = F.concat(F.lit("ds lies outside the years 1678 to 2261: "), F.col("ds").cast("string"))
    return [
        F.when(F.col("unique_id").isNull(), "unique_id is missing"),
        F.when(F.col("ds").isNull(), "ds is missing"),
        F.when(_far(schema), text),
        *(F.when(F.abs(F.col(f"`{c}`")) == float("inf"), f"{c} is infinite") for c in numbers),
        F.lit(None).cast("string"),
    ]


def _far(schema: Kinds) -> Column:
    if not schema.datetime:
        return F.lit(False)
    first, end = (F.lit(f"{year}-01-01").cast("timestamp_ntz") for year in (1678, 2262))
    return (F.col("ds") < first) | (F.col("ds") >= end)


def id_type(schema: Kinds) -> T.DataType:
    """Of `unique_id`."""
    return T.LongType() if schema.integer_ids else T.StringType()


def time_type(schema: Kinds) -> T.DataType:
    """Of `ds` and `cutoff`."""
    return T.TimestampNTZType() if schema.datetime else T.LongType()
