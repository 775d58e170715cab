"""A series begins with its first value: missing ones before it are dropped, and a series without any is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aru.data.columns import Bools
from aru.data.panel import Panel
from aru.errors import ValueRangeError, name_series, warn


def begin_with_values(panel: Panel, which: Any, name: str) -> Panel:
    """Drop rows before the first value of the series in `which`; a series without any value is an error."""
    empty = which & without_values(panel)
    if empty.any():
        rows = name_series(panel.ids[empty])
        raise ValueRangeError(
            f"{len(rows)} series of `{name}` have no value of `y` at all: {rows}",
            "Drop them, or give at least one value.",
            columns=["y"],
            rows=rows,
        )
    return _from_first_value(panel, which)


def leave_out_empty(panel: Panel) -> tuple[Panel, list[Any]]:
    """A whole history from the first value of each series on, and the series without any value, which are left out."""
    empty = without_values(panel)
    if empty.any() and not empty.all():
        lost = panel.ids[empty].tolist()
        return _from_first_value(panel.select(~empty[panel.series]), True), lost
    return begin_with_values(panel, np.ones(len(panel.ids), bool), "df"), []


def without_values(panel: Panel) -> Bools:
    """Which series have no value at all."""
    seen = np.concatenate([[0], np.cumsum(panel.observed)])
    empty: Bools = seen[panel.starts + panel.lengths] == seen[panel.starts]
    return empty


def warn_empty(ids: Sequence[Any], total: int) -> None:
    """Warn about series of a history without any value."""
    if ids:
        warn(f"{len(ids)} of {total} series of `df` have no value of `y` at all and are left out: {name_series(ids)}.")


def _from_first_value(panel: Panel, which: Any) -> Panel:
    seen = np.concatenate([[0], np.cumsum(panel.observed)])
    series = panel.series
    before = np.broadcast_to(which, len(panel.ids))[series] & (seen[1:] == seen[panel.starts][series])
    return panel.select(~before) if before.any() else panel
