"""What happens to the rows of one shard, without Spark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from aru import Forecaster, Stream
from aru.errors import StorageError
from tests.shops import START, STATIC, TRAINED, H, both, rows
from tests.spark.conftest import IDS
from tests.spark.fakes import FakeMapState, FakeValueState

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'aru-forecast[spark]'")

PLAIN = ["unique_id", "ds", "y"]


def work(stream: Stream, frame: pd.DataFrame, futr: Any = None, **asked: Any) -> dict[str, list[pd.DataFrame]]:
    """The parts of the result by kind."""
    from aru.spark.shard import ShardOptions, forecast_shard

    out: dict[str, list[pd.DataFrame]] = {}
    options = ShardOptions(**{"level": None, "correctable_steps": 0, "states": False, "allow_jump": False, **asked})
    for kind, values in forecast_shard(stream, frame, futr, options):
        out.setdefault(kind, []).append(pd.DataFrame(dict(values)))
    return out


def test_forecasts_come_with_their_cutoff_and_states_on_demand(trained: Forecaster) -> None:
    stream, plain = Stream(trained), Stream(trained)
    new = both([TRAINED, TRAINED + 1], "abn")[PLAIN]
    found = work(stream, new, level=(90.0,), states=True)
    plain.update(new)
    (forecast,), (states,) = found["forecast"], found["state"]
    wanted = plain.predict(level=[90], ids=["a", "b", "n"])
    pd.testing.assert_frame_equal(forecast[wanted.columns], wanted, check_dtype=False)
    assert (forecast["cutoff"] == new["ds"].max()).all()
    with plain.store.reading() as view:
        assert states["record"].tolist() == view.get(states["unique_id"].tolist())
    assert set(found) == {"forecast", "state"}


def test_rows_left_out(trained: Forecaster) -> None:
    stream = Stream(trained)
    day = both([TRAINED], "ab")[PLAIN]
    found = work(stream, pd.concat([day, day, rows("c", [TRAINED])[PLAIN], rows("c", [TRAINED])[PLAIN].assign(y=0.0)]))
    (left,) = found["left_out"]
    assert left["reason"].tolist() == ["duplicate"] * 2 + ["several rows for this time came at once"] * 2
    again = work(stream, pd.concat([day.iloc[:1], day.iloc[1:].assign(y=1.0)]))
    assert set(again) == {"left_out"}
    assert sorted(pd.concat(again["left_out"])["reason"]) == ["another value was consumed for this time", "duplicate"]
    assert work(stream, pd.concat([day, day.assign(y=0.0)])).keys() == {"left_out"}


def test_corrections(trained: Forecaster) -> None:
    stream = Stream(trained, correctable_steps=2)
    day = both([TRAINED], "ab")[PLAIN]
    work(stream, day, correctable_steps=2)
    assert work(stream, day.assign(y=30.0), correctable_steps=2).keys() == {"forecast"}
    wanted = Stream(trained)
    wanted.update(day.assign(y=30.0))
    pd.testing.assert_frame_equal(stream.predict(), wanted.predict(), rtol=1e-5)


def test_series_without_a_future_do_not_hold_up_the_others(rich: Forecaster) -> None:
    stream, plain = Stream(rich), Stream(rich)
    new = both([TRAINED], "abno").merge(STATIC)
    plan = both(range(TRAINED + 1, TRAINED + 1 + H), "abn")[["unique_id", "ds", "promo"]]
    short = plan.drop(plan[plan["unique_id"] == "b"].index[-1])
    found = work(stream, new, short)
    lost = pd.concat(found["no_forecast"]).set_index("unique_id")["reason"]
    assert lost["o"] == "futr_df has no rows of this series"
    assert lost["b"].startswith("futr_df has no row for 1 of 3 future steps")
    plain.update(new, STATIC)
    forecast = pd.concat(found["forecast"]).sort_values(["unique_id", "ds"], ignore_index=True)
    wanted = plain.predict(plan, ids=["a", "n"])
    pd.testing.assert_frame_equal(forecast[wanted.columns], wanted, check_dtype=False, rtol=1e-5)


def test_all_columns_are_there_and_text_is_plain() -> None:
    from aru.spark.dataframes import build

    found = build(["kind", "unique_id", "ds", "aru", "reason"], "forecast", {"unique_id": ["a"], "aru": np.ones(1)})
    assert found.dtypes.astype(str).tolist() == ["object", "object", "object", "float64", "object"]
    assert found.to_numpy().tolist() == [["forecast", "a", None, 1.0, None]]
    records = [b"\x01\x00", b"\x00\x00"]
    assert build(["record"], "state", {"unique_id": ["a", "b"], "record": records})["record"].tolist() == records


def test_a_batch_that_is_repeated_starts_from_the_state_before_it(trained: Forecaster) -> None:
    """A worker lives on when Spark runs a batch again: what it remembers of the first attempt must not count."""
    from aru.spark.state_store import StateStore

    store, base, recent = StateStore(), FakeMapState(), FakeMapState()
    about, counts = FakeValueState(), FakeValueState()
    store.attach(base, recent, about, counts, 1)
    stream = Stream(trained, store)
    before = dict(base), dict(recent), counts.value
    day = both([TRAINED], "ab")[PLAIN]
    (first,) = work(stream, day)["forecast"]
    assert (base, recent) != before[:2]
    for state, old in zip((base, recent), before[:2], strict=True):
        state.clear()
        state.update(old)
    counts.value = before[2]
    store.attach(base, recent, about, counts, 1)
    (second,) = work(stream, day)["forecast"]
    pd.testing.assert_frame_equal(first, second, check_exact=True)


def test_records_that_the_whole_panel_shares_are_refused() -> None:
    """A shard sees its own series only: what it learned would not be what all series have in common."""
    from aru.spark.state_store import StateStore

    store, base, recent = StateStore(), FakeMapState(), FakeMapState()
    store.attach(base, recent, FakeValueState(), FakeValueState(), 1)
    with store.reading() as view:
        assert view.get(["shared"], "panel") == [None]
        assert view.keys("panel") == []
    with pytest.raises(StorageError, match="records that the whole panel shares"):
        store.apply({("series", "a"): b"1", ("panel", "shared"): b"2"}, None, None)
    assert base == recent == {}


def test_no_bit_of_a_forecast_depends_on_the_number_of_shards(trained: Forecaster) -> None:
    new = both(range(TRAINED + 3), IDS + "n")[PLAIN]
    ((whole,), (states,)) = work(Stream(trained.without_series()), new, level=(90.0,), states=True).values()
    for shards in ([3, 8], [1, 2, 3, 5], [7, 4]):
        parts: dict[str, list[pd.DataFrame]] = {"forecast": [], "state": []}
        for ids in np.split(np.array(list(IDS + "n")), np.cumsum(shards)[:-1]):
            some = new[new["unique_id"].isin(ids)]
            for kind, found in work(Stream(trained.without_series()), some, level=(90.0,), states=True).items():
                parts[kind] += found
        pd.testing.assert_frame_equal(pd.concat(parts["forecast"], ignore_index=True), whole, check_exact=True)
        assert pd.concat(parts["state"], ignore_index=True).equals(states)


def test_rows_far_ahead_are_left_out_unless_allowed(trained: Forecaster) -> None:
    day = both([TRAINED], "ab")[PLAIN]
    far = day.assign(ds=[pd.Timestamp("2099-01-01"), START + pd.Timedelta(days=TRAINED)])
    (left,) = work(Stream(trained), far)["left_out"]
    assert left[["unique_id", "reason"]].to_numpy().tolist() == [["a", "lies too far ahead of all series"]]
    assert "left_out" not in work(Stream(trained), far, allow_jump=True)
