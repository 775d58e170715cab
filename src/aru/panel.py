"""From a long frame to checked, sorted, gap-free arrays.

A frame has one row per series and time: `unique_id`, `ds`, `y` and covariates; pandas, polars or anything
else that narwhals reads. A `Panel` holds the same rows sorted by series and time, with rows inserted where
`ds` skips a step. Every problem raises an error that shows the first offending rows and says what to do.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from aru.errors import (
    SHOWN,
    ColumnError,
    DuplicateError,
    FrequencyError,
    InputError,
    ValueRangeError,
    listing,
)
from aru.frequency import Frequency, Times, to_index

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Categories(NamedTuple):
    """A categorical column: code of each row into `values`, -1 where missing."""

    codes: Ints
    values: tuple[str, ...]


Column: TypeAlias = Floats | Categories


@dataclasses.dataclass(frozen=True)
class Panel:
    """Rows sorted by series and time, without gaps. Series i owns rows starts[i] : starts[i] + lengths[i].

    A gap longer than what any forecast can still see is not filled in full: `skipped` counts the steps left
    out just before a row.
    """

    ids: pd.Index[Any]
    starts: Ints
    lengths: Ints
    ds: Times
    y: Floats
    columns: Mapping[str, Column]
    inserted: Bools
    skipped: Ints
    datetime: bool

    @property
    def series(self) -> Ints:
        """Index of the series that each row belongs to."""
        return np.repeat(np.arange(len(self.ids)), self.lengths)

    @property
    def observed(self) -> Bools:
        """Rows that have a value."""
        return ~np.isnan(self.y)

    def select(self, keep: Bools) -> Panel:
        """The rows where `keep` is true, and the series that still have any."""
        series = self.series[keep]
        lengths = np.bincount(series, minlength=len(self.ids))
        some = lengths > 0
        lengths = lengths[some]
        return dataclasses.replace(
            self,
            ids=self.ids[some],
            lengths=lengths,
            starts=np.cumsum(lengths) - lengths,
            ds=self.ds[keep],
            y=self.y[keep],
            columns={k: _map_rows(c, lambda a: a[keep]) for k, c in self.columns.items()},
            inserted=self.inserted[keep],
            skipped=self.skipped[keep],
        )

    def show(self, rows: Sequence[int] | Ints) -> str:
        """The first few of these rows, as a person would name them."""
        rows = np.asarray(rows)
        series = np.searchsorted(self.starts, rows[:SHOWN], side="right") - 1
        return show_rows(self.ids[series], self.ds[rows[:SHOWN]], self.datetime, len(rows))


def show_rows(ids: Sequence[Any] | pd.Index[Any], ds: Times, datetime: bool, total: int | None = None) -> str:
    """Name rows by series and time: the first few, and how many more there are."""
    total = len(ds) if total is None else total
    head = [f"({i!s}, {t})" for i, t in zip(ids[:SHOWN], show_times(ds[:SHOWN], datetime), strict=True)]
    return ", ".join(head) + (f" and {total - SHOWN} more" if total > SHOWN else "")


def show_times(ds: Times, datetime: bool) -> list[str]:
    """Timestamps as text, without a time of day where it is midnight."""
    if not datetime:
        return [str(int(t)) for t in ds]
    return [str(t.date()) if t == t.normalize() else str(t) for t in to_index(ds)]


class Known(NamedTuple):
    """Series that have been read before, and the latest time of each."""

    ids: pd.Index[Any]
    last: Times


class Past(NamedTuple):
    """Rows of known series at or before their latest time."""

    ids: pd.Index[Any]
    ds: Times
    y: Floats


def read_panel(
    df: Any, freq: Frequency, columns: Sequence[str] = (), *, max_gap: int | None = None, name: str = "df"
) -> Panel:
    """Check a long frame and sort it into a panel. Columns not asked for are ignored."""
    rows, ids, datetime = _read_rows(df, freq, ["y", *columns], name)
    return _fill_gaps(rows, ids, _positions(rows, ids, freq, datetime, name), freq, max_gap, datetime)


def read_continuation(
    df: Any,
    freq: Frequency,
    columns: Sequence[str],
    known: Known,
    max_gap: int | None = None,
    name: str = "new_df",
) -> tuple[Panel, Past]:
    """Like `read_panel` for rows that continue known series: gaps count from each series' latest time.

    Rows at or before it are returned apart.
    """
    rows, ids, datetime = _read_rows(df, freq, ["y", *columns], name)
    if len(known.ids) and (known.ids.dtype == np.int64) != (ids.dtype == np.int64):
        kinds = ("integers", "strings") if known.ids.dtype == np.int64 else ("strings", "integers")
        raise ColumnError(f"unique_id of {name} holds {kinds[1]} where {kinds[0]} are known: convert it.")
    at = known.ids.get_indexer(ids)
    never = np.iinfo(np.int64).min
    last = np.where(at >= 0, known.last[at], never) if len(known.ids) else np.full(len(ids), never)
    old = rows.ds <= last[rows.codes]
    past = Past(ids[rows.codes[old]], rows.ds[old], rows.y[old])
    # The latest known time of a series becomes its first row, from which positions count; it goes at the end.
    anchors = np.flatnonzero(at >= 0)
    rows = _Rows(
        np.concatenate([anchors, rows.codes[~old]]),
        np.concatenate([last[anchors], rows.ds[~old]]),
        np.concatenate([np.full(len(anchors), np.nan), rows.y[~old]]),
        {k: _append(c, len(anchors), ~old) for k, c in rows.data.items()},
    )
    rows = rows.sorted()
    panel = _fill_gaps(rows, ids, _positions(rows, ids, freq, datetime, name), freq, max_gap, datetime)
    return panel.select(panel.ds > last[panel.series]), past


def read_future(df: Any, freq: Frequency, columns: Sequence[str], name: str = "futr_df") -> Panel:
    """Rows of known covariates, sorted by series and time, as they are: nothing is filled in."""
    rows, ids, datetime = _read_rows(df, freq, columns, name)
    return _fill_gaps(rows, ids, np.arange(len(rows.ds)), freq, None, datetime)


def _read_rows(df: Any, freq: Frequency, columns: Sequence[str], name: str) -> tuple[_Rows, pd.Index[Any], bool]:
    """Checked rows sorted by series and time, the series' ids in order, and whether time is a datetime."""
    frame = as_frame(df, name)
    _require_columns(frame, ["unique_id", "ds", *columns], name)
    if len(frame) == 0:
        raise InputError(f"{name} has no rows.")
    ids = _read_ids(frame, name)
    ds, datetime = _read_times(frame, freq, name)
    y = _read_target(frame, name) if "y" in columns else np.full(len(ds), np.nan)
    codes, unique = pd.factorize(ids, sort=True)
    rows = _Rows(codes, ds, y, {c: read_column(frame, c, name) for c in columns if c != "y"}).sorted()
    same = (rows.codes[1:] == rows.codes[:-1]) & (rows.ds[1:] == rows.ds[:-1])
    if same.any():
        at = np.flatnonzero(same) + 1
        raise DuplicateError(
            f"{name} has {len(at)} duplicate rows for a series and time: "
            f"{show_rows(unique[rows.codes[at[:SHOWN]]], rows.ds[at[:SHOWN]], datetime, len(at))}. "
            "Keep one row of each."
        )
    return rows, unique, datetime


