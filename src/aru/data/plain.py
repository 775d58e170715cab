"""A fast path for reading the columns of ordinary frames."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from aru.data.clock import Clock, Times
from aru.data.columns import LARGEST_NUMBER, Column, as_categories
from aru.data.frequency import Frequency
from aru.data.moments import EARLIEST, LATEST

CHECKED_ROWS = 256  # up to this many rows, each value of `ds` is checked
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")


class Plain(NamedTuple):
    """The columns of an ordinary frame."""

    ids: pd.Index[Any]
    ds: Times
    clock: Clock | None
    data: dict[str, Column]


def read_plain(df: Any, freq: Frequency, columns: Sequence[str]) -> Plain | None:
    """The columns of a pandas frame or a dictionary, read without the general checks of `aru.data.columns`.

    None where these checks are needed: another kind of frame, a missing column, a type that has to be converted, a
    value that may be wrong.
    """
    values = _arrays(df, ("unique_id", "ds", *columns))
    if values is None:
        return None
    ids, ds = values.pop("unique_id"), _plain_times(values.pop("ds"), freq.clock)
    datetime = ds.dtype.kind == "M"
    if not (_is_text(ids) or ids.dtype == np.int64) or isinstance(freq.freq, int if datetime else str):
        return None
    if datetime:
        ds = ds.astype("datetime64[us]")
        if not ((ds >= EARLIEST) & (ds < LATEST)).all():  # false for missing times, too
            return None
    elif ds.dtype != np.int64:
        return None
    data: dict[str, Column] = {}
    for name, column in values.items():
        if column.dtype.kind in "iuf":
            data[name] = numbers = column.astype(np.float64)
            if (np.abs(numbers) > LARGEST_NUMBER).any():
                return None
        elif name != "y" and _is_text(column):
            data[name] = as_categories(column)
        else:
            return None
    return Plain(pd.Index(ids, dtype=ids.dtype), ds.view(np.int64), freq.clock if datetime else None, data)


def _arrays(df: Any, columns: Sequence[str]) -> dict[str, npt.NDArray[Any]] | None:
    """Columns as numpy arrays of the same length; None if a type is not numpy's or there are no rows."""
    try:
        if isinstance(df, dict):
            values = {c: np.asarray(df[c]) for c in columns}
        elif isinstance(df, pd.DataFrame) and len(set(df)) == df.shape[1]:  # no name twice
            parts = {c: df[c] for c in columns}
            if not all(isinstance(v.dtype, (np.dtype, pd.StringDtype)) for v in parts.values()):
                return None
            values = {c: v.to_numpy() for c, v in parts.items()}
        else:
            return None
    except (KeyError, TypeError, ValueError):
        return None
    values = {c: v.astype(object) if v.dtype.kind == "U" else v for c, v in values.items()}
    shape = values[columns[0]].shape
    return values if len(shape) == 1 and shape[0] and all(v.shape == shape for v in values.values()) else None


def _plain_times(values: npt.NDArray[Any], clock: Clock) -> npt.NDArray[Any]:
    """Times, a few ISO texts and Python datetimes as numpy's; any other values as objects, for the general checks."""
    in_utc = _is_text(values[:CHECKED_ROWS]) and all(value[-1:] == "Z" for value in values[:CHECKED_ROWS])
    if clock.wall if in_utc else clock.utc and values.dtype.kind != "i":
        return values.astype(object)
    if values.dtype == object and len(values) <= CHECKED_ROWS:
        if in_utc:
            values = np.array([value[:-1] for value in values], object)
        types = set(map(type, values))
        sure = all(map(_ISO.fullmatch, values)) if types == {str} else types <= {dt.datetime, pd.Timestamp}
        if sure and (types == {str} or not any(value.tzinfo for value in values)):
            try:
                return np.array(values, dtype="datetime64[us]")
            except ValueError:  # no such day
                return values
    return values


def _is_text(values: npt.NDArray[Any]) -> bool:
    return values.dtype == object and set(map(type, values)) == {str}
