"""Rows that are taken back: afterwards all is as if they had never come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from aru import Forecaster, Stream
from aru.errors import InputError, UnknownSeriesError
from tests.making import flat, make
from tests.shops import BASE, START, TRAINED, rows

pytestmark = pytest.mark.usefixtures("in_torch")


def plain(uid: str, days: Any) -> pd.DataFrame:
    return rows(uid, days)[["unique_id", "ds", "y"]]


@pytest.fixture(scope="module", params=[{}, {"gate": True, "calibration": "online"}], ids=["plain", "followed"])
def model(request: pytest.FixtureRequest, in_torch: None) -> Forecaster:
    df = pd.concat([plain(uid, range(TRAINED)) for uid in "ab"])
    return make(**BASE, **request.param).fit(df)


def day(number: int) -> pd.Timestamp:
    return START + pd.Timedelta(days=number)


def states(stream: Stream, ids: list[str]) -> dict[str, Any]:
    with stream.store.reading() as view:
        blobs = [blob for blob in view.get(ids) if blob is not None]
    return flat(stream.runtime.decode(blobs, ids, stream.correctable_steps))


def assert_same(one: Stream, other: Stream, ids: list[str]) -> None:
    ours, theirs = states(one, ids), states(other, ids)
    for name, value in ours.items():
        np.testing.assert_allclose(value.numpy(), theirs[name].numpy(), rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("kept", [0, 1, 4, 5])
def test_what_was_taken_back_had_never_come(kept: int, model: Forecaster) -> None:
    stream, other = (Stream(model, correctable_steps=5) for _ in range(2))
    new = [TRAINED + i for i in range(7)]
    for days in (new[:2], new[2:3], new[3:]):
        stream.update(plain("a", days))
    other.update(plain("a", new[: 2 + kept]))
    before = stream.predict(ids=["b"])
    if 2 + kept < len(new):
        assert stream.rewind("a", day(new[2 + kept])) == len(new) - 2 - kept
    # The anchors differ in how much they have taken in; what comes after is the same.
    pd.testing.assert_frame_equal(stream.predict(ids=["a"]), other.predict(ids=["a"]), rtol=1e-6)
    assert stream.series().equals(other.series())
    pd.testing.assert_frame_equal(stream.predict(ids=["b"]), before)
    more = plain("a", [*new[2 + kept :], new[-1] + 1])
    assert stream.update(more).applied == other.update(more).applied == len(more)
    assert_same(stream, other, ["a"])


def test_gaps_that_were_filled_for_a_wrong_row_go_with_it(model: Forecaster) -> None:
    stream, other = (Stream(model, correctable_steps=5) for _ in range(2))
    for one in (stream, other):
        one.update(plain("a", [TRAINED]))
    assert stream.update(plain("a", [TRAINED + 3])).gaps_filled == 2
    assert stream.rewind(["a"], str(day(TRAINED + 3).date())) == 3
    assert_same(stream, other, ["a"])
    assert stream.update(plain("a", [TRAINED + 1])).applied == 1


def test_what_cannot_be_taken_back_is_named_and_nothing_changes(model: Forecaster) -> None:
    stream = Stream(model, correctable_steps=2)
    stream.update(pd.concat([plain(uid, range(TRAINED, TRAINED + 3)) for uid in "an"]))
    before = states(stream, ["a", "n"])
    last, first = day(TRAINED + 2).date(), day(TRAINED).date()
    for ids, time, message in (
        (
            ["a", "n"],
            day(TRAINED),
            rf"2 series keep only the latest 2 rows.*right after \(a, {first}\), \(n, {first}\)",
        ),
        (["b", "a"], day(TRAINED + 2), r"1 series have no rows at or after .*, their latest are \(b, 2024-01-20\)"),
        ("a", day(TRAINED + 3), rf"their latest are \(a, {last}\)"),
    ):
        with pytest.raises(InputError, match=message):
            stream.rewind(ids, time)
    with pytest.raises(UnknownSeriesError, match="x"):
        stream.rewind("x", day(TRAINED))
    with pytest.raises(InputError, match=r"before.* timestamps but|holds integers"):
        stream.rewind("a", 7)
    after = states(stream, ["a", "n"])
    assert all(after[name].equal(value) for name, value in before.items())
    with pytest.raises(InputError, match=r"keeps no recent rows.*correctable_steps=0"):
        Stream(model).rewind("a", day(TRAINED - 1))


def test_a_series_is_not_taken_back_to_nothing(model: Forecaster) -> None:
    stream = Stream(model, correctable_steps=4)
    stream.update(plain("n", [1, 2]))
    with pytest.raises(InputError, match=r"1 series have no value before 2024-01-02, they begin at \(n, 2024-01-02\)"):
        stream.rewind("n", day(1))
    assert stream.rewind("n", day(2)) == 1
