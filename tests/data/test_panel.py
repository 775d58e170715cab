"""Frames in, panels out: order, gaps, types, and errors that name the offending rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from aru.data import panel as panels
from aru.data.clock import Clock, from_index
from aru.data.columns import Categories, name_rows, read_column, read_static
from aru.data.columns import as_frame as wrap
from aru.data.frequency import DAY, Frequency
from aru.data.panel import Known, Panel, continuation, read_future, read_observations, read_panel
from aru.data.plain import read_plain
from aru.errors import (
    AruError,
    ColumnError,
    DuplicateError,
    FrequencyError,
    InputError,
    ValueRangeError,
)

NAN = float("nan")
DAILY = Frequency("D")
Make = Callable[[dict[str, Any]], Any]


@pytest.fixture(params=["pandas", "polars", "dictionary"])
def make(request: pytest.FixtureRequest) -> Make:
    """Builds a frame of either library, or leaves the columns as they are."""
    kinds: dict[str, Make] = {"pandas": pd.DataFrame, "polars": lambda data: pl.DataFrame(data, strict=False)}
    return kinds.get(request.param, dict)


def day(number: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1) + dt.timedelta(days=number)


def micros(*days: int) -> list[int]:
    return from_index(pd.DatetimeIndex([day(n) for n in days])).tolist()


def data(**changes: Any) -> dict[str, Any]:
    """Series b for two days, then a for four days with day 2 missing; unsorted."""
    return {
        "unique_id": ["b", "a", "a", "b", "a"],
        "ds": [day(11), day(3), day(0), day(10), day(1)],
        "y": [11.0, 3.0, 0.0, 10.0, 1.0],
        "x": [1.1, 0.3, 0.0, 1.0, 0.1],
        "kind": ["q", "p", "q", None, "p"],
        **changes,
    }


def test_rows_are_sorted_and_gaps_filled(make: Make) -> None:
    panel = read_panel(make(data()), DAILY, ["x", "kind"])
    assert list(panel.ids) == ["a", "b"]
    assert panel.starts.tolist() == [0, 4]
    assert panel.lengths.tolist() == [4, 2]
    assert panel.ds.tolist() == micros(0, 1, 2, 3, 10, 11)
    assert panel.series.tolist() == [0, 0, 0, 0, 1, 1]
    np.testing.assert_array_equal(panel.y, [0, 1, NAN, 3, 10, 11])
    np.testing.assert_array_equal(panel.columns["x"], [0, 0.1, NAN, 0.3, 1.0, 1.1])
    assert panel.inserted.tolist() == [False, False, True, False, False, False]
    assert panel.observed.tolist() == [True, True, False, True, True, True]
    assert panel.skipped.tolist() == [0] * 6
    assert panel.clock is not None
    kind = panel.columns["kind"]
    assert isinstance(kind, Categories)
    assert kind.values == ("p", "q")
    assert kind.codes.tolist() == [1, 0, -1, 0, -1, 1]


def test_columns_not_asked_for_are_ignored(make: Make) -> None:
    panel = read_panel(make(data(other=[[1], [2], [3], [4], [5]])), DAILY, ["x"])
    assert set(panel.columns) == {"x"}


@pytest.mark.parametrize("max_gap", [0, 1, 3, 7, 99, None])
@pytest.mark.parametrize("freq", ["D", "B", "MS", "h"])
def test_long_gaps_are_filled_from_their_end_and_the_rest_is_counted(freq: str, max_gap: int | None) -> None:
    grid = pd.date_range("2024-01-01", periods=30, freq=freq)
    kept = [0, 1, 9, 10, 13, 29]  # gaps of 0, 7, 0, 2 and 15 steps
    df = pd.DataFrame({"unique_id": "a", "ds": grid[kept], "y": np.arange(6.0)})
    panel = read_panel(df, Frequency(freq), max_gap=max_gap)
    expected = []
    for before, position in zip([-1, *kept], kept, strict=False):
        filled = position - before - 1 if max_gap is None else min(position - before - 1, max_gap)
        expected += range(position - filled, position + 1)
    assert panel.ds.tolist() == from_index(grid)[expected].tolist()
    assert panel.inserted.tolist() == [p not in kept for p in expected]
    left_out = np.diff(expected, prepend=-1) - 1
    assert panel.skipped.tolist() == left_out.tolist()
    assert len(panel.ds) + panel.skipped.sum() == 30


@given(
    kept=st.lists(st.sets(st.integers(0, 40), min_size=1), min_size=1, max_size=4),
    max_gap=st.none() | st.integers(0, 12),
    step=st.integers(1, 5),
    seed=st.integers(0, 9),
)
@hypothesis_settings(max_examples=60)
def test_any_panel_equals_a_naive_loop(kept: list[set[int]], max_gap: int | None, step: int, seed: int) -> None:
    rows = [(i, 7 * i + step * t, float(t)) for i, times in enumerate(kept) for t in times]
    frame = pd.DataFrame(rows, columns=["unique_id", "ds", "y"]).sample(frac=1, random_state=seed)
    panel = read_panel(frame, Frequency(step), max_gap=max_gap)
    expected = []
    for i, times in enumerate(kept):
        previous, pending = min(times) - 1, 0
        for t in range(min(times), max(times) + 1):
            following = min(u for u in times if u >= t)
            if t in times:
                expected.append((i, 7 * i + step * t, float(t), False, pending))
                previous, pending = t, 0
            elif max_gap is None or following - t <= max_gap:
                expected.append((i, 7 * i + step * t, NAN, True, pending))
                pending = 0
            else:
                pending += 1
        assert previous == max(times)
    columns = zip(panel.series, panel.ds, panel.y, panel.inserted, panel.skipped, strict=True)
    np.testing.assert_array_equal(np.array(list(columns), float), np.array(expected, float))
    assert panel.lengths.sum() == len(panel.ds)
    assert panel.starts.tolist() == [0, *np.cumsum(panel.lengths)[:-1]]


def test_without_frequency_rows_are_consecutive_whatever_their_dates(make: Make) -> None:
    panel = read_panel(make(data()), Frequency(None))
    assert panel.ds.tolist() == micros(0, 1, 3, 10, 11)
    assert not panel.inserted.any()
    assert panel.clock is not None
    assert not read_panel(make(data(ds=[1, 9, 3, 0, 4])), Frequency(None)).clock


def test_nan_and_null_in_y_are_missing_observations(make: Make) -> None:
    panel = read_panel(make(data(y=[None, NAN, 0.0, 10.0, 1.0])), DAILY)
    np.testing.assert_array_equal(panel.y, [0, 1, NAN, NAN, 10, NAN])
    assert panel.inserted.tolist() == [False, False, True, False, False, False]


def test_y_may_be_missing_throughout(make: Make) -> None:
    """A column of nothing but None has no numeric type: an update may well look like that."""
    assert np.isnan(read_panel(make(data(y=[None] * 5)), DAILY).y).all()


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([11, 3, 0, 10, 1], [0, 1, NAN, 3, 10, 11]),
        ([True, False, True, True, False], [1, 0, NAN, 0, 1, 1]),
        ([None, 3, 0, 10, 1], [0, 1, NAN, 3, 10, NAN]),
    ],
)
def test_y_may_hold_integers_and_bools(make: Make, y: list[Any], expected: list[float]) -> None:
    np.testing.assert_array_equal(read_panel(make(data(y=y)), DAILY).y, expected)


@pytest.mark.parametrize("kind", ["Int64", "Float64", "int64[pyarrow]", "double[pyarrow]", "float32"])
def test_y_of_any_pandas_type(kind: str) -> None:
    df = pd.DataFrame(data(y=pd.array([11, None, 0, 10, 1], dtype=kind)))
    np.testing.assert_array_equal(read_panel(df, DAILY).y, [0, 1, NAN, NAN, 10, 11])


# Time.


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_datetimes_of_any_unit(unit: Any) -> None:
    df = pd.DataFrame(data())
    panels = [read_panel(df.assign(ds=df["ds"].astype(f"datetime64[{unit}]")), DAILY)]
    if unit != "s":
        panels.append(read_panel(pl.DataFrame(data()).with_columns(pl.col("ds").cast(pl.Datetime(unit))), DAILY))
    for panel in panels:
        assert panel.ds.tolist() == micros(0, 1, 2, 3, 10, 11)


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.strftime("%Y-%m-%d"),
        lambda t: t.isoformat(),
        lambda t: t.strftime("%Y/%m/%d 00:00"),
        lambda t: t.strftime("%Y%m%dT%H"),
        lambda t: t.strftime("%Y-%m-%d %H:%M:%S.000000000"),
        lambda t: t.date(),
    ],
    ids=["date", "isoformat", "slashes", "basic", "fractions", "date-objects"],
)
def test_ds_may_be_text_or_dates(make: Make, write: Callable[[dt.datetime], Any]) -> None:
    ds = [write(day(n + 12)) for n in (11, 3, 0, 10, 1)]
    panel = read_panel(make(data(ds=ds)), DAILY)
    assert panel.ds.tolist() == micros(12, 13, 14, 15, 22, 23)
    assert panel.clock is not None


def test_dates_of_polars_and_arrow() -> None:
    dates = [t.date() for t in data()["ds"]]
    arrow = pd.DataFrame(data(ds=pd.array(dates, dtype="date32[pyarrow]")))
    for frame in (pl.DataFrame(data(ds=dates)), arrow, pl.DataFrame(data(ds=dates)).to_arrow()):
        assert read_panel(frame, DAILY).ds.tolist() == micros(0, 1, 2, 3, 10, 11)


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8", "Int64", "object"])
def test_integer_ds(kind: str) -> None:
    df = pd.DataFrame(data(ds=pd.Series([22, 6, 0, 20, 2], dtype=kind)))
    panel = read_panel(df, Frequency(2))
    assert panel.ds.tolist() == [0, 2, 4, 6, 20, 22]
    assert panel.ds.dtype == np.int64
    assert panel.clock is None


def test_integer_ds_of_polars() -> None:
    frame = pl.DataFrame(data(ds=[11, 3, 0, 10, 1])).with_columns(pl.col("ds").cast(pl.Int16))
    assert read_panel(frame, Frequency(1)).ds.tolist() == [0, 1, 2, 3, 10, 11]


@pytest.mark.parametrize(
    ("ds", "freq", "error", "says"),
    [
        ([11, 3, 0, 10, 1], "D", FrequencyError, "holds integers but freq='D'"),
        (data()["ds"], 1, FrequencyError, "holds timestamps but freq=1"),
        ([1.5, 2.5, 3.5, 4.5, 5.5], "D", ColumnError, "ds of df has type Float64"),
        ([True, False, True, False, True], 1, ColumnError, "ds of df has type Boolean"),
        (
            ["2024-01-11", "foo", "2024-01-01", "bar", "2024-01-02"],
            "D",
            ColumnError,
            r"foo\) in row 1, \(b, bar\) in row 3",
        ),
        (["x", "y", "z", "v", "w"], "D", ColumnError, r"\(b, x\) in row 0.*2024-01-31"),
        ([f"{d}/01/2024" for d in range(13, 18)], "D", ColumnError, "pandas.to_datetime"),
        ([f"0{d}/06/2024" for d in range(5, 10)], "D", ColumnError, r"\(b, 05/06/2024\) in row 0.*ISO"),
        ([f"{d} June 2024" for d in range(5, 10)], "D", ColumnError, r"\(b, 5 June 2024\) in row 0.*ISO"),
        (["2024-01-11", "now", *["2024-01-11"] * 3], "D", ColumnError, r"\(a, now\) in row 1\."),
        (["today"] * 5, "D", ColumnError, r"\(b, today\) in row 0"),
        (
            [2**63 + n for n in range(5)],
            1,
            ValueRangeError,
            r"ds of df is larger .*\(b, 9223372036854775808\) in row 0",
        ),
        (
            ["2024-01-11T00:00Z", "2024-13-01T00:00Z", *["2024-01-11"] * 3],
            "D",
            ColumnError,
            r"\(a, 2024-13-01.* in row 1",
        ),
        (
            ["2024-01-11", "2024-01-03", "", "2024-01-01", "NaT"],
            "D",
            InputError,
            r"missing at \(a, \) in row 2, \(a, NaT\)",
        ),
    ],
)
def test_ds_that_cannot_be_used(make: Make, ds: list[Any], freq: str | int, error: type[AruError], says: str) -> None:
    with pytest.raises(error, match=says):
        read_panel(make(data(ds=ds)), Frequency(freq))


def test_periods_are_refused() -> None:
    with pytest.raises(ColumnError, match="Use timestamps"):
        read_panel(pd.DataFrame(data(ds=pd.PeriodIndex(data()["ds"], freq="D"))), DAILY)


# Identity.


def test_ids_sort_as_what_they_are(make: Make) -> None:
    assert list(read_panel(make(data(unique_id=[10, 9, 9, 10, 9])), DAILY).ids) == [9, 10]
    assert list(read_panel(make(data(unique_id=["10", "9", "9", "10", "9"])), DAILY).ids) == ["10", "9"]


@pytest.mark.parametrize("kind", ["category", "string", "string[pyarrow]", "object"])
def test_ids_of_any_pandas_text_type(kind: str) -> None:
    df = pd.DataFrame(data())
    panel = read_panel(df.assign(unique_id=df["unique_id"].astype(kind)), DAILY)
    assert list(panel.ids) == ["a", "b"]
    assert panel.ids.dtype == object


def test_ids_of_polars_categories() -> None:
    for kind in (pl.Categorical, pl.Enum(["b", "a"])):
        panel = read_panel(pl.DataFrame(data()).with_columns(pl.col("unique_id").cast(kind)), DAILY)
        assert list(panel.ids) == ["a", "b"]
        assert panel.y[:2].tolist() == [0, 1]


@pytest.mark.parametrize("ids", [[1.0, 2.0, 2.0, 1.0, 2.0], [True, False, False, True, False]])
def test_ids_must_be_strings_or_integers(make: Make, ids: list[Any]) -> None:
    with pytest.raises(ColumnError, match="Use strings or integers"):
        read_panel(make(data(unique_id=ids)), DAILY)


@pytest.mark.parametrize("library", ["pandas", "nullable", "polars"])
def test_ids_beyond_64_bits_with_a_sign_are_refused(library: str) -> None:
    ids = [1, 2**63 - 1, 2**63, 1, 2**64 - 1]
    columns = data(unique_id=np.array(ids, np.uint64))
    frame: Any = pl.DataFrame(columns) if library == "polars" else pd.DataFrame(columns)
    if library == "nullable":
        frame = frame.astype({"unique_id": "UInt64"})
    says = rf"unique_id of df is larger than {2**63 - 1} at \({2**63}, .*\) in row 2, .* in row 4\. Convert .* to text"
    with pytest.raises(ValueRangeError, match=says):
        read_panel(frame, DAILY)
    small = frame[[0, 1, 3]] if library == "polars" else frame.iloc[[0, 1, 3]]
    assert list(read_panel(small, DAILY).ids) == [1, 2**63 - 1]


# What is wrong, and where.


def test_missing_ids_and_times_name_their_rows(make: Make) -> None:
    with pytest.raises(InputError, match=r"unique_id of df is missing at \(.*, 2024-01-04\) in row 1.*Fill or drop"):
        read_panel(make(data(unique_id=["b", None, "a", "b", "a"])), DAILY)
    with pytest.raises(InputError, match=r"ds of frame is missing at \(b, .*\) in row 3.*Fill or drop"):
        read_panel(make(data(ds=[day(11), day(3), day(0), None, day(1)])), DAILY, name="frame")


@pytest.mark.parametrize(("column", "what"), [("y", "y of df"), ("x", "Column 'x' of df")])
@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_infinite_values_name_their_rows(make: Make, column: str, what: str, bad: float) -> None:
    values = [1.0, bad, 1.0, NAN, bad]
    rows = r"\(a, 2024-01-04\) in row 1, \(a, 2024-01-02\) in row 4\. Use NaN"
    with pytest.raises(ValueRangeError, match=f"{what} is infinite at {rows}"):
        read_panel(make(data(**{column: values})), DAILY, ["x"])


def test_only_the_first_offending_rows_are_listed() -> None:
    df = pd.DataFrame({"unique_id": "a", "ds": range(20), "y": np.inf})
    with pytest.raises(ValueRangeError, match=r"\(a, 4\) in row 4 and 15 more"):
        read_panel(df, Frequency(1))
    with pytest.raises(DuplicateError, match=r"20 duplicate rows.*\(a, 4\) and 15 more"):
        read_panel(pd.concat([df, df]).assign(y=1.0), Frequency(1))


def test_five_offending_rows_are_all_of_them() -> None:
    df = pd.DataFrame({"unique_id": "a", "ds": range(5), "y": np.inf})
    with pytest.raises(ValueRangeError, match=r"\(a, 4\) in row 4\. Use"):
        read_panel(df, Frequency(1))
    with pytest.raises(DuplicateError, match=r"5 duplicate rows.*\(a, 4\)\. Keep"):
        read_panel(pd.concat([df, df]).assign(y=1.0), Frequency(1))


def test_duplicates_name_series_and_time(make: Make) -> None:
    twice = {k: [*v, v[1], v[1], v[3]] for k, v in data().items()}
    with pytest.raises(
        DuplicateError, match=r"3 duplicate rows.*\(a, 2024-01-04\), \(a, 2024-01-04\), \(b, 2024-01-11\)"
    ):
        read_panel(make(twice), DAILY)


def test_missing_columns_are_listed_beside_what_there_is(make: Make) -> None:
    with pytest.raises(ColumnError, match=r"df has no column 'z'; it has unique_id, ds, y, x, kind"):
        read_panel(make(data()), DAILY, ["x", "z"])
    with pytest.raises(ColumnError, match="no column 'unique_id', 'y'; it has ds"):
        read_panel(make({"ds": [1]}), Frequency(1))


def test_what_is_not_a_frame_is_refused() -> None:
    for thing in (None, [1, 2], pd.Series([1.0]), pl.DataFrame(data()).lazy()):
        with pytest.raises(InputError, match="must be a pandas or polars data frame, got"):
            read_panel(thing, DAILY)


def test_an_empty_frame_is_refused(make: Make) -> None:
    with pytest.raises(InputError, match="df has no rows"):
        read_panel(make({name: [] for name in data()}), DAILY)


def test_repeated_columns_are_refused() -> None:
    df = pd.DataFrame(data())
    with pytest.raises(ColumnError, match="several columns of the same name: x"):
        read_panel(pd.concat([df, df[["x"]]], axis=1), DAILY)


@pytest.mark.parametrize("y", [["1", "2", "3", "4", "5"], data()["ds"]], ids=["text", "times"])
def test_y_must_be_numeric(make: Make, y: list[Any]) -> None:
    with pytest.raises(ColumnError, match=r"y of df has type .*must be numeric"):
        read_panel(make(data(y=y)), DAILY)


@pytest.mark.parametrize(
    ("rows", "freq", "hint"),
    [
        (pd.date_range("2024-01-01", periods=9, freq="h"), "D", "'h'"),
        (pd.date_range("2024-01-01", periods=9, freq="15min"), "h", "'15min'"),
        (pd.date_range("2024-01-01", periods=9, freq="W-TUE"), "W-SUN", "'W-TUE'"),
        (pd.date_range("2024-01-01", periods=9, freq="ME"), "MS", "'ME'"),
        (pd.date_range("2024-01-01", periods=9, freq="D"), "B", "'D'"),
        (pd.date_range("2024-01-01", periods=9, freq="QS"), "7D", "'QS'"),
        (pd.date_range("2024-01-01", periods=9, freq="QS-FEB"), "QS", "'QS-FEB'"),
        (pd.date_range("2024-01-01", periods=9, freq="QS-DEC"), "QS", "'QS-MAR'"),
        (pd.date_range("2024-01-01", periods=9, freq="QE-NOV"), "QE", "'QE-FEB'"),
        (pd.date_range("2024-01-01", periods=9, freq="QE-SEP"), "QS", "'QE'"),
        (pd.date_range("2024-01-01", periods=9, freq="YS-APR"), "YS", "'YS-APR'"),
        (pd.date_range("2024-01-01", periods=9, freq="YE-JUN"), "YE", "'YE-JUN'"),
        (pd.date_range("2024-01-01", periods=9, freq="h")[[0, 1, 2, 3, 5, 6, 8]], "D", "'h'"),  # also with gaps
    ],
)
def test_a_wrong_frequency_is_refused_with_the_likely_one(rows: pd.DatetimeIndex, freq: str, hint: str) -> None:
    df = pd.DataFrame({"unique_id": "a", "ds": rows, "y": 1.0})
    with pytest.raises(
        FrequencyError, match=rf"grid of freq='{freq}': \(a, 20.*look like freq={hint}; or use freq=None"
    ):
        read_panel(df, Frequency(freq))
    assert not read_panel(df, Frequency(hint.strip("'"))).inserted.all()


def test_single_rows_off_the_grid_are_named_without_a_wrong_hint() -> None:
    rows = [*pd.date_range("2024-01-01", periods=9, freq="D"), pd.Timestamp("2024-01-04 10:30")]
    df = pd.DataFrame({"unique_id": "a", "ds": rows, "y": 1.0})
    with pytest.raises(FrequencyError, match=r"1 rows of df.*\(a, 2024-01-04 10:30:00\)\. Correct these rows"):
        read_panel(df, DAILY)
    df = pd.DataFrame({"unique_id": "a", "ds": [0, 2, 4, 5, 8, 10], "y": 1.0})
    with pytest.raises(FrequencyError, match=r"1 rows of df.*\(a, 5\)\..* distance .* 2\. Correct or drop"):
        read_panel(df, Frequency(2))


def test_a_single_row_gives_no_hint() -> None:
    df = pd.DataFrame({"unique_id": ["a", "b"], "ds": [day(0), day(1)], "y": 1.0})
    with pytest.raises(FrequencyError, match=r"1 rows of df.*freq='MS': \(b, 2024-01-02\)\. Correct these rows"):
        read_panel(df, Frequency("MS"))


def test_an_integer_hint() -> None:
    df = pd.DataFrame({"unique_id": "a", "ds": [3, 10, 17, 31], "y": 1.0})
    with pytest.raises(FrequencyError, match="try freq=7"):
        read_panel(df, Frequency(2))


def test_more_gaps_than_memory_is_refused() -> None:
    df = pd.DataFrame({"unique_id": "a", "ds": [0, 10**9, 2 * 10**9], "y": 1.0})
    with pytest.raises(FrequencyError, match=r"1,999,999,998 steps would be missing between 3 rows.*try freq=10+"):
        read_panel(df, Frequency(1))
    panel = read_panel(df, Frequency(1), max_gap=5)
    assert panel.lengths.tolist() == [13]
    assert panel.skipped.sum() == 2 * (10**9 - 1 - 5)


# Covariates.


@pytest.mark.parametrize(
    ("values", "codes", "names"),
    [
        (["q", "p", None, "q"], [1, 0, -1, 1], ("p", "q")),
        ([True, False, None, True], [1, 0, -1, 1], ("False", "True")),
        ([True, False, False, True], [1, 0, 0, 1], ("False", "True")),
    ],
)
def test_strings_and_bools_become_categories(
    make: Make, values: list[Any], codes: list[int], names: tuple[str, ...]
) -> None:
    column = read_column(wrap(make({"c": values}), "df"), "c", "df")
    assert isinstance(column, Categories)
    assert column.codes.tolist() == codes
    assert column.codes.dtype == np.int64
    assert column.values == names


def test_the_same_category_has_the_same_name_in_every_type() -> None:
    """Otherwise a value known from training would turn unknown with the library or with a missing neighbour."""
    integers = [
        pd.DataFrame({"c": pd.Categorical([3, 1, None])}),
        pd.DataFrame({"c": pd.Categorical([3, 1, 1])}),
        pd.DataFrame({"c": ["3", "1", None]}),
        pl.DataFrame({"c": ["3", "1", None]}).with_columns(pl.col("c").cast(pl.Categorical)),
        pl.DataFrame({"c": ["3", "1", None]}).with_columns(pl.col("c").cast(pl.Enum(["3", "1"]))),
        pd.DataFrame({"c": np.array([3, "1", None], dtype=object)}),
    ]
    for frame in integers:
        column = read_column(wrap(frame, "df"), "c", "df")
        assert isinstance(column, Categories)
        assert column.values == ("1", "3")
        assert column.codes[:2].tolist() == [1, 0]
    ordered = pd.Categorical(["lo", "hi", None], categories=["lo", "hi", "unused"], ordered=True)
    column = read_column(wrap(pd.DataFrame({"c": ordered}), "df"), "c", "df")
    assert isinstance(column, Categories)
    assert column == (pytest.approx([1, 0, -1]), ("hi", "lo"))


def test_numbers_stay_numbers(make: Make) -> None:
    column = read_column(wrap(make({"c": [1, None, 3]}), "df"), "c", "df")
    np.testing.assert_array_equal(column, [1, NAN, 3])
    assert not isinstance(column, Categories)
    assert column.dtype == np.float64
    decimal = pl.DataFrame({"c": [1, 2]}).with_columns(pl.col("c").cast(pl.Decimal(10, 2)))
    assert read_column(wrap(decimal, "df"), "c", "df").tolist() == [1.0, 2.0]


@pytest.mark.parametrize("kind", [None, "category", "string", "float64", "boolean"])
def test_a_column_without_any_value_is_missing_throughout(kind: str | None) -> None:
    frames = [pd.DataFrame({"c": pd.Series([None, None], dtype=kind)})]
    if kind is None:
        frames.append(pl.DataFrame({"c": [None, None]}))
    for frame in frames:
        assert np.isnan(read_column(wrap(frame, "df"), "c", "df")).all()


def test_covariates_of_other_types_are_refused(make: Make) -> None:
    with pytest.raises(ColumnError, match=r"Column 'x' of df has type .*numbers, strings, categories or bools"):
        read_panel(make(data(x=data()["ds"])), DAILY, ["x"])


# Panels.


def test_select_keeps_series_that_still_have_rows() -> None:
    panel = read_panel(pd.DataFrame(data()), DAILY, ["x", "kind"])
    kept = panel.select(np.array([False, False, True, True, False, False]))
    assert list(kept.ids) == ["a"]
    assert kept.starts.tolist() == [0]
    assert kept.lengths.tolist() == [2]
    assert kept.ds.tolist() == micros(2, 3)
    assert kept.inserted.tolist() == [True, False]
    np.testing.assert_array_equal(kept.columns["x"], [NAN, 0.3])
    kind = kept.columns["kind"]
    assert isinstance(kind, Categories)
    assert kind.codes.tolist() == [-1, 0]
    nothing = panel.select(np.zeros(6, bool))
    assert len(nothing.ids) == len(nothing.starts) == len(nothing.lengths) == len(nothing.ds) == 0


def test_rows_are_shown_as_a_person_would_name_them() -> None:
    panel = read_panel(pd.DataFrame(data()), DAILY)
    assert str(panel.name_rows([3, 4])) == "(a, 2024-01-04), (b, 2024-01-11)"
    assert str(panel.name_rows(np.arange(6))).endswith("(b, 2024-01-11) and 1 more")
    hours = from_index(pd.DatetimeIndex(["2024-01-01 06:30"]))
    assert str(name_rows(["s"], hours, Clock())) == "(s, 2024-01-01 06:30:00)"
    assert str(name_rows([7], np.array([12]), None)) == "(7, 12)"


# Static covariates.


def test_static_columns_come_in_the_order_of_the_series(make: Make) -> None:
    frame = make(
        {"unique_id": ["c", "a", "b"], "size": [3.0, 1.0, None], "kind": ["u", "v", None], "unused": [1, 2, 3]}
    )
    columns = read_static(frame, pd.Index(["a", "b"], dtype=object), ["size", "kind"])
    assert list(columns) == ["size", "kind"]
    np.testing.assert_array_equal(columns["size"], [1.0, NAN])
    kind = columns["kind"]
    assert isinstance(kind, Categories)
    assert kind.codes.tolist() == [kind.values.index("v"), -1]


def test_without_static_columns_no_frame_is_needed() -> None:
    assert read_static(None, pd.Index(["a"]), []) == {}


@pytest.mark.parametrize(
    ("frame", "error", "says"),
    [
        (None, ColumnError, "stat_exog_list names size. Pass static_df"),
        ({"unique_id": ["a", "b"]}, ColumnError, "static_df has no column 'size'"),
        ({"unique_id": ["a"], "size": [1.0]}, ColumnError, "no row for the series b"),
        ({"unique_id": ["a", "b", "a"], "size": [1, 2, 3]}, DuplicateError, "several rows for the series a"),
        ({"unique_id": ["a", "b", None], "size": [1, 2, 3]}, InputError, "unique_id of static_df is missing .*row 2"),
        ({"unique_id": ["a", "b"], "size": [1, np.inf]}, ValueRangeError, r"infinite at b in row 1"),
        ({"unique_id": [1, 2], "size": [1, 2]}, ColumnError, "no row for the series a, b"),
    ],
)
def test_static_frames_that_cannot_be_used(make: Make, frame: Any, error: type[AruError], says: str) -> None:
    with pytest.raises(error, match=says):
        read_static(None if frame is None else make(frame), pd.Index(["a", "b"], dtype=object), ["size"])


# Rows that continue known series.


def read_continuation(
    df: Any, freq: Frequency, columns: list[str], known: Known, max_gap: int | None = None
) -> tuple[Panel, Panel]:
    return continuation(read_observations(df, freq, columns), freq, known, max_gap)


def known(**last: int) -> Known:
    return Known(pd.Index(list(last), dtype=object), np.array(micros(*last.values())))


def test_a_continuation_counts_gaps_from_the_latest_time(make: Make) -> None:
    frame = make(data())  # a: days 0, 1, 3; b: days 10, 11
    panel, past = read_continuation(frame, DAILY, ["x", "kind"], known(a=0, z=5, b=7))
    np.testing.assert_array_equal(panel.y, [1, NAN, 3, NAN, NAN, 10, 11])
    assert panel.ds.tolist() == micros(1, 2, 3, 8, 9, 10, 11)
    assert panel.inserted.tolist() == [False, True, False, True, True, False, False]
    assert list(panel.ids) == ["a", "b"]
    np.testing.assert_array_equal(panel.columns["x"], [0.1, NAN, 0.3, NAN, NAN, 1.0, 1.1])
    kind = panel.columns["kind"]
    assert isinstance(kind, Categories)
    assert kind.codes.tolist() == [0, -1, 0, -1, -1, -1, 1]
    assert list(past.ids[past.series]) == ["a"]
    assert past.ds.tolist() == micros(0)
    assert past.y.tolist() == [0.0]


def test_new_series_in_a_continuation_begin_with_their_first_row(make: Make) -> None:
    panel, past = read_continuation(make(data()), DAILY, [], known(a=1))
    assert list(panel.ids) == ["a", "b"]
    assert panel.ds.tolist() == micros(2, 3, 10, 11)
    assert past.ds.tolist() == micros(0, 1)
    nobody = Known(pd.Index([], dtype=object), np.zeros(0, np.int64))
    panel, past = read_continuation(make(data()), DAILY, [], nobody)
    assert panel.ds.tolist() == read_panel(make(data()), DAILY).ds.tolist()
    assert len(past.ds) == 0


def test_a_long_gap_before_a_continuation_is_skipped() -> None:
    df = pd.DataFrame({"unique_id": ["a"], "ds": [day(1000)], "y": [1.0]})
    panel, _ = read_continuation(df, DAILY, [], known(a=0), max_gap=4)
    assert panel.ds.tolist() == micros(996, 997, 998, 999, 1000)
    assert panel.skipped.tolist() == [995, 0, 0, 0, 0]


def test_a_continuation_of_nothing_new_is_all_past(make: Make) -> None:
    panel, past = read_continuation(make(data()), DAILY, [], known(a=3, b=11))
    assert len(panel.ids) == len(panel.starts) == len(panel.ds) == 0
    assert list(past.ids[past.series]) == ["a", "a", "a", "b", "b"]
    assert past.y.tolist() == [0, 1, 3, 10, 11]


def test_a_continuation_in_two_pieces_equals_the_whole() -> None:
    df = pd.DataFrame(data())
    whole = read_panel(df, DAILY, ["x"])
    first = read_panel(df[df["ds"] <= day(1)], DAILY, ["x"])
    rest, past = read_continuation(df[df["ds"] > day(1)], DAILY, ["x"], Known(first.ids, first.ds[first.lengths - 1]))
    assert len(past.ds) == 0
    for name in ("ds", "y", "inserted", "skipped"):
        joined = np.concatenate([getattr(first, name), getattr(rest, name)])
        np.testing.assert_array_equal(joined, getattr(whole, name))


def test_without_frequency_a_continuation_has_no_gaps() -> None:
    panel, past = read_continuation(pd.DataFrame(data()), Frequency(None), [], known(a=0))
    assert panel.ds.tolist() == micros(1, 3, 10, 11)
    assert past.ds.tolist() == micros(0)


def test_a_continuation_off_the_known_grid_is_refused(make: Make) -> None:
    later = make({"unique_id": ["a", "a"], "ds": [day(3), day(8)], "y": [1.0, 2.0]})
    with pytest.raises(FrequencyError, match=r"2 rows of df.*freq='7D': \(a, 2024-01-04\), \(a, 2024-01-09\)"):
        read_continuation(later, Frequency("7D"), [], known(a=0))


def test_ids_of_another_type_are_not_taken_for_new_series(make: Make) -> None:
    with pytest.raises(ColumnError, match="unique_id of df holds integers where strings are known"):
        read_continuation(make(data(unique_id=[1, 2, 2, 1, 2])), DAILY, [], known(a=0))
    with pytest.raises(ColumnError, match="holds strings where integers are known"):
        read_continuation(make(data()), DAILY, [], Known(pd.Index([1, 2]), np.zeros(2, np.int64)))


# Future covariates.


def test_future_rows_are_sorted_and_nothing_is_filled_in(make: Make) -> None:
    frame = {k: v for k, v in data().items() if k != "y"}
    panel = read_future(make(frame), DAILY, ["x"])
    assert panel.ds.tolist() == micros(0, 1, 3, 10, 11)
    assert panel.columns["x"].tolist() == [0.0, 0.1, 0.3, 1.0, 1.1]
    assert np.isnan(panel.y).all()
    assert not panel.inserted.any()
    assert panel.lengths.tolist() == [3, 2]


def test_future_frames_are_checked_like_any_other(make: Make) -> None:
    with pytest.raises(ColumnError, match="futr_df has no column 'x'"):
        read_future(make({"unique_id": ["a"], "ds": [day(0)]}), DAILY, ["x"])
    with pytest.raises(DuplicateError, match="futr_df has 1 duplicate rows"):
        read_future(make({"unique_id": ["a", "a"], "ds": [day(0), day(0)]}), DAILY, [])
    with pytest.raises(InputError, match="futr_df has no rows"):
        read_future(make({name: [] for name in data()}), DAILY, [])


# The frame belongs to the caller.


@pytest.mark.parametrize("index", [None, [5, 5, 1, 1, 0]])
def test_the_input_is_not_changed_and_its_index_does_not_matter(index: list[int] | None) -> None:
    df = pd.DataFrame(data(x=[1.0, NAN, 2.0, 3.0, 4.0]), index=index)
    before = df.copy(deep=True)
    panel = read_panel(df, DAILY, ["x", "kind"])
    read_continuation(df, DAILY, ["x", "kind"], known(a=0))
    read_future(df, DAILY, ["x", "kind"])
    read_static(df.drop_duplicates("unique_id"), pd.Index(["b", "a"], dtype=object), ["x", "kind"])
    panel.y[:] = -1.0
    panel.ds[:] = 0
    pd.testing.assert_frame_equal(df, before)
    assert panel.lengths.tolist() == [4, 2]


def test_a_polars_frame_is_not_changed() -> None:
    frame = pl.DataFrame(data())
    before = frame.clone()
    panel = read_panel(frame, DAILY, ["x", "kind"])
    panel.y[:] = -1.0
    panel.ds[:] = 0
    assert frame.equals(before)


def test_both_libraries_give_the_same_panel() -> None:
    panels = [read_panel(f(data()), DAILY, ["x", "kind"]) for f in (pd.DataFrame, pl.DataFrame)]
    for name in ("starts", "lengths", "ds", "y", "inserted", "skipped"):
        np.testing.assert_array_equal(*(getattr(p, name) for p in panels))
    assert panels[0].ids.equals(panels[1].ids)
    assert panels[0].ds[1] - panels[0].ds[0] == DAY


@pytest.mark.parametrize("year", ["1500", "9999", "148610"])
def test_times_in_no_calendar_are_refused(year: str) -> None:
    df = pd.DataFrame({"unique_id": ["a", "a"], "ds": np.array(["2024-01-01", f"{year}-01-01"], "datetime64[us]")})
    with pytest.raises(ValueRangeError, match=rf"outside the years 1678 to 2261 at \(a, {year}"):
        read_panel(df.assign(y=1.0), Frequency("MS"))


IDS = st.one_of(
    st.lists(st.sampled_from(["a", "b", "", "é"]), min_size=1, max_size=5),
    st.lists(st.integers(-3, 3), min_size=1, max_size=5),
    st.lists(st.sampled_from(["a", 1, None, 2.5]), min_size=1, max_size=5),
)
MOMENTS = (day(0), day(3), "2024-01-05", "2024-01-05 06:30:01.5", "2024-13-01", "1600-01-01", "05/01/2024", 7, None)
NUMBERS = (0.0, 1, -2.5, NAN, float("inf"), None, True, "1", "x")


@pytest.mark.parametrize("frame", [dict, pd.DataFrame])
@given(values=st.data())
def test_plain_rows_are_read_as_any_others(frame: Any, values: st.DataObject) -> None:
    ids = values.draw(IDS)

    def draw(items: tuple[Any, ...]) -> list[Any]:
        some = values.draw(st.lists(st.sampled_from(items), min_size=1, max_size=2))  # mostly of one type
        return values.draw(st.lists(st.sampled_from(some), min_size=len(ids), max_size=len(ids)))

    columns = {"unique_id": ids, "ds": draw(MOMENTS), "y": draw(NUMBERS), "x": draw(NUMBERS)}
    freq = Frequency(values.draw(st.sampled_from(["D", 1, None])))
    plain = read_plain(frame(columns), freq, ["y", "x"])
    if plain is None:
        return
    names, ds, clock, data = panels._read_any(pd.DataFrame(columns), freq, ["y", "x"], "df")
    pd.testing.assert_index_equal(plain.ids, names)
    assert (plain.ds.tolist(), plain.clock) == (ds.tolist(), clock)
    for name, column in data.items():
        got = plain.data[name]
        assert isinstance(got, Categories) == isinstance(column, Categories)
        for one, other in zip(*((c if isinstance(c, Categories) else (c,)) for c in (got, column)), strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_usual_rows_are_plain() -> None:
    assert read_plain(pd.DataFrame(data(kind=list("pqpqp"))), DAILY, ["y", "x", "kind"]) is not None
    assert read_plain(data(ds=["2024-01-01"] * 5), DAILY, ["y", "x"]) is not None
    assert read_plain(data(ds=np.arange(5)), Frequency(1), ["y"]) is not None
