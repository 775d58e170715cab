"""Steps, future timestamps, seasons and calendar codes, against pandas' own arithmetic one timestamp at a time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from aru.data.clock import Times, from_index, to_index
from aru.data.frequency import CYCLES, DAY, Frequency, calendar_codes, calendar_features
from aru.errors import ConfigError, FrequencyError

HOUR = DAY // 24
ALIASES = [
    *("D", "3D", "h", "6h", "15min", "90s", "W-SUN", "W-WED", "2W-FRI", "MS", "ME", "3MS", "QS-FEB", "QE-NOV"),
    *("2QS", "YS", "YE-JUN", "B", "2B", "BME", "SMS", "bh", "1D12h"),
]


def times(*values: str) -> Times:
    return from_index(pd.DatetimeIndex(values))


def grid(alias: str, n: int, start: str = "1969-12-02 09:30") -> Times:
    """n times on the grid of an alias, beginning before 1970, where internal times are negative."""
    return from_index(pd.date_range(start, periods=n, freq=alias))


def test_internal_times_are_microseconds_whatever_the_unit() -> None:
    expected = [-1, 0, 86_400_000_000]
    for unit in ("us", "ns"):
        index = pd.DatetimeIndex(np.array(expected).view("datetime64[us]").astype(f"datetime64[{unit}]"))
        assert from_index(index).tolist() == expected
        assert to_index(from_index(index)).equals(index.as_unit("us"))


@pytest.mark.parametrize("alias", ALIASES)
def test_steps_count_the_positions_on_a_grid(alias: str) -> None:
    on_grid, freq = grid(alias, 40), Frequency(alias)
    first, second = np.triu_indices(40)
    np.testing.assert_array_equal(freq.steps(on_grid[first], on_grid[second]), second - first)


@pytest.mark.parametrize("alias", ALIASES)
def test_steps_refuse_what_lies_between_two_grid_points(alias: str) -> None:
    on_grid, freq = grid(alias, 20), Frequency(alias)
    between = on_grid + 1_000_000  # a second later
    start = np.full(20, on_grid[0])
    assert (freq.steps(start, between) == -1).all()
    mixed = np.where(np.arange(20) % 2, between, on_grid)
    np.testing.assert_array_equal(freq.steps(start, mixed), np.where(np.arange(20) % 2, -1, np.arange(20)))


def test_the_first_time_must_lie_on_the_grid_itself() -> None:
    tuesday = times("2024-01-02")
    assert Frequency("W-MON").steps(tuesday, tuesday).tolist() == [-1]
    assert Frequency("W-TUE").steps(tuesday, tuesday).tolist() == [0]
    assert Frequency("MS").steps(tuesday, times("2024-02-01")).tolist() == [-1]
    assert Frequency("B").steps(times("2024-01-06"), times("2024-01-08")).tolist() == [-1]  # a Saturday
    assert Frequency("D").steps(tuesday, times("2024-03-01")).tolist() == [59]


@pytest.mark.parametrize("alias", ["2MS", "2W-MON", "3B", "2D", "2QS"])
def test_the_grid_of_a_multiple_begins_at_each_series_own_start(alias: str) -> None:
    """Two series in opposite phase are both on their grids, but not on each other's."""
    both = from_index(pd.date_range("2024-01-01", periods=24, freq=alias[1:]))
    n, freq = int(alias[0]), Frequency(alias)
    one, other = both[0::n], both[1::n]
    start = np.repeat([one[0], other[0]], [len(one), len(other)])
    expected = [*range(len(one)), *range(len(other))]
    assert freq.steps(start, np.concatenate([one, other])).tolist() == expected
    assert freq.steps(one[:1], other[-1:]).tolist() == [-1]


@pytest.mark.parametrize("alias", ["B", "W-MON", "MS", "D"])
def test_series_may_keep_their_own_time_of_day(alias: str) -> None:
    morning, evening = (from_index(pd.date_range(f"2024-01-01 {t}", periods=6, freq=alias)) for t in ("09:00", "17:30"))
    start, end = np.array([morning[0], evening[0], morning[0]]), np.array([morning[5], evening[4], evening[4]])
    assert Frequency(alias).steps(start, end).tolist() == [5, 4, -1]


def test_steps_of_integers_and_without_frequency() -> None:
    start, end = np.array([0, 0, -6, 5]), np.array([0, 7, 9, 8])
    assert Frequency(3).steps(start, end).tolist() == [0, -1, 5, 1]
    assert Frequency(1).steps(start, end).tolist() == [0, 7, 15, 3]
    assert Frequency(None).steps(start, end).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("alias", [*ALIASES, 1, 7, None])
def test_no_times_have_no_steps(alias: str | int | None) -> None:
    nothing = np.zeros(0, np.int64)
    assert Frequency(alias).steps(nothing, nothing).shape == (0,)
    if alias is not None:
        assert Frequency(alias).shift(nothing, 3).shape == (0,)
        assert Frequency(alias).horizon(nothing, 3).shape == (0, 3)


