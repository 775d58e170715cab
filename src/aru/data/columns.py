"""Columns of a user's frame as checked arrays: ids, target, covariates. `aru.data.moments` has the times.

The frame is any eager frame that narwhals reads. Errors show the first offending rows and the fix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from aru.data.clock import Clock, Times
from aru.errors import (
    REPORTED,
    ColumnError,
    DuplicateError,
    InputError,
    Offending,
    ValueRangeError,
    as_text,
    called_as,
    listing,
    name_series,
    quoted,
    verbatim,
    warn,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LARGEST = 2**63 - 1  # the largest integer of a column
LARGEST_NUMBER = 1e30  # the largest size of y and covariates: networks are float32, and statistics hold squares


class Categories(NamedTuple):
    """A categorical column: code of each row into `values`, -1 where missing."""

    codes: Ints
    values: tuple[str, ...]


Column: TypeAlias = Floats | Categories


def name_rows(
    ids: Sequence[Any] | pd.Index[Any], ds: Times, clock: Clock | None, total: int | None = None
) -> Offending:
    """Rows for an error: series and time of the first ones, and their number."""
    names = {"unique_id": np.asarray(ids[:REPORTED], object).tolist(), "ds": _as_python(ds[:REPORTED], clock)}
    return Offending(names, len(ds) if total is None else total)


def show_times(ds: Times, clock: Clock | None) -> list[str]:
    """Timestamps as text, without a time of day where it is midnight."""
    return list(map(as_text, _as_python(ds, clock)))


def _as_python(ds: Times, clock: Clock | None) -> list[Any]:
    """Internal times as Python's datetimes, or integers; years beyond 9999, which Python does not have, as text."""
    if clock is None:
        return list(map(int, ds))
    if clock.utc:
        return clock.write(np.asarray(ds, np.int64)).to_pydatetime().tolist()
    stamps = np.asarray(ds, np.int64).view("datetime64[us]")
    return [str(stamp) if isinstance(t, int) else t for t, stamp in zip(stamps.tolist(), stamps, strict=True)]


def as_frame(df: Any, name: str) -> nw.DataFrame[Any]:
    """Any eager frame that narwhals knows, or a dictionary of columns."""
    if isinstance(df, nw.DataFrame):
        return df
    if isinstance(df, dict):
        df = _from_columns(df, name)
    try:
        frame: nw.DataFrame[Any] = nw.from_native(df, eager_only=True)
    except TypeError as error:
        raise InputError(f"`{name}` must be a pandas or polars data frame, got {type(df).__name__}") from error
    except nw.exceptions.DuplicateError as error:
        raise ColumnError(f"`{name}` has several columns of the same name: {_repeated(df)}", "Keep one.") from error
    return frame


def _from_columns(columns: dict[str, Any], name: str) -> pd.DataFrame:
    try:
        return pd.DataFrame(columns)
    except (TypeError, ValueError) as error:
        raise InputError(f"`{name}` is no table: {verbatim(error)}", "Give columns that are equally long.") from error


def _repeated(df: Any) -> str:
    columns = pd.Index(df.columns)
    return listing(list(columns[columns.duplicated()].unique()))


def read_static(df: Any, ids: pd.Index[Any], columns: Sequence[str], name: str = "static_df") -> dict[str, Column]:
    """Static covariates in the order of `ids`."""
    if not columns:
        return {}
    if df is None:
        raise ColumnError(
            f"`stat_exog_list` names {listing(columns)}",
            f"Pass `{name}` with `unique_id` and these columns.",
            columns=columns,
        )
    frame = as_frame(df, name)
    require_columns(frame, ["unique_id", *columns], name)
    have = read_ids(frame, name)
    if have.has_duplicates:
        rows = name_series(have[have.duplicated()])
        raise DuplicateError(f"`{name}` has several rows for the series {rows}", "Keep one row of each.", rows=rows)
    at = have.get_indexer(ids)
    if (at < 0).any():
        rows = name_series(ids[at < 0])
        raise ColumnError(f"`{name}` has no row for the series {rows}", "Add one row for each.", rows=rows)
    return {c: map_rows(read_column(frame, c, name), lambda a: a[at]) for c in columns}


