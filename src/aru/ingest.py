"""From a user's frame to new states, and to the rows of the future: what every streaming surface shares.

Functions here are pure: they take states and return new ones, so that a caller applies all of an update or nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from aru import records
from aru.columns import LARGEST, Bools, Categories, Column, Ints, read_static, show_rows
from aru.engine import Engine
from aru.errors import ColumnError, ConfigError, FutureError, LateError, ValueRangeError, listing
from aru.frames import FrameStyle
from aru.frequency import Frequency, Times
from aru.lateness import in_reach, judge_past, other_covariates, remembered
from aru.panel import Known, Observations, Panel, continuation, next_steps, read_future, read_observations
from aru.records import Flat, Past, Record
from aru.schema import Rows, Schema
from aru.screening import set_aside
from aru.support import broken, refusal, warn_far, warn_new

Late = Literal["raise", "skip", "correct"]
Odd = Literal["raise", "skip"]


@dataclasses.dataclass(frozen=True)
class UpdateResult:
    """What an update did."""

    applied: int
    duplicates: int
    corrected: int
    gaps_filled: int
    new_series: list[Any]
    left_out: dict[str, Any] = dataclasses.field(repr=False, compare=False)
    style: FrameStyle = dataclasses.field(repr=False, compare=False)

    @functools.cached_property
    def late(self) -> Any:
        """A frame of the rows that were left out: unique_id, ds, y and reason."""
        return self.style.build(self.left_out)


class Tally(NamedTuple):
    """Rows of each series in `ids` by what became of them."""

    ids: pd.Index[Any]
    applied: Ints
    duplicates: Ints
    corrected: Ints
    gaps_filled: Ints


class Update(NamedTuple):
    """New records of the series that changed, first known ones, then those in `new_ids`; and what was done."""

    ids: pd.Index[Any]
    new_ids: pd.Index[Any]
    record: Record | None
    result: UpdateResult
    tally: Tally
    repeated: dict[str, Any]  # the duplicates, as `left_out` lists other rows


def read_update(engine: Engine, freq: Frequency, df: Any) -> Observations:
    """Check a frame of new observations, before anything is known of their series."""
    columns = [*engine.settings.futr_exog_list, *engine.settings.hist_exog_list]
    new = read_observations(df, freq, columns)
    check_kinds(new, engine.schema, "new_df")
    return new


def compute_update(
    engine: Engine,
    freq: Frequency,
    style: FrameStyle,
    new: Observations,
    ids: pd.Index[Any],
    record: Record,
    static_df: Any,
    late: Late,
    odd: Odd = "raise",
) -> Update:
    """The records that result from new observations. `ids` and `record`: what is known of the series in `new`.

    `odd` rows do not continue any series: they lie beside its grid, begin one without a value, or have a value that
    the model cannot take.
    """
    if late not in ("raise", "skip", "correct"):
        raise ConfigError(f"late={late!r} is not known: choose 'raise', 'skip' or 'correct'.")
    if late == "correct" and not isinstance(record.past, Past):
        raise ConfigError("late='correct' needs a store that was created with correctable=1 or more steps.")
    impossible, rule = broken(engine.settings, engine.schema.distribution, new.y)
    if rule is not None and odd == "raise":
        raise ValueRangeError(f"{refusal(rule, new)} Nothing was applied.")
    known = Known(ids, record.now.last.cpu().numpy())
    panel = next_steps(new, freq, known) if rule is None else None
    if panel is not None:
        return _take_next(engine, style, panel, record)
    new, aside = set_aside(new, freq, known, impossible) if odd == "skip" else (new, None)
    panel, past = continuation(new, freq, known, engine.max_gap + record.correctable)
    reasons = judge_past(ids, remembered(record), past)
    wrong, revised = reasons != "duplicate", np.zeros(len(reasons), bool)
    if late == "correct":
        wrong |= other_covariates(engine.schema, ids, record, past)
        revised = wrong & in_reach(freq, ids, record, past)
    left_out = left_out_rows(past, reasons, wrong & ~revised)
    if aside is not None:
        left_out = {name: np.concatenate([aside[name], values]) for name, values in left_out.items()}
    if late == "raise" and wrong.any():
        raise LateError(
            f"new_df has {int(wrong.sum())} rows at or before the latest time of their series: "
            f"{show_rows(left_out['unique_id'], left_out['ds'], engine.schema.datetime)} ({left_out['reason'][0]}). "
            "Nothing was applied. Drop them, or pass late='skip'.",
            left_out,
        )
    warn_new(engine.schema.support, np.concatenate([panel.y, past.y[revised]]), engine.said)
    at = ids.get_indexer(panel.ids)
    warn_far(panel, *(np.append(v.cpu().numpy(), 0.0)[at][panel.series] for v in (record.now.total, record.now.count)))
    panel = begin_with_values(panel, at < 0, "new_df")
    touched = np.zeros(len(ids), bool)
    touched[at[at >= 0]] = True
    if revised.any():
        touched[ids.get_indexer(past.ids)[past.series[revised]]] = True
    new_ids = panel.ids[at < 0]
    tally = _tally(new.ids, panel, past, ~wrong, revised)
    result = UpdateResult(
        applied=int(tally.applied.sum()),
        duplicates=int(tally.duplicates.sum()),
        corrected=int(tally.corrected.sum()),
        gaps_filled=int(tally.gaps_filled.sum()),
        new_series=list(new_ids),
        left_out=left_out,
        style=style,
    )
    repeated = left_out_rows(past, reasons, ~wrong)
    names = ids[touched].append(new_ids) if len(new_ids) else ids[touched]
    if len(names) == 0:
        return Update(names, new_ids, None, result, tally, repeated)
    base = _base(engine, records.select(record, np.flatnonzero(touched)), new_ids, static_df)
    corrections = _flat(engine.schema, names, past.select(revised)) if revised.any() else None
    advanced = records.advance(engine, base, _flat(engine.schema, names, panel), corrections)
    return Update(names, new_ids, advanced, result, tally, repeated)


def _take_next(engine: Engine, style: FrameStyle, panel: Panel, record: Record) -> Update:
    """The usual update, which gives the rest of this module nothing to do: one row of each series, its next one."""
    n = len(panel.ids)
    each, none = np.ones(n, np.int64), np.zeros(n, np.int64)
    warn_new(engine.schema.support, panel.y, engine.said)
    warn_far(panel, record.now.total.cpu().numpy(), record.now.count.cpu().numpy())
    nothing = {
        "unique_id": panel.ids[:0].to_numpy(),
        "ds": panel.ds[:0],
        "y": panel.y[:0],
        "reason": none[:0].astype(object),
    }
    result = UpdateResult(n, 0, 0, 0, [], nothing, style)
    flat = Flat(np.arange(n), engine.schema.encode(panel), panel.skipped)
    advanced = records.advance(engine, record, flat)
    return Update(panel.ids, panel.ids[:0], advanced, result, Tally(panel.ids, each, none, none, none), nothing)


def _tally(ids: pd.Index[Any], panel: Panel, past: Panel, duplicate: Bools, revised: Bools) -> Tally:
    """`duplicate` and `revised` are rows of `past`."""
    now, before = ids.get_indexer(panel.ids)[panel.series], ids.get_indexer(past.ids)[past.series]

    def count(rows: Ints) -> Ints:
        return np.bincount(rows, minlength=len(ids))

    skipped = np.bincount(now, panel.skipped, len(ids)).astype(np.int64)
    gaps = count(now[panel.inserted]) + skipped
    return Tally(ids, count(now[~panel.inserted]), count(before[duplicate]), count(before[revised]), gaps)


def left_out_rows(past: Panel, reasons: Any, which: Bools) -> dict[str, Any]:
    """The columns of rows that are not applied, with the reason."""
    return {
        "unique_id": past.ids[past.series[which]].to_numpy(),
        "ds": past.ds[which],
        "y": past.y[which],
        "reason": reasons[which],
    }


def _base(engine: Engine, known: Record, new_ids: pd.Index[Any], static_df: Any) -> Record:
    """The records to advance: of known series, then of new ones, which have seen nothing."""
    if len(new_ids) == 0:
        return known
    static = engine.schema.encode_static(read_static(static_df, new_ids, engine.settings.stat_exog_list), new_ids)
    return records.join([known, records.empty(engine, static, known.correctable)])


def _flat(schema: Schema, names: pd.Index[Any], panel: Panel) -> Flat:
    """Encoded rows of a panel, series numbered as in `names`."""
    return Flat(names.get_indexer(panel.ids)[panel.series], schema.encode(panel), panel.skipped)


def check_kinds(panel: Panel | Observations, schema: Schema, name: str) -> None:
    """Refuse ids and times of another kind than training had: they would pass for new series, or for the past."""
    kinds = ("strings", "integers")
    integer_ids = bool(pd.api.types.is_integer_dtype(panel.ids))
    if len(panel.ids) and integer_ids != schema.integer_ids:
        raise ColumnError(
            f"unique_id of {name} holds {kinds[integer_ids]}, but training had {kinds[schema.integer_ids]}: "
            "convert the column."
        )
    kinds = ("integers", "timestamps")
    if panel.datetime != schema.datetime:
        raise ColumnError(
            f"ds of {name} holds {kinds[panel.datetime]}, but training had {kinds[schema.datetime]}: "
            "convert the column."
        )


def begin_with_values(panel: Panel, which: Any, name: str) -> Panel:
    """Drop rows before the first value of the series in `which`; a series without any value is an error."""
    seen = np.concatenate([[0], np.cumsum(panel.observed)])
    empty = which & (seen[panel.starts + panel.lengths] == seen[panel.starts])
    if empty.any():
        raise ValueRangeError(
            f"{int(empty.sum())} series of {name} have no value of y at all: {listing(list(panel.ids[empty]))}. "
            "Drop them, or give at least one value."
        )
    series = panel.series
    before = which[series] & (seen[1:] == seen[panel.starts][series])
    return panel.select(~before) if before.any() else panel


def read_futr(engine: Engine, freq: Frequency, futr_df: Any) -> Panel | None:
    """The rows of `futr_df`; None where forecasts need none and none are given."""
    h, columns = engine.settings.h, engine.settings.futr_exog_list
    if futr_df is None:
        if columns or freq.freq is None:
            needed = listing(["unique_id", "ds", *columns], 20)
            raise FutureError(f"Forecasts need futr_df with {needed} for the next {h} steps of each series.")
        return None
    panel = read_future(futr_df, freq, list(columns))
    check_kinds(panel, engine.schema, "futr_df")
    return panel


def future_rows(
    engine: Engine, freq: Frequency, ids: pd.Index[Any], last: Times, panel: Panel | None
) -> tuple[Times, Rows]:
    """Timestamps (series, h) and encoded covariates of the next h steps, one series after the other."""
    h = engine.settings.h
    if panel is None:
        ds = _horizon(freq, ids, last, h, engine.schema.datetime)
        return ds, _encode_future(engine.schema, ids, ds, {})
    if freq.freq is None:
        at, ds = _next_rows(panel, ids, last, h)
    else:
        ds = _horizon(freq, ids, last, h, engine.schema.datetime)
        at = _matching_rows(panel, ids, ds)
        if (at < 0).any():
            series, lead = np.nonzero(at < 0)
            raise FutureError(
                f"futr_df has no row for {len(series)} of {at.size} future steps: "
                f"{show_rows(ids[series[:5]], ds[series[:5], lead[:5]], panel.datetime, len(series))}. "
                f"Give the covariates of the next {h} steps of every series."
            )
    return ds, _encode_future(engine.schema, ids, ds, _pick(panel, at))


def _horizon(freq: Frequency, ids: pd.Index[Any], last: Times, h: int, datetime: bool) -> Times:
    """Future times; refuse those that would begin again at the smallest integer."""
    ds = freq.horizon(last, h)
    wraps = np.flatnonzero((ds[:, 0] <= last) | (ds[:, 1:] <= ds[:, :-1]).any(1))
    if len(wraps):
        raise ValueRangeError(
            f"The {h} steps after these rows lie beyond {LARGEST}, the largest integer that ds can hold: "
            f"{show_rows(ids[wraps], last[wraps], datetime)}. Fit on smaller integers, or use a shorter horizon."
        )
    return ds


def first_rows(
    engine: Engine, freq: Frequency, known: pd.Index[Any], futr_df: Any
) -> tuple[pd.Index[Any], Times, Rows]:
    """The series of `futr_df`, none of them known, with timestamps and covariates of their first h steps."""
    h = engine.settings.h
    panel = read_future(futr_df, freq, list(engine.settings.futr_exog_list))
    check_kinds(panel, engine.schema, "futr_df")
    old = panel.ids[known.get_indexer(panel.ids) >= 0]
    if len(old):
        raise FutureError(f"These series have values already: {listing(list(old))}. Forecast them with predict.")
    at, ds = _next_rows(panel, panel.ids, np.full(len(panel.ids), np.iinfo(np.int64).min), h)
    apart = freq.steps(ds[:, :-1].ravel(), ds[:, 1:].ravel()).reshape(len(ds), h - 1) != 1
    if apart.any():
        series, lead = np.nonzero(apart)
        raise FutureError(
            f"The first {h} rows of futr_df are not consecutive steps of freq={freq.freq!r} at "
            f"{show_rows(panel.ids[series[:5]], ds[series[:5], lead[:5] + 1], panel.datetime, len(series))}. "
            "Give every step."
        )
    return panel.ids, ds, _encode_future(engine.schema, panel.ids, ds, _pick(panel, at))


def _pick(panel: Panel, at: Ints) -> dict[str, Column]:
    """The covariates of some rows, one series after the other."""
    rows = at.ravel()
    return {
        k: Categories(c.codes[rows], c.values) if isinstance(c, Categories) else c[rows]
        for k, c in panel.columns.items()
    }


def _matching_rows(panel: Panel, ids: pd.Index[Any], ds: Times) -> Ints:
    """Row of the panel for each (series, lead), -1 where there is none."""
    have = pd.MultiIndex.from_arrays([panel.series, panel.ds])
    series = np.repeat(panel.ids.get_indexer(ids), ds.shape[1])
    at = have.get_indexer(pd.MultiIndex.from_arrays([series, ds.ravel()]))
    return np.where(series < 0, -1, at).reshape(ds.shape)


def _next_rows(panel: Panel, ids: pd.Index[Any], last: Times, h: int) -> tuple[Ints, Times]:
    """The first h rows of each series after its latest time."""
    where = panel.ids.get_indexer(ids)
    latest = np.full(len(panel.ids), np.iinfo(np.int64).max)
    latest[where[where >= 0]] = last[where >= 0]
    later = panel.ds > latest[panel.series]
    counts = np.bincount(panel.series[later], minlength=len(panel.ids))
    have = np.where(where >= 0, counts[where], 0)
    if (have < h).any():
        short = have < h
        named = [f"{name} ({count})" for name, count in zip(ids[short], have[short], strict=True)]
        raise FutureError(
            f"futr_df has fewer than h={h} rows after the latest time of {len(named)} series: "
            f"{listing(named)}. Give the next {h} rows of every series."
        )
    ends = panel.starts + panel.lengths
    at = (ends[where] - have)[:, None] + np.arange(h)
    return at, panel.ds[at]


def _encode_future(schema: Schema, ids: pd.Index[Any], ds: Times, columns: dict[str, Column]) -> Rows:
    """Rows of the future: known covariates as given; y and historic covariates are missing."""
    n, h = ds.shape
    if n > 1 and not columns and (ds == ds[0]).all():  # the same for all series
        one = _encode_future(schema, ids[:1], ds[:1], columns)
        return Rows._make(v.repeat(n, *(1,) * (v.ndim - 1)) for v in one)
    missing: dict[str, Column] = {c.name: np.full(n * h, np.nan) for c in schema.hist[0]}
    missing |= {c.name: Categories(np.full(n * h, -1), ()) for c in schema.hist[1]}
    panel = Panel(
        ids=ids,
        starts=np.arange(n) * h,
        lengths=np.full(n, h),
        ds=np.ascontiguousarray(ds).ravel(),
        y=np.full(n * h, np.nan),
        columns=columns | missing,
        inserted=np.zeros(n * h, bool),
        skipped=np.zeros(n * h, np.int64),
        datetime=schema.datetime,
    )
    return schema.encode(panel)