def _positions(rows: _Rows, ids: pd.Index[Any], freq: Frequency, datetime: bool, name: str) -> Ints:
    """Steps of each row since the first row of its series."""
    starts = np.flatnonzero(np.diff(rows.codes, prepend=-1))
    first = np.repeat(starts, np.diff(np.append(starts, len(rows.codes))))
    if freq.freq is None:
        return np.arange(len(rows.ds)) - first
    position = freq.steps(rows.ds[first], rows.ds)
    if (position < 0).any():
        at = np.flatnonzero(position < 0)
        raise FrequencyError(
            f"{len(at)} rows of {name} do not lie on the grid of freq={freq.freq!r}: "
            f"{show_rows(ids[rows.codes[at[:SHOWN]]], rows.ds[at[:SHOWN]], datetime, len(at))}. "
            f"{_frequency_hint(rows, datetime)}"
        )
    return position


def as_frame(df: Any, name: str) -> nw.DataFrame[Any]:
    """Any eager frame that narwhals knows."""
    try:
        frame: nw.DataFrame[Any] = nw.from_native(df, eager_only=True)
    except TypeError as error:
        raise InputError(f"{name} must be a pandas or polars data frame, got {type(df).__name__}.") from error
    except nw.exceptions.DuplicateError as error:
        raise ColumnError(f"{name} has several columns of the same name: {_repeated(df)}. Keep one.") from error
    return frame


