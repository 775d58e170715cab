"""Batches on Spark: the forecasts, states and backtests of one process; states that move between the two."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aru import Forecaster, Stream
from aru.data.naming import Names
from aru.errors import AruWarning, ConfigError
from tests.pretrained.test_effects import FUTURE, PANEL, PAST
from tests.shops import STATIC, TRAINED, H, both, rows
from tests.spark.conftest import IDS, MARKS
from tests.spark.runs import assert_states, expected, read_stream, result, run, write_batches

pytestmark = MARKS
PLAIN = ["unique_id", "ds", "y"]


def sort(frame: Any) -> pd.DataFrame:
    found = frame.toPandas()
    return found.sort_values([c for c in ("unique_id", "cutoff", "ds") if c in found], ignore_index=True)


def test_history_to_forecasts_and_states_and_back(spark: Any, trained: Forecaster, saved: Path, tmp_path: Path) -> None:
    from aru.spark import forecast_batch, forecast_stream, read_checkpoint, read_export, write_export

    history = both(range(TRAINED + 4), IDS + "n")[PLAIN]
    infinite = rows("a", [TRAINED + 9])[PLAIN].assign(y=float("inf"))
    batch = forecast_batch(spark.createDataFrame(pd.concat([history, infinite])), saved, shards=3, level=[90])
    batch = batch._replace(rows=batch.rows.cache())
    stream = Stream(trained.without_series())
    stream.update(history)
    wanted = stream.predict(level=[90])
    pd.testing.assert_frame_equal(sort(batch.forecasts)[wanted.columns], wanted, rtol=1e-5, check_dtype=False)
    assert batch.left_out.toPandas()["reason"].tolist() == ["y is infinite"]
    assert_states(stream, batch.states.toPandas())

    # From Spark into a store, and from a store into a stream on Spark.
    assert write_export(batch.states, saved, tmp_path / "states.parquet") == len(IDS) + 1
    moved = Stream(trained.without_series(), tmp_path / "state.db")
    moved.import_(tmp_path / "states.parquet")
    next_day = both([TRAINED + 4], IDS)[PLAIN]
    moved.update(next_day)
    moved.export(tmp_path / "moved.parquet")
    last_day = both([TRAINED + 5], IDS)[PLAIN]
    write_batches(tmp_path / "input", [last_day])
    states = read_export(spark, tmp_path / "moved.parquet", saved)
    run(forecast_stream(read_stream(spark, tmp_path / "input"), saved, 4, states_df=states), tmp_path)
    stream.update(next_day)
    pd.testing.assert_frame_equal(
        result(spark, tmp_path, "forecast")[[*PLAIN[:2], "aru"]],
        expected(stream, [last_day], [])[[*PLAIN[:2], "aru"]],
        rtol=1e-5,
        check_dtype=False,
    )
    assert_states(stream, read_checkpoint(spark, tmp_path / "checkpoint", saved).toPandas())


def test_future_rows_in_a_batch(spark: Any, rich: Forecaster) -> None:
    from aru.spark import forecast_batch

    history = both(range(TRAINED), "abn").merge(STATIC)
    plan = both(range(TRAINED, TRAINED + H), "ab")[["unique_id", "ds", "promo"]]
    batch = forecast_batch(spark.createDataFrame(history), rich, shards=2, futr_df=spark.createDataFrame(plan))
    stream = Stream(rich.without_series())
    stream.update(history, STATIC)
    wanted = stream.predict(plan, ids=["a", "b"])
    pd.testing.assert_frame_equal(sort(batch.forecasts)[wanted.columns], wanted, rtol=1e-5, check_dtype=False)
    assert batch.left_out.toPandas()[["kind", "unique_id"]].to_numpy().tolist() == [["no_forecast", "n"]]


def test_backtest(spark: Any, trained: Forecaster) -> None:
    from aru.spark import backtest_batch

    later = pd.concat([both(range(TRAINED, TRAINED + 20), IDS), rows("short", [TRAINED])])[PLAIN]
    named = copy.copy(trained)  # on Spark columns have the usual names, whatever the frames of training had
    assert named.trained is not None
    named.trained = named.trained.called(Names("shop", "day", "sales"))
    found = backtest_batch(spark.createDataFrame(later), named, shards=3, n_windows=2, step_size=4, level=[80])
    with pytest.warns(AruWarning, match="1 of 11 series are too short for 2 windows: short"):
        wanted = trained.cross_validation(later, n_windows=2, step_size=4, level=[80])
    pd.testing.assert_frame_equal(sort(found)[wanted.columns], wanted, rtol=1e-5, check_dtype=False)


def test_a_pretrained_model(spark: Any, tmp_path: Path) -> None:
    """In a batch, in a backtest and in a stream it gives what one process gives."""
    from aru.spark import backtest_batch, forecast_batch, forecast_stream, read_checkpoint

    model = Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu")
    history = both(range(60), IDS)[PLAIN]
    batch = forecast_batch(spark.createDataFrame(history), model, shards=3, level=[90])
    stream = Stream(model)
    stream.update(history)
    wanted = stream.predict(level=[90])
    pd.testing.assert_frame_equal(sort(batch.forecasts)[wanted.columns], wanted, rtol=1e-5, check_dtype=False)
    assert_states(stream, batch.states.toPandas())
    with pytest.raises(ConfigError, match="pretrained models that learn"):
        backtest_batch(spark.createDataFrame(history), model, shards=3, n_windows=2)
    model = Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu", hindsight=False)
    found = backtest_batch(spark.createDataFrame(history), model, shards=3, n_windows=2)
    wanted = model.cross_validation(history, n_windows=2)
    pd.testing.assert_frame_equal(sort(found)[wanted.columns], wanted, rtol=1e-5, check_dtype=False)

    batches, twin = [history, both([60], IDS)[PLAIN]], Stream(model)
    write_batches(tmp_path / "input", batches)
    run(forecast_stream(read_stream(spark, tmp_path / "input"), model, shards=2), tmp_path)
    wanted = expected(twin, batches, [])[[*PLAIN[:2], "aru"]]
    found = result(spark, tmp_path, "forecast")[wanted.columns]
    pd.testing.assert_frame_equal(found, wanted, rtol=1e-5, check_dtype=False)
    assert_states(twin, read_checkpoint(spark, tmp_path / "checkpoint", model).toPandas())


def test_what_series_have_in_common_is_learned_from_the_states_of_a_stream(spark: Any, tmp_path: Path) -> None:
    """A query that is started again on its checkpoint forecasts with it, as one process would."""
    from aru.spark import forecast_stream, learn_model, read_checkpoint, shipping

    model = Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu")
    batches = [both(range(200), IDS)[PLAIN], both([200], IDS)[PLAIN]]
    write_batches(tmp_path / "input", batches[:1])
    run(forecast_stream(read_stream(spark, tmp_path / "input"), model, shards=2), tmp_path)
    learned = learn_model(read_checkpoint(spark, tmp_path / "checkpoint", model), model)
    stream = Stream(model)
    stream.update(batches[0])
    ours, theirs = (runtime.engine.common.effects for runtime in (stream.runtime, learned.runtime))
    torch.testing.assert_close(theirs.theta, ours.theta)
    assert (learned.runtime.epoch, model.runtime.epoch) == (1, None)

    write_batches(tmp_path / "input", batches[1:], begin=1)
    run(forecast_stream(read_stream(spark, tmp_path / "input"), learned, shards=2), tmp_path)
    frozen, alone = (Stream(shipping.unpack(shipping.pack(m, tmp_path / n))) for m, n in ((learned, "l"), (model, "m")))
    wanted, other = (expected(one, batches, []).query("cutoff == cutoff.max()") for one in (frozen, alone))
    found = result(spark, tmp_path, "forecast").query("cutoff == cutoff.max()")
    keys = ["unique_id", "ds"]
    found, wanted, other = (f.sort_values(keys, ignore_index=True)[[*keys, "aru"]] for f in (found, wanted, other))
    pd.testing.assert_frame_equal(found, wanted, rtol=1e-5, check_dtype=False)
    assert not np.allclose(found["aru"], other["aru"], rtol=1e-3)
    assert_states(stream_of(model, batches), read_checkpoint(spark, tmp_path / "checkpoint", learned).toPandas())


def stream_of(model: Forecaster, batches: list[pd.DataFrame]) -> Stream:
    stream = Stream(model)
    for batch in batches:
        stream.update(batch)
    return stream


def test_a_pretrained_model_with_covariates(spark: Any, tmp_path: Path) -> None:
    """The driver learns from the sample that one process would learn from; shards learn about their series."""
    from aru.spark import backtest_batch, forecast_batch, forecast_stream, learn_model, read_checkpoint, read_export

    columns = {"futr_exog_list": ["promo", "kind"], "hist_exog_list": ["noise"], "stat_exog_list": ["region"]}
    model = Forecaster.from_pretrained("nano", h=14, freq="D", accelerator="cpu", **columns)
    static = pd.DataFrame({"unique_id": PANEL["unique_id"].unique(), "region": ["north", "south"] * 10})
    names = ["unique_id", "ds", "y", "promo", "kind", "noise"]
    past, futr = PAST[names], FUTURE[["unique_id", "ds", "promo", "kind"]]
    stream = Stream(model)
    stream.update(past, static)
    wanted = stream.predict(futr, level=[90])
    wrong = past.tail(1).assign(y=float("inf"), unique_id="odd", region="north")
    history = spark.createDataFrame(pd.concat([past.merge(static), wrong]))
    batch = forecast_batch(history, model, 3, [90], futr_df=spark.createDataFrame(futr))
    batch = batch._replace(rows=batch.rows.cache())
    pd.testing.assert_frame_equal(sort(batch.forecasts)[wanted.columns], wanted, rtol=1e-5, check_dtype=False)
    assert_states(stream, batch.states.toPandas())
    learned = learn_model(history, model)
    ours, theirs = (runtime.engine.common.effects for runtime in (stream.runtime, learned.runtime))
    for name in ("mean", "spread", "noise", "unit"):
        torch.testing.assert_close(getattr(theirs, name), getattr(ours, name), rtol=1e-9, atol=1e-12)

    with pytest.raises(ConfigError, match="backtest on Spark"):
        backtest_batch(history, model, 3)
    days = "unique_id string, ds timestamp_ntz, y double, promo long, kind string, noise double, region string"
    next_day = PANEL[PANEL["ds"] == PAST["ds"].max() + pd.Timedelta(days=1)]
    write_batches(tmp_path / "input", [next_day[names].merge(static)])
    more = {"futr_df": spark.createDataFrame(PANEL[["unique_id", "ds", "promo", "kind"]])}
    source = read_stream(spark, tmp_path / "input", days)
    with pytest.raises(ConfigError, match="cannot find out how the covariates"):
        forecast_stream(source, model, 2, **more)
    stream.export(tmp_path / "states.parquet")
    states = read_export(spark, tmp_path / "states.parquet", learned)
    again = learn_model(states, learned).runtime.engine.common.effects
    for name in ("mean", "spread", "noise", "unit"):
        torch.testing.assert_close(getattr(again, name), getattr(ours, name), rtol=1e-9, atol=1e-12)
    with pytest.raises(ConfigError, match="cannot find out how the covariates"):
        learn_model(states, model)
    run(forecast_stream(source, learned, 2, states_df=states, **more), tmp_path)
    stream.update(next_day)
    assert_states(stream, read_checkpoint(spark, tmp_path / "checkpoint", learned).toPandas())
    found = result(spark, tmp_path, "no_forecast")  # the last of the next 14 days is not known
    assert sorted(found["unique_id"]) == stream.keys()
