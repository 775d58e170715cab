"""Future rows of series: timestamps and known-future covariates. Every forecast uses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from aru.data.clock import Clock, Times
from aru.data.columns import LARGEST, Bools, Column, Ints, map_rows, name_rows
from aru.data.frequency import Frequency
from aru.data.panel import Panel
from aru.data.rows import Rows
from aru.data.schema import Schema
from aru.errors import REPORTED, FutureError, ValueRangeError, listing, name_series, quoted


def future_rows(
    schema: Schema, freq: Frequency, h: int, ids: pd.Index[Any], last: Times, panel: Panel | None, given: int
) -> tuple[Times, Rows]:
    """Timestamps and encoded covariates of the next h steps: (series, h).

    Covariates are given for the first `given` of them. The later ones are filled up, since networks forecast all leads:
    no forecast reads covariates of later leads.
    """
    if panel is None:
        ds = future_times(freq, ids, last, h, schema.clock)
        return ds, _encode(schema, ids, ds, {})
    if freq.freq is None:
        at, ds = _next_rows(panel, ids, last, given)
        ds = _repeat_last(ds, h)
    else:
        ds = future_times(freq, ids, last, h, schema.clock)
        at = _matching_rows(panel, ids, ds[:, :given])
        if (at < 0).any():
            series, lead = np.nonzero(at < 0)
            some = slice(REPORTED)
            rows = name_rows(ids[series[some]], ds[series[some], lead[some]], panel.clock, len(series))
            raise FutureError(
                f"`futr_df` has no row for {len(series)} of {at.size} future steps: {rows}",
                f"Give the covariates of the next {given} steps of every series.",
                rows=rows,
            )
    return ds, _encode(schema, ids, ds, _pick(panel, _repeat_last(at, h)))


def missing_steps(panel: Panel | None, ids: pd.Index[Any], ds: Times) -> Bools:
    """Which (series, lead) future steps have no row in a panel of covariates."""
    if panel is None:
        return np.ones(ds.shape, bool)
    missing: Bools = _matching_rows(panel, ids, ds) < 0
    return missing


def _repeat_last(values: Any, h: int) -> Any:
    """(series, n) values as (series, h): the last one again and again."""
    return np.concatenate([values, np.repeat(values[:, -1:], h - values.shape[1], 1)], 1)


def first_rows(schema: Schema, freq: Frequency, h: int, panel: Panel) -> tuple[Times, Rows]:
    """The same for the first h steps of series without any value (cold start)."""
    at, ds = _next_rows(panel, panel.ids, np.full(len(panel.ids), np.iinfo(np.int64).min), h)
    apart = freq.steps(ds[:, :-1].ravel(), ds[:, 1:].ravel()).reshape(len(ds), h - 1) != 1
    if apart.any():
        series, lead = np.nonzero(apart)
        some = slice(REPORTED)
        rows = name_rows(panel.ids[series[some]], ds[series[some], lead[some] + 1], panel.clock, len(series))
        raise FutureError(
            f"The first {h} rows of `futr_df` are not consecutive steps of `freq={quoted(freq.freq)}` at {rows}",
            "Give every step.",
            rows=rows,
        )
    return ds, _encode(schema, panel.ids, ds, _pick(panel, at))


def future_times(freq: Frequency, ids: pd.Index[Any], last: Times, h: int, clock: Clock | None) -> Times:
    """(series, h) times of the next steps; refuse those that would overflow."""
    ds = freq.horizon(last, h)
    wraps = np.flatnonzero((ds[:, 0] <= last) | (ds[:, 1:] <= ds[:, :-1]).any(1))
    if len(wraps):
        rows = name_rows(ids[wraps], last[wraps], clock)
        raise ValueRangeError(
            f"The {h} steps after these rows lie beyond {LARGEST}, the largest integer that `ds` can hold: {rows}",
            "Fit on smaller integers, or use a shorter horizon.",
            columns=["ds"],
            rows=rows,
        )
    return ds


def _pick(panel: Panel, at: Ints) -> dict[str, Column]:
    """The covariates of some rows, one series after the other."""
    rows = at.ravel()
    return {name: map_rows(column, lambda a: a[rows]) for name, column in panel.columns.items()}


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
            f"`futr_df` has fewer than `h={h}` rows after the latest time of {len(named)} series: {listing(named)}",
            f"Give the next {h} rows of every series.",
            rows=name_series(ids[short]),
        )
    ends = panel.starts + panel.lengths
    at = (ends[where] - have)[:, None] + np.arange(h)
    return at, panel.ds[at]


def _encode(schema: Schema, ids: pd.Index[Any], ds: Times, columns: dict[str, Column]) -> Rows:
    """Encode future rows with their known covariates."""
    n, h = ds.shape
    if n > 1 and not columns and (ds == ds[0]).all():  # the same for all series
        one = _encode(schema, ids[:1], ds[:1], columns)
        return Rows(*(v.expand(n, *v.shape[1:]) for v in one))
    return schema.encode_ahead(
        np.ascontiguousarray(ds),
        columns,
        lambda rows: name_rows(ids[rows[:REPORTED] // h], ds.ravel()[rows[:REPORTED]], schema.clock, len(rows)),
    )
