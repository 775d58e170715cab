"""What happens to the rows of one shard, without Spark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from aru import Forecaster, Stream
from tests.shops import STATIC, TRAINED, H, both, rows

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'aru-forecast[spark]'")

PLAIN = ["unique_id", "ds", "y"]


def work(stream: Stream, frame: pd.DataFrame, futr: Any = None, **asked: Any) -> dict[str, list[pd.DataFrame]]:
    """The parts of the result by kind."""
    from aru.spark.shard import Asked, take_in

    out: dict[str, list[pd.DataFrame]] = {}
    for kind, values in take_in(
        stream, frame, futr, Asked(**{"level": None, "correctable": 0, "states": False, **asked})
    ):
        out.setdefault(kind, []).append(pd.DataFrame(dict(values)))
    return out


def test_forecasts_come_with_their_cutoff_and_states_on_demand(trained: Forecaster) -> None:
    stream, plain = Stream(trained), Stream(trained)
    new = both([TRAINED, TRAINED + 1], "abn")[PLAIN]
    found = work(stream, new, level=(90.0,), states=True)
    plain.update(new)
    (forecast,), (states,) = found["forecast"], found["state"]
    wanted = plain.predict(["a", "b", "n"], level=[90])
    pd.testing.assert_frame_equal(forecast[wanted.columns], wanted, check_dtype=False)
    assert (forecast["cutoff"] == new["ds"].max()).all()
    with plain._store.reading() as view:
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
    stream = Stream(trained, correctable=2)
    day = both([TRAINED], "ab")[PLAIN]
    work(stream, day, correctable=2)
    assert work(stream, day.assign(y=30.0), correctable=2).keys() == {"forecast"}
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
    wanted = plain.predict(["a", "n"], plan)
    pd.testing.assert_frame_equal(forecast[wanted.columns], wanted, check_dtype=False, rtol=1e-5)


def test_all_columns_are_there_and_text_is_plain() -> None:
    from aru.spark.frames import build

    found = build(["kind", "unique_id", "ds", "aru", "reason"], "forecast", {"unique_id": ["a"], "aru": np.ones(1)})
    assert found.dtypes.astype(str).tolist() == ["object", "object", "object", "float64", "object"]
    assert found.to_numpy().tolist() == [["forecast", "a", None, 1.0, None]]


def test_a_batch_that_is_repeated_starts_from_the_state_before_it(trained: Forecaster) -> None:
    """A worker lives on when Spark runs a batch again: what it remembers of the first attempt must not count."""
    from aru.spark.streaming import StateStore
    from tests.store.test_contract import FakeState, FakeValue

    store, records, about = StateStore(), FakeState(), FakeValue()
    store.attach(records, about, 1)
    stream = Stream(trained, store)
    before = dict(records)
    day = both([TRAINED], "ab")[PLAIN]
    (first,) = work(stream, day)["forecast"]
    records.clear()
    records.update(before)
    store.attach(records, about, 1)
    (second,) = work(stream, day)["forecast"]
    pd.testing.assert_frame_equal(first, second, check_exact=True)
