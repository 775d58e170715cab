"""The record of a series: its state, and with `correctable_steps` what is needed to correct the latest steps.

A correctable record has the state now, the anchor (the state up to `correctable_steps` steps ago) and the recent rows
between the two. A correction replays these rows from the anchor. Rows that become too old are taken into the anchor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aru.data.columns import Bools, Ints
from aru.data.rows import Ragged, Rows
from aru.data.schema import Schema
from aru.nn.tree import take, tree_map
from aru.runtime.engine import Engine
from aru.store.layout import Arrays, Layout


class Past(NamedTuple):
    """The anchor, and the rows since, left-aligned: (series, correctable_steps, ...)."""

    anchor: Any
    recent: Rows


class Record(NamedTuple):
    """The records of several series."""

    now: Any  # a state, whose first fields are `last`, `steps` and `context`
    past: Past | tuple[()] = ()

    @property
    def correctable_steps(self) -> int:
        """How many of the latest steps can be corrected."""
        return self.past.recent.ds.shape[1] if isinstance(self.past, Past) else 0

    @property
    def buffered(self) -> Tensor:
        """Number of recent rows of each series."""
        assert isinstance(self.past, Past)
        buffered: Tensor = self.now.steps - self.past.anchor.steps
        return buffered

    def select(self, index: Ints) -> Record:
        """The records of some series."""
        if len(index) == len(self.now.last) and (index[1:] > index[:-1]).all():  # all of them, in order
            return self
        return take(self, torch.from_numpy(index).to(self.now.last.device))


def begin(state: Any, correctable_steps: int) -> Record:
    """New records of series in these states, without recent rows."""
    if correctable_steps == 0:
        return Record(state)
    n, rows = len(state.last), state.context.rows
    room = Rows(*(v.new_zeros(n, correctable_steps, *v.shape[2:]) for v in rows))
    return Record(state, Past(state, room))


def code_limits(layout: Layout, schema: Schema) -> dict[str, Ints]:
    """The largest code of every column of categories, by the path of the field that holds them."""
    columns = {
        "futr_cat": (*schema.futr[1], *schema.calendar),
        "hist_cat": schema.hist[1],
        "categories": schema.stat[1],
    }
    paths = [f.name for f in layout.fields if f.name.rpartition(".")[2] in columns]
    return {path: np.array([len(c.values) for c in columns[path.rpartition(".")[2]]], np.int64) for path in paths}


def impossible(arrays: Arrays, limits: Mapping[str, Ints], correctable_steps: int) -> Bools:
    """Which records hold numbers that no update writes. Whatever serves as an index is checked here."""
    wrong = np.zeros(len(arrays["now.last"]), bool)
    for path, most in limits.items():
        codes = arrays[path]
        if codes.size:
            wrong |= ((codes < 0) | (codes > most)).reshape(len(wrong), -1).any(1)
    for path, values in arrays.items():
        if values.dtype == np.bool_ and values.size:
            wrong |= (values.view(np.uint8) > 1).reshape(len(wrong), -1).any(1)
        elif path.endswith("steps"):
            wrong |= (values < -1) | (values > arrays["now.steps"])
    if correctable_steps:
        wrong |= arrays["now.steps"] - arrays["past.anchor.steps"] > correctable_steps
    return wrong


class Flat(NamedTuple):
    """Encoded rows in any order, the series of each, and the steps skipped before it."""

    series: Ints
    rows: Rows
    skipped: Ints


class Advanced(NamedTuple):
    """New records, and the rows that were held back as outliers, with their series."""

    record: Record
    held: Flat


def advance(engine: Engine, record: Record, new: Flat, corrected: Flat | None = None) -> Advanced:
    """Replace recent rows by corrected ones, then take in new rows."""
    if not isinstance(record.past, Past):
        state, data = engine.screen(record.now, _ragged([new], len(record.now.last)))
        return Advanced(Record(engine.take_in(state, data)), _held(data))
    n, c = len(record.now.last), record.correctable_steps
    anchor, buffered = record.past.anchor, record.buffered.cpu()
    data = _ragged([_recent(record), *([] if corrected is None else [corrected]), new], n)
    changed = torch.zeros(n, dtype=torch.bool)
    if corrected is not None:
        changed[torch.from_numpy(corrected.series)] = True
    # Corrected series are replayed from their anchor; the others continue from their state now.
    known = torch.where(changed, 0, buffered)
    start = _where(changed.to(engine.device), anchor, record.now)
    left = data._replace(starts=data.starts + known, lengths=data.lengths - known, each=0)
    start, screened = engine.screen(start, left)
    now = engine.take_in(start, screened)
    leaving = (data.lengths - c).clamp(min=0)
    anchor = engine.advance(anchor, data._replace(lengths=leaving, each=0))
    at = (data.starts + leaving)[:, None] + torch.arange(c)
    kept = torch.arange(c) < (data.lengths - leaving)[:, None]
    return Advanced(Record(now, Past(anchor, _pick(data.rows, at, kept, record.past.recent))), _held(screened))


def _held(data: Ragged) -> Flat:
    """The rows that are held back."""
    at = data.rows.held.nonzero().squeeze(-1)
    if len(at) == 0:
        return Flat(np.zeros(0, np.int64), Rows(*(v[at] for v in data.rows)), np.zeros(0, np.int64))
    begun = data.starts + torch.where(data.lengths > 0, 0, len(data.rows.y))  # series without rows own none
    order = begun.argsort()
    series = order[torch.searchsorted(begun[order], at, right=True) - 1]
    return Flat(series.numpy(), Rows(*(v[at] for v in data.rows)), data.skipped[at].numpy())


def take_back(engine: Engine, record: Record, kept: Tensor) -> Record:
    """The records without their latest rows: only the first `kept` recent ones of each series remain."""
    assert isinstance(record.past, Past)
    anchor, recent = record.past.anchor, record.past.recent
    left = _recent(record, kept)
    now = engine.advance(anchor, _ragged([left], len(kept)))
    inside = torch.arange(record.correctable_steps) < kept[:, None]
    rows = (torch.where(inside.reshape(*inside.shape, *(1,) * (v.ndim - 2)).to(v.device), v, 0) for v in recent)
    return Record(now, Past(anchor, Rows(*(row.to(old.dtype) for row, old in zip(rows, recent, strict=True)))))


def _recent(record: Record, kept: Tensor | None = None) -> Flat:
    """The recent rows of all series, or the first `kept` of them, as flat rows."""
    assert isinstance(record.past, Past)
    count = record.buffered.cpu() if kept is None else kept
    inside = torch.arange(record.correctable_steps) < count[:, None]
    rows = Rows(*(v.cpu()[inside] for v in record.past.recent))
    series = np.repeat(np.arange(len(inside)), inside.sum(1).numpy())
    return Flat(series, rows, np.zeros(len(series), np.int64))


def _ragged(parts: list[Flat], n: int) -> Ragged:
    """Rows sorted by series and time. If several parts have a row for the same time, the last part wins."""
    if len(parts) == 1 and np.array_equal(parts[0].series, np.arange(n)):  # one row of each
        starts, skipped = torch.arange(n), parts[0].skipped
        each = 0 if skipped.any() else 1
        return Ragged(parts[0].rows, starts, torch.ones_like(starts), torch.from_numpy(skipped), each)
    series = np.concatenate([p.series for p in parts])
    rows = Rows(*(torch.cat(v) for v in zip(*(p.rows for p in parts), strict=True)))
    skipped = np.concatenate([p.skipped for p in parts])
    ds = rows.ds.numpy()
    order = np.lexsort((ds, series))  # stable: for equal times, later parts come later
    last = np.append((np.diff(series[order]) != 0) | (np.diff(ds[order]) != 0), len(order) > 0)
    order = order[last[: len(order)]]
    lengths = np.bincount(series[order], minlength=n)
    at = torch.from_numpy(order)
    return Ragged(
        Rows(*(v[at] for v in rows)),
        torch.from_numpy(np.cumsum(lengths) - lengths),
        torch.from_numpy(lengths),
        torch.from_numpy(skipped[order]),
        each=0 if n == 0 or skipped.any() or (lengths != lengths[0]).any() else int(lengths[0]),
    )


def _pick(rows: Rows, at: Tensor, inside: Tensor, like: Rows) -> Rows:
    """rows[at] where `inside`, else zero, with the types and on the device of `like`."""
    index = torch.where(inside, at, 0)

    def pick(value: Tensor, old: Tensor) -> Tensor:
        if len(value) == 0:
            return torch.zeros_like(old)
        mask = inside.reshape(*inside.shape, *(1,) * (value.ndim - 1))
        return torch.where(mask, value[index], torch.zeros((), dtype=value.dtype)).to(old)

    return Rows(*(pick(v, old) for v, old in zip(rows, like, strict=True)))


def _where(which: Tensor, first: Any, second: Any) -> Any:
    """The states of `first` where `which`, else those of `second`."""
    return tree_map(lambda a, b: torch.where(which.reshape(-1, *(1,) * (a.ndim - 1)), a, b), first, second)
