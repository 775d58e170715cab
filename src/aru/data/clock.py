"""Time zones: how timestamps with and without a zone become microseconds, and come back.

    trained without a zone   times are kept as they are written; later times with a zone are converted to UTC
    trained with a zone      where a step is shorter than a day, or there is no frequency, times are kept in UTC, so
                             that both hours of the autumn night exist; from a day on they are kept as the zone's clocks
                             show them, since days do not all have 24 hours there. Later times of any zone are
                             converted; those without one are taken as the zone's own

Calendar features are those of the zone. Forecasts come back in it.
"""

from __future__ import annotations

import dataclasses
import zoneinfo

import numpy as np
import numpy.typing as npt
import pandas as pd

UTC = "UTC"
Times = npt.NDArray[np.int64]


def to_index(times: Times) -> pd.DatetimeIndex:
    """Internal times as a DatetimeIndex."""
    return pd.DatetimeIndex(times.view("datetime64[us]"))


def from_index(index: pd.DatetimeIndex) -> Times:
    """A DatetimeIndex without a zone as internal times."""
    return index.to_numpy().astype("datetime64[us]").view(np.int64)


def known_zone(name: object) -> str:
    """The name of a zone in the time zone database; UTC for fixed offsets, which have none."""
    try:
        return zoneinfo.ZoneInfo(str(name)).key
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


@dataclasses.dataclass(frozen=True)
class Clock:
    """How the timestamps of a model are kept: by which zone, and in UTC or, with `wall`, as its clocks show them."""

    zone: str | None = None
    wall: bool = False

    @property
    def utc(self) -> bool:
        """Whether times of a zone are kept in UTC."""
        return self.zone is not None and not self.wall

    def read(self, index: pd.DatetimeIndex) -> pd.DatetimeIndex:
        """Times as they are kept; NaT for times without a zone that occurred twice or never in this one."""
        if index.tz is None:
            if not self.utc:
                return index
            index = index.tz_localize(self.zone, ambiguous="NaT", nonexistent="NaT")
        return index.tz_convert(self.zone if self.wall else UTC).tz_localize(None)

    def write(self, times: Times) -> pd.DatetimeIndex:
        """Kept times in the zone; without one as they are."""
        index = to_index(times)
        if self.zone is None:
            return index
        if self.wall:
            return index.tz_localize(self.zone, ambiguous=np.ones(len(index), bool), nonexistent="shift_forward")
        return index.tz_localize(UTC).tz_convert(self.zone)

    def local(self, times: Times) -> Times:
        """Kept times as the zone's clocks show them."""
        if not self.utc or self.zone == UTC:
            return times
        return from_index(to_index(times).tz_localize(UTC).tz_convert(self.zone).tz_localize(None))
