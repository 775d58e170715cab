"""Time on the grid of a series: steps between timestamps, future timestamps, calendar codes.

Times are int64 throughout: microseconds since 1970 for datetimes, or the integers of an integer `ds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd

from aru.errors import ConfigError, FrequencyError

Times = npt.NDArray[np.int64]

DAY = 86_400_000_000  # microseconds
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


def to_index(times: Times) -> pd.DatetimeIndex:
    """Internal times as a DatetimeIndex."""
    return pd.DatetimeIndex(times.view("datetime64[us]"))


def from_index(index: pd.DatetimeIndex) -> Times:
    """A DatetimeIndex as internal times."""
    return index.to_numpy().astype("datetime64[us]").view(np.int64)


class Frequency:
    """The step between two observations: a pandas offset, an integer, or None (rows are consecutive)."""

    def __init__(self, freq: str | int | None) -> None:
        self.freq = freq
        self._offset: pd.tseries.offsets.BaseOffset | None = None
        if isinstance(freq, str):
            try:
                self._offset = pd.tseries.frequencies.to_offset(freq)
            except ValueError as error:
                raise ConfigError(
                    f"freq={freq!r} is not a pandas offset alias: use for instance 'D', 'h', 'W-FRI', 'MS'."
                ) from error

    @property
    def _step(self) -> int | None:
        """Length of a step where all steps are equally long."""
        if isinstance(self.freq, int):
            return self.freq
        if self._offset is None:
            return None
        if self._offset.freqstr.lstrip("0123456789") == "D":
            return DAY * self._offset.n
        try:
            nanos = self._offset.nanos
        except ValueError:  # months, business days, anchored weeks
            return None
        return int(nanos) // 1000

    def steps(self, start: Times, end: Times) -> Times:
        """Steps from `start` to `end`, elementwise; -1 where a time does not lie on the grid.

        `start` must not be after `end`. Without a frequency every later row is one step away.
        """
        if self.freq is None:
            return (end > start).astype(np.int64)
        if len(start) == 0:
            return np.zeros(0, np.int64)
        if self._step is not None:
            whole, rest = np.divmod(end - start, self._step)
            return np.where(rest == 0, whole, -1)
        grid = self._grid(int(start.min()), int(end.max()))
        at, until = np.searchsorted(grid, start), np.searchsorted(grid, end)
        on_grid = (grid[at.clip(max=len(grid) - 1)] == start) & (grid[until.clip(max=len(grid) - 1)] == end)
        return np.where(on_grid, until - at, -1)

    def shift(self, times: Times, steps: int) -> Times:
        """The times `steps` later."""
        if self.freq is None:
            raise FrequencyError("Without a frequency future timestamps are not known: pass them in futr_df.")
        if self._step is not None:
            return times + steps * self._step
        if len(times) == 0:
            return times
        unique, where = np.unique(times, return_inverse=True)
        moved = from_index(pd.DatetimeIndex([t + steps * self._offset for t in to_index(unique)]))
        return moved[where]

    def horizon(self, last: Times, h: int) -> Times:
        """(series,) last times -> (series, h) future times."""
        if self._step is not None:
            return last[:, None] + self._step * np.arange(1, h + 1)
        unique, where = np.unique(last, return_inverse=True)
        future = np.stack([self._future(int(t), h) for t in unique]) if len(unique) else np.zeros((0, h), np.int64)
        return future[where]

    def _future(self, time: int, h: int) -> Times:
        if self.freq is None:
            raise FrequencyError("Without a frequency future timestamps are not known: pass them in futr_df.")
        start = to_index(np.array([time]))[0]
        return from_index(pd.date_range(start, periods=h + 1, freq=self._offset))[1:]

    def _grid(self, first: int, last: int) -> Times:
        bounds = to_index(np.array([first, last]))
        grid = from_index(pd.date_range(bounds[0], bounds[1], freq=self._offset))
        return grid if len(grid) else np.array([np.iinfo(np.int64).min])

    def seasons(self) -> tuple[int, ...]:
        """Natural seasonal lengths in steps, shortest first; empty where there is none."""
        if self._offset is None or isinstance(self.freq, int):
            return ()
        step = self._step
        if step is not None and step < DAY:
            return tuple(cycle // step for cycle in (DAY, 7 * DAY) if cycle % step == 0)
        if step == DAY:
            return (7,)
        name = self._offset.name.split("-")[0]
        if step == 7 * DAY or name == "W":
            return (52,) if self._offset.n == 1 or step == 7 * DAY else ()
        if name == "B":
            return (5,)
        if name in ("M", "MS", "ME", "BMS", "BME"):
            return (12 // self._offset.n,) if 12 % self._offset.n == 0 and self._offset.n < 12 else ()
        if name in ("Q", "QS", "QE", "BQS", "BQE"):
            return (4 // self._offset.n,) if self._offset.n in (1, 2) else ()
        return ()


def calendar_features(step: int) -> tuple[str, ...]:
    """Which calendar codes describe a time, given the typical distance between observations (microseconds)."""
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


def calendar_codes(feature: str, times: Times) -> npt.NDArray[np.int64]:
    """Integer code of one calendar feature at each time."""
    index = to_index(times)
    if feature == "week":
        codes = index.isocalendar().week.to_numpy()
    elif feature == "day_of_month":
        codes = index.day.to_numpy()
    else:
        codes = getattr(index, feature).to_numpy()
    return codes.astype(np.int64)
