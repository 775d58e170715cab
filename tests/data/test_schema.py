"""What training learns about columns, and that every later frame is encoded by it."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aru.data.clock import from_index
from aru.data.columns import Categories, Column
from aru.data.covariates import CategoryColumn, NumberColumn
from aru.data.frequency import CYCLES, DAY, Frequency, calendar_codes
from aru.data.learning import PRIORS, Learner, learn_schema
from aru.data.panel import Panel, read_panel
from aru.data.schema import ENOUGH_CYCLES, Schema, choose_distribution, choose_lags, context_length
from aru.errors import AruWarning, ColumnError, ValueRangeError
from aru.settings import Settings
from tests.making import make_settings

NAN = float("nan")


def frame(n: int = 800, start: str = "2020-01-01", freq: str = "D", **columns: Any) -> pd.DataFrame:
    """Two series of n rows each."""
    ds = pd.date_range(start, periods=n, freq=freq)
    y = np.arange(1.0, 2 * n + 1)
    given = {k: np.resize(np.asarray(v, dtype=object), 2 * n) for k, v in columns.items()}
    df = pd.DataFrame({"unique_id": np.repeat(["a", "b"], n), "ds": [*ds, *ds], "y": y, **given})
    return df.infer_objects()


def learn(
    df: pd.DataFrame, static: dict[str, Column] | None = None, train: Any = None, **options: Any
) -> tuple[Schema, Panel]:
    settings = make_settings(**{"h": 4, "freq": "D", **options})
    freq = Frequency(settings.freq)
    panel = read_panel(df, freq, [*settings.futr_exog_list, *settings.hist_exog_list])
    train = np.ones(len(panel.ds), bool) if train is None else train
    return learn_schema(panel, static or {}, settings, freq, train), panel


# Numbers.


def test_numbers_are_rescaled_by_the_range_of_training() -> None:
    """The largest value is not a training row: it lies outside."""
    df = frame(4, x=[10.0, 20.0, 30.0, NAN, 15.0, 10.0, 12.0, 40.0])
    train = np.array([True] * 7 + [False])
    schema, panel = learn(df, futr_exog_list=["x"], train=train)
    assert schema.futr[0] == (NumberColumn("x", 10.0, 30.0),)
    rows = schema.encode(panel)
    assert rows.futr.dtype == torch.float32
    np.testing.assert_allclose(rows.futr[:, 0], [0, 0.5, 1, 0, 0.25, 0, 0.1, 1.5])
    assert rows.futr[:, 1].tolist() == [0, 0, 0, 1, 0, 0, 0, 0]


def test_numbers_far_outside_are_cut_off_one_range_away() -> None:
    column = NumberColumn("x", -1.0, 3.0)
    encoded = column.encode(np.array([-1e30, -5.0, -3.0, 5.0, 7.0, 1e30, NAN]))
    np.testing.assert_allclose(encoded[:, 0], [-1, -1, -0.5, 1.5, 2, 2, 0])
    assert encoded[:, 1].tolist() == [0, 0, 0, 0, 0, 0, 1]


def test_constant_and_empty_numbers_can_be_encoded() -> None:
    schema, panel = learn(frame(4, x=[7.0], gone=[NAN]), futr_exog_list=["x", "gone"])
    encoded = schema.encode(panel).futr
    assert encoded.isfinite().all()
    assert (encoded == torch.tensor([0.0, 0.0, 0.0, 1.0])).all()
    assert schema.futr[0] == (NumberColumn("x", 7.0, 7.0), NumberColumn("gone", 0.0, 1.0))
    assert NumberColumn("x", 7.0, 7.0).encode(np.array([7.5, 100.0]))[:, 0].tolist() == [0.5, 2.0]


# Categories.


def test_unknown_and_missing_categories_have_code_0() -> None:
    df = frame(4, kind=["q", "p", "q", None, "p", "r", "q", "q"])
    train = np.array([True] * 4 + [True, False, True, True])
    schema, panel = learn(df, hist_exog_list=["kind"], train=train)
    assert schema.hist == ((), (CategoryColumn("kind", ("p", "q")),))
    with pytest.warns(AruWarning, match=r"'kind' has categories that training never saw in 1 of 7 rows \('r'\)\."):
        rows = schema.encode(panel)
    assert rows.hist_cat.squeeze(1).tolist() == [2, 1, 2, 0, 1, 0, 2, 2]


def test_codes_do_not_depend_on_which_values_a_later_frame_holds() -> None:
    schema, _ = learn(frame(4, kind=["q", "p", "s"]), futr_exog_list=["kind"])
    for values in (["s", "p"], ["p", "zzz", "s", "q"], ["aaa"], [None, "q"]):
        panel = read_panel(frame(4, kind=values), Frequency("D"), ["kind"])
        expected = np.resize([{"p": 1, "q": 2, "s": 3}.get(str(v), 0) for v in values], 8)
        new = {"zzz", "aaa"} & set(values)
        with pytest.warns(AruWarning, match="training never saw") if new else contextlib.nullcontext():
            assert schema.encode(panel).futr_cat.squeeze(1).tolist() == expected.tolist()


def test_integers_that_became_floats_are_the_same_categories() -> None:
    """As pandas makes them of a column in which one is missing."""
    schema, _ = learn(frame(4, kind=["1", "2", "10"]), futr_exog_list=["kind"])
    floats = pd.Series(np.resize([1.0, np.nan, 10.0, 3.0], 8)).astype("category")
    panel = read_panel(frame(4).assign(kind=floats), Frequency("D"), ["kind"])
    with pytest.warns(AruWarning, match=r"in 2 of 6 rows \('3.0'\)"):
        assert schema.encode(panel).futr_cat.squeeze(1).tolist() == [1, 0, 2, 0] * 2
    both = CategoryColumn("kind", ("1", "1.0", "2.0"))
    assert both.encode(Categories(np.arange(4), ("1", "1.0", "2", "x"))).tolist() == [1, 2, 3, 0]
    assert CategoryColumn("unique_id", ("1",)).encode(Categories(np.arange(1), ("1.0",))).tolist() == [0]


def test_objects_that_are_all_numbers_are_numbers() -> None:
    for values in ([0.5, 2, None], [1, 3]):
        df = frame(4).assign(x=np.resize(np.array(values, dtype=object), 8))
        schema, _ = learn(df.astype({"x": object}), futr_exog_list=["x"])
        assert [c.name for c in schema.futr[0]] == ["x"]
    schema, _ = learn(frame(4).assign(x=np.resize(np.array([0.5, "a"], dtype=object), 8)), futr_exog_list=["x"])
    assert schema.futr == ((), (CategoryColumn("x", ("0.5", "a")),))


def test_bools_are_categories_and_mix_with_numbers() -> None:
    schema, panel = learn(
        frame(4, flag=[True, False], x=[0.0, 1.0], kind=["p"]), futr_exog_list=["flag", "x"], hist_exog_list=["kind"]
    )
    rows = schema.encode(panel)
    assert rows.futr.shape == (8, 2)
    assert rows.futr_cat.squeeze(1).tolist() == [2, 1] * 4
    assert rows.hist.shape == (8, 0)
    assert rows.hist_cat.shape == (8, 1)


@pytest.mark.parametrize("seen", [[True, False], ["True", "False"], ["true", "false"], ["TRUE", "FALSE"]])
def test_bools_mean_the_same_in_every_spelling(seen: list[Any]) -> None:
    schema, _ = learn(frame(4, flag=seen), futr_exog_list=["flag"])
    for yes, no in (
        (True, False), ("True", "False"), ("true", "false"), ("TRUE", "FALSE"), (" true", "false "), ("1", "0"),
        ("1.0", "0.0"), (1, 0), (1.0, 0.0),
    ):  # fmt: skip
        for nothing in (None, NAN):
            panel = read_panel(frame(3, flag=[yes, no, nothing]), Frequency("D"), ["flag"])
            assert schema.encode(panel).futr_cat.squeeze(1).tolist() == [2, 1, 0] * 2, (yes, no, nothing)
    typed = frame(3).assign(flag=pd.array([True, False, None] * 2, dtype="boolean"))
    assert schema.encode(read_panel(typed, Frequency("D"), ["flag"])).futr_cat.squeeze(1).tolist() == [2, 1, 0] * 2


def test_what_is_no_bool_is_refused_where_training_saw_bools() -> None:
    schema, _ = learn(
        frame(4, flag=[True, False]), {"open": Categories(np.array([0, 0]), ("True",))}, futr_exog_list=["flag"],
        stat_exog_list=["open"],
    )  # fmt: skip
    for odd in ("yes", "2", 2, 0.5):
        df = frame(3, flag=[odd, None])
        with pytest.raises(ColumnError, match=r"'flag' was true or false .*\(a, 2020-01-01\).*Write true or false"):
            schema.encode(read_panel(df, Frequency("D"), ["flag"]))
    ids = pd.Index(["a", "b", "c"])
    flags = Categories(np.array([0, 1, -1]), ("false", "true"))
    with pytest.warns(AruWarning, match=r"'open' has categories that training never saw in 1 of 2 rows \('false'\)"):
        assert schema.encode_static({"open": flags}, ids).categories.squeeze(1).tolist() == [0, 1, 0]
    with pytest.raises(ColumnError, match=r"'open' was true or false in training and is 'no' now, at b, c\."):
        schema.encode_static({"open": Categories(np.array([1, 0, 0]), ("no", "true"))}, ids)


def test_text_that_is_not_only_true_and_false_is_taken_as_it_is() -> None:
    for values in (("True", "true"), ("False", "True", "maybe"), ("0", "1")):
        column = CategoryColumn("flag", values)
        assert not column.boolean
        assert column.encode(Categories(np.array([0, 1]), (values[0], "TRUE"))).tolist() == [1, 0]


def test_series_called_true_are_series() -> None:
    """The names of series are an input like any other category, and no bools."""
    assert not CategoryColumn("unique_id", ("False", "True")).boolean


def test_a_column_that_changes_its_type_is_refused_with_its_rows() -> None:
    schema, _ = learn(frame(4, x=[1.0, 2.0], kind=["p"]), futr_exog_list=["x", "kind"])
    for x, named in (
        (["1", "many", None], r"'many' at \(a, 2020-01-02\), 'many' at \(b, 2020-01-01\), 'many' at \(b, 2020-01-04\)"),
        (["1"], r"'1' at \(a, 2020-01-01\), .*'1' at \(b, 2020-01-01\) and 3 more"),
        ([True], r"'True' at \(a, 2020-01-01\), .* and 3 more"),
    ):
        changed = read_panel(frame(4, x=x, kind=["p"]), Frequency("D"), ["x", "kind"])
        with pytest.raises(ColumnError, match=rf"'x' was numeric in training .*: {named}\. Convert it to numbers"):
            schema.encode(changed)
    changed = read_panel(frame(4, x=[1.0], kind=[NAN, 1.5]), Frequency("D"), ["x", "kind"])
    named = r"1\.5 at \(a, 2020-01-02\), .*1\.5 at \(b, 2020-01-04\)\. Convert it to text"
    with pytest.raises(ColumnError, match=rf"'kind' was categorical in training and is numeric now: {named}"):
        schema.encode(changed)


def test_bools_are_the_numbers_that_training_had_for_them() -> None:
    schema, panel = learn(frame(4, x=[0, 1, 1, NAN]), futr_exog_list=["x"])
    bools = read_panel(frame(4, x=[False, True, True, None]), Frequency("D"), ["x"])
    assert isinstance(bools.columns["x"], Categories)
    assert torch.equal(schema.encode(bools).futr, schema.encode(panel).futr)


def test_a_column_without_any_value_is_encoded_whatever_its_type() -> None:
    """A single row with a missing category arrives as a float NaN or as None."""
    schema, _ = learn(frame(4, x=[1.0, 2.0], kind=["p"]), futr_exog_list=["x", "kind"])
    for nothing in (NAN, None):
        rows = schema.encode(read_panel(frame(4, x=[nothing], kind=[nothing]), Frequency("D"), ["x", "kind"]))
        assert (rows.futr == torch.tensor([0.0, 1.0])).all()
        assert (rows.futr_cat == 0).all()


# The target.


def test_a_missing_target_is_zero_and_unobserved() -> None:
    df = frame(4)
    df.loc[[1, 6], "y"] = NAN
    schema, panel = learn(df)
    rows = schema.encode(panel)
    assert rows.y.tolist() == [1, 0, 3, 4, 5, 6, 0, 8]
    assert rows.observed.tolist() == [True, False, True, True, True, True, False, True]
    assert rows.y.dtype == torch.float64
    assert torch.equal(rows.ds, torch.from_numpy(panel.ds))


@pytest.mark.parametrize(
    ("y", "unit", "typical"),
    [
        ([3.0, -5.0, 100.0], 1.0, 6.0),  # 1 + median |y|
        ([0.01, 0.03, -0.02], 0.02, 0.04),  # mean |y| below 1
        ([0.0, 0.0, 0.0], 1.0, 1.0),
    ],
)
def test_the_unit_shrinks_with_data_in_small_units(y: list[float], unit: float, typical: float) -> None:
    df = pd.DataFrame({"unique_id": "a", "ds": [0, 1, 2], "y": y})
    schema, _ = learn(df, freq=1)
    assert schema.unit == pytest.approx(unit)
    assert schema.typical_scale == pytest.approx(typical)


@pytest.mark.parametrize(("y", "integer"), [([3.0, -5.0, NAN], True), ([3.0, 0.5, NAN], False)])
def test_whole_numbers_are_recognised(y: list[float], integer: bool) -> None:
    schema, _ = learn(pd.DataFrame({"unique_id": "a", "ds": [0, 1, 2], "y": y}), freq=1)
    assert schema.integer is integer


def test_only_training_rows_count() -> None:
    df = pd.DataFrame({"unique_id": "a", "ds": range(6), "y": [2.0, 4.0, NAN, 6.0, -999.0, 0.5]})
    schema, _ = learn(df, freq=1, train=np.array([True] * 4 + [False] * 2))
    assert schema.nonnegative
    assert schema.typical_scale == pytest.approx(1 + 4)
    assert not learn(df, freq=1)[0].nonnegative


def test_log1p_refuses_negative_targets_by_name() -> None:
    df = pd.DataFrame({"unique_id": "a", "ds": range(4), "y": [0.0, -2.0, NAN, -3.0]})
    with pytest.raises(ValueRangeError, match=r"negative at \(a, 1\), \(a, 3\)\. Use transform='asinh'"):
        learn(df, freq=1, transform="log1p")
    with pytest.raises(ValueRangeError, match="negative at"):  # of validation, too
        learn(df, freq=1, transform="log1p", train=np.array([True, False, True, False]))
    learn(df, freq=1, transform="asinh")


# Calendar.


@pytest.mark.parametrize(
    ("freq", "days", "names"),
    [
        ("D", 10, []),  # less than two weeks
        ("D", 15, ["day_of_week"]),
        ("D", 63, ["day_of_week", "day_of_month"]),
        ("D", 800, ["day_of_week", "day_of_month", "month"]),
        ("h", 3, ["hour"]),
        ("15min", 3, ["minute", "hour"]),
        ("W-MON", 800, ["week", "month"]),
        ("MS", 1000, ["month"]),
        ("YS", 9000, []),
    ],
)
def test_calendar_features_need_about_two_cycles_in_training(freq: str, days: int, names: list[str]) -> None:
    rows = len(pd.date_range("2020-01-01", pd.Timestamp("2020-01-01") + pd.Timedelta(days=days), freq=freq))
    schema, panel = learn(frame(rows, freq=freq), freq=freq)
    assert [c.name for c in schema.calendar] == names
    assert schema.encode(panel).futr_cat.shape == (2 * rows, len(names))


def test_the_calendar_is_judged_by_training_rows_alone() -> None:
    """Where validation completes the second cycle, training has not seen it."""
    df, enough = frame(100), int(np.ceil(ENOUGH_CYCLES * CYCLES["day_of_month"] / DAY))
    for days, names in ((enough, ["day_of_week"]), (enough + 1, ["day_of_week", "day_of_month"])):
        schema, _ = learn(df, train=np.tile(np.arange(100) < days, 2))
        assert [c.name for c in schema.calendar] == names


def test_calendar_codes_that_training_never_saw_are_unknown() -> None:
    """Business days in training, then a weekend."""
    schema, _ = learn(frame(40, start="2024-01-01", freq="B"), freq=None)
    (weekday,) = schema.calendar
    assert weekday == CategoryColumn("day_of_week", ("0", "1", "2", "3", "4"))
    later = read_panel(frame(7, start="2025-03-03"), Frequency("D"))
    assert schema.encode(later).futr_cat.squeeze(1).tolist() == [1, 2, 3, 4, 5, 0, 0] * 2


def test_calendar_codes_follow_the_columns_of_the_user() -> None:
    schema, panel = learn(frame(800, kind=["p", "q"]), futr_exog_list=["kind"])
    rows = schema.encode(panel)
    assert [c.name for c in schema.calendar] == ["day_of_week", "day_of_month", "month"]
    assert rows.futr_cat.shape == (1600, 4)
    assert rows.futr_cat[:, 0].tolist() == [1, 2] * 800
    for i, shift in ((1, 1), (2, 0), (3, 0)):  # weekdays count from 0, days and months from 1; code 0 is unknown
        codes = calendar_codes(schema.calendar[i - 1].name, panel.ds)
        assert rows.futr_cat[:, i].tolist() == (codes + shift).tolist()


def test_the_distance_between_rows_is_measured_within_series() -> None:
    """A thousand series of two rows, each beginning long after the one before."""
    starts = np.arange(1000) * 40 * DAY
    ds = (starts[:, None] + [0, DAY]).ravel()
    df = pd.DataFrame({"unique_id": np.repeat(np.arange(1000), 2), "ds": ds.view("datetime64[us]"), "y": np.ones(2000)})
    schema, _ = learn(df)
    assert [c.name for c in schema.calendar] == ["day_of_week", "day_of_month", "month"]


def test_integer_times_have_no_calendar() -> None:
    df = pd.DataFrame({"unique_id": "a", "ds": range(3000), "y": 1.0})
    schema, panel = learn(df, freq=1)
    assert schema.calendar == ()
    assert not schema.datetime
    assert schema.encode(panel).futr_cat.shape == (3000, 0)


# Static covariates and identity.


def test_static_columns_and_the_series_own_identity() -> None:
    static: dict[str, Column] = {"size": np.array([2.0, 6.0]), "kind": Categories(np.array([1, -1]), ("u", "v"))}
    schema, panel = learn(frame(8), static, stat_exog_list=["size", "kind"], series_id=True)
    assert schema.stat[1] == (CategoryColumn("kind", ("v",)), CategoryColumn("unique_id", ("a", "b")))
    encoded = schema.encode_static(static, panel.ids)
    assert encoded.numbers.tolist() == [[0, 0], [1, 0]]
    assert encoded.categories.tolist() == [[1, 1], [0, 2]]
    later: dict[str, Column] = {"size": np.array([NAN, 4.0, 2.0]), "kind": Categories(np.array([0, 1, 1]), ("v", "x"))}
    with pytest.warns(AruWarning, match=r"'kind' .* in 2 of 3 rows \('x'\)\.") as caught:
        encoded = schema.encode_static(later, pd.Index(["new", "b", "a"]))
    assert len(caught) == 1  # none about the new series
    assert encoded.numbers.tolist() == [[0, 1], [0.5, 0], [0, 0]]
    assert encoded.categories.tolist() == [[1, 0], [0, 2], [0, 1]]
    nobody = schema.no_static()
    assert [v.shape for v in nobody] == [(0, 2), (0, 2)]
    assert [v.dtype for v in nobody] == [v.dtype for v in encoded]


def test_integer_ids_are_remembered() -> None:
    df = frame(8)
    assert not learn(df)[0].integer_ids
    schema, panel = learn(df.assign(unique_id=(df["unique_id"] == "b").astype(int)), series_id=True)
    assert schema.integer_ids
    assert schema.encode_static({}, panel.ids).categories.tolist() == [[1], [2]]


# Lags, context, distribution.


@pytest.mark.parametrize(
    ("freq", "h", "lags"),
    [
        ("D", 7, (7,)),
        ("D", 8, (14,)),
        ("D", 1, (7,)),
        ("h", 24, (24, 168)),
        ("h", 25, (48, 168)),
        ("h", 200, (216, 336)),
        ("h", 168, (168,)),
        ("MS", 18, (24,)),
        ("W", 13, (52,)),
        ("B", 10, (10,)),
        ("15min", 96, (96, 672)),
        ("5min", 12, (288,)),
    ],
)
def test_automatic_lags_are_the_first_whole_seasons_not_shorter_than_h(
    freq: str, h: int, lags: tuple[int, ...]
) -> None:
    assert choose_lags(Settings(h=h, freq=freq, lags="auto"), Frequency(freq), rows=5000) == lags
    assert min(lags) >= h


def test_lags_as_asked_for() -> None:
    assert choose_lags(Settings(h=4, freq="D", lags=None), Frequency("D"), rows=50) == ()
    assert choose_lags(Settings(h=4, freq="D", lags=[9, 4, 9]), Frequency("D"), rows=5) == (4, 9)


@pytest.mark.parametrize("freq", [None, 1, "YS", "min"])
def test_automatic_lags_need_a_season(freq: str | int | None) -> None:
    assert choose_lags(Settings(h=4, freq=freq, lags="auto"), Frequency(freq), rows=5000) == ()


@pytest.mark.parametrize(("rows", "lags"), [(293, (24,)), (294, (24, 168)), (41, ()), (42, (24,))])
def test_automatic_lags_are_those_that_training_can_see(rows: int, lags: tuple[int, ...]) -> None:
    """Of the longest series, in rows that are trained on."""
    df = pd.concat(
        [frame(rows + 200, freq="h").query("unique_id == 'a'"), frame(30, freq="h").query("unique_id == 'b'")]
    )
    train = np.concatenate([np.arange(rows + 200) < rows, np.ones(30, bool)])
    assert learn(df, h=12, freq="h", train=train)[0].lags == lags


@pytest.mark.parametrize(
    ("freq", "h", "given", "length"),
    [
        ("D", 14, None, 14),
        ("D", 3, None, 7),  # a season not much longer than the horizon
        ("D", 1, None, 1),
        ("h", 24, None, 24),
        ("h", 48, None, 168),
        ("MS", 3, None, 12),
        (1, 5, None, 5),
        ("D", 14, 3, 3),
    ],
)
def test_context_length(freq: str | int, h: int, given: int | None, length: int) -> None:
    settings = Settings(h=h, freq=freq, input_size=given)
    assert context_length(settings, Frequency(freq)) == length


def test_history_covers_the_longest_lag_of_the_first_row_of_the_context() -> None:
    schema, _ = learn(frame(30), h=4, input_size=5, lags=[4, 9])
    assert schema.history == 14
    assert learn(frame(30), h=4, input_size=5, lags=None)[0].history == 5


# How far the scale follows the latest values.


def daily(y: Any) -> pd.DataFrame:
    """Daily series of the values y (series, row)."""
    series, n = y.shape
    ds = pd.date_range("2024-01-01", periods=n)
    return pd.DataFrame({"unique_id": np.repeat(np.arange(series), n), "ds": np.tile(ds, series), "y": y.ravel()})


RANDOM = np.random.default_rng(0)
NOISE = 10 * np.exp(RANDOM.normal(size=(10, 120)))
GROWTH = NOISE * np.exp(0.05 * np.arange(120))
WALK = np.exp(0.07 * RANDOM.normal(size=(10, 120)).cumsum(1)) * np.exp(RANDOM.normal(size=(10, 120)))


def prior_by_loops(y: Any, h: int, E: int) -> float | None:
    errors = dict.fromkeys(PRIORS, 0.0)
    for values in np.abs(y):
        for origin in range(0, len(values) - h + 1, h):
            past, truth = values[:origin], np.nanmean(values[origin : origin + h])
            if origin < E or not truth > 0 or not np.nanmean(past) > 0:
                continue
            near = past[-E:][~np.isnan(past[-E:])]
            for prior in PRIORS:
                if prior is None:
                    guess = np.nanmean(past)
                else:
                    guess = (near.sum() + prior * np.nanmean(past)) / (len(near) + prior)
                errors[prior] += abs(np.log(truth / guess))
    return min(errors, key=errors.__getitem__)


def test_the_scale_follows_the_latest_values_as_far_as_they_foretell() -> None:
    options = {"h": 4, "input_size": 8, "scaler": "auto"}
    gaps = np.where(RANDOM.random(WALK.shape) < 0.2, NAN, WALK)
    gaps[:, 0] = 1.0
    found = []
    for y in (NOISE, GROWTH, WALK, gaps, -WALK, 1e12 * WALK):
        schema, _ = learn(daily(y), **options)
        assert schema.scale_prior == prior_by_loops(y, 4, 8)
        found.append(schema.scale_prior)
    assert found[0] is None or found[0] >= 64
    assert found[1] == 1.0
    assert found[2] not in (None, 1.0)
    assert found[2] == found[4] == found[5]


def test_one_series_size_does_not_drown_the_others() -> None:
    y = np.concatenate([1e15 * GROWTH[:1], GROWTH[1:], np.zeros((1, 120))])
    assert learn(daily(y), h=4, input_size=8)[0].scale_prior == 1.0


def test_the_scale_is_learned_from_training_rows_alone() -> None:
    y = NOISE.copy()
    y[:, 60:] = GROWTH[:, 60:]
    train = np.tile(np.arange(120) < 60, 10)
    known, _ = learn(daily(y), h=4, input_size=8, train=train)
    assert known.scale_prior == learn(daily(NOISE), h=4, input_size=8, train=train)[0].scale_prior
    assert known.scale_prior != learn(daily(y), h=4, input_size=8)[0].scale_prior


@pytest.mark.filterwarnings("error")
def test_a_series_of_validation_rows_alone_does_not_matter() -> None:
    train = np.repeat(np.arange(10) < 9, 120)
    assert learn(daily(WALK), h=4, input_size=8, train=train)[0].scale_prior == prior_by_loops(WALK[:9], 4, 8)


@pytest.mark.filterwarnings("error")
def test_where_nothing_shows_how_far_the_scale_follows_it_is_the_mean() -> None:
    assert learn(daily(NOISE), scaler="mean")[0].scale_prior is None
    assert learn(daily(GROWTH), scaler="level")[0].scale_prior is None
    assert learn(daily(np.round(GROWTH)), distribution="negative-binomial")[0].scale_prior is None
    assert learn(daily(GROWTH[:, :8]), h=4, input_size=8)[0].scale_prior is None  # no window
    assert learn(daily(NOISE[:, :14]), h=4, input_size=8)[0].scale_prior is None  # contexts that are all of the past
    assert learn(daily(np.full((3, 40), 0.1)), h=4, input_size=8)[0].scale_prior is None  # all guesses are right
    assert learn(daily(np.zeros((3, 40))), support="real", distribution="student-t")[0].scale_prior is None


def test_a_schema_survives_json_with_and_without_a_prior() -> None:
    schema, _ = learn(frame(30), scaler="mean")
    assert schema.scale_prior is None
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    found, _ = learn(daily(GROWTH), h=4, input_size=8)
    assert found.scale_prior == 1.0
    assert Schema.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    ("y", "options", "family"),
    [
        ([0, 0, 3, 1], {}, "negative-binomial"),
        ([0, 2, 3, 1, 5], {}, "student-t"),  # few zeros
        ([0, 0, 3, 1.5], {}, "student-t"),
        ([0, 0, -3, 1], {}, "student-t"),
        ([0, 0, 3, 1], {"transform": "log1p"}, "student-t"),
        ([0, 0, 3, 1], {"distribution": "gaussian"}, "gaussian"),
        ([5, 2, 3, 1], {"distribution": "negative-binomial"}, "negative-binomial"),
    ],
)
def test_automatic_distribution(y: list[float], options: dict[str, Any], family: str) -> None:
    values = np.array(y, float)
    counts = bool(((values >= 0) & (values == values.round())).all())
    assert choose_distribution(make_settings(h=1, freq=1, **options), counts, float((values == 0).mean())) == family


def test_the_negative_binomial_refuses_what_are_no_counts_by_name() -> None:
    df = pd.DataFrame({"unique_id": "a", "ds": range(5), "y": [1.0, NAN, 2.5, 0.0, -1.0]})
    with pytest.raises(ValueRangeError, match=r"not a count at \(a, 2\), \(a, 4\)\. Use distribution='student-t'"):
        learn(df, freq=1, distribution="negative-binomial")
    schema, _ = learn(df[:2], freq=1, distribution="negative-binomial")
    assert schema.distribution == "negative-binomial"


# JSON.


def test_json_round_trip() -> None:
    static: dict[str, Column] = {"size": np.array([2.0, 6.0]), "kind": Categories(np.array([1, 0]), ("u", "ü"))}
    options: dict[str, Any] = {
        "futr_exog_list": ["x", "flag"],
        "hist_exog_list": ["z"],
        "stat_exog_list": ["size", "kind"],
        "series_id": True,
        "lags": "auto",
    }
    schema, panel = learn(frame(800, x=[0.1, 1 / 3, NAN], flag=[True, False], z=["é", "b"]), static, **options)
    restored = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert restored == schema
    for a, b in zip(schema.encode(panel), restored.encode(panel), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(*(s.encode_static(static, panel.ids) for s in (schema, restored)), strict=True):
        assert torch.equal(a, b)


def test_encoding_leaves_the_panel_alone() -> None:
    schema, panel = learn(frame(20, x=[1.0, NAN]), futr_exog_list=["x"])
    before = {n: getattr(panel, n).copy() for n in ("y", "ds")} | {"x": np.copy(np.asarray(panel.columns["x"]))}
    rows = schema.encode(panel)
    rows.y.fill_(9)
    rows.futr.fill_(9)
    np.testing.assert_array_equal(panel.y, before["y"])
    np.testing.assert_array_equal(panel.columns["x"], before["x"])
    assert from_index(pd.DatetimeIndex(["2020-01-01"]))[0] == panel.ds[0] == before["ds"][0]


def test_parts_are_learned_as_the_whole() -> None:
    options = {"h": 4, "freq": "D", "futr_exog_list": ["x", "c"], "stat_exog_list": ["k"], "series_id": True}
    options |= {"input_size": 8}
    rng = np.random.default_rng(0)
    df = frame(120, x=rng.normal(size=240), c=rng.choice(["u", "v", "w"], 240))
    df["y"] = np.concatenate([GROWTH[0], NOISE[0]])
    whole, _ = learn(df, {"k": Categories(np.array([1, 0]), ("p", "q"))}, **options)
    learner = Learner(make_settings(**options), Frequency("D"))
    for uid, code in (("a", 1), ("b", 0)):
        part = read_panel(df[df["unique_id"] == uid], Frequency("D"), ["x", "c"])
        learner.add(part, {"k": Categories(np.array([code]), ("p", "q"))}, np.ones(len(part.ds), bool))
    assert learner.schema() == whole
    assert whole.scale_prior not in {learn(daily(y), h=4, input_size=8)[0].scale_prior for y in (GROWTH[:1], NOISE[:1])}
    odd = read_panel(df.assign(x="text"), Frequency("D"), ["x", "c"])
    with pytest.raises(ColumnError, match="numbers in some parts"):
        learner.add(odd, {"k": Categories(np.array([0, 0]), ("p",))}, np.ones(len(odd.ds), bool))
