"""Forecasts of other models, adapted on Spark: an `Adapter` over streams of rows, or over a history."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from aru.adapter import Adapter
from aru.adapter_settings import AdapterSettings
from aru.data.columns import as_frame
from aru.data.model_columns import find_models
from aru.errors import ConfigError, InputError, verbatim
from aru.runtime.screening import repeats
from aru.spark import dataframes
from aru.spark.dataframes import KeyTypes
from aru.spark.shard import FORECAST, LEFT_OUT, Part, faulty
from aru.spark.state_store import ShardProcessor, transform
from aru.store import About


def adapt_stream(
    observations: DataFrame, forecasts: DataFrame, adapter: Adapter, shards: int = 256, allow_jump: bool = False
) -> DataFrame:
    """Adapt a stream of another model's forecasts with a stream of observations.

    Args:
        observations: Streaming frame with `unique_id`, `ds` and `y`.
        forecasts: Streaming frame with `unique_id`, `ds`, `cutoff` and the columns of the models.
        adapter: Its settings, with `freq`, and its states, which are used to begin a new checkpoint.
        shards: Number of groups of series that are updated together. Fixed for the life of a checkpoint.
        allow_jump: Take in rows far ahead of all series of their shard, too.

    Returns:
        Rows of kind "forecast", and of kind "left_out" with the reason. Within a batch, observations up to a forecast's
        cutoff are taken in before the forecast is adapted. They must not arrive in a later batch than the forecast.
    """
    types, models = _key_types(adapter, observations), _models(adapter, forecasts)
    seen, made = _observations(observations, types, "observations"), _forecasts(forecasts, types, models)
    rows = dataframes.sharded(seen.unionByName(made, allowMissingColumns=True), types, shards)
    plain = dict(zip(models, _plain(models), strict=True))
    rows = rows.toDF(*(plain.get(name, name) for name in rows.columns))
    with adapter.store.reading() as view:
        keys, about = view.keys(), view.about()
        table = pd.DataFrame({"unique_id": pd.Series(keys, dtype=object), "record": view.get(keys)})
    states_df = observations.sparkSession.createDataFrame(table, dataframes.states_schema(types))
    output = dataframes.output_schema(types, models, states=False)
    return transform(rows, _AdapterShards(shards, output, adapter.settings, about, models, allow_jump), states_df)


def adapt_batch(
    forecasts: DataFrame, df: DataFrame, adapter: Adapter, shards: int = 256, allow_jump: bool = False
) -> DataFrame:
    """`Adapter.cross_validation` over all shards: adapts a history of forecasts."""
    types, models = _key_types(adapter, df), _models(adapter, forecasts)
    settings = dataclasses.asdict(adapter.settings)
    made, seen = _forecasts(forecasts, types, models), _observations(df, types, "df")
    names = made.columns
    first, second = (dataframes.sharded(rows, types, shards).groupBy("shard") for rows in (made, seen))
    return first.cogroup(second).applyInPandas(
        lambda given, truth: _cross_validate(settings, names, given, truth, allow_jump), made.schema
    )


def _cross_validate(
    settings: dict[str, Any], names: list[str], forecasts: pd.DataFrame, df: pd.DataFrame, allow_jump: bool
) -> pd.DataFrame:
    for name, rows in (("forecasts", forecasts), ("df", df)):
        faults = rows["fault"].dropna()
        if len(faults):
            raise InputError(
                f"`{name}` has rows that cannot be used: {verbatim(faults.iloc[0])}", "Correct or drop them."
            )
    if len(forecasts) == 0:
        return forecasts[names]
    adapted = Adapter(**settings).cross_validation(forecasts[names], df, allow_jump=allow_jump)
    return dataframes.build(names, FORECAST, adapted)


def _observations(df: DataFrame, types: KeyTypes, name: str) -> DataFrame:
    return df.select(*dataframes.keys_of(df, types, name), dataframes.number(df, "y", name))


def _forecasts(df: DataFrame, types: KeyTypes, models: Sequence[str]) -> DataFrame:
    cutoff = F.col("cutoff").cast(types.times).alias("cutoff")
    numbers = [dataframes.number(df, name, "forecasts") for name in models]
    return df.select(*dataframes.keys_of(df, types, "forecasts"), cutoff, *numbers)


def _key_types(adapter: Adapter, observations: DataFrame) -> KeyTypes:
    """The types of ids and times that the adapter has seen, or else those of the observations."""
    if adapter.settings.freq == "auto":
        raise ConfigError("On Spark no shard sees all rows, so `freq='auto'` cannot work", "Give Adapter the freq.")
    schema = adapter.frame_schema()
    if schema is not None:
        dataframes.refuse_zone(schema.frequency)
        return KeyTypes(schema.integer_ids, schema.datetime)
    ids, times = (dataframes.type_of(observations, column, "observations") for column in ("unique_id", "ds"))
    return KeyTypes(isinstance(ids, T.IntegralType), not isinstance(times, T.IntegralType))


def _models(adapter: Adapter, forecasts: DataFrame) -> list[str]:
    """The columns to adapt."""
    dataframes.type_of(forecasts, "cutoff", "forecasts")
    types = {f.name: float if isinstance(f.dataType, T.NumericType) else object for f in forecasts.schema}
    empty = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in types.items()})
    return list(find_models(as_frame(empty, "forecasts"), adapter.settings.models).roles)


def _plain(models: Sequence[str]) -> list[str]:
    """Plain names of model columns for workers: Spark does not preserve names such as m-lo-90."""
    return [f"model_{i}" for i in range(len(models))]


class _AdapterShards(ShardProcessor):
    """Updates shards with an adapter."""

    def __init__(
        self,
        shards: int,
        output: T.StructType,
        settings: AdapterSettings,
        about: About | None,
        models: Sequence[str],
        allow_jump: bool,
    ) -> None:
        super().__init__(shards, output)
        self._allow_jump = allow_jump
        self._settings, self._first, self._models = dataclasses.asdict(settings), about, list(models)

    def take_in(self, rows: pd.DataFrame) -> Iterator[Part]:
        """Update the series and adapt their forecasts."""
        rows = rows.rename(columns=dict(zip(_plain(self._models), self._models, strict=True)))
        return adapt_shard(Adapter(**self._settings, store=self.attached()), rows, self._models, self._allow_jump)

    def begin(self, ids: list[Any], records: list[bytes]) -> None:
        """Write the initial records."""
        assert self._first is not None  # records come with a description
        with self.attached().writing() as change:
            change.describe(self._first)
            change.put(ids, records)


def adapt_shard(
    adapter: Adapter, rows: pd.DataFrame, models: Sequence[str], allow_jump: bool = False
) -> Iterator[Part]:
    """Process observations and forecasts of a shard in order of time: forecasts use nothing after their cutoff."""
    made = rows["cutoff"].notna()
    seen, forecasts = rows.loc[~made, ["unique_id", "ds", "y"]], rows.loc[made].astype({"cutoff": rows["ds"].dtype})
    for cutoff in sorted(forecasts["cutoff"].unique()):
        until = seen["ds"] <= cutoff
        yield from _observe(adapter, seen[until], allow_jump)
        seen = seen[~until]
        here = forecasts.loc[forecasts["cutoff"] == cutoff, ["unique_id", "ds", "cutoff", *models]]
        yield from _in_parts(
            here.assign(y=np.nan), lambda part: [(FORECAST, adapter.adapt(part.drop(columns="y"), allow_jump))]
        )
    yield from _observe(adapter, seen, allow_jump)


def _observe(adapter: Adapter, rows: pd.DataFrame, allow_jump: bool) -> Iterator[Part]:
    reasons = repeats(rows, ["unique_id", "ds", "y"])
    wrong = pd.notna(reasons)
    if wrong.any():
        yield faulty(rows[wrong], reasons[wrong])

    def update(part: pd.DataFrame) -> list[Part]:
        left: Any = adapter.update(part, late="skip", allow_jump=allow_jump).late
        return [(LEFT_OUT, left)] if len(left) else []

    yield from _in_parts(rows[~wrong], update)


def _in_parts(rows: pd.DataFrame, work: Callable[[pd.DataFrame], list[Part]]) -> Iterator[Part]:
    """Work on all series at once. Series whose rows are refused are found by halving and left out with the reason."""
    groups = [rows] if len(rows) else []
    while groups:
        part = groups.pop()
        try:
            yield from work(part)
        except InputError as error:
            ids = part["unique_id"].unique()
            if len(ids) == 1:
                yield faulty(part, np.full(len(part), str(error), dtype=object))
                continue
            first = part["unique_id"].isin(ids[: len(ids) // 2])
            groups += [part[~first], part[first]]
