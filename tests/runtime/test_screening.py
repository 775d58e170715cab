"""Rows that no series can take in: told apart, and never an error."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aru import Forecaster, Stream
from aru.errors import FrequencyError, ValueRangeError
from aru.runtime.screening import BESIDE, CONFLICTING, REPEATED, WITHOUT_VALUE, repeats
from tests.making import make
from tests.shops import BASE, START, TRAINED, both, rows

HOUR = pd.Timedelta(hours=1)


@pytest.fixture(scope="module")
def trained() -> Forecaster:
    return make(**BASE).fit(both(range(TRAINED)))


def test_equal_rows_leave_one_and_different_ones_none() -> None:
    frame = pd.DataFrame({"unique_id": list("aabbbc"), "ds": 1, "y": [1.0, 1.0, 2.0, 2.0, 3.0, np.nan]})
    found = repeats(frame, ["unique_id", "ds", "y"])
    assert found.tolist() == [None, REPEATED, CONFLICTING, REPEATED, CONFLICTING, None]


def test_odd_rows_are_refused_or_left_out(trained: Forecaster) -> None:
    good = both([TRAINED, TRAINED + 1], "an")
    beside = rows("a", [TRAINED + 2]).assign(ds=lambda d: d["ds"] + HOUR)
    silent = rows("m", [TRAINED, TRAINED + 1]).assign(y=np.nan)
    stream, plain = Stream(trained), Stream(trained)
    with pytest.raises(FrequencyError):
        stream.apply(pd.concat([good, beside]), late="skip")
    with pytest.raises(ValueRangeError):
        stream.apply(pd.concat([good, silent]), late="skip")
    update = stream.apply(pd.concat([good, beside, silent]), late="skip", invalid="skip")
    plain.update(good)
    left = pd.DataFrame(update.result.left_out)
    assert list(zip(left["unique_id"], left["reason"], strict=True)) == [
        ("a", BESIDE), ("m", WITHOUT_VALUE), ("m", WITHOUT_VALUE)
    ]  # fmt: skip
    assert (update.result.applied, update.result.new_series) == (4, ["n"])
    pd.testing.assert_frame_equal(stream.predict(), plain.predict(), check_exact=True)


def test_only_odd_rows_change_nothing(trained: Forecaster) -> None:
    stream = Stream(trained)
    update = stream.apply(rows("m", [3]).assign(y=np.nan), late="skip", invalid="skip")
    assert update.record is None
    assert update.result.left_out["reason"].tolist() == [WITHOUT_VALUE]
    assert stream.series()["unique_id"].tolist() == ["a", "b"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abmn"),
            st.integers(TRAINED - 8, TRAINED + 8),
            st.sampled_from([0, 0, 0, 1, 13]),
            st.sampled_from([1.0, 2.0, np.nan]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_every_row_is_taken_in_or_accounted_for(trained: Forecaster, items: list[tuple[str, int, int, float]]) -> None:
    frame = pd.DataFrame(items, columns=["unique_id", "day", "hour", "y"])
    frame["ds"] = START + pd.to_timedelta(frame["day"], unit="D") + pd.to_timedelta(frame["hour"], unit="h")
    frame = frame[["unique_id", "ds", "y"]]
    reasons = repeats(frame, ["unique_id", "ds", "y"])
    stays = pd.isna(reasons)
    if not stays.any():
        return
    update = Stream(trained).apply(frame[stays], late="skip", invalid="skip")
    left = len(update.result.left_out["ds"]) + len(update.repeated["ds"])
    leading = int(stays.sum()) - left - update.result.applied  # before the first value of a new series
    assert len(update.repeated["ds"]) == update.result.duplicates
    fresh = frame[stays & frame["unique_id"].isin(["m", "n"]) & frame["y"].isna()]
    assert 0 <= leading <= len(fresh)
