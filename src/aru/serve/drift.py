"""Drift of a series: are its latest errors larger than those before, more than chance and neighbours explain?

Wilcoxon's rank test compares the absolute errors of the latest rows with those of the rows before. It knows only which
of two errors is larger, so one huge error counts as one, and the result is bounded: with 14 of 100 rows it is at most
6. Errors below a hundredth of the size of the series count as equal: a series that is forecast nearly perfectly does
not drift because its errors grow from a millionth to a thousandth. Errors of neighbouring rows are alike, since a
window of them comes from one origin. By that much the result is reduced: by the square root of (1 + r) / (1 - r), where
r is the correlation of neighbouring ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

DRIFTED = 3.0  # standard deviations from which on a series drifts
NEGLIGIBLE = 0.01  # of the mean of |y|: smaller errors are equal
FEWEST_LATEST = 12  # rows that are compared with those before, if a window has fewer
HIGHEST = 0.9  # correlation of neighbours that is allowed for

Errors = np.ndarray[Any, np.dtype[np.float64]]


def latest_rows(window: int, kept: int) -> int:
    """How many of the latest rows are compared with those before."""
    return min(max(window, FEWEST_LATEST), kept // 2)


def drift_of(errors: Errors, sizes: Errors, latest: int) -> Errors:
    """By how many standard deviations the latest errors are larger than those before; NaN where too few are known.

    `errors` (series, row) are absolute ones, the latest last, NaN where there is none; `sizes` are the means of |y|.
    """
    known = ~np.isnan(errors)
    floor = NEGLIGIBLE * sizes[:, None]
    height = np.where(known, np.maximum(errors, floor), np.nan)
    now, before = height[:, -latest:], height[:, :-latest]
    n1, n0 = known[:, -latest:].sum(1), known[:, :-latest].sum(1)
    larger = (now[:, :, None] > before[:, None]).sum((1, 2)) + (now[:, :, None] == before[:, None]).sum((1, 2)) / 2
    n, tied = n1 + n0, (height <= floor).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = n1 * n0 / 12 * (n + 1 - (tied**3 - tied) / (n * (n - 1)))
        found = np.where(variance > 1e-9, (larger - n1 * n0 / 2) / np.sqrt(variance), 0.0)
    r = _neighbours(before, before <= floor)
    enough = (n1 >= latest / 2) & (n0 >= latest)
    drift: Errors = np.where(enough, found * np.sqrt((1 - r) / (1 + r)), np.nan)
    return drift


def _neighbours(values: Errors, tied: Any) -> Errors:
    """The correlation of the ranks of neighbouring values, where it is positive; `tied` are the smallest, all equal."""
    known = ~np.isnan(values)
    order = np.where(known, values, np.inf).argsort(1, kind="stable").argsort(1, kind="stable")
    order = np.where(tied, (tied.sum(1, keepdims=True) - 1) / 2, order)
    rank = np.where(known, order - (known.sum(1, keepdims=True) - 1) / 2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = (rank[:, 1:] * rank[:, :-1]).sum(1) / (rank**2).sum(1)
    found: Errors = np.where(np.isfinite(r), r, 0.0).clip(0.0, HIGHEST)
    return found
