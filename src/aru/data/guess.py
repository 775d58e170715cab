"""Infer the frequency of series from their times."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from aru.data.clock import Clock, Times, to_index
from aru.data.columns import read_ids, require_columns
from aru.data.frequency import Frequency
from aru.data.moments import read_times, zone_of
from aru.errors import FrequencyError, quoted

# Usual frequencies from coarse to fine, as pandas writes them. The weekday of "W" and, unless it is pandas' default,
# the month of a year or quarter are added from the data.
USUAL = ("YS", "YE", "QS", "QE", "MS", "ME", "W", "B", "D", "h", "30min", "15min", "10min", "5min", "min", "s")
UNSAID = {"YS": "JAN", "YE": "DEC", "QS": "JAN", "QE": "MAR"}


def guess_frequency(frame: nw.DataFrame[Any], name: str) -> str | int:
    """The frequency of a frame's longest series; an error if it cannot be inferred.

    Days from Monday to Friday alone are taken for business days, although a short daily series may look the same.
    """
    require_columns(frame, ["unique_id", "ds"], name)
    codes, _ = pd.factorize(read_ids(frame, name))
    zone, anything = zone_of(frame), Frequency(None)
    anything.clock = Clock(zone, wall=zone is not None)  # by the zone's clocks, on which days are of one length
    ds, clock = read_times(frame, anything, name)
    times = np.unique(ds[codes == np.bincount(codes).argmax()])[:50] if len(codes) else ds
    guess = usual_frequency(times, clock is not None) if len(times) > 2 else None
    if guess is None:
        raise FrequencyError(f"The frequency cannot be read off `{name}`", "Give freq, for instance `freq='D'`.")
    return guess


def usual_frequency(times: Times, datetime: bool) -> str | int | None:
    """The coarsest usual frequency on whose grid the times lie, most of them one step apart."""
    if not datetime:
        step = int(np.median(np.diff(times))) if len(times) > 1 else 1
        return step if (np.diff(times) % step == 0).all() else None
    for alias in (_anchored(a, to_index(times[:1])[0]) for a in USUAL):
        steps = Frequency(alias).steps(times[:-1], times[1:])
        if len(steps) > 1 and (steps > 0).all() and np.median(steps) == 1:
            return alias
    return None


def _anchored(alias: str, time: pd.Timestamp) -> str:
    """A frequency with the weekday or month that makes `time` lie on its grid."""
    if alias == "W":
        return f"W-{time.day_name()[:3].upper()}"
    if alias not in UNSAID:
        return alias
    month = time.month if alias[0] == "Y" else (time.month - 1) % 3 + 1
    name = pd.Timestamp(2000, month, 1).month_name()[:3].upper()
    return alias if name == UNSAID[alias] else f"{alias}-{name}"


def frequency_hint(times: Times, datetime: bool) -> str:
    """Advice for an error about `freq`: the frequency that the spacing of the times suggests."""
    guess = usual_frequency(times, datetime)
    if not datetime:
        step = int(np.median(np.diff(times))) if len(times) > 1 else 1
        says = f"The usual distance between rows is {step}"
        return f"{says}: try `freq={step}`." if guess else f"{says}. Correct or drop the rows that do not fit."
    if guess:
        return f"Series look like `freq={quoted(guess)}`; or use `freq=None` if rows are consecutive."
    return "Correct these rows, choose another pandas offset alias, or use `freq=None` if rows are consecutive."
