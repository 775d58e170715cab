"""Time on the grid of a series: steps between timestamps, future timestamps, calendar codes.

Times are int64 throughout: microseconds since 1970 for datetimes, or the integers of an integer `ds`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd

from aru.data.clock import Clock, Times, from_index, to_index
from aru.errors import ConfigError, FrequencyError, quoted

DAY = 86_400_000_000  # microseconds
MINUTE = DAY // 1440
# Calendar feature -> length of its cycle.
CYCLES: Mapping[str, int] = MappingProxyType(
    {
        "minute": DAY // 24,
        "hour": DAY,
        "day_of_week": 7 * DAY,
        "day_of_month": 31 * DAY,
        "week": 366 * DAY,
        "month": 366 * DAY,
    }
)
CODES = 60  # all codes of calendar features are smaller
MONTHS = ("M", "MS", "ME", "BMS", "BME")
QUARTERS = ("Q", "QS", "QE", "BQS", "BQE")
YEARS = ("YS", "YE", "BYS", "BYE")


# Aliases of older pandas -> today's.
OLD_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        **{"H": "h", "T": "min", "S": "s", "L": "ms", "U": "us", "N": "ns", "BH": "bh", "CBH": "cbh"},
        **{"M": "ME", "BM": "BME", "CBM": "CBME", "SM": "SME", "Q": "QE", "BQ": "BQE", "A": "YE", "Y": "YE"},
        **{"AS": "YS", "BA": "BYE", "BY": "BYE", "BAS": "BYS", "d": "D", "b": "B", "w": "W", "c": "C"},
    }
)
_ALIAS = re.compile("(?<![A-Za-z-])[A-Za-z]+")  # not the weekday or month after a hyphen


class Frequency:
    """The step between two observations: a pandas offset, an integer, or None (rows are consecutive).

    `zone` is the time zone of training, if it had one.
    """

    def __init__(self, freq: str | int | None, zone: str | None = None) -> None:
        self.freq = freq = _modern(freq) if isinstance(freq, str) else freq
        self._offset = _parse(freq) if isinstance(freq, str) else None
        self._step = freq if isinstance(freq, int) else _fixed_step(self._offset)
        if self._step is not None and self._step < 1:
            raise ConfigError(f"`freq={quoted(freq)}` does not move forward in time", "Use a positive step.")
        short = self._step is not None and self._step < DAY
        self.clock = Clock(zone, wall=zone is not None and isinstance(freq, str) and not short)

    def steps(self, start: Times, end: Times) -> Times:
        """Steps from `start` to `end`, elementwise; -1 where a time does not lie on the grid.

        `start` must not be after `end`. Without a frequency every later row is one step away. The grid of a
        multiple (every second month, say) begins at `start`, whatever other series do.
        """
        if self.freq is None:
            return (end > start).astype(np.int64)
        if len(start) == 0:
            return np.zeros(0, np.int64)
        if self._step is not None:
            whole, rest = np.divmod(end - start, self._step)
            return np.where(rest == 0, whole, -1)
        offset = self._irregular
        same_clock = True
        if not isinstance(offset, pd.offsets.BusinessHour):  # other irregular offsets keep the time of day
            clock = start % DAY
            same_clock = clock == end % DAY
            start, end = start - clock, end - end % DAY
        grid = _grid(int(start.min()), int(end.max()), offset.base)
        at, until = np.searchsorted(grid, start), np.searchsorted(grid, end)
        top = len(grid) - 1
        whole, rest = np.divmod(until - at, offset.n)
        on_grid = (grid[at.clip(max=top)] == start) & (grid[until.clip(max=top)] == end)
        return np.where(on_grid & same_clock & (rest == 0), whole, -1)

    def shift(self, times: Times, steps: int) -> Times:
        """The times `steps` later."""
        if self._step is not None:
            return times + steps * self._step
        move = steps * self._irregular
        unique, where = np.unique(times, return_inverse=True)
        return from_index(pd.DatetimeIndex([t + move for t in to_index(unique)]))[where]

    def horizon(self, last: Times, h: int) -> Times:
        """(series,) last times -> (series, h) future times."""
        if self._step is not None:
            return last[:, None] + self._step * np.arange(1, h + 1)
        offset = self._irregular
        unique, where = np.unique(last, return_inverse=True)
        future = np.empty((len(unique), h), np.int64)
        for i, time in enumerate(to_index(unique)):
            future[i] = from_index(pd.date_range(time, periods=h + 1, freq=offset))[1:]
        return future[where]

    @property
    def step(self) -> int | None:
        """Length of a step, in microseconds or in units of an integer `ds`; None if steps differ in length."""
        return self._step

    @property
    def yearly(self) -> bool:
        """Whether a step is a year."""
        return self._offset is not None and self._step is None and self._offset.rule_code.split("-")[0] in YEARS

    @property
    def _irregular(self) -> pd.tseries.offsets.BaseOffset:
        """The offset, whose steps differ in length; an error without a frequency."""
        if self._offset is None:
            raise FrequencyError("Without a frequency future timestamps are not known", "Pass them in `futr_df`.")
        return self._offset

    def seasons(self) -> tuple[int, ...]:
        """Natural seasonal lengths in steps, shortest first; empty where there is none."""
        if self._offset is None:
            return ()
        step, n = self._step, self._offset.n
        if step is not None and step < DAY:
            return tuple(cycle // step for cycle in (DAY, 7 * DAY) if cycle % step == 0)
        if step == DAY:
            return (7,)
        name = self._offset.rule_code.split("-")[0]
        if step == 7 * DAY or (name == "W" and n == 1):
            return (52,)
        if name == "B" and n == 1:
            return (5,)
        year = {**dict.fromkeys(MONTHS, 12), **dict.fromkeys(QUARTERS, 4)}.get(name, 1)
        return (year // n,) if n < year and year % n == 0 else ()

    def ticks(self, times: Times) -> Times:
        """Steps since 1970, so that times of one phase of a season agree in any two series; 0 without a season."""
        if self._step is not None:
            return times // self._step
        days = times // DAY
        months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        name = "" if self._offset is None else self._offset.rule_code.split("-")[0]
        if name == "W":
            count = (days + 3) // 7  # weeks begin on Mondays
        elif name == "B":
            count = np.busday_count(np.datetime64("1970-01-05"), days.astype("datetime64[D]")).astype(np.int64)
        else:
            count = months if name in MONTHS else months // 3 if name in QUARTERS else np.zeros_like(times)
        return count // (1 if self._offset is None else self._offset.n)


def _modern(freq: str) -> str:
    """An alias of older pandas as it is written today."""
    return _ALIAS.sub(lambda found: OLD_ALIASES.get(found[0], found[0]), freq)


def _parse(freq: str) -> pd.tseries.offsets.BaseOffset:
    try:
        offset = pd.tseries.frequencies.to_offset(freq)
    except ValueError as error:
        raise ConfigError(
            f"`freq={quoted(freq)}` is not a pandas offset alias", "Use for instance 'D', 'h', 'W-FRI', 'MS'."
        ) from error
    if offset.n < 1:
        raise ConfigError(f"`freq={quoted(freq)}` does not move forward in time", "Use a positive step.")
    return offset


def _fixed_step(offset: pd.tseries.offsets.BaseOffset | None) -> int | None:
    """Length of a step in microseconds; None if steps differ in length."""
    if offset is None:
        return None
    if offset.rule_code == "D":  # without time zones all calendar days are equally long
        return DAY * offset.n
    try:
        nanos = int(offset.nanos)
    except ValueError:  # months, business days, anchored weeks
        return None
    if nanos % 1000:
        raise ConfigError(f"`freq={quoted(offset.freqstr)}` is finer than a microsecond, which is how time is kept")
    return nanos // 1000


def _grid(first: int, last: int, offset: pd.tseries.offsets.BaseOffset) -> Times:
    bounds = to_index(np.array([first, last]))
    grid = from_index(pd.date_range(bounds[0], bounds[1], freq=offset))
    return grid if len(grid) else np.array([np.iinfo(np.int64).min])


def calendar_features(step: int) -> tuple[str, ...]:
    """Which calendar codes describe a time, given the typical step between observations (microseconds)."""
    if step < DAY // 24:
        return ("minute", "hour", "day_of_week", "month")
    if step < DAY:
        return ("hour", "day_of_week", "month")
    if step < 6 * DAY:
        return ("day_of_week", "day_of_month", "month")
    if step < 27 * DAY:
        return ("week", "month")
    if step < 360 * DAY:
        return ("month",)
    return ()


def calendar_codes(feature: str, times: Times) -> Times:
    """Integer code of one calendar feature at each time."""
    days, clock = np.divmod(times, DAY)
    if feature == "minute":
        return clock // MINUTE % 60
    if feature == "hour":
        return clock // (60 * MINUTE)
    if feature == "day_of_week":
        return (days + 3) % 7  # 1970 began on a Thursday; Monday is 0
    if feature == "week":
        weeks: Times = to_index(times).isocalendar().week.to_numpy().astype(np.int64)
        return weeks
    dates = days.view("datetime64[D]")
    months = dates.astype("datetime64[M]")
    if feature == "month":
        return months.view(np.int64) % 12 + 1
    day_of_month: Times = (dates - months).view(np.int64) + 1
    return day_of_month
