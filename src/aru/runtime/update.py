"""Compute new records from checked rows, and what became of each row.

Functions are pure: they take records and return new ones, so that a caller can apply all of an update or nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from aru.data.beginnings import begin_with_values
from aru.data.clock import Clock
from aru.data.columns import Bools, Ints, name_rows, read_static
from aru.data.frames import FrameStyle
from aru.data.frequency import Frequency
from aru.data.jumps import Newest
from aru.data.panel import Known, Observations, Panel, continuation, next_steps
from aru.data.schema import Schema
from aru.data.target import broken, refusal, warn_held, warn_new
from aru.errors import REPORTED, ConfigError, LateError, ValueRangeError, quoted
from aru.nn.tree import concat
from aru.runtime.engine import Engine
from aru.runtime.lateness import DUPLICATE, in_reach, judge_past, other_covariates
from aru.runtime.records import Flat, Past, Record, advance, begin
from aru.runtime.screening import set_aside
from aru.store.exchange import index_of

Late = Literal["raise", "skip", "correct"]
NOBODY = {False: index_of([], False), True: index_of([], True)}  # no series, by whether ids are integers
NO_REASONS = np.empty(0, object)
Invalid = Literal["raise", "skip"]


@dataclasses.dataclass(frozen=True)
class UpdateResult:
    """What an update did."""

    applied: int
    duplicates: int
    corrected: int
    gaps_filled: int
    new_series: list[Any]
    left_out: dict[str, Any] = dataclasses.field(repr=False, compare=False)
    outliers: dict[str, Any] = dataclasses.field(repr=False, compare=False)
    style: FrameStyle = dataclasses.field(repr=False, compare=False)

    @functools.cached_property
    def late(self) -> Any:
        """A frame of the rows that were left out: unique_id, ds, y and reason."""
        return self.style.build(self.left_out)

    @functools.cached_property
    def held_back(self) -> Any:
        """A frame of the rows that were applied as missing values, because y is an outlier: unique_id, ds and y."""
        return self.style.build(self.outliers)


class Tally(NamedTuple):
    """Numbers of rows of each series in `ids`, by what became of them."""

    ids: pd.Index[Any]
    applied: Ints
    duplicates: Ints
    corrected: Ints
    gaps_filled: Ints


class Update(NamedTuple):
    """New records of the series that changed (known ones, then those in `new_ids`), and what became of the rows."""

    ids: pd.Index[Any]
    new_ids: pd.Index[Any]
    record: Record | None
    result: UpdateResult
    tally: Tally
    repeated: dict[str, Any]  # the duplicates, as `left_out` lists other rows


def compute_update(
    engine: Engine,
    freq: Frequency,
    style: FrameStyle,
    new: Observations,
    ids: pd.Index[Any],
    record: Record,
    static_df: Any,
    late: Late,
    invalid: Invalid,
    newest: Newest | None,
    resent: bool = False,
) -> Update:
    """The records after new observations. `ids` and `record` are the known series among those in `new`.

    With `resent` all rows at or before the latest time of their series are duplicates, whatever is still known of them.
    A row is `invalid` if it is not on the grid of its series, begins a series without a value, has a value that the
    model cannot take, or lies too far ahead of `newest`; None allows any time.
    """
    if late not in ("raise", "skip", "correct"):
        raise ConfigError(f"`late={quoted(late)}` is not known", "Choose 'raise', 'skip' or 'correct'.")
    if late == "correct" and not isinstance(record.past, Past):
        raise ConfigError("`late='correct'` needs a store that was created with `correctable_steps=1` or more")
    impossible, rule = broken(engine.rules, new.y)
    if rule is not None and invalid == "raise":
        error = refusal(rule, new)
        raise ValueRangeError(error.problem, f"{error.remedy} Nothing was applied.", columns=["y"], rows=error.rows)
    far = np.zeros(len(new.y), bool) if newest is None else newest.far(new, freq)
    if newest is not None and far.any() and invalid == "raise":
        raise newest.refusal(new, freq, far)
    known = Known(ids, record.now.last.cpu().numpy())
    panel = next_steps(new, freq, known) if rule is None and not far.any() else None
    if panel is not None:
        return _take_next(engine, style, panel, record)
    new, aside = set_aside(new, freq, known, impossible, far) if invalid == "skip" else (new, None)
    panel, past = continuation(new, freq, known, engine.max_gap + record.correctable_steps)
    reasons = np.full(len(past.ds), DUPLICATE, object) if resent else judge_past(freq, ids, record, past)
    wrong, corrected = reasons != DUPLICATE, np.zeros(len(reasons), bool)
    if late == "correct" and not resent:
        wrong |= other_covariates(engine.schema, ids, record, past)
        corrected = wrong & in_reach(freq, ids, record, past)
    left_out = _left_out(past, reasons, wrong & ~corrected)
    if aside is not None:
        left_out = {name: np.concatenate([aside[name], values]) for name, values in left_out.items()}
    if late == "raise" and wrong.any():
        raise _late_error(new.name, left_out, engine.schema.clock)
    warn_new(engine.schema.support, np.concatenate([panel.y, past.y[corrected]]), engine.said)
    at = ids.get_indexer(panel.ids)
    panel = begin_with_values(panel, at < 0, new.name)
    touched = np.zeros(len(ids), bool)
    touched[at[at >= 0]] = True
    if corrected.any():
        touched[ids.get_indexer(past.ids)[past.series[corrected]]] = True
    new_ids = panel.ids[at < 0]
    tally = _tally(new.ids, panel, past, ~wrong, corrected)
    names = ids[touched].append(new_ids) if len(new_ids) else ids[touched]
    advanced, outliers = None, _outliers(names, None)
    if len(names):
        base = _base(engine, record.select(np.flatnonzero(touched)), new_ids, static_df)
        corrections = _flat(engine.schema, names, past.select(corrected)) if corrected.any() else None
        advanced, held = advance(engine, base, _flat(engine.schema, names, panel), corrections)
        outliers = _outliers(names, held)
        warn_held(outliers, engine.schema.clock)
    result = UpdateResult(
        applied=int(tally.applied.sum()),
        duplicates=int(tally.duplicates.sum()),
        corrected=int(tally.corrected.sum()),
        gaps_filled=int(tally.gaps_filled.sum()),
        new_series=list(new_ids),
        left_out=left_out,
        outliers=outliers,
        style=style,
    )
    return Update(names, new_ids, advanced, result, tally, _left_out(past, reasons, ~wrong))


def _take_next(engine: Engine, style: FrameStyle, panel: Panel, record: Record) -> Update:
    """Fast path for the usual update: exactly one row per series, its next step."""
    n = len(panel.ids)
    each, none = np.ones(n, np.int64), np.zeros(n, np.int64)
    warn_new(engine.schema.support, panel.y, engine.said)
    nobody = NOBODY[engine.schema.integer_ids]
    nothing = {"unique_id": nobody.to_numpy(), "ds": panel.ds[:0], "y": panel.y[:0], "reason": NO_REASONS}
    advanced, held = advance(engine, record, Flat(np.arange(n), engine.schema.encode(panel), panel.skipped))
    outliers = _outliers(panel.ids, held)
    warn_held(outliers, engine.schema.clock)
    result = UpdateResult(n, 0, 0, 0, [], nothing, outliers, style)
    return Update(panel.ids, nobody, advanced, result, Tally(panel.ids, each, none, none, none), nothing)


def _late_error(name: str, left_out: dict[str, Any], clock: Clock | None) -> LateError:
    named = name_rows(left_out["unique_id"], left_out["ds"], clock)
    reasons, y = left_out["reason"][:REPORTED], left_out["y"][:REPORTED].tolist()
    return LateError(
        f"`{name}` has {len(named)} rows at or before the latest time of their series: {named} ({reasons[0]})",
        "Nothing was applied. Drop them, or pass `late='skip'`.",
        rows=named.beside({"y": y, "reason": reasons}),
    )


def _tally(ids: pd.Index[Any], panel: Panel, past: Panel, duplicate: Bools, corrected: Bools) -> Tally:
    """`duplicate` and `corrected` are rows of `past`."""
    now, before = ids.get_indexer(panel.ids)[panel.series], ids.get_indexer(past.ids)[past.series]

    def count(rows: Ints) -> Ints:
        return np.bincount(rows, minlength=len(ids))

    skipped = np.bincount(now, panel.skipped, len(ids)).astype(np.int64)
    gaps = count(now[panel.inserted]) + skipped
    return Tally(ids, count(now[~panel.inserted]), count(before[duplicate]), count(before[corrected]), gaps)


def _left_out(past: Panel, reasons: Any, which: Bools) -> dict[str, Any]:
    """The columns of rows that are not applied, with the reason."""
    return {
        "unique_id": past.ids[past.series[which]].to_numpy(),
        "ds": past.ds[which],
        "y": past.y[which],
        "reason": reasons[which],
    }


def _outliers(names: pd.Index[Any], held: Flat | None) -> dict[str, Any]:
    """The columns of rows that were held back; their series are numbered as in `names`."""
    none = np.zeros(0, np.int64)
    if held is None:
        return {"unique_id": names[none].to_numpy(), "ds": none, "y": none.astype(float)}
    return {"unique_id": names[held.series].to_numpy(), "ds": held.rows.ds.numpy(), "y": held.rows.y.numpy()}


def _base(engine: Engine, known: Record, new_ids: pd.Index[Any], static_df: Any) -> Record:
    """The records to advance: those of known series, then empty ones of new series."""
    if len(new_ids) == 0:
        return known
    static = engine.schema.encode_static(read_static(static_df, new_ids, engine.static_columns), new_ids)
    return concat([known, begin(engine.empty(static), known.correctable_steps)])


def _flat(schema: Schema, names: pd.Index[Any], panel: Panel) -> Flat:
    """Encoded rows of a panel, series numbered as in `names`."""
    return Flat(names.get_indexer(panel.ids)[panel.series], schema.encode(panel), panel.skipped)
