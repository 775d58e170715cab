"""Contexts and clocks of series after new rows, compiled by Numba: what every model of the CPU shares."""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import numpy as np

from aru.kernels.compiled import compile_kernel, share

Array = Any
_kernel = compile_kernel()


class Rows(NamedTuple):
    """Rows of a context, or new ones, all of their fields."""

    ds: Array
    y: Array
    observed: Array
    futr: Array
    futr_cat: Array
    hist: Array
    hist_cat: Array


class Clock(NamedTuple):
    """Latest time, steps since the first value, sum of |y| and number of observations of each series."""

    last: Array
    steps: Array
    total: Array
    count: Array


def move_on(old: Rows, clock: Clock, new: Rows, starts: Array, lengths: Array, skipped: Array) -> tuple[Rows, Clock]:
    """The latest rows of each series after new ones, as many as before, and its clock."""
    rows, after = Rows._make(map(np.empty_like, old)), Clock._make(map(np.copy, clock))
    work = old.y.shape[1] * (4 + sum(v.shape[2] for v in old[3:]))
    share(lambda lo, hi: _move_on(*old, *new, starts, lengths, skipped, *rows, *after, lo, hi), len(old.y), work, 1)
    return rows, after


@_kernel
@no_type_check
def _move_on(
    ds, y, observed, futr, futr_cat, hist, hist_cat,
    new_ds, new_y, new_observed, new_futr, new_futr_cat, new_hist, new_hist_cat, starts, lengths, skipped,
    ds_, y_, observed_, futr_, futr_cat_, hist_, hist_cat_, last, steps, total, count, lo, hi,
):  # fmt: skip
    """Series lo to hi: the fields with an underscore, and the clock, are written."""
    for b in range(lo, hi):
        first, end = starts[b], starts[b] + lengths[b]
        for i in range(first, end):
            steps[b] += 1 + skipped[i]
            last[b] = new_ds[i]
            if new_observed[i]:
                total[b] += abs(new_y[i])
                count[b] += 1
        _latest(ds, new_ds, b, end, lengths[b], ds_)
        _latest(y, new_y, b, end, lengths[b], y_)
        _latest(observed, new_observed, b, end, lengths[b], observed_)
        _latest_rows(futr, new_futr, b, end, lengths[b], futr_)
        _latest_rows(futr_cat, new_futr_cat, b, end, lengths[b], futr_cat_)
        _latest_rows(hist, new_hist, b, end, lengths[b], hist_)
        _latest_rows(hist_cat, new_hist_cat, b, end, lengths[b], hist_cat_)


@_kernel
@no_type_check
def _latest(old, new, b, end, n, out):
    size = out.shape[1]
    kept = max(size - n, 0)
    for t in range(kept):
        out[b, t] = old[b, size - kept + t]
    for t in range(kept, size):
        out[b, t] = new[end - size + t]


@_kernel
@no_type_check
def _latest_rows(old, new, b, end, n, out):
    size, width = out.shape[1:]
    kept = max(size - n, 0)
    for t in range(size):
        for k in range(width):
            out[b, t, k] = old[b, size - kept + t, k] if t < kept else new[end - size + t, k]
