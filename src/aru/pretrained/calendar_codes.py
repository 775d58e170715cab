"""Codes of the calendar, and the factors that are looked up by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aru.data.columns import Floats as Array
from aru.data.columns import Ints
from aru.data.covariates import Factor
from aru.data.frequency import DAY

HOUR = DAY // 24
HOLIDAYS = ("holiday", "holiday_eve", "holiday_next")
CALENDAR = ("weekday", "weekend", "hour", "month", "day_wave", "month_wave", "year_wave", *HOLIDAYS)
OF_DAY = ("hour", "day_wave")  # parts of the calendar that need the hour
CALENDAR_PARTS = {"weekday": 7, "hour": 24, "month": 12}  # calendar factors that are 1 at one of so many codes
# The factors that are looked up by each code.
CLOCKS = {
    "weekday": ("weekday", "weekend"),
    "hour": ("hour", "day_wave"),
    "month": ("month",),
    "day_of_month": ("month_wave",),
    "day_of_year": ("year_wave",),
    "holiday": ("holiday",),
    "beside": ("holiday_eve", "holiday_next"),
}
HOLIDAY_CLOCKS = ("holiday", "beside")


def clock_codes(ticks: Ints, tick: int, names: set[str]) -> dict[str, Ints]:
    """Codes of the calendar: day_of_month is (day - 1) * 4 + length of the month - 28."""
    if names <= {""}:
        return {}
    days, hours = (ticks // 24, ticks % 24) if tick == HOUR else (ticks, ticks)
    out = {"weekday": (days + 3) % 7, "hour": hours}  # 1970 began on a Thursday; Monday is 0
    if names.isdisjoint(("month", "day_of_month", "day_of_year")):
        return out
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    first = months.astype("datetime64[D]")
    length = ((months + 1).astype("datetime64[D]") - first).astype(np.int64)
    out["month"] = months.astype(np.int64) % 12
    out["day_of_month"] = (days - first.astype(np.int64)) * 4 + length - 28
    out["day_of_year"] = days - dates.astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64)
    return out


def by_clock(factor: Factor, feasts: Sequence[str]) -> Array:
    """The factor at each code of its clock. `feasts` are the holidays with a code of their own."""
    kind, level = factor.kind, factor.level
    if kind == "holiday":
        codes = np.arange(2 + len(feasts))
        return (codes == 1 + feasts.index(level) if level else codes > 0).astype(np.float64)
    if kind in HOLIDAYS:
        return np.array(np.arange(3) == (1 if kind == "holiday_eve" else 2), np.float64)
    if kind == "weekend":
        return np.array([0.0] * 5 + [1.0] * 2)
    if kind in CALENDAR_PARTS:
        return np.array(np.arange(CALENDAR_PARTS[kind]) == int(level), np.float64)
    code = np.arange(124)
    share = {
        "day_wave": np.arange(24) / 24,
        "month_wave": (code // 4) / (code % 4 + 28),
        "year_wave": np.arange(366) / 365.25,
    }[kind]
    wave, often = level.split()
    angle = 2 * np.pi * int(often) * share
    return np.array(np.sin(angle) if wave == "sin" else np.cos(angle))
