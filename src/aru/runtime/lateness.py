"""Past rows, at or before the latest time of their series: which are duplicates, late, or can be corrected."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from aru.data.clock import Times
from aru.data.columns import Bools, Ints
from aru.data.frequency import Frequency
from aru.data.panel import Panel
from aru.data.schema import Schema
from aru.runtime.records import Past, Record
from aru.runtime.state import present_rows

DUPLICATE = "duplicate"  # the reason of rows that were consumed before


CONFLICT = "another value was consumed for this time"
TOO_LATE = "arrived too late"


def judge_past(freq: Frequency, ids: pd.Index[Any], record: Record, past: Panel) -> Any:
    """Why each past row is not new: a duplicate of a consumed row, in conflict with it, or too late."""
    reasons = np.full(len(past.ds), TOO_LATE, dtype=object)
    if len(past.ds) == 0:
        return reasons
    series, seen = ids.get_indexer(past.ids)[past.series], remembered(record)
    _judge_older(reasons, freq, series, record, past)
    oldest = np.where(seen.valid, seen.ds, np.iinfo(np.int64).max).min(1)
    near = np.flatnonzero(past.ds >= oldest[series])  # saves time if a client sends years of history again
    series, ds, y = series[near], past.ds[near], past.y[near]
    same = (seen.ds[series] == ds[:, None]) & seen.valid[series]
    found, where = same.any(1), same.argmax(1)
    value, came = seen.y[series, where], seen.came[series, where]
    duplicate = found & np.where(came, value == y, np.isnan(y))
    reasons[near[found & came & ~duplicate]] = CONFLICT
    reasons[near[duplicate]] = DUPLICATE
    return reasons


def _judge_older(reasons: Any, freq: Frequency, series: Ints, record: Record, past: Panel) -> None:
    """Compare rows with the values that are kept without their times, which the frequency tells."""
    context = record.now.context
    kept, older = context.rows.ds.shape[1], context.older.away.cpu().numpy()
    if freq.freq is None or not older.shape[1]:
        return
    back = freq.steps(past.ds, record.now.last.cpu().numpy()[series])
    at = older.shape[1] + kept - 1 - back
    inside = np.flatnonzero((back >= kept) & (at >= 0))
    away = older[series[inside], at[inside]]
    base = context.older.base.cpu().numpy()[series[inside]]
    value = (past.y[inside] - base).astype(np.float32)  # NaN where it is missing
    missing = np.isinf(away)
    reasons[inside[~missing & (away != value)]] = CONFLICT
    held = np.isnan(away) & ~np.isnan(value)  # which value was held back is not kept
    reasons[inside[held | np.where(missing, np.isnan(value), away == value)]] = DUPLICATE


class Remembered(NamedTuple):
    """Consumed rows that a record still holds: (series, row)."""

    ds: Times
    y: Any
    came: Bools  # with a value, also one that was held back
    valid: Bools


def remembered(record: Record) -> Remembered:
    """The rows of the context and the correctable rows of a record."""
    now, rows = record.now, record.now.context.rows
    parts = [(rows.ds, rows.y, rows.came, present_rows(now))]
    if isinstance(record.past, Past):
        recent = record.past.recent
        inside = torch.arange(record.correctable_steps, device=rows.ds.device) < record.buffered[:, None]
        parts.append((recent.ds, recent.y, recent.came, inside))
    return Remembered(*(torch.cat(v, 1).cpu().numpy() for v in zip(*parts, strict=True)))


def _recent(ids: pd.Index[Any], record: Record, past: Panel) -> tuple[Ints, Bools]:
    """The series of each past row, and which of the series' correctable rows has the same time."""
    assert isinstance(record.past, Past)
    series = ids.get_indexer(past.ids)[past.series]
    ds = record.past.recent.ds.cpu().numpy()[series]
    buffered = record.buffered.cpu().numpy()[series]
    return series, (ds == past.ds[:, None]) & (np.arange(ds.shape[1]) < buffered[:, None])


def other_covariates(schema: Schema, ids: pd.Index[Any], record: Record, past: Panel) -> Bools:
    """Which past rows differ in a covariate from the correctable row of the same time."""
    assert isinstance(record.past, Past)
    if len(past.ds) == 0:
        return np.zeros(0, bool)
    series, same = _recent(ids, record, past)
    new, recent = schema.encode(past), record.past.recent
    differs = np.zeros(len(past.ds), bool)
    for ours, theirs in zip(recent, new, strict=True):
        if theirs.ndim > 1:  # a covariate
            consumed = ours.cpu().numpy()[series, same.argmax(1)]
            differs |= (consumed != theirs.numpy()).any(-1)
    return same.any(1) & differs


def in_reach(freq: Frequency, ids: pd.Index[Any], record: Record, past: Panel) -> Bools:
    """Which past rows lie within the correctable steps of their series."""
    assert isinstance(record.past, Past)
    if len(past.ds) == 0:
        return np.zeros(0, bool)
    series, same = _recent(ids, record, past)
    buffered = record.buffered.cpu().numpy()[series]
    ds = record.past.recent.ds.cpu().numpy()[series]
    first = same[:, 0] & (record.past.anchor.steps < 0).cpu().numpy()[series]
    inside: Bools = same.any(1) & ~(first & np.isnan(past.y))  # the first row of a series must have a value
    if freq.freq is None:  # rows are consecutive whatever their times, so a row can be inserted anywhere
        inside |= (buffered > 0) & (past.ds > ds[:, 0]) & ~same.any(1)
    return inside