def _repeated(df: Any) -> str:
    columns = pd.Index(df.columns)
    return listing(list(columns[columns.duplicated()].unique()))


def read_static(df: Any, ids: pd.Index[Any], columns: Sequence[str], name: str = "static_df") -> dict[str, Column]:
    """Static covariates in the order of `ids`."""
    if not columns:
        return {}
    if df is None:
        raise ColumnError(f"stat_exog_list names {listing(columns)}: pass {name} with unique_id and these columns.")
    frame = as_frame(df, name)
    _require_columns(frame, ["unique_id", *columns], name)
    have = _read_ids(frame, name)
    repeated = have[have.duplicated()]
    if len(repeated):
        raise DuplicateError(f"{name} has several rows for the series {listing(list(repeated))}. Keep one row of each.")
    at = have.get_indexer(ids)
    if (at < 0).any():
        raise ColumnError(f"{name} has no row for the series {listing(list(ids[at < 0]))}. Add one row for each.")
    return {c: _map_rows(read_column(frame, c, name), lambda a: a[at]) for c in columns}


def read_column(frame: nw.DataFrame[Any], column: str, name: str) -> Column:
    """Numbers become float64 with NaN for missing; category, string and bool columns become categories.

    A column without any value has no type of its own: it is NaN throughout.
    """
    series = frame[column]
    dtype = series.dtype
    missing = np.asarray(series.is_null().to_numpy())
    if dtype.is_numeric() or missing.all():
        values = _to_float(series)
        if np.isinf(values).any():
            raise ValueRangeError(
                f"Column {column!r} of {name} is infinite at {_name_rows(frame, np.isinf(values))}. "
                "Use NaN for missing values."
            )
        return values
    if dtype == nw.Boolean or dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object):
        text = np.array([str(v) for v in _to_objects(series)[~missing]], dtype=object)
        codes = np.full(len(missing), -1)
        codes[~missing], categories = pd.factorize(text, sort=True)
        return Categories(codes, tuple(categories))
    raise ColumnError(
        f"Column {column!r} of {name} has type {dtype}: covariates are numbers, strings, categories or bools."
    )


class _Rows(NamedTuple):
    codes: Ints
    ds: Times
    y: Floats
    data: dict[str, Column]

    def sorted(self) -> _Rows:
        order = np.lexsort((self.ds, self.codes))
        data = {k: _map_rows(c, lambda a: a[order]) for k, c in self.data.items()}
        return _Rows(self.codes[order], self.ds[order], self.y[order], data)


def _append(column: Column, missing: int, keep: Bools) -> Column:
    """`missing` missing values, then the values to keep."""
    if isinstance(column, Categories):
        return Categories(np.concatenate([np.full(missing, -1), column.codes[keep]]), column.values)
    return np.concatenate([np.full(missing, np.nan), column[keep]])


def _fill_gaps(
    rows: _Rows, ids: pd.Index[Any], position: Ints, freq: Frequency, max_gap: int | None, datetime: bool
) -> Panel:
    """Insert a row for every step that `ds` leaves out: at most `max_gap` a gap; the rest is skipped."""
    n = len(rows.ds)
    first = np.concatenate([[True], rows.codes[1:] != rows.codes[:-1]])
    gap = np.where(first, 0, np.diff(position, prepend=0) - 1)
    filled = gap if max_gap is None else np.minimum(gap, max_gap)
    limit = 50 * n + 10_000_000
    if filled.sum() > limit:
        raise FrequencyError(
            f"On the grid of freq={freq.freq!r} there would be {int(filled.sum()):,} missing steps "
            f"between {n:,} rows. "
            f"{_frequency_hint(rows, datetime)}"
        )
    target = np.arange(n) + np.cumsum(filled)
    total = n + int(filled.sum())
    source = np.full(total, -1)
    source[target] = np.arange(n)
    inserted = source < 0
    after = np.searchsorted(target, np.flatnonzero(inserted))  # the real row that ends this gap
    codes = np.empty(total, np.int64)
    codes[target], codes[inserted] = rows.codes, rows.codes[after]
    ds = np.empty(total, np.int64)
    ds[target] = rows.ds
    if inserted.any():
        back = target[after] - np.flatnonzero(inserted)  # steps before the real row
        ds[inserted] = _times_before(freq, rows, after, back, gap)
    skipped = np.zeros(total, np.int64)
    skipped[target - filled] = gap - filled
    y = np.full(total, np.nan)
    y[target] = rows.y
    lengths = np.bincount(codes, minlength=len(ids))
    return Panel(
        ids=ids,
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        ds=ds,
        y=y,
        columns={k: _spread(c, target, total) for k, c in rows.data.items()},
        inserted=inserted,
        skipped=skipped,
        datetime=datetime,
    )


