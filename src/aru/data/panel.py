"""From a long frame to checked, sorted, gap-free arrays.

A frame has one row per series and time: `unique_id`, `ds`, `y` and covariates; pandas, polars or anything
else that narwhals reads. A `Panel` holds the same rows sorted by series and time, with rows inserted where
`ds` skips a step. Every problem raises an error that shows the first offending rows and says what to do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aru.data.clock import Clock, Times
from aru.data.columns import (
    Bools,
    Categories,
    Column,
    Floats,
    Ints,
    as_frame,
    map_rows,
    name_rows,
    read_column,
    read_ids,
    read_target,
    require_columns,
)
from aru.data.frequency import Frequency
from aru.data.guess import frequency_hint
from aru.data.moments import read_times
from aru.data.plain import read_plain
from aru.errors import REPORTED, ColumnError, DuplicateError, FrequencyError, InputError, Offending, name_series, quoted

SETTLED = "This grid is settled, by training or by earlier rows: correct or drop the rows that do not fit."


@dataclasses.dataclass(frozen=True)
class Panel:
    """Rows sorted by series and time, without gaps. Series i owns rows starts[i] : starts[i] + lengths[i].

    A gap that is longer than any forecast looks back is not filled completely: `skipped` counts the steps left out
    just before a row. `clock` is that of timestamps; None for integers.
    """

    ids: pd.Index[Any]
    starts: Ints
    lengths: Ints
    ds: Times
    y: Floats
    columns: Mapping[str, Column]
    inserted: Bools
    skipped: Ints
    clock: Clock | None

    @property
    def series(self) -> Ints:
        """Index of the series that each row belongs to."""
        return np.repeat(np.arange(len(self.ids)), self.lengths)

    @property
    def observed(self) -> Bools:
        """Rows that have a value."""
        return ~np.isnan(self.y)

    def select(self, keep: Bools) -> Panel:
        """The rows where `keep` is true, and the series that still have any."""
        series = self.series[keep]
        lengths = np.bincount(series, minlength=len(self.ids))
        some = lengths > 0
        lengths = lengths[some]
        return dataclasses.replace(
            self,
            ids=self.ids[some],
            lengths=lengths,
            starts=np.cumsum(lengths) - lengths,
            ds=self.ds[keep],
            y=self.y[keep],
            columns={k: map_rows(c, lambda a: a[keep]) for k, c in self.columns.items()},
            inserted=self.inserted[keep],
            skipped=self.skipped[keep],
        )

    @property
    def presence(self) -> Floats:
        """For each series with several rows: the share of steps, from first to last row, that have a row."""
        steps = self.lengths + np.bincount(self.series, self.skipped, len(self.ids))
        rows = np.bincount(self.series[~self.inserted], minlength=len(self.ids))
        return (rows / steps)[rows > 1]

    def longest(self) -> Times:
        """The first times of the series with most rows."""
        real = ~self.inserted
        times: Times = self.ds[real & (self.series == np.bincount(self.series[real]).argmax())][:50]
        return times

    def name_rows(self, rows: Sequence[int] | Ints) -> Offending:
        """These rows, as a person would name them."""
        rows = np.asarray(rows)
        first = rows[:REPORTED]
        series = np.searchsorted(self.starts, first, side="right") - 1
        return name_rows(self.ids[series], self.ds[first], self.clock, len(rows))


class Known(NamedTuple):
    """Series that have been read before, and the latest time of each."""

    ids: pd.Index[Any]
    last: Times


class Observations(NamedTuple):
    """Checked rows of a frame, sorted by series and time, not yet compared with what is known of the series."""

    rows: SortedRows
    ids: pd.Index[Any]
    clock: Clock | None
    name: str

    @property
    def y(self) -> Floats:
        """The values."""
        return self.rows.y

    def name_rows(self, rows: Ints) -> Offending:
        """These rows, as a person would name them."""
        first = rows[:REPORTED]
        return name_rows(self.ids[self.rows.codes[first]], self.rows.ds[first], self.clock, len(rows))


def read_panel(
    df: Any,
    freq: Frequency,
    columns: Sequence[str] = (),
    *,
    max_gap: int | None = None,
    name: str = "df",
    settled: bool = False,
) -> Panel:
    """Check a long frame and sort it into a panel. Columns not asked for are ignored.

    With `settled` errors do not recommend another frequency, because it can no longer be changed.
    """
    rows, ids, clock = _read_rows(df, freq, ["y", *columns], name)
    position = _positions(rows, ids, freq, clock, name, settled)
    return _fill_gaps(rows, ids, position, freq, max_gap, clock, settled)


def read_observations(df: Any, freq: Frequency, columns: Sequence[str], name: str = "df") -> Observations:
    """Check a long frame of new rows; `continuation` then compares them with the known series."""
    return Observations(*_read_rows(df, freq, ["y", *columns], name), name)


def continuation(new: Observations, freq: Frequency, known: Known, max_gap: int | None = None) -> tuple[Panel, Panel]:
    """Split rows in two panels: those that continue known series or begin new ones, and late rows.

    Gaps before the new rows are filled from each series' latest time on. Late rows are returned as they are.
    """
    rows, ids, clock, name = new
    if len(known.ids) and (known.ids.dtype == np.int64) != (ids.dtype == np.int64):
        kinds = ("integers", "strings") if known.ids.dtype == np.int64 else ("strings", "integers")
        raise ColumnError(
            f"`unique_id` of `{name}` holds {kinds[1]} where {kinds[0]} are known", "Convert it.", columns=["unique_id"]
        )
    at = known.ids.get_indexer(ids)
    never = np.iinfo(np.int64).min
    last = np.where(at >= 0, known.last[at], never) if len(known.ids) else np.full(len(ids), never)
    old = rows.ds <= last[rows.codes]
    past = rows.select(old).panel(ids, clock)
    # The latest known time of a series is added as its first row, so that steps count from it, and removed at the end.
    anchors = np.flatnonzero(at >= 0)
    rows = SortedRows(
        np.concatenate([anchors, rows.codes[~old]]),
        np.concatenate([last[anchors], rows.ds[~old]]),
        np.concatenate([np.full(len(anchors), np.nan), rows.y[~old]]),
        {k: _append(c, len(anchors), ~old) for k, c in rows.data.items()},
    )
    rows = rows.sorted()
    position = _positions(rows, ids, freq, clock, name, settled=True)
    panel = _fill_gaps(rows, ids, position, freq, max_gap, clock, settled=True)
    return panel.select(panel.ds > last[panel.series]), past


def next_steps(new: Observations, freq: Frequency, known: Known) -> Panel | None:
    """The panel of `continuation` if there is exactly one row per known series, its next step; None otherwise."""
    rows, ids, clock, _ = new
    same = ids is known.ids or ids.equals(known.ids)
    if len(rows.codes) != len(ids) or not same or not (rows.ds > known.last).all():
        return None
    return rows.panel(ids, clock) if (freq.steps(known.last, rows.ds) == 1).all() else None


def read_future(df: Any, freq: Frequency, columns: Sequence[str], name: str = "futr_df") -> Panel:
    """Rows of known-future covariates, sorted by series and time. Gaps are not filled."""
    rows, ids, clock = _read_rows(df, freq, columns, name)
    return rows.panel(ids, clock)


def _read_rows(
    df: Any, freq: Frequency, columns: Sequence[str], name: str
) -> tuple[SortedRows, pd.Index[Any], Clock | None]:
    """Checked rows sorted by series and time, the series' ids in order, and the clock of timestamps."""
    ids, ds, clock, data = read_plain(df, freq, columns) or _read_any(df, freq, columns, name)
    y = data.pop("y", None)
    assert not isinstance(y, Categories)
    y = np.full(len(ds), np.nan) if y is None else y
    if len(ids) == 1 or (ids.is_monotonic_increasing and ids.is_unique):  # one row of each series, in order
        return SortedRows(np.arange(len(ids)), ds.copy(), y, data), ids, clock  # `ds` may be the caller's memory
    codes, unique = pd.factorize(ids, sort=True)
    rows = SortedRows(codes, ds, y, data).sorted()
    same = (rows.codes[1:] == rows.codes[:-1]) & (rows.ds[1:] == rows.ds[:-1])
    if same.any():
        twice = Observations(rows, unique, clock, name).name_rows(np.flatnonzero(same) + 1)
        raise DuplicateError(
            f"`{name}` has {len(twice)} duplicate rows for a series and time: {twice}",
            "Keep one row of each.",
            rows=twice,
        )
    return rows, unique, clock