@pytest.mark.parametrize("alias", ALIASES)
def test_shift_and_horizon_walk_along_the_grid(alias: str) -> None:
    on_grid, freq = grid(alias, 30), Frequency(alias)
    repeated = on_grid[[5, 0, 5, 12]]
    for steps in (0, 1, 4):
        np.testing.assert_array_equal(freq.shift(repeated, steps), on_grid[[5 + steps, steps, 5 + steps, 12 + steps]])
        assert freq.shift(on_grid[:1], steps).tolist() == [on_grid[steps]]
    future = freq.horizon(repeated, 6)
    np.testing.assert_array_equal(future, on_grid[np.array([[5], [0], [5], [12]]) + np.arange(1, 7)])
    np.testing.assert_array_equal(freq.steps(np.repeat(repeated, 6), future.ravel()), [*range(1, 7)] * 4)


def test_shift_and_horizon_of_integers() -> None:
    assert Frequency(5).shift(np.array([2, -5]), 3).tolist() == [17, 10]
    assert Frequency(5).horizon(np.array([2, -5]), 3).tolist() == [[7, 12, 17], [0, 5, 10]]


def test_without_frequency_the_future_is_not_known() -> None:
    with pytest.raises(FrequencyError, match="futr_df"):
        Frequency(None).shift(np.array([1]), 1)
    with pytest.raises(FrequencyError, match="futr_df"):
        Frequency(None).horizon(np.array([1]), 2)


def test_month_ends_do_not_drift() -> None:
    """January 31 plus one month is the end of February, plus two the end of March."""
    future = to_index(Frequency("ME").horizon(times("2024-01-31"), 3)[0])
    assert [str(t.date()) for t in future] == ["2024-02-29", "2024-03-31", "2024-04-30"]


@pytest.mark.parametrize("alias", ["", "xyz", "M?", "7"])
def test_an_unknown_alias_is_refused_with_examples(alias: str) -> None:
    with pytest.raises(ConfigError, match=r"not a pandas offset alias. Use for instance 'D'"):
        Frequency(alias)


@pytest.mark.parametrize("freq", ["-1D", "0D", "0h", "-2MS", "-15min", 0, -3])
def test_a_step_must_move_forward(freq: str | int) -> None:
    with pytest.raises(ConfigError, match="does not move forward"):
        Frequency(freq)


@pytest.mark.parametrize("alias", ["ns", "1500ns"])
def test_a_step_finer_than_time_is_kept_is_refused(alias: str) -> None:
    with pytest.raises(ConfigError, match="finer than a microsecond"):
        Frequency(alias)


@pytest.mark.parametrize(
    ("freq", "seasons"),
    [
        ("h", (24, 168)),
        ("15min", (96, 672)),
        ("6h", (4, 28)),
        ("7h", (24,)),  # no whole number a day, 24 a week
        ("5h", ()),
        ("24h", (7,)),
        ("D", (7,)),
        ("2D", ()),
        ("7D", (52,)),
        ("W-THU", (52,)),
        ("2W", ()),
        ("B", (5,)),
        ("MS", (12,)),
        ("ME", (12,)),
        ("BME", (12,)),
        ("3MS", (4,)),
        ("5MS", ()),
        ("12MS", ()),
        ("QS-FEB", (4,)),
        ("2QE", (2,)),
        ("4QE", ()),
        ("YS", ()),
        (1, ()),
        (24, ()),
        (None, ()),
    ],
)
def test_seasons(freq: str | int | None, seasons: tuple[int, ...]) -> None:
    assert Frequency(freq).seasons() == seasons


@pytest.mark.parametrize(
    ("step", "features"),
    [
        (15 * HOUR // 60, ("minute", "hour", "day_of_week", "month")),
        (HOUR - 1, ("minute", "hour", "day_of_week", "month")),
        (HOUR, ("hour", "day_of_week", "month")),
        (12 * HOUR, ("hour", "day_of_week", "month")),
        (DAY, ("day_of_week", "day_of_month", "month")),
        (3 * DAY, ("day_of_week", "day_of_month", "month")),  # business days, median of gaps
        (7 * DAY, ("week", "month")),
        (28 * DAY, ("month",)),
        (91 * DAY, ("month",)),
        (365 * DAY, ()),
    ],
)
def test_calendar_features_by_step(step: int, features: tuple[str, ...]) -> None:
    assert calendar_features(step) == features
    assert set(features) <= set(CYCLES)


def test_calendar_codes() -> None:
    when = times("1969-12-31 23:59", "2024-02-29 00:00", "2021-01-01 12:30")  # Wednesday, Thursday, Friday
    expected = {
        "minute": [59, 0, 30],
        "hour": [23, 0, 12],
        "day_of_week": [2, 3, 4],
        "day_of_month": [31, 29, 1],
        "week": [1, 9, 53],  # ISO weeks: the last days of 1969 belong to week 1, new year 2021 to week 53
        "month": [12, 2, 1],
    }
    assert set(expected) == set(CYCLES)
    for feature, codes in expected.items():
        found = calendar_codes(feature, when)
        assert found.dtype == np.int64
        assert found.tolist() == codes
