"""From a user's frame to new states, and to the rows of the future: what every streaming surface shares.

Functions here are pure: they take states and return new ones, so that a caller applies all of an update or nothing.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch

from aru.columns import Categories, Column, Ints, read_static, show_rows
from aru.engine import Engine, Ragged
from aru.errors import ColumnError, ConfigError, FutureError, LateError, ValueRangeError, listing
from aru.frequency import Frequency, Times
from aru.panel import Known, Panel, Past, read_continuation, read_future
from aru.schema import Rows, Schema
from aru.state import SeriesState, concat, take


@dataclasses.dataclass(frozen=True)
class UpdateResult:
    """What an update did. `late` holds the rows that `late="skip"` left out: unique_id, ds, y and reason."""

    applied: int
    duplicates: int
    gaps_filled: int
    new_series: list[Any]
    late: Any


class Update(NamedTuple):
    """New states of the series that changed: first the known ones at `known`, then those in `new_ids`."""

    known: Ints
    new_ids: pd.Index[Any]
    state: SeriesState | None
    applied: int
    gaps_filled: int
    duplicates: int
    left_out: dict[str, Any]


def compute_update(
    engine: Engine,
    freq: Frequency,
    ids: pd.Index[Any],
    state: SeriesState,
    df: Any,
    static_df: Any,
    late: Literal["raise", "skip"],
) -> Update:
    """The states that result from new observations. `ids` and `state` are the series known so far."""
    if late not in ("raise", "skip"):
        raise ConfigError(f"late={late!r} is not known: choose 'raise' or 'skip'.")
    columns = [*engine.settings.futr_exog_list, *engine.settings.hist_exog_list]
    known = Known(ids, state.last.cpu().numpy())
    panel, past = read_continuation(df, freq, columns, known, engine.max_gap)
    check_kinds(panel, engine.schema, "new_df")
    reasons = _judge(ids, state, past)
    wrong = reasons != "duplicate"
    if wrong.any() and late == "raise":
        raise LateError(
            f"new_df has {int(wrong.sum())} rows at or before the latest time of their series: "
            f"{show_rows(past.ids[wrong], past.ds[wrong], engine.schema.datetime)} ({reasons[wrong][0]}). "
            "Nothing was applied. Drop them, or pass late='skip'."
        )
    left_out = {
        "unique_id": past.ids[wrong].to_numpy(),
        "ds": past.ds[wrong],
        "y": past.y[wrong],
        "reason": reasons[wrong],
    }
    duplicates = int((~wrong).sum())
    if len(panel.ids) == 0:
        return Update(np.zeros(0, np.int64), ids[:0], None, 0, 0, duplicates, left_out)

    fresh = ids.get_indexer(panel.ids) < 0
    panel = begin_with_values(panel, fresh, "new_df")
    order = np.argsort(fresh, kind="stable")  # known series first
    at = ids.get_indexer(panel.ids[order])
    index, new_ids = at[at >= 0], panel.ids[order][at < 0]
    parts = [take(state, torch.from_numpy(index).to(engine.device))] if len(index) else []
    if len(new_ids):
        static = engine.schema.encode_static(read_static(static_df, new_ids, engine.settings.stat_exog_list), new_ids)
        parts.append(engine.empty(static))
    data = Ragged(
        engine.schema.encode(panel),
        torch.from_numpy(panel.starts[order]),
        torch.from_numpy(panel.lengths[order]),
        torch.from_numpy(panel.skipped),
    )
    return Update(
        known=index,
        new_ids=new_ids,
        state=engine.advance(concat(parts) if len(parts) > 1 else parts[0], data),
        applied=int((~panel.inserted).sum()),
        gaps_filled=int(panel.inserted.sum() + panel.skipped.sum()),
        duplicates=duplicates,
        left_out=left_out,
    )


def check_kinds(panel: Panel, schema: Schema, name: str) -> None:
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


def future_rows(engine: Engine, freq: Frequency, ids: pd.Index[Any], last: Times, futr_df: Any) -> tuple[Times, Rows]:
    """Timestamps (series, h) and encoded covariates of the next h steps, one series after the other."""
    h, columns = engine.settings.h, engine.settings.futr_exog_list
    if futr_df is None:
        if columns or freq.freq is None:
            needed = listing(["unique_id", "ds", *columns], 20)
            raise FutureError(f"Forecasts need futr_df with {needed} for the next {h} steps of each series.")
        ds = freq.horizon(last, h)
        return ds, _encode_future(engine.schema, ids, ds, {})
    panel = read_future(futr_df, freq, list(columns))
    check_kinds(panel, engine.schema, "futr_df")
    if freq.freq is None:
        at, ds = _next_rows(panel, ids, last, h)
    else:
        ds = freq.horizon(last, h)
        at = _matching_rows(panel, ids, ds)
        if (at < 0).any():
            series, lead = np.nonzero(at < 0)
            raise FutureError(
                f"futr_df has no row for {len(series)} of {at.size} future steps: "
                f"{show_rows(ids[series[:5]], ds[series[:5], lead[:5]], panel.datetime, len(series))}. "
                f"Give the covariates of the next {h} steps of every series."
            )
    return ds, _encode_future(engine.schema, ids, ds, _pick(panel, at))


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


def _judge(ids: pd.Index[Any], state: SeriesState, past: Past) -> Any:
    """Why each row of the past is one: a duplicate of what was consumed, a conflict with it, or late."""
    if len(past.ids) == 0:
        return np.zeros(0, dtype=object)
    series = torch.from_numpy(ids.get_indexer(past.ids)).to(state.last.device)
    E = state.ds.shape[1]
    same = state.ds[series] == torch.from_numpy(past.ds).to(series.device)[:, None]
    # Before a series' first value the context is padding.
    age = torch.arange(E - 1, -1, -1, device=series.device)
    same &= age <= state.steps[series][:, None]
    found, where = same.any(1).cpu().numpy(), same.int().argmax(1)
    kept = torch.arange(len(series), device=series.device)
    value = state.y[series][:, -E:][kept, where].cpu().numpy()
    observed = state.observed[series][:, -E:][kept, where].cpu().numpy()
    missing = np.isnan(past.y)
    duplicate = found & np.where(observed, value == past.y, missing)
    conflict = found & observed & ~duplicate
    reasons = ["duplicate", "another value was consumed for this time"]
    return np.select([duplicate, conflict], reasons, "arrived too late").astype(object)


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
