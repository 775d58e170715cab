"""Forecasts of other models, adapted on Spark: the `Adapter` of a stream of rows, or of a history."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from aru.adapter import Adapter
from aru.columns import as_frame
from aru.errors import ConfigError, InputError
from aru.forecasts import find_models
from aru.screening import repeats
from aru.settings import AdapterSettings
from aru.spark import frames
from aru.spark.shard import FORECAST, LEFT_OUT, Part, faulty
from aru.spark.streaming import CONFIGURATION, Sharded
from aru.store import About


def adapt_stream(observations: DataFrame, forecasts: DataFrame, adapter: Adapter, shards: int = 256) -> DataFrame:
    """Take in streams of observations and of another model's forecasts; the forecasts come out adapted.

    Args:
        observations: Streaming frame with `unique_id`, `ds` and `y`.
        forecasts: Streaming frame with `unique_id`, `ds`, `cutoff` and the columns of the models.
        adapter: Settings, with `freq`, and the states to begin with. They count when a checkpoint is new.
        shards: Groups of series that are updated together. Fixed for the life of a checkpoint.

    Returns:
        Rows of kind "forecast" and "left_out", with the reason. In a batch, observations count up to the cutoff of a
        forecast before that is adapted: let the observations of a cutoff arrive no later than its forecasts.
    """
    spark, kinds = observations.sparkSession, _kinds(adapter, observations)
    models, time = _models(adapter, forecasts), frames.time_type(kinds)
    cutoff = F.col("cutoff").cast(time).alias("cutoff")
    numbers = [frames.number(forecasts, name, "forecasts") for name in models]
    seen = observations.select(
        *frames.keys_of(observations, kinds, "observations"), frames.number(observations, "y", "observations")
    )
    made = forecasts.select(*frames.keys_of(forecasts, kinds, "forecasts"), cutoff, *numbers)
    rows = frames.sharded(seen.unionByName(made, allowMissingColumns=True), kinds, shards)
    plain = dict(zip(models, _plain(models), strict=True))
    rows = rows.toDF(*(plain.get(name, name) for name in rows.columns))
    fields = [("kind", T.StringType()), ("unique_id", frames.id_type(kinds)), ("ds", time), ("cutoff", time)]
    fields += [(name, T.DoubleType()) for name in (*models, "y")] + [("reason", T.StringType())]
    output = T.StructType([T.StructField(name, kind) for name, kind in fields])
    for name, value in CONFIGURATION.items():
        spark.conf.set(name, value)
    with adapter._store.reading() as view:
        keys, about = view.keys(), view.about()
        table = pd.DataFrame({"unique_id": pd.Series(keys, dtype=object), "record": view.get(keys)})
    begin = spark.createDataFrame(table, frames.states_schema(kinds)).withColumn(
        "shard", frames.shard_of(F.col("unique_id"), shards).cast("int")
    )
    described = None if about is None else about.to_json()
    ids = frames.id_type(kinds).simpleString()
    return rows.groupBy("shard").transformWithStateInPandas(
        _Shards(adapter.settings, described, models, shards, output.names, ids),
        output,
        "Append",
        "None",
        begin.groupBy("shard"),
    )


def adapt_batch(forecasts: DataFrame, actuals: DataFrame, adapter: Adapter, shards: int = 256) -> DataFrame:
    """`Adapter.backtest` over all shards: a history of forecasts, each with what was known at its cutoff."""
    kinds, settings = _kinds(adapter, actuals), dataclasses.asdict(adapter.settings)
    models, time = _models(adapter, forecasts), frames.time_type(kinds)
    numbers = [frames.number(forecasts, name, "forecasts") for name in models]
    cutoff = F.col("cutoff").cast(time).alias("cutoff")
    made = forecasts.select(*frames.keys_of(forecasts, kinds, "forecasts"), cutoff, *numbers)
    seen = actuals.select(*frames.keys_of(actuals, kinds, "actuals"), frames.number(actuals, "y", "actuals"))
    names = made.columns
    first, second = (frames.sharded(rows, kinds, shards).groupBy("shard") for rows in (made, seen))
    return first.cogroup(second).applyInPandas(
        lambda given, truth: _backtest(settings, names, given, truth), made.schema
    )


def _backtest(
    settings: dict[str, Any], names: list[str], forecasts: pd.DataFrame, actuals: pd.DataFrame
) -> pd.DataFrame:
    faults = pd.concat([forecasts["fault"], actuals["fault"]]).dropna()
    if len(faults):
        raise InputError(f"forecasts or actuals have rows that cannot be used: {faults.iloc[0]}. Correct or drop them.")
    if len(forecasts) == 0:
        return forecasts[names]
    return frames.build(names, FORECAST, Adapter(**settings).backtest(forecasts[names], actuals))


class _Kinds(NamedTuple):
    integer_ids: bool
    datetime: bool


def _kinds(adapter: Adapter, observations: DataFrame) -> frames.Kinds:
    """What the adapter knows of ids and times, or else what the observations have."""
    if adapter.settings.freq == "auto":
        raise ConfigError("On Spark no shard sees all rows: give Adapter the freq of the series.")
    with adapter._store.reading() as view:
        schema = adapter._schema(view)
    if schema is not None:
        return schema
    whole = [isinstance(frames.type_of(observations, c, "observations"), T.IntegralType) for c in ("unique_id", "ds")]
    return _Kinds(whole[0], not whole[1])


def _models(adapter: Adapter, forecasts: DataFrame) -> list[str]:
    """The columns to adapt."""
    frames.type_of(forecasts, "cutoff", "forecasts")
    kinds = {f.name: float if isinstance(f.dataType, T.NumericType) else object for f in forecasts.schema}
    empty = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})
    return list(find_models(as_frame(empty, "forecasts"), adapter.settings.models).roles)


def _plain(models: Sequence[str]) -> list[str]:
    """Names that Spark hands to a worker as they are; of others, such as m-lo-90, it makes up its own."""
    return [f"model_{i}" for i in range(len(models))]


class _Shards(Sharded):
    """An adapter's series."""

    def __init__(
        self,
        settings: AdapterSettings,
        about: str | None,
        models: Sequence[str],
        shards: int,
        columns: Sequence[str],
        id_type: str,
    ) -> None:
        super().__init__(shards, columns, id_type)
        self._settings, self._begin, self._models = dataclasses.asdict(settings), about, list(models)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Take in what a batch has for a shard."""
        frame = pd.concat(list(rows), ignore_index=True)
        frame = frame.rename(columns=dict(zip(_plain(self._models), self._models, strict=True)))
        if key[0] == frames.NOWHERE:
            parts = iter([faulty(frame, frame["fault"].to_numpy())])
        else:
            parts = take_in(Adapter(**self._settings, store=self._attached()), frame, self._models)
        for kind, values in parts:
            yield frames.build(self._columns, kind, values)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Put the records of a shard in place, before its first rows."""
        assert self._begin is not None
        with self._attached().writing() as change:
            change.describe(About.from_json(self._begin))
            change.put(initialState["unique_id"].tolist(), initialState["record"].tolist())