def _read_any(
    df: Any, freq: Frequency, columns: Sequence[str], name: str
) -> tuple[pd.Index[Any], Times, Clock | None, dict[str, Column]]:
    frame = as_frame(df, name)
    require_columns(frame, ["unique_id", "ds", *columns], name)
    if len(frame) == 0:
        raise InputError(f"`{name}` has no rows")
    ids = read_ids(frame, name)
    ds, clock = read_times(frame, freq, name)
    data = {c: read_target(frame, name) if c == "y" else read_column(frame, c, name) for c in columns}
    return ids, ds, clock, data


def _positions(
    rows: SortedRows, ids: pd.Index[Any], freq: Frequency, clock: Clock | None, name: str, settled: bool
) -> Ints:
    """Steps of each row since the first row of its series."""
    starts = np.flatnonzero(np.diff(rows.codes, prepend=-1))
    first = np.repeat(starts, np.diff(np.append(starts, len(rows.codes))))
    if freq.freq is None:
        return np.arange(len(rows.ds)) - first
    position = freq.steps(rows.ds[first], rows.ds)
    if (position < 0).any():
        beside = Observations(rows, ids, clock, name).name_rows(np.flatnonzero(position < 0))
        raise FrequencyError(
            f"{len(beside)} rows of `{name}` do not lie on the grid of `freq={quoted(freq.freq)}`: {beside}",
            SETTLED if settled else frequency_hint(rows.longest(), clock is not None),
            columns=["ds"],
            rows=beside,
        )
    return position


