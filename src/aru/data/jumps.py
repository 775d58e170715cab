"""Rows far ahead of all others in time. Most are wrong, and every right row after them would be late.

A new row may lie beyond the newest time of all series by JUMP_STEPS steps, by JUMP_DAYS days, or by JUMP_GAPS times the
longest gap that a series of the training data has, whichever is longest. Integer times have no days: there the span of
the training data counts. In a whole history the rows at either end, up to a share of EDGE of its times, must not lie
further from the others than that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from aru.data.clock import Clock, Times
from aru.data.columns import LARGEST, Bools, Ints, name_rows, show_times
from aru.data.frequency import DAY, Frequency
from aru.data.panel import Observations, Panel
from aru.errors import JumpError, Offending

JUMP_STEPS, JUMP_DAYS, JUMP_GAPS = 30, 100, 2
EDGE = 0.1


class Newest(NamedTuple):
    """The newest time of all known series, and how far beyond it new rows may lie."""

    time: int | None  # None: no series is known
    jump: int

    def far(self, new: Observations, freq: Frequency) -> Bools:
        """Which rows lie too far ahead. If no series is known, the rows are a history of their own."""
        ds = new.rows.ds
        if self.time is not None:
            return self.ahead(ds, freq)
        timeline = Timeline(freq, new.clock)
        timeline.add(new.rows.codes, ds)
        return timeline.far(ds)

    def ahead(self, ds: Times, freq: Frequency) -> Bools:
        """Which times lie too far ahead; none if no series is known."""
        if self.time is None or int(ds.max(initial=self.time)) - self.time <= self.jump:
            return np.zeros(len(ds), bool)
        first = _first_far(np.unique(ds[ds > self.time]), freq, self.time, self.jump)
        return ds >= first if first is not None else np.zeros(len(ds), bool)

    def refusal(self, new: Observations, freq: Frequency, far: Bools) -> JumpError:
        """The error about rows that lie too far ahead."""
        rows = new.name_rows(np.flatnonzero(far))
        if self.time is None:
            return _apart(new.name, rows, "Nothing was applied.")
        newest = int(new.rows.ds[~far].max(initial=self.time))
        return self.too_far(new.name, "rows", rows, newest, freq, new.clock)

    def too_far(
        self, name: str, what: str, rows: Offending, newest: int, freq: Frequency, clock: Clock | None
    ) -> JumpError:
        """The error about rows too far beyond the newest of the other times."""
        shown = show_times(np.array([newest, _latest(freq, newest, self.jump)]), clock)
        return JumpError(
            f"`{name}` has {len(rows)} {what} far beyond {shown[0]}, the newest time of all series: {rows}. Times up "
            f"to {shown[1]} are taken",
            "Correct them, or pass `allow_jump=True` if time really went on that far. Nothing was applied.",
            columns=["ds"],
            rows=rows,
        )


class Timeline:
    """All times of a history, and the longest gap of one of its series."""

    def __init__(self, freq: Frequency, clock: Clock | None) -> None:
        self._freq, self._clock = freq, clock
        self._times: Times = np.zeros(0, np.int64)
        self._gap = 0

    def add(self, series: Ints, ds: Times) -> None:
        """Take in rows that are sorted by series and time."""
        self._times = np.union1d(self._times, ds)
        gaps = np.diff(ds)[np.diff(series) == 0]
        self._gap = max(self._gap, int(gaps.max(initial=0)))

    def add_panel(self, panel: Panel) -> None:
        """Take in the rows of a panel, without those that fill its gaps."""
        self.add(panel.series[~panel.inserted], panel.ds[~panel.inserted])

    def jump(self) -> int:
        """How far beyond the newest time later rows may lie. JUMP_STEPS steps are allowed anyway."""
        return _jump(self._times, self._gap, self._clock is not None)

    def far(self, ds: Times) -> Bools:
        """Which times lie far from all others, before or after them."""
        times = self._times
        edge = int(EDGE * len(times))
        if edge == 0:
            return np.zeros(len(ds), bool)
        body = times[edge:-edge]
        jump = _jump(body, int(np.diff(body).max(initial=0)), self._clock is not None)
        late = _first_far(times[-edge:], self._freq, int(body[-1]), jump)
        far: Bools = ds >= late if late is not None else np.zeros(len(ds), bool)
        for before, after in zip(times[edge - 1 :: -1].tolist(), times[edge:0:-1].tolist(), strict=True):
            if after - before > jump and after > _latest(self._freq, before, jump):
                far |= ds <= before
                break
        return far

    def refuse(self, panels: Iterable[Panel], name: str) -> None:
        """Raise an error if rows of these panels, which hold all rows of the history, lie far from all others."""
        if not self.far(self._times).any():
            return
        ids, times = [], []
        for panel in panels:
            far = self.far(panel.ds) & ~panel.inserted
            ids += panel.ids[panel.series[far]].tolist()
            times.append(panel.ds[far])
        raise _apart(name, name_rows(ids, np.concatenate(times), self._clock))


def refuse_apart(panel: Panel, freq: Frequency, name: str) -> None:
    """Raise an error if rows of a whole history lie far from all others."""
    timeline = Timeline(freq, panel.clock)
    timeline.add_panel(panel)
    timeline.refuse([panel], name)


def untrained_jump(freq: str | int | None, datetime: bool, seen: int) -> int:
    """The same where there are no training data. Integer times may jump by the steps that are `seen`."""
    if datetime:
        return JUMP_DAYS * DAY
    return LARGEST if not isinstance(freq, int) else freq * seen


def _jump(times: Times, gap: int, datetime: bool) -> int:
    least = JUMP_DAYS * DAY if datetime else int(times[-1]) - int(times[0]) if len(times) else 0
    return max(least, JUMP_GAPS * gap)


def _latest(freq: Frequency, newest: int, jump: int) -> int:
    """The latest time that a row may have."""
    end = newest + jump
    if freq.freq is not None:
        end = max(end, int(freq.shift(np.array([newest]), JUMP_STEPS)[0]))
    return min(end, LARGEST)


def _first_far(times: Times, freq: Frequency, newest: int, jump: int) -> int | None:
    """The first of these times, all after `newest`, that lies too far after the one before it."""
    before = np.concatenate([[newest], times[:-1]])
    wide = np.flatnonzero(times.astype(float) - before.astype(float) > jump)
    for i in wide.tolist():
        if int(times[i]) > _latest(freq, int(before[i]), jump):
            return int(times[i])
    return None


def _apart(name: str, rows: Offending, more: str = "") -> JumpError:
    return JumpError(
        f"`{name}` has {len(rows)} rows far from all others in time: {rows}",
        f"Correct or drop them, or pass `allow_jump=True` if these times are right. {more}".strip(),
        columns=["ds"],
        rows=rows,
    )
