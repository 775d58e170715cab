"""Forecasts, states or a backtest from a history of any size. Every shard is one task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import DataFrame

from aru.errors import ConfigError, InputError, TooLittleDataError, verbatim
from aru.forecaster import Forecaster
from aru.spark import dataframes, shipping
from aru.spark.dataframes import KeyTypes
from aru.spark.shard import FORECAST, STATE, Part, ShardOptions, faulty, forecast_shard
from aru.spark.state_frames import learned_from
from aru.store import MemoryStore
from aru.stream import Stream


class BatchResult(NamedTuple):
    """Results of `forecast_batch`, all computed from `rows`. Cache or write `rows` before using several of them."""

    rows: DataFrame

    @property
    def forecasts(self) -> DataFrame:
        """The next h steps of every series."""
        return self.rows.where(self.rows["kind"] == FORECAST).drop("kind", "y", "reason", "record")

    @property
    def states(self) -> DataFrame:
        """`unique_id` and `record`, for `forecast_stream` or `write_export`."""
        return self.rows.where(self.rows["kind"] == STATE).select("unique_id", "record")

    @property
    def left_out(self) -> DataFrame:
        """Rows that were not taken in and series that were not forecast, with the reason."""
        found = self.rows.where(~self.rows["kind"].isin(FORECAST, STATE))
        return found.select("kind", "unique_id", "ds", "cutoff", "y", "reason")


def learn_model(df: DataFrame, model: Forecaster | str | Path, correctable_steps: int = 0) -> Forecaster:
    """The model with what a stream must know beforehand: a pretrained one learns from a sample of the series in `df`.

    That is how covariates are read, and what all series have in common. Other models stay as they are.

    Args:
        df: A history, or states (`read_checkpoint`, `read_export`, `forecast_batch`) of a model that knows its
            covariates: then what all series have in common is learned anew.
        model: A forecaster, or the folder that `Forecaster.save` wrote.
        correctable_steps: Those of the states.
    """
    forecaster = shipping.load(model)
    if "record" in df.columns:
        return learned_from(df, forecaster, correctable_steps)
    return dataframes.learned(dataframes.suited(forecaster, df), df)


def forecast_batch(
    df: DataFrame,
    model: Forecaster | str | Path,
    shards: int = 256,
    level: Sequence[float] | None = None,
    *,
    futr_df: DataFrame | None = None,
    correctable_steps: int = 0,
    allow_jump: bool = False,
) -> BatchResult:
    """Replay the history of every series from its beginning, and forecast what comes next.

    Rows far from all others of their shard in time are left out, unless `allow_jump` says that they are right.
    A shard is one task, which holds the shard's rows in memory: choose `shards` so that they fit.
    """
    forecaster = learn_model(df, model)
    options = ShardOptions.of(level, correctable_steps, states=True, allow_jump=allow_jump)
    output = dataframes.output_schema(KeyTypes.of(forecaster), dataframes.forecasts_of(forecaster, level), states=True)
    rows = dataframes.by_shard(df, forecaster, shards, "df")
    work = functools.partial(_replay, shipping.ship(df.sparkSession, forecaster), options)
    if futr_df is None:
        forecaster.runtime.read_futr(None)  # an error if the model needs it
        return BatchResult(rows.groupBy("shard").applyInPandas(_without_future(work, output.names), output))
    futr = dataframes.by_shard(futr_df, forecaster, shards, "futr_df", future=True).where("fault is null")
    pairs = rows.groupBy("shard").cogroup(futr.groupBy("shard"))
    return BatchResult(pairs.applyInPandas(_with_future(work, output.names), output))


def backtest_batch(
    df: DataFrame,
    model: Forecaster | str | Path,
    shards: int = 256,
    n_windows: int = 4,
    step_size: int | None = None,
    level: Sequence[float] | None = None,
    adapt: bool = True,
    allow_jump: bool = False,
) -> DataFrame:
    """`Forecaster.cross_validation` over all shards. Malformed rows are an error, as there."""
    forecaster = dataframes.suited(shipping.load(model), df)
    engine = forecaster.runtime.engine
    if engine.learned_late or engine.models[0].shares:
        raise ConfigError(
            "A backtest on Spark does not take pretrained models that learn: no shard knows what all series had in "
            "common at a cutoff",
            "Use Forecaster.cross_validation on a sample of the series, or without covariates hindsight=False.",
        )
    rows = dataframes.by_shard(df, forecaster, shards, "df")
    output = dataframes.backtest_schema(KeyTypes.of(forecaster), dataframes.forecasts_of(forecaster, level))
    name = shipping.ship(df.sparkSession, forecaster)
    options = _BacktestOptions(n_windows, step_size, level, adapt, allow_jump)
    return rows.groupBy("shard").applyInPandas(lambda part: _backtest(name, part, options, output.names), output)


class _BacktestOptions(NamedTuple):
    n_windows: int
    step_size: int | None
    level: Sequence[float] | None
    adapt: bool
    allow_jump: bool


def _backtest(name: str, rows: pd.DataFrame, options: _BacktestOptions, columns: Sequence[str]) -> pd.DataFrame:
    if rows["fault"].notna().any():
        raise InputError(
            f"`df` has rows that cannot be used: {verbatim(rows['fault'].iloc[0])}", "Correct or drop them."
        )
    static = rows.drop_duplicates("unique_id", keep="last")
    try:
        found: pd.DataFrame = shipping.received(name).cross_validation(
            rows, **options._asdict(), static_df=static, id_col="unique_id", time_col="ds", target_col="y"
        )
    except TooLittleDataError:  # no series of this shard is long enough
        return pd.DataFrame({column: [] for column in columns})
    return found


def _replay(name: str, options: ShardOptions, rows: pd.DataFrame, futr: pd.DataFrame | None) -> Iterator[Part]:
    if len(rows) == 0:
        return iter([])
    if rows["fault"].notna().any():
        return iter([faulty(rows, rows["fault"].to_numpy())])
    stream = Stream(shipping.received(name), MemoryStore(), options.correctable_steps)
    return forecast_shard(stream, rows, futr, options)


Work = Callable[[pd.DataFrame, pd.DataFrame | None], Iterator[Part]]


def _without_future(work: Work, columns: Sequence[str]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda rows: _collect(work(rows, None), columns)


def _with_future(work: Work, columns: Sequence[str]) -> Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]:
    return lambda rows, futr: _collect(work(rows, futr), columns)


def _collect(parts: Iterator[Part], columns: Sequence[str]) -> pd.DataFrame:
    found: list[Any] = [dataframes.build(columns, kind, values) for kind, values in parts]
    return pd.concat(found) if found else pd.DataFrame({name: [] for name in columns})
