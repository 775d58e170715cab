"""Input and output DataFrames. Columns are checked and cast before any task runs; unusable rows are marked."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from aru.checked import check_whole
from aru.data.clock import UTC
from aru.data.columns import LARGEST_NUMBER
from aru.data.covariates import Group
from aru.data.frames import forecast_names
from aru.data.frequency import Frequency
from aru.data.naming import Names
from aru.errors import ColumnError, ConfigError, listing, quoted, verbatim
from aru.forecaster import Forecaster
from aru.runtime.epochs import EPOCH_SAMPLE
from aru.runtime.screening import repeats
from aru.spark.spreading import MOST_NUMBERED, shard_numbers

NOWHERE = -1  # the shard of unusable rows
NEXT = "next_"  # prefix of the columns that hold the future rows of a series as arrays


class KeyTypes(NamedTuple):
    """Types of `unique_id` and `ds`."""

    integer_ids: bool  # integers or strings
    datetime: bool  # timestamps or integers

    @classmethod
    def of(cls, forecaster: Forecaster) -> KeyTypes:
        """Those of a trained model."""
        schema = forecaster.runtime.schema
        refuse_zone(forecaster.runtime.freq)
        return cls(schema.integer_ids, schema.datetime)

    @property
    def ids(self) -> T.DataType:
        """The type of `unique_id`."""
        return T.LongType() if self.integer_ids else T.StringType()

    @property
    def times(self) -> T.DataType:
        """The type of `ds` and `cutoff`."""
        return T.TimestampNTZType() if self.datetime else T.LongType()


def refuse_zone(freq: Frequency) -> None:
    """Refuse a model whose times Spark's timestamps cannot tell apart: those of the autumn night."""
    if freq.clock.utc and freq.clock.zone != UTC:
        raise ConfigError(
            f"The model was trained on times of {verbatim(freq.clock.zone)}, which Spark's timestamps do not hold",
            "Train on times in UTC.",
        )


# Columns in


def suited(forecaster: Forecaster, df: DataFrame) -> Forecaster:
    """A pretrained model without series takes the types of ids and times from the DataFrame."""
    if not {"unique_id", "ds"} <= set(df.columns):
        return forecaster  # `by_shard` will say so
    integer = [isinstance(df.schema[name].dataType, T.IntegralType) for name in ("unique_id", "ds")]
    return forecaster.for_types(integer[0], not integer[1], None)


def learned(forecaster: Forecaster, df: DataFrame) -> Forecaster:
    """A pretrained model learns from a sample of series, on the driver, what all have in common.

    How covariates are read is found there, too, if the model has no series yet. Shards use both as they are.
    """
    engine = forecaster.runtime.engine
    if not (engine.learned_late or engine.models[0].shares):
        return forecaster
    if forecaster.runtime.epoch is None:
        settings, types = forecaster.settings, KeyTypes.of(forecaster)
        covariates = [*settings.futr_exog_list, *settings.hist_exog_list, *settings.stat_exog_list]
        for column in covariates:
            type_of(df, column, "df")
        wanted = [*keys_of(df, types, "df"), number(df, "y", "df"), *(F.col(f"`{c}`") for c in covariates)]
        rows = sharded(df.select(*wanted), types, 1).where("fault is null")
        found = sampled_rows(rows).select("unique_id", "ds", "y", *covariates).toPandas()
        found = found[pd.isna(repeats(found, found.columns.tolist()))]
        static = latest_rows(found) if settings.stat_exog_list else None
        forecaster = copy.copy(forecaster)
        forecaster.apply(found, static, allow_jump=True, names=Names())
    return forecaster


def sampled_rows(rows: DataFrame) -> DataFrame:
    """The rows of the series that a Stream learns from: the order is that of `aru.runtime.epochs.sample_of`."""
    text = F.col("unique_id").cast("string")
    ids = rows.select("unique_id").distinct().orderBy(F.crc32(text.cast("binary")), text).limit(EPOCH_SAMPLE)
    return rows.join(ids, "unique_id", "left_semi")