def read_column(frame: nw.DataFrame[Any], column: str, name: str) -> Column:
    """A covariate: numbers as float64 with NaN for missing; category, string and bool columns as categories.

    A column without any value is all NaN. A column of objects that are all numbers is numeric.
    """
    series = frame.get_column(column)
    if series.dtype == nw.Object:
        series = _numbers(series)
    dtype = series.dtype
    missing = np.asarray(series.is_null().to_numpy())
    if dtype.is_numeric() or missing.all():
        values = _to_float(series)
        _refuse_wild(frame, column, values, f"Column {quoted(column)} of `{name}`")
        return values
    if dtype == nw.Boolean or dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object):
        found = as_categories(np.array([str(v) for v in to_objects(series)[~missing]], dtype=object))
        codes = np.full(len(missing), -1)
        codes[~missing] = found.codes
        return Categories(codes, found.values)
    raise ColumnError(
        f"Column {quoted(column)} of `{name}` has type {dtype}",
        "Covariates are numbers, strings, categories or bools.",
        columns=[column],
    )


def _refuse_wild(frame: nw.DataFrame[Any], column: str, values: Floats, what: str) -> None:
    """Refuse numbers that the arithmetic cannot carry."""
    wild = np.abs(values) > LARGEST_NUMBER
    if wild.any():
        infinite = np.isinf(values)
        rows = name_frame_rows(frame, infinite if infinite.any() else wild)
        how = "infinite" if infinite.any() else f"larger than {LARGEST_NUMBER:g}, which cannot be computed with,"
        raise ValueRangeError(f"{what} is {how} at {rows}", "Use NaN for missing values.", columns=[column], rows=rows)


def _numbers(series: nw.Series[Any]) -> nw.Series[Any]:
    """A column of objects as a numeric one, if all of them are numbers."""
    objects = to_objects(series)
    if any(isinstance(value, Decimal) for value in objects):
        numbers, bad = _as_numbers(objects)
        return series if bad.any() else nw.from_native(pd.Series(numbers), series_only=True)
    inferred = pd.Series(objects).infer_objects()
    numeric = pd.api.types.is_numeric_dtype(inferred) and not pd.api.types.is_bool_dtype(inferred)
    return nw.from_native(inferred, series_only=True) if numeric else series


def _as_numbers(objects: npt.NDArray[np.object_]) -> tuple[Floats, Bools]:
    """Numbers of any kind as floats, NaN where missing, and which values are no numbers."""
    numbers, bad = np.full(len(objects), np.nan), np.zeros(len(objects), bool)
    for i, value in enumerate(objects):
        if isinstance(value, (Real, Decimal, np.bool_)):
            try:
                numbers[i] = float(value)
            except OverflowError:
                numbers[i] = np.inf
            except ValueError:  # a signalling NaN
                bad[i] = True
        else:
            bad[i] = not pd.api.types.is_scalar(value) or not pd.isna(value)
    return numbers, bad


def as_categories(text: npt.NDArray[Any]) -> Categories:
    """Text as categories, in alphabetical order."""
    codes, values = pd.factorize(text, sort=True)
    return Categories(codes, tuple(values))


def map_rows(column: Column, pick: Callable[[Any], Any]) -> Column:
    """A column with its rows selected by `pick`, a function of arrays."""
    if isinstance(column, Categories):
        return Categories(pick(column.codes), column.values)
    values: Floats = pick(column)
    return values


def require_columns(frame: nw.DataFrame[Any], columns: Sequence[str], name: str) -> None:
    """Refuse a frame that lacks a column."""
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        have = listing([called_as(c) for c in frame.columns], 20)
        raise ColumnError(
            f"`{name}` has no column {listing([repr(c) for c in missing])}; it has {have}",
            "Rename or add the columns.",
            columns=missing,
        )


