"""`ds` of a user's frame as internal times: timestamps with and without a time zone, text, dates, integers."""

from __future__ import annotations

import re
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from aru.data.clock import UTC, Clock, Times, known_zone
from aru.data.columns import Bools, name_frame_rows, refuse_null, to_int64, to_objects
from aru.data.frequency import Frequency
from aru.errors import ColumnError, FrequencyError, ValueRangeError, quoted, verbatim, warn

_TIME = r"[T ]\d\d(?::?\d\d){0,2}(?:[.,]\d+)? ?"
_ZONE, _UTC_ZONE = rf"{_TIME}(?:[Zz]|[+-]\d\d(?::?\d\d)?)$", rf"{_TIME}(?:[Zz]|[+-]00(?::?00)?)$"
NAMES_OF_UTC = ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "UTC+00:00")
EARLIEST, LATEST = np.datetime64("1678", "us"), np.datetime64("2262", "us")


def read_times(frame: nw.DataFrame[Any], freq: Frequency, name: str) -> tuple[Times, Clock | None]:
    """`ds` as internal times, and the clock of timestamps; None for integers."""
    series = frame.get_column("ds")
    dtype = type_of_times(series)
    if not isinstance(dtype, nw.Datetime):
        refuse_null(frame, "ds", series.is_null().to_numpy(), name)
    if dtype in (nw.String, nw.Object):
        objects = pd.Series(to_objects(series)).infer_objects()
        if not pd.api.types.is_numeric_dtype(objects):
            return _timestamps(frame, _parse_times(frame, objects, freq.clock, name), freq, name), freq.clock
        series = nw.from_native(objects, series_only=True)
        dtype = series.dtype
    if dtype.is_integer():
        if isinstance(freq.freq, str):
            raise FrequencyError(
                f"`ds` of `{name}` holds integers but `freq={quoted(freq.freq)}`", "Use an integer freq or datetimes."
            )
        return to_int64(frame, series, name, "Correct these rows."), None
    if dtype not in (nw.Datetime, nw.Date):
        raise ColumnError(
            f"`ds` of `{name}` has type {dtype}", "Use timestamps, or integers with an integer freq.", columns=["ds"]
        )
    zone = dtype.time_zone if isinstance(dtype, nw.Datetime) else None
    if zone is None:
        index = pd.DatetimeIndex(np.asarray(series.to_numpy()).astype("datetime64[us]"))
    else:
        _warn_foreign(freq.clock, zone not in NAMES_OF_UTC, name)
        index = pd.DatetimeIndex(series.to_pandas())
    refuse_null(frame, "ds", np.asarray(index.isna()), name)
    return _timestamps(frame, freq.clock.read(index), freq, name), freq.clock


def type_of_times(series: nw.Series[Any]) -> Any:
    """The type of a column of times. narwhals does not know pandas' zones with an underscore: America/New_York."""
    dtype = getattr(series.to_native(), "dtype", None)
    return nw.Datetime(dtype.unit, str(dtype.tz)) if isinstance(dtype, pd.DatetimeTZDtype) else series.dtype


def zone_of(frame: nw.DataFrame[Any]) -> str | None:
    """The time zone of `ds`, None if it has none. Text with offsets is UTC."""
    series = frame.get_column("ds")
    dtype = type_of_times(series)
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
        return known_zone(dtype.time_zone)
    if dtype in (nw.String, nw.Object):
        return UTC if zoned(pd.Series(to_objects(series))).any() else None
    return None


def _timestamps(frame: nw.DataFrame[Any], kept: pd.DatetimeIndex, freq: Frequency, name: str) -> Times:
    """Times as the model's clock keeps them, once it is sure that it can."""
    if isinstance(freq.freq, int):
        raise FrequencyError(
            f"`ds` of `{name}` holds timestamps but `freq={freq.freq}`", "Use a pandas offset alias, e.g. 'D'."
        )
    lost = np.asarray(kept.isna())
    if lost.any():
        rows = name_frame_rows(frame, lost)
        raise ColumnError(
            f"`ds` of `{name}` has times without a zone that occur twice or never in {freq.clock.zone}: {rows}",
            "Write them with their offset, such as 2024-10-27T02:00:00+02:00.",
            columns=["ds"],
            rows=rows,
        )
    times = kept.to_numpy().astype("datetime64[us]")
    _refuse_far(frame, times, name)
    return times.view(np.int64)


