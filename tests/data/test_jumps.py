"""Rows far ahead of all others in time, or far from the others of a history."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from aru.data.clock import Times, from_index
from aru.data.columns import LARGEST
from aru.data.frequency import DAY, Frequency
from aru.data.jumps import JUMP_DAYS, JUMP_STEPS, Newest, Timeline, refuse_apart, untrained_jump
from aru.data.panel import read_observations, read_panel
from aru.errors import JumpError

DAILY = Frequency("D")
START = pd.Timestamp("2024-01-01")


def moments(*texts: str) -> Times:
    return from_index(pd.DatetimeIndex(texts))


def new_rows(*texts: str) -> Any:
    ids = [f"s{i:04}" for i in range(len(texts))]
    return read_observations(pd.DataFrame({"unique_id": ids, "ds": pd.DatetimeIndex(texts), "y": 1.0}), DAILY, [])


NEWEST = Newest(int(moments("2024-03-01")[0]), JUMP_DAYS * DAY)


def test_a_row_may_lie_ahead_up_to_the_limit() -> None:
    assert not NEWEST.far(new_rows("2024-06-09", "2020-01-01"), DAILY).any()
    assert NEWEST.far(new_rows("2024-06-10"), DAILY).all()
    new = new_rows("2024-06-11", "2024-03-02")  # the second moves the newest time on
    far = NEWEST.far(new, DAILY)
    assert far.tolist() == [True, False]
    error = NEWEST.refusal(new, DAILY, far)
    assert str(error) == (
        "df has 1 rows far beyond 2024-03-02, the newest time of all series: (s0000, 2024-06-11). Times up to "
        "2024-06-10 are taken. Correct them, or pass allow_jump=True if time really went on that far. Nothing was "
        "applied."
    )


def test_wrong_rows_do_not_vouch_for_each_other() -> None:
    assert NEWEST.far(new_rows("2099-01-01", "2099-01-02", "2099-01-03"), DAILY).all()


def test_a_history_may_be_caught_up_with() -> None:
    """Each of its times lies near the one before it."""
    caught_up = pd.date_range("2024-03-02", "2027-12-31").strftime("%Y-%m-%d")
    assert not NEWEST.far(new_rows(*caught_up), DAILY).any()
    far = NEWEST.far(new_rows(*caught_up, "2099-01-01"), DAILY)
    assert far.tolist() == [False] * len(caught_up) + [True]


@pytest.mark.parametrize(("alias", "end"), [("W-FRI", "2024-09-27"), ("MS", "2026-09-01"), ("YS", "2054-01-01")])
def test_long_steps_may_take_long(alias: str, end: str) -> None:
    assert JUMP_STEPS == 30
    freq = Frequency(alias)
    last = NEWEST._replace(time=int(freq.shift(moments(end), -JUMP_STEPS)[0]))
    assert not last.ahead(moments(end), freq).any()
    assert last.ahead(freq.shift(moments(end), 1), freq).all()


def test_integers_may_go_as_far_as_training_went() -> None:
    timeline = Timeline(Frequency(1), None)
    timeline.add(np.zeros(50, np.int64), np.arange(1970, 2020))
    newest = Newest(2019, timeline.jump())
    assert newest.ahead(np.array([2068, 2019, -5]), Frequency(1)).tolist() == [False, False, False]
    assert newest.ahead(np.array([2069, LARGEST]), Frequency(1)).tolist() == [True, True]
    assert untrained_jump(3, False, 50) == 150
    assert not Newest(5, untrained_jump(None, False, 50)).ahead(np.array([LARGEST]), Frequency(None)).any()


def test_gaps_of_training_widen_the_limit() -> None:
    """Series of the shops in Rossmann's data pause for half a year, those of Walmart for 882 days."""
    days = np.concatenate([np.arange(100), np.arange(982, 1100)]) * DAY
    timeline = Timeline(DAILY, DAILY.clock)
    timeline.add(np.zeros(len(days), np.int64), days)
    assert timeline.jump() == 2 * 883 * DAY


def history(**ends: pd.Timestamp) -> pd.DataFrame:
    """Two series of 60 days, one of them with a pause that the other fills, and single rows of others."""
    days = pd.date_range(START, periods=400)
    parts = [pd.DataFrame({"unique_id": "a", "ds": days, "y": 1.0})]
    parts.append(pd.DataFrame({"unique_id": "b", "ds": days[[*range(50), *range(350, 400)]], "y": 1.0}))
    parts += [pd.DataFrame({"unique_id": [name], "ds": [time], "y": 1.0}) for name, time in ends.items()]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("wrong", ["2099-01-01", "2261-01-01", "1970-01-01"])
def test_single_rows_far_from_a_history_are_named(wrong: str) -> None:
    refuse_apart(read_panel(history(), DAILY), DAILY, "df")
    for more in ({"c": wrong}, {"c": wrong, "a": wrong}):
        panel = read_panel(history(**{k: pd.Timestamp(v) for k, v in more.items()}), DAILY, max_gap=5)
        with pytest.raises(JumpError, match=rf"{len(more)} rows far from all others.*\(c, {wrong}\).*allow_jump=True"):
            refuse_apart(panel, DAILY, "df")


def test_a_long_break_in_the_middle_of_a_history_is_no_mistake() -> None:
    days = pd.date_range(START, periods=60)
    both = pd.DataFrame({"unique_id": "a", "ds": days.append(days + pd.Timedelta(days=2000)), "y": 1.0})
    refuse_apart(read_panel(both, DAILY), DAILY, "df")


def test_without_any_series_the_rows_are_a_history() -> None:
    times = pd.date_range(START, periods=30).strftime("%Y-%m-%d")
    nobody = Newest(None, 0)
    assert nobody.far(new_rows(*times, "2099-01-01"), DAILY).tolist() == [False] * 30 + [True]
    assert not nobody.far(new_rows("2024-01-01", "2099-01-01"), DAILY).any()  # which of the two is wrong?
    assert not nobody.ahead(moments("2099-01-01"), DAILY).any()
