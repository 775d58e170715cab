"""Update and forecast the series of one shard, with pandas and without Spark.

The result has rows of several kinds:

    forecast      a future step of a series that has just changed, with `cutoff`, its latest time
    no_forecast   a series that took in rows but could not be forecast, with the `reason`
    left_out      a row that was not taken in, with the `reason`
    state         the record of a series, where states were asked for
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aru.checked import check_whole
from aru.errors import InputError
from aru.runtime.screening import repeats
from aru.runtime.update import Late, Update
from aru.spark.dataframes import latest_rows
from aru.stream import Stream

HELD_BACK = "an outlier: applied as a missing value"
FORECAST, NO_FORECAST, LEFT_OUT, STATE = "forecast", "no_forecast", "left_out", "state"
Part = tuple[str, Mapping[str, Any]]  # a kind of rows, and their columns


class ShardOptions(NamedTuple):
    """Options of forecasts for all shards."""

    level: tuple[float, ...] | None
    correctable_steps: int
    states: bool  # whether records are part of the result
    allow_jump: bool  # whether rows may lie far ahead of all series

    @classmethod
    def of(
        cls, level: Sequence[float] | None, correctable_steps: int, *, states: bool, allow_jump: bool
    ) -> ShardOptions:
        """Check the options on the driver."""
        steps = check_whole("correctable_steps", correctable_steps, 0)
        return cls(None if level is None else tuple(level), steps, states, allow_jump)


def faulty(rows: pd.DataFrame, reasons: Any) -> Part:
    """Rows that cannot be used, whatever the state of their series."""
    ids = rows["unique_id"]
    ids = ids.astype(object).where(ids.notna(), None)  # an all-missing column has a numeric type
    return LEFT_OUT, {
        "unique_id": ids.to_numpy(),
        "ds": rows["ds"].to_numpy(),
        "y": rows["y"].to_numpy(),
        "reason": reasons,
    }


def forecast_shard(
    stream: Stream, rows: pd.DataFrame, futr: pd.DataFrame | None, options: ShardOptions
) -> Iterator[Part]:
    """Update the series of a shard, and forecast those that changed."""
    settings = stream.runtime.settings
    covariates = [*settings.futr_exog_list, *settings.hist_exog_list, *settings.stat_exog_list]
    reasons = repeats(rows, ["unique_id", "ds", "y", *covariates])
    wrong = pd.notna(reasons)
    if wrong.any():
        yield faulty(rows[wrong], reasons[wrong])
    rows = rows[~wrong]
    if len(rows) == 0:
        return
    static = latest_rows(rows) if settings.stat_exog_list else None
    late: Late = "correct" if options.correctable_steps else "skip"
    update = stream.apply(rows, static, late, invalid="skip", allow_jump=options.allow_jump)
    held = update.result.outliers
    held = {**held, "reason": np.full(len(held["ds"]), HELD_BACK, dtype=object)}
    for left in (update.result.left_out, update.repeated, held):
        if len(left["ds"]):
            yield LEFT_OUT, {**left, "ds": _times(stream, left["ds"])}
    if update.record is None:
        return
    yield from _forecasts(stream, update, futr, options.level)
    if options.states:
        records = stream.runtime.encode(update.record, update.ids)
        yield STATE, {"unique_id": update.ids.to_numpy(), "record": records}


def _forecasts(
    stream: Stream, update: Update, futr: pd.DataFrame | None, level: Sequence[float] | None
) -> Iterator[Part]:
    """Forecasts of all series that have enough future rows. The others are found by halving."""
    assert update.record is not None
    last = pd.Series(update.record.now.last.cpu().numpy(), index=update.ids)
    groups = [update.ids]
    if futr is not None:
        planned = update.ids.isin(futr["unique_id"])
        groups = [update.ids[planned]] if planned.any() else []
        if not planned.all():
            yield _not_forecast(stream, last[~planned], "futr_df has no rows of this series")
    while groups:
        ids = groups.pop()
        try:
            columns = stream.predict_columns(futr, level, ids).columns
        except InputError as error:
            if len(ids) > 1:
                groups += [ids[len(ids) // 2 :], ids[: len(ids) // 2]]
            else:
                yield _not_forecast(stream, last[ids], str(error))
            continue
        cutoff = np.repeat(last[ids].to_numpy(), stream.runtime.h)
        yield FORECAST, {**columns, "ds": _times(stream, columns["ds"]), "cutoff": _times(stream, cutoff)}


def _not_forecast(stream: Stream, last: pd.Series[Any], reason: str) -> Part:
    return NO_FORECAST, {
        "unique_id": last.index.to_numpy(),
        "cutoff": _times(stream, last.to_numpy()),
        "reason": np.full(len(last), reason, dtype=object),
    }


def _times(stream: Stream, times: Any) -> Any:
    """Internal times as a column."""
    return np.asarray(times, np.int64).view("datetime64[us]") if stream.about.datetime else times