def read_ids(frame: nw.DataFrame[Any], name: str) -> pd.Index[Any]:
    """`unique_id` as strings or integers."""
    series = frame.get_column("unique_id")
    dtype = series.dtype
    if dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object):
        values = to_objects(series)
        refuse_null(frame, "unique_id", pd.isna(values), name)
        _warn_mixed(values, name)
        return pd.Index([str(v) for v in values], dtype=object)
    refuse_null(frame, "unique_id", series.is_null().to_numpy(), name)
    if dtype.is_integer():
        return pd.Index(to_int64(frame, series, name, "Convert the column to text."))
    raise ColumnError(f"`unique_id` of `{name}` has type {dtype}", "Use strings or integers.", columns=["unique_id"])


def _warn_mixed(ids: npt.NDArray[np.object_], name: str) -> None:
    """Warn about ids of several types: as text they may be the same."""
    text = sum(isinstance(value, str) for value in ids)
    if 0 < text < len(ids):
        warn(
            f"`unique_id` of `{name}` holds {text} strings and {len(ids) - text} values of other types. All are read "
            "as text, so that 1 and '1' are the same series; convert the column.",
        )


def refuse_null(frame: nw.DataFrame[Any], column: str, null: Bools, name: str) -> None:
    """Refuse missing values."""
    if null.any():
        rows = name_frame_rows(frame, null)
        raise InputError(
            f"`{column}` of `{name}` is missing at {rows}",
            "Fill or drop these rows.",
            columns=[column],
            rows=rows,
        )


def read_target(frame: nw.DataFrame[Any], name: str) -> Floats:
    """`y` as float64, NaN where missing."""
    series = frame.get_column("y")
    if series.dtype in (nw.Object, nw.String):
        objects = to_objects(series)
        y, bad = _as_numbers(objects)
        if bad.any():
            rows = name_frame_rows(frame, bad)
            values = [repr(value) for value in objects[bad][:REPORTED]]
            raise ColumnError(
                f"`y` of `{name}` has type {series.dtype}: it must be numeric, but holds {listing(values)} at {rows}",
                "Convert the column to numbers, with NaN for missing values.",
                columns=["y"],
                rows=rows.beside({"value": values}),
            )
    elif series.dtype.is_numeric() or series.dtype == nw.Boolean or series.is_null().all():
        y = _to_float(series)
    else:
        raise ColumnError(f"`y` of `{name}` has type {series.dtype}: it must be numeric", columns=["y"])
    _refuse_wild(frame, "y", y, f"`y` of `{name}`")
    return y


def _to_float(series: nw.Series[Any]) -> Floats:
    if not series.dtype.is_numeric() and series.is_null().all():  # the type of an all-missing column means nothing
        return np.full(len(series), np.nan)
    numbers = series if series.dtype == nw.Float64 else series.cast(nw.Float64)
    return np.array(numbers.to_numpy(), dtype=np.float64)


def to_int64(frame: nw.DataFrame[Any], series: nw.Series[Any], name: str, remedy: str) -> Ints:
    """Integers as int64. Refuse unsigned ones beyond its range, which would become negative."""
    values = np.asarray(series.to_numpy())
    wide = np.asarray(values > LARGEST, bool)
    if wide.any():
        rows = name_frame_rows(frame, wide)
        raise ValueRangeError(
            f"`{series.name}` of `{name}` is larger than {LARGEST} at {rows}",
            remedy,
            columns=[series.name],
            rows=rows,
        )
    return values.astype(np.int64)


def to_objects(series: nw.Series[Any]) -> npt.NDArray[np.object_]:
    """Python values. Integer categories stay integers; pandas would convert them to floats to hold NaN."""
    native = series.to_native()
    if series.dtype in (nw.Categorical, nw.Enum) and isinstance(native, pd.Series):
        return np.array([*native.cat.categories, None], dtype=object)[native.cat.codes.to_numpy()]
    return np.asarray(series.to_numpy(), dtype=object)


def name_frame_rows(frame: nw.DataFrame[Any], which: Bools) -> Offending:
    """The first rows where `which` is true: row number, and series and time if these can be read."""
    rows = np.flatnonzero(which)
    first = rows[:REPORTED].tolist()
    keys: dict[str, list[Any]] = {c: frame[c][first].to_list() for c in ("unique_id", "ds") if c in frame.columns}
    return Offending({**keys, "row": first}, len(rows))