class SortedRows(NamedTuple):
    """Rows with the number of their series, time, y and covariates."""

    codes: Ints
    ds: Times
    y: Floats
    data: dict[str, Column]

    def longest(self) -> Times:
        """The first times of the series with most rows."""
        times: Times = self.ds[self.codes == np.bincount(self.codes).argmax()][:50]
        return times

    def sorted(self) -> SortedRows:
        """By series, then by time."""
        order = np.lexsort((self.ds, self.codes))
        data = {k: map_rows(c, lambda a: a[order]) for k, c in self.data.items()}
        return SortedRows(self.codes[order], self.ds[order], self.y[order], data)

    def select(self, keep: Bools) -> SortedRows:
        """The rows where `keep` is true."""
        data = {k: map_rows(c, lambda a: a[keep]) for k, c in self.data.items()}
        return SortedRows(self.codes[keep], self.ds[keep], self.y[keep], data)

    def panel(self, ids: pd.Index[Any], clock: Clock | None) -> Panel:
        """The rows as a panel. Gaps are not filled."""
        lengths = np.bincount(self.codes, minlength=len(ids))
        return Panel(
            ids=ids,
            starts=np.cumsum(lengths) - lengths,
            lengths=lengths,
            ds=self.ds,
            y=self.y,
            columns=self.data,
            inserted=np.zeros(len(self.ds), bool),
            skipped=np.zeros(len(self.ds), np.int64),
            clock=clock,
        )


def _append(column: Column, missing: int, keep: Bools) -> Column:
    """`missing` missing values, then the values to keep."""
    if isinstance(column, Categories):
        return Categories(np.concatenate([np.full(missing, -1), column.codes[keep]]), column.values)
    return np.concatenate([np.full(missing, np.nan), column[keep]])


def _fill_gaps(
    rows: SortedRows,
    ids: pd.Index[Any],
    position: Ints,
    freq: Frequency,
    max_gap: int | None,
    clock: Clock | None,
    settled: bool,
) -> Panel:
    """Insert a row for every missing step, at most `max_gap` per gap. Further steps are counted as skipped."""
    n = len(rows.ds)
    first = np.concatenate([[True], rows.codes[1:] != rows.codes[:-1]])
    gap = np.where(first, 0, np.diff(position, prepend=0) - 1)
    filled = gap if max_gap is None else np.minimum(gap, max_gap)
    limit = 50 * n + 10_000_000
    if filled.sum() > limit:
        raise FrequencyError(
            f"On the grid of `freq={quoted(freq.freq)}` {int(filled.sum()):,} steps would be missing between {n:,} "
            "rows",
            SETTLED if settled else frequency_hint(rows.longest(), clock is not None),
            columns=["ds"],
        )
    target = np.arange(n) + np.cumsum(filled)
    total = n + int(filled.sum())
    source = np.full(total, -1)
    source[target] = np.arange(n)
    inserted = source < 0
    after = np.searchsorted(target, np.flatnonzero(inserted))  # the real row that ends this gap
    codes = np.empty(total, np.int64)
    codes[target], codes[inserted] = rows.codes, rows.codes[after]
    ds = np.empty(total, np.int64)
    ds[target] = rows.ds
    if inserted.any():
        back = target[after] - np.flatnonzero(inserted)  # steps before the real row
        ds[inserted] = _times_before(freq, rows, after, back, gap)
    skipped = np.zeros(total, np.int64)
    skipped[target - filled] = gap - filled
    y = np.full(total, np.nan)
    y[target] = rows.y
    lengths = np.bincount(codes, minlength=len(ids))
    return Panel(
        ids=ids,
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        ds=ds,
        y=y,
        columns={k: _spread(c, target, total) for k, c in rows.data.items()},
        inserted=inserted,
        skipped=skipped,
        clock=clock,
    )


def _times_before(freq: Frequency, rows: SortedRows, after: Ints, back: Ints, gap: Ints) -> Times:
    """Timestamps of inserted rows: `back` steps before the real row that ends their gap."""
    ahead = gap[after] - back + 1  # steps after the real row that begins the gap
    start = rows.ds[after - 1]
    out = np.empty(len(after), np.int64)
    for unique in _chunks(ahead):
        out[unique.rows] = freq.shift(start[unique.rows], unique.value)
    return out


class _Chunk(NamedTuple):
    value: int
    rows: Ints


def _chunks(values: Ints) -> list[_Chunk]:
    """Rows grouped by value."""
    order = np.argsort(values, kind="stable")
    unique, first = np.unique(values[order], return_index=True)
    return [_Chunk(int(v), r) for v, r in zip(unique, np.split(order, first[1:]), strict=True)]


def _spread(column: Column, target: Ints, total: int) -> Column:
    if isinstance(column, Categories):
        codes = np.full(total, -1)
        codes[target] = column.codes
        return Categories(codes, column.values)
    values = np.full(total, np.nan)
    values[target] = column
    return values


def refuse_split(ids: pd.Index[Any]) -> None:
    """An error if rows of one series lie in several parts of a history: these are the series of all parts."""
    twice = ids[ids.duplicated()]
    if len(twice):
        rows = name_series(twice)
        raise InputError(f"Rows of the series {rows} lie in several parts", "Partition the files by series.", rows=rows)