def latest_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The latest row of each series."""
    return rows.sort_values("ds", kind="stable").drop_duplicates("unique_id", keep="last")


def refuse_unlearned(forecaster: Forecaster, where: str) -> None:
    """Refuse a pretrained model with covariates that was never updated, where there is no history to learn from."""
    if forecaster.runtime.engine.learned_late and forecaster.runtime.epoch is None:
        raise ConfigError(
            f"{where} cannot find out how the covariates of a pretrained model are read",
            "Update the model with the history of some series first, or give the model that `learn_model` returns.",
        )


def by_shard(df: DataFrame, forecaster: Forecaster, shards: int, name: str, *, future: bool = False) -> DataFrame:
    """The model's columns, cast to its types, with `shard` and, for unusable rows, `fault`."""
    schema, types = forecaster.runtime.schema, KeyTypes.of(forecaster)
    groups = [schema.futr] if future else [schema.futr, schema.hist, schema.stat]
    wanted = [*keys_of(df, types, name), *([] if future else [number(df, "y", name)])]
    wanted += [column for group in groups for column in _covariates(df, group, name)]
    return sharded(df.select(*wanted), types, shards)


def sharded(rows: DataFrame, types: KeyTypes, shards: int) -> DataFrame:
    """Add `shard` and, for unusable rows, `fault` to rows whose columns were cast."""
    check_whole("shards", shards, 1)
    faults = _faults(rows, types, [c for c in rows.columns if rows.schema[c].dataType == T.DoubleType()])
    shard = F.when(F.col("fault").isNotNull(), NOWHERE).otherwise(shard_of(F.col("unique_id"), shards))
    rows = rows.withColumn("fault", F.coalesce(*faults)).withColumn("shard", shard)
    # pandas cannot hold times that are too far away. The text of the fault contains them.
    return rows.withColumn("ds", F.when(F.col("fault").isNull() | ~_far(types), F.col("ds")))


def shard_of(unique_id: Column, shards: int) -> Column:
    """The shard of an id: CRC-32 of its text modulo `shards`, as the number by which Spark spreads shards evenly."""
    shard = (F.crc32(unique_id.cast("string").cast("binary")) % shards).cast("int")
    return shard if shards > MOST_NUMBERED else F.element_at(F.array(*map(F.lit, shard_numbers(shards))), shard + 1)


def keys_of(df: DataFrame, types: KeyTypes, name: str) -> list[Column]:
    """`unique_id` and `ds`, cast to the known types."""
    casts = {"unique_id": types.ids, "ds": types.times}
    allowed: dict[str, tuple[type[T.DataType], ...]] = {
        "unique_id": (T.IntegralType,) if types.integer_ids else (T.StringType,),
        "ds": (T.TimestampNTZType, T.TimestampType, T.DateType) if types.datetime else (T.IntegralType,),
    }
    for column, fitting in allowed.items():
        found = type_of(df, column, name)
        if not isinstance(found, fitting):
            raise ColumnError(
                f"{verbatim(column)} of `{name}` has type {found.simpleString()}, but must be "
                f"{casts[column].simpleString()}",
                "Cast the column.",
                columns=[column],
            )
    return [F.col(column).cast(kind).alias(column) for column, kind in casts.items()]


def number(df: DataFrame, column: str, name: str) -> Column:
    """A numeric column, as double."""
    found = type_of(df, column, name)
    if not isinstance(found, (T.NumericType, T.BooleanType)):
        raise ColumnError(
            f"Column {quoted(column)} of `{name}` has type {found.simpleString()}, but must be numeric",
            "Cast the column.",
            columns=[column],
        )
    return F.col(f"`{column}`").cast("double").alias(column)


def type_of(df: DataFrame, column: str, name: str) -> T.DataType:
    """The type of a column; a missing column is an error."""
    if column not in df.columns:
        raise ColumnError(
            f"`{name}` has no column {quoted(column)}; it has {listing(df.columns, 20)}",
            "Rename or add it.",
            columns=[column],
        )
    return df.schema[column].dataType