def take_in(adapter: Adapter, rows: pd.DataFrame, models: Sequence[str]) -> Iterator[Part]:
    """Observations and forecasts of a shard in the order of time: nothing after a cutoff reaches its forecasts."""
    made = rows["cutoff"].notna()
    seen, forecasts = rows.loc[~made, ["unique_id", "ds", "y"]], rows.loc[made].astype({"cutoff": rows["ds"].dtype})
    for cutoff in sorted(forecasts["cutoff"].unique()):
        until = seen["ds"] <= cutoff
        yield from _observe(adapter, seen[until])
        seen = seen[~until]
        here = forecasts.loc[forecasts["cutoff"] == cutoff, ["unique_id", "ds", "cutoff", *models]]
        yield from _in_parts(here.assign(y=np.nan), lambda part: [(FORECAST, adapter.adapt(part.drop(columns="y")))])
    yield from _observe(adapter, seen)


def _observe(adapter: Adapter, rows: pd.DataFrame) -> Iterator[Part]:
    reasons = repeats(rows, ["unique_id", "ds", "y"])
    wrong = pd.notna(reasons)
    if wrong.any():
        yield faulty(rows[wrong], reasons[wrong])

    def update(part: pd.DataFrame) -> list[Part]:
        left: Any = adapter.update(part, late="skip").late
        return [(LEFT_OUT, left)] if len(left) else []

    yield from _in_parts(rows[~wrong], update)


def _in_parts(rows: pd.DataFrame, work: Callable[[pd.DataFrame], list[Part]]) -> Iterator[Part]:
    """All series at once; those whose rows are refused are found by halving, and left out with the reason."""
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