def _warn_foreign(clock: Clock, foreign: bool, name: str) -> None:
    """Warn about times of another zone than UTC, if the model was trained on times without one."""
    if foreign and clock.zone is None:
        warn(
            f"`ds` of `{name}` has times with a zone, and training had none: they are converted to UTC.",
        )


def _refuse_far(frame: nw.DataFrame[Any], times: Any, name: str) -> None:
    """Refuse times outside the years 1678 to 2261, which are mistakes and make calendars slow to count through."""
    far = (times < EARLIEST) | (times >= LATEST)
    if far.any():
        rows = name_frame_rows(frame, far)
        raise ValueRangeError(
            f"`ds` of `{name}` lies outside the years 1678 to 2261 at {rows}",
            "Correct these rows.",
            columns=["ds"],
            rows=rows,
        )


def _parse_times(frame: nw.DataFrame[Any], given: pd.Series[Any], clock: Clock, name: str) -> pd.DatetimeIndex:
    """Parse a column of text, dates, or objects, some or all with a time zone. Ambiguous text is refused."""
    aware = zoned(given)
    try:
        plain = pd.DatetimeIndex(iso_times(given.mask(aware, None)))
        kept, null = clock.read(plain), np.asarray(plain.isna())
        if aware.any():
            exact = pd.DatetimeIndex(iso_times(given.where(aware, None), utc=True))
            _warn_foreign(clock, clock.zone is None and _foreign(given[aware]), name)
            kept, null = clock.read(exact).where(aware, kept), np.where(aware, exact.isna(), null)
    except (ValueError, TypeError) as error:
        raise ColumnError(
            f"`ds` of `{name}` cannot be read as timestamps: {verbatim(error)}", columns=["ds"]
        ) from error
    bad = null & ~given.astype(str).isin(["", "NaT"]).to_numpy()
    if bad.any():
        rows = name_frame_rows(frame, bad)
        raise ColumnError(
            f"`ds` of `{name}` cannot be read as timestamps: {rows}",
            "Write ISO times such as 2024-01-31 or 2024-01-31 18:00, or convert the column with pandas.to_datetime "
            "first.",
            columns=["ds"],
            rows=rows,
        )
    refuse_null(frame, "ds", null, name)
    return kept


def zoned(values: pd.Series[Any]) -> Bools:
    """Which times, as text or objects, have a time zone."""
    if values.dtype.kind == "M":
        return np.full(len(values), isinstance(values.dtype, pd.DatetimeTZDtype))
    if pd.api.types.infer_dtype(values, skipna=True) == "string":
        return values.str.contains(_ZONE, na=False).to_numpy(bool)
    return np.array([bool(re.search(_ZONE, v)) if isinstance(v, str) else _aware(v) for v in values], bool)


def _foreign(values: pd.Series[Any]) -> bool:
    """Whether any of these times with a zone is of another one than UTC."""
    if isinstance(values.dtype, pd.DatetimeTZDtype):
        return str(values.dt.tz) not in NAMES_OF_UTC
    return not all(re.search(_UTC_ZONE, v) if isinstance(v, str) else not v.utcoffset() for v in values)


def _aware(value: object) -> bool:
    return getattr(value, "tzinfo", None) is not None


def iso_times(values: pd.Series[Any], utc: bool = False) -> pd.Series[Any]:
    """Text as times, NaT where it is not ISO 8601: 05/06 may be May or June. "now" and "today" are not times."""
    return pd.to_datetime(values.mask(values.isin(["now", "today"])), format="ISO8601", errors="coerce", utc=utc)