def with_future(rows: DataFrame, futr: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Add all future rows of its series to every row, as one array for each of `columns`."""
    nested = futr.where("fault is null").groupBy("unique_id").agg(F.collect_list(F.struct(*columns)).alias("future"))
    arrays = [F.col("future")[column].alias(NEXT + column) for column in columns]
    return rows.join(nested.select("unique_id", *arrays), "unique_id", "left")


def _covariates(df: DataFrame, group: Group, name: str) -> list[Column]:
    numbers, categories = group
    counted = [c.name for c in numbers] + [c.name for c in categories if c.levels]
    words = [_category(df, c.name, name) for c in categories if not c.levels]
    return [number(df, column, name) for column in counted] + words


def _category(df: DataFrame, column: str, name: str) -> Column:
    found, text = type_of(df, column, name), F.col(f"`{column}`").cast("string")
    if isinstance(found, T.BooleanType):
        text = F.initcap(text)  # True and False, as training wrote them
    elif not isinstance(found, (T.StringType, T.IntegralType)):
        raise ColumnError(
            f"Column {quoted(column)} of `{name}` has type {found.simpleString()}, but was categorical in training",
            "Cast it to string.",
            columns=[column],
        )
    return text.alias(column)


def _faults(rows: DataFrame, types: KeyTypes, numbers: Sequence[str]) -> list[Column]:
    """Why a row cannot be used, whatever the state of its series. The first reason is reported."""
    text = F.concat(F.lit("ds lies outside the years 1678 to 2261: "), F.col("ds").cast("string"))
    return [
        F.when(F.col("unique_id").isNull(), "unique_id is missing"),
        F.when(F.col("ds").isNull(), "ds is missing"),
        F.when(_far(types), text),
        *(F.when(F.abs(F.col(f"`{c}`")) == float("inf"), f"{c} is infinite") for c in numbers),
        *(F.when(_wild(c), f"{c} is larger than {LARGEST_NUMBER:g}") for c in numbers),
        F.lit(None).cast("string"),
    ]


def _wild(column: str) -> Column:
    """Which numbers cannot be computed with. To Spark, NaN is larger than any number."""
    value = F.col(f"`{column}`")
    return (F.abs(value) > LARGEST_NUMBER) & ~F.isnan(value)


def _far(types: KeyTypes) -> Column:
    if not types.datetime:
        return F.lit(False)
    first, end = (F.lit(f"{year}-01-01").cast("timestamp_ntz") for year in (1678, 2262))
    return (F.col("ds") < first) | (F.col("ds") >= end)


# Columns out


def output_schema(types: KeyTypes, forecasts: Sequence[str], states: bool) -> T.StructType:
    """All columns of the result; rows of one kind leave those of the others null."""
    fields = [("kind", T.StringType()), ("unique_id", types.ids), ("ds", types.times), ("cutoff", types.times)]
    fields += [(name, T.DoubleType()) for name in (*forecasts, "y")] + [("reason", T.StringType())]
    fields += [("record", T.BinaryType())] if states else []
    return _struct(fields)


def backtest_schema(types: KeyTypes, forecasts: Sequence[str]) -> T.StructType:
    """The columns of `cross_validation`."""
    fields = [("unique_id", types.ids), ("ds", types.times), ("cutoff", types.times)]
    return _struct(fields + [(name, T.DoubleType()) for name in ("y", *forecasts)])


def states_schema(types: KeyTypes) -> T.StructType:
    """`unique_id` and `record`, as in an export."""
    return _struct([("unique_id", types.ids), ("record", T.BinaryType())])


def forecasts_of(forecaster: Forecaster, level: Sequence[float] | None) -> list[str]:
    """The names of the columns with forecasts."""
    return forecast_names(forecaster.settings.name, level)


def build(columns: Sequence[str], kind: str, values: Mapping[str, Any]) -> pd.DataFrame:
    """Rows of one kind with all columns of the result."""
    given = {"kind": [kind] * len(values["unique_id"]), **values}
    return pd.DataFrame({name: _plain(given.get(name), len(given["kind"])) for name in columns})


def _struct(fields: Sequence[tuple[str, T.DataType]]) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields])


def _plain(values: Any, rows: int) -> pd.Series[Any]:
    """Text and bytes as objects: PySpark does not know strings of pandas 3, and NumPy strips zeros from bytes."""
    if values is None:
        return pd.Series(np.full(rows, None))
    column = np.fromiter(values, object, rows) if isinstance(values, list) else np.asarray(values)
    return pd.Series(column, dtype=object if column.dtype.kind in "OUS" else None)