def _times_before(freq: Frequency, rows: _Rows, after: Ints, back: Ints, gap: Ints) -> Times:
    """Timestamps of inserted rows: `back` steps before the real row that ends their gap."""
    ahead = gap[after] - back + 1  # steps after the real row that begins the gap
    start = rows.ds[after - 1]
    out = np.empty(len(after), np.int64)
    for unique in _chunks(ahead):
        out[unique.rows] = freq.shift(start[unique.rows], unique.value)
    return out


class _Chunk(NamedTuple):
    value: int
    rows: Ints


def _chunks(values: Ints) -> list[_Chunk]:
    """Rows grouped by value."""
    order = np.argsort(values, kind="stable")
    unique, first = np.unique(values[order], return_index=True)
    return [_Chunk(int(v), r) for v, r in zip(unique, np.split(order, first[1:]), strict=True)]


def _spread(column: Column, target: Ints, total: int) -> Column:
    if isinstance(column, Categories):
        codes = np.full(total, -1)
        codes[target] = column.codes
        return Categories(codes, column.values)
    values = np.full(total, np.nan)
    values[target] = column
    return values


def _map_rows(column: Column, pick: Callable[[Any], Any]) -> Column:
    if isinstance(column, Categories):
        return Categories(pick(column.codes), column.values)
    values: Floats = pick(column)
    return values


def _require_columns(frame: nw.DataFrame[Any], columns: Sequence[str], name: str) -> None:
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise ColumnError(
            f"{name} has no column {listing([repr(c) for c in missing])}; "
            f"it has {listing(frame.columns, 20)}. Rename or add the columns."
        )


def _read_ids(frame: nw.DataFrame[Any], name: str) -> pd.Index[Any]:
    series = frame["unique_id"]
    _refuse_null(frame, "unique_id", series.is_null().to_numpy(), name)
    if series.dtype.is_integer():
        return pd.Index(series.to_numpy().astype(np.int64))
    if series.dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object):
        return pd.Index([str(v) for v in _to_objects(series)], dtype=object)
    raise ColumnError(f"unique_id of {name} has type {series.dtype}: use strings or integers.")


def _read_times(frame: nw.DataFrame[Any], freq: Frequency, name: str) -> tuple[Times, bool]:
    series = frame["ds"]
    _refuse_null(frame, "ds", series.is_null().to_numpy(), name)
    if series.dtype in (nw.String, nw.Object):
        series = _parse_times(frame, name)
    dtype = series.dtype
    if dtype.is_integer():
        if isinstance(freq.freq, str):
            raise FrequencyError(
                f"ds of {name} holds integers but freq={freq.freq!r}: use an integer freq or datetimes."
            )
        return series.to_numpy().astype(np.int64), False
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
        raise ColumnError(
            f"ds of {name} carries the time zone {dtype.time_zone}: "
            "convert to local or UTC time and drop the zone, e.g. df['ds'].dt.tz_localize(None)."
        )
    if dtype not in (nw.Datetime, nw.Date):
        raise ColumnError(f"ds of {name} has type {dtype}: use timestamps, or integers with an integer freq.")
    if isinstance(freq.freq, int):
        raise FrequencyError(
            f"ds of {name} holds timestamps but freq={freq.freq}: use a pandas offset alias, e.g. 'D'."
        )
    return np.asarray(series.to_numpy()).astype("datetime64[us]").view(np.int64), True


