"""The state of series: all that updates and forecasts need, for many series at once.

Every tensor has the series as leading dimension. Sizes depend on the settings, not on the length of history. The first
fields of every state are `last`, `steps` and `context`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aru.data.rows import Rows, Static
from aru.data.schema import Schema
from aru.nn.envelope import Envelope
from aru.nn.windows import Context, Older, Values, begun, sums_after


class SeriesState(NamedTuple):
    """Latest time and context of each series, and its state in each model of an ensemble."""

    last: Tensor  # (series,) int64: timestamp of the latest row
    steps: Tensor  # (series,) int64: time steps since the first value; -1 before it
    context: Context
    members: tuple[Any, ...]  # one NamedTuple of tensors per model
    followed: Any = ()  # with a gate or calibration: pending origin and what was learned (`aru.runtime.truth.Followed`)
    envelope: Envelope | tuple[()] = ()  # of its values, by which outliers are held back; () inside an update


def empty_context(schema: Schema, static: Static, kept: int, coded: int, device: torch.device) -> Context:
    """Contexts of series without observations, with room for `kept` rows, and for `coded` bytes of each older one."""
    n = len(static.numbers)
    zeros = functools.partial(torch.zeros, device=device)
    older = max(schema.history - kept, 0)
    return Context(
        rows=Rows(*(zeros(n, kept, *v.shape[1:], dtype=v.dtype) for v in schema.no_rows)),
        older=Older(
            base=zeros(n, dtype=torch.float64),
            away=torch.full((n, older), torch.inf, device=device),
            codes=zeros(n, older, coded, dtype=torch.uint8),
        ),
        static=Static(*(v.to(device) for v in static)),
        total=zeros(n, dtype=torch.float64),
        count=zeros(n, dtype=torch.float64),
    )


def move_on(
    context: Context, rows: Rows, steps: Tensor | None = None, codes_of: Callable[[Rows], Tensor] | None = None
) -> Context:
    """Contexts after taking in (series, row) rows, or the first `steps` of them. Their length does not change.

    `codes_of` gives the bytes that are kept of older rows.
    """
    if steps is None and rows.y.shape[1] == 1:  # what `sums_after` gives, in fewer operations
        size = torch.where(rows.observed, rows.y.abs(), 0.0)
        total, count = context.total + size[:, 0], context.count + rows.observed[:, 0]
    else:
        sums = sums_after(context, rows)
        total, count = (v[:, -1] if steps is None else v.gather(1, steps[:, None])[:, 0] for v in sums)
    old = context.rows
    older = context.older
    if older.away.shape[1]:
        older = begun(context, rows)
        leaving, coming = (  # if they leave the latest rows
            torch.where(v.held, torch.nan, older.replaced(Values(v.y, v.observed)).away) for v in (old, rows)
        )
        length = older.away.shape[1]
        away = _latest(torch.cat([older.away, leaving], 1), coming, steps)[:, :length]
        codes = older.codes
        if codes_of is not None and codes.shape[2]:
            codes = _latest(torch.cat([codes, codes_of(old)], 1), codes_of(rows), steps)[:, :length]
        older = Older(older.base, away, codes)
    return Context(
        rows=Rows(*(_latest(o, r, steps) for o, r in zip(old, rows, strict=True))),
        older=older,
        static=context.static,
        total=total,
        count=count,
    )


def _latest(old: Tensor, new: Tensor, steps: Tensor | None) -> Tensor:
    """The latest rows of `old` followed by `new` (or its first `steps` rows), as many as `old` has."""
    if not old.shape[-1] and old.ndim > 2:  # no covariates of this kind
        return old
    kept, k = old.shape[1], new.shape[1]
    if steps is None:
        return torch.cat([old[:, k:], new if k <= kept else new[:, k - kept :]], 1)
    both = torch.cat([old, new], 1)
    at = steps[:, None] + torch.arange(old.shape[1], device=steps.device)
    return both[torch.arange(len(at), device=steps.device)[:, None], at]


def present_rows(state: Any) -> Tensor:
    """(series, row) bool: which rows of the context exist. Rows before a series' first value are padding."""
    kept = state.context.rows.ds.shape[1]
    present: Tensor = torch.arange(kept - 1, -1, -1, device=state.steps.device) <= state.steps[:, None]
    return present
