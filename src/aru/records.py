"""What is kept of a series: its state, and with `correctable` steps what it takes to revise the latest of them.

A correctable record is (now, anchor, recent): the state, the state as of up to `correctable` steps ago, and the rows
between the two. A revision replays those rows on the anchor; the anchor absorbs the rows that become too old.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aru.columns import Ints
from aru.engine import Engine, Ragged
from aru.schema import Rows, Static
from aru.state import SeriesState, concat, take, tree_map


class Past(NamedTuple):
    """The state before the latest rows, and these rows, left-aligned: (series, correctable, ...)."""

    anchor: SeriesState
    recent: Rows


class Record(NamedTuple):
    """All that is kept of some series."""

    now: SeriesState
    past: Past | tuple[()] = ()

    @property
    def correctable(self) -> int:
        """How many of the latest steps can be revised."""
        return self.past.recent.ds.shape[1] if isinstance(self.past, Past) else 0

    @property
    def buffered(self) -> Tensor:
        """How many recent rows there are of each series."""
        assert isinstance(self.past, Past)
        return self.now.steps - self.past.anchor.steps


def begin(state: SeriesState, correctable: int) -> Record:
    """Records of series in these states, none of whose steps can be revised yet."""
    if correctable == 0:
        return Record(state)
    n = len(state.last)

    def room(rows: Tensor) -> Tensor:
        return torch.zeros(n, correctable, *rows.shape[2:], dtype=rows.dtype, device=rows.device)

    like = Rows(state.ds, state.y, state.observed, state.futr, state.futr_cat, state.hist, state.hist_cat)
    return Record(state, Past(state, Rows._make(room(v) for v in like)))


def empty(engine: Engine, static: Static, correctable: int) -> Record:
    """Records of series that have seen nothing."""
    return begin(engine.empty(static), correctable)


class Flat(NamedTuple):
    """Encoded rows in any order, the series of each, and the steps skipped before it."""

    series: Ints
    rows: Rows
    skipped: Ints


def advance(engine: Engine, record: Record, new: Flat, revised: Flat | None = None) -> Record:
    """Take in new rows of each series, and first replace recent rows by revised ones."""
    if not isinstance(record.past, Past):
        return Record(engine.advance(record.now, _ragged([new], len(record.now.last))))
    n, c = len(record.now.last), record.correctable
    anchor, buffered = record.past.anchor, record.buffered.cpu()
    data = _ragged([_recent(record), *([] if revised is None else [revised]), new], n)
    changed = torch.zeros(n, dtype=torch.bool)
    if revised is not None:
        changed[torch.from_numpy(revised.series)] = True
    # A revised series starts again from its anchor; the others go on from where they are.
    known = torch.where(changed, 0, buffered)
    start = _where(changed.to(engine.device), anchor, record.now)
    now = engine.advance(start, data._replace(starts=data.starts + known, lengths=data.lengths - known))
    leaving = (data.lengths - c).clamp(min=0)
    anchor = engine.advance(anchor, data._replace(lengths=leaving))
    at = (data.starts + leaving)[:, None] + torch.arange(c)
    kept = torch.arange(c) < (data.lengths - leaving)[:, None]
    return Record(now, Past(anchor, _pick(data.rows, at, kept, record.past.recent)))


def join(records: list[Record]) -> Record:
    """Records of several groups of series, one after the other."""
    return concat(records) if len(records) > 1 else records[0]


def select(record: Record, index: Ints) -> Record:
    """The records of some series."""
    if len(index) == len(record.now.last) and (index[1:] > index[:-1]).all():  # all of them, in order
        return record
    return take(record, torch.from_numpy(index).to(record.now.last.device))


def _recent(record: Record) -> Flat:
    """The recent rows of all series as flat rows."""
    assert isinstance(record.past, Past)
    inside = torch.arange(record.correctable) < record.buffered.cpu()[:, None]
    rows = _as_encoded(Rows._make(v.cpu()[inside] for v in record.past.recent))
    series = np.repeat(np.arange(len(inside)), inside.sum(1).numpy())
    return Flat(series, rows, np.zeros(len(series), np.int64))


def _ragged(parts: list[Flat], n: int) -> Ragged:
    """Rows sorted by series and time. Of several rows for one time the last part's counts."""
    if len(parts) == 1 and np.array_equal(parts[0].series, np.arange(n)):  # one row of each
        each = torch.arange(n)
        return Ragged(parts[0].rows, each, torch.ones_like(each), torch.from_numpy(parts[0].skipped))
    series = np.concatenate([p.series for p in parts])
    rows = Rows._make(torch.cat(v) for v in zip(*(p.rows for p in parts), strict=True))
    skipped = np.concatenate([p.skipped for p in parts])
    ds = rows.ds.numpy()
    order = np.lexsort((ds, series))  # stable: among equals, later parts come later
    last = np.append((np.diff(series[order]) != 0) | (np.diff(ds[order]) != 0), len(order) > 0)
    order = order[last[: len(order)]]
    lengths = np.bincount(series[order], minlength=n)
    at = torch.from_numpy(order)
    return Ragged(
        Rows._make(v[at] for v in rows),
        torch.from_numpy(np.cumsum(lengths) - lengths),
        torch.from_numpy(lengths),
        torch.from_numpy(skipped[order]),
    )


def _as_encoded(rows: Rows) -> Rows:
    """Rows as the schema encodes them; states keep categories in fewer bytes."""
    return rows._replace(futr_cat=rows.futr_cat.long(), hist_cat=rows.hist_cat.long())


def _pick(rows: Rows, at: Tensor, inside: Tensor, like: Rows) -> Rows:
    """rows[at] where `inside`, else zero, with the types and on the device of `like`."""
    index = torch.where(inside, at, 0)

    def pick(value: Tensor, old: Tensor) -> Tensor:
        if len(value) == 0:
            return torch.zeros_like(old)
        mask = inside.reshape(*inside.shape, *(1,) * (value.ndim - 1))
        return torch.where(mask, value[index], torch.zeros((), dtype=value.dtype)).to(old)

    return Rows._make(pick(v, old) for v, old in zip(rows, like, strict=True))


def _where(which: Tensor, first: SeriesState, second: SeriesState) -> SeriesState:
    """The states of `first` where `which`, else those of `second`."""
    return tree_map(lambda a, b: torch.where(which.reshape(-1, *(1,) * (a.ndim - 1)), a, b), first, second)