def _parse_times(frame: nw.DataFrame[Any], name: str) -> nw.Series[Any]:
    """Text, dates or integers in a column of mixed type. What can only be guessed at is refused."""
    values = pd.Series(_to_objects(frame["ds"])).infer_objects()
    if values.dtype != np.int64:
        try:
            values = pd.to_datetime(values, format="ISO8601")
        except (ValueError, TypeError):
            values = _parse_other_times(values, frame, name)
    _refuse_null(frame, "ds", values.isna().to_numpy(), name)  # an empty string, "NaT"
    return nw.from_native(values, series_only=True)


def _parse_other_times(values: pd.Series[Any], frame: nw.DataFrame[Any], name: str) -> pd.Series[Any]:
    with warnings.catch_warnings(record=True) as guesses:
        warnings.simplefilter("always")
        try:
            parsed = pd.to_datetime(values, errors="coerce")
        except (ValueError, TypeError) as error:  # several time zones
            raise ColumnError(f"ds of {name} cannot be read as timestamps: {error}") from error
    bad = parsed.isna().to_numpy()
    if bad.any() or guesses:
        raise ColumnError(
            f"ds of {name} cannot be read as timestamps: {_name_rows(frame, bad if bad.any() else ~bad)}. "
            "Write them like 2024-01-31 or 2024-01-31 18:00, or convert them with pandas.to_datetime first."
        )
    return parsed


def _refuse_null(frame: nw.DataFrame[Any], column: str, null: Bools, name: str) -> None:
    if null.any():
        raise InputError(f"{column} of {name} is missing at {_name_rows(frame, null)}. Fill or drop these rows.")


def _read_target(frame: nw.DataFrame[Any], name: str) -> Floats:
    series = frame["y"]
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean or series.is_null().all()):
        raise ColumnError(f"y of {name} has type {series.dtype}: it must be numeric.")
    y = _to_float(series)
    if np.isinf(y).any():
        raise ValueRangeError(
            f"y of {name} is infinite at {_name_rows(frame, np.isinf(y))}. Use NaN for missing values."
        )
    return y


def _to_float(series: nw.Series[Any]) -> Floats:
    if series.is_null().all():  # of no type in particular, or of any
        return np.full(len(series), np.nan)
    return np.array(series.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _to_objects(series: nw.Series[Any]) -> npt.NDArray[np.object_]:
    """Python values. Integer categories stay integers, where pandas would make them floats to hold NaN."""
    native = series.to_native()
    if series.dtype in (nw.Categorical, nw.Enum) and isinstance(native, pd.Series):
        return np.array([*native.cat.categories, None], dtype=object)[native.cat.codes.to_numpy()]
    return np.asarray(series.to_numpy(), dtype=object)


def _name_rows(frame: nw.DataFrame[Any], which: Bools) -> str:
    """The first rows where `which` is true, by series and time as far as they are known, and by number."""
    rows = np.flatnonzero(which)
    keys = [frame[c][rows[:SHOWN].tolist()].to_list() for c in ("unique_id", "ds") if c in frame.columns]
    names = [", ".join(str(v).removesuffix(" 00:00:00") for v in key) for key in zip(*keys, strict=True)]
    head = ", ".join(f"({key}) in row {row}" for key, row in zip(names, rows, strict=False))
    return head + (f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else "")


# Usual frequencies from coarse to fine, as pandas writes them; the weekday of a week comes from the data.
USUAL = ("YS", "YE", "QS", "QE", "MS", "ME", "W", "B", "D", "h", "30min", "15min", "10min", "5min", "min", "s")


def _frequency_hint(rows: _Rows, datetime: bool) -> str:
    """What the spacing of the longest series suggests."""
    times = rows.ds[rows.codes == np.bincount(rows.codes).argmax()][:50]
    if not datetime:
        step = int(np.median(np.diff(times))) if len(times) > 1 else 1
        if (np.diff(times) % step == 0).all():
            return f"The usual distance between rows is {step}: try freq={step}."
        return f"The usual distance between rows is {step}. Correct or drop the rows that do not fit."
    weekday = to_index(times)[0].day_name()[:3].upper()
    for alias in (f"W-{weekday}" if a == "W" else a for a in USUAL):
        steps = Frequency(alias).steps(times[:-1], times[1:])
        if len(steps) > 1 and (steps > 0).all() and np.median(steps) == 1:
            return f"Series look like freq={alias!r}; or use freq=None if rows are consecutive."
    return "Correct these rows, choose another pandas offset alias, or use freq=None if rows are consecutive."
