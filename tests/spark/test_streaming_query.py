"""A stream on Spark: the forecasts and states of a `Stream` in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from aru import Forecaster, Stream
from aru.errors import ColumnError, ConfigError, FutureError, StorageError
from tests.making import make
from tests.shops import BASE, STATIC, TRAINED, both, rows
from tests.spark.conftest import IDS, MARKS
from tests.spark.runs import assert_states, expected, read_stream, result, run, write_batches

pytestmark = MARKS
PLAIN = ["unique_id", "ds", "y"]


def batches() -> list[pd.DataFrame]:
    """Known and new series, several rows at once, gaps, late rows, repetitions, rows in any order."""
    return [
        both(range(TRAINED, TRAINED + 3), IDS)[PLAIN].sample(frac=1, random_state=0),
        pd.concat([both([TRAINED + 3], "abcn"), rows("d", [TRAINED + 9])])[PLAIN],
        pd.concat([both([TRAINED + 4], "abn"), rows("c", [TRAINED + 3]), rows("b", [2])])[PLAIN],
        both(range(TRAINED + 3, TRAINED + 6), "eno")[PLAIN],
    ]


def test_forecasts_and_states_are_those_of_a_stream(spark: Any, saved: Path, tmp_path: Path) -> None:
    from aru.spark import forecast_stream, read_checkpoint

    write_batches(tmp_path / "input", batches())
    run(forecast_stream(read_stream(spark, tmp_path / "input"), saved, shards=4, level=[80]), tmp_path)
    stream = Stream(saved)
    wanted = expected(stream, batches(), [80])
    found = result(spark, tmp_path, "forecast")
    assert list(found.columns) == ["unique_id", "ds", "cutoff", *wanted.columns[2:-1]]
    pd.testing.assert_frame_equal(found, wanted[found.columns], rtol=1e-5, check_dtype=False)
    left = result(spark, tmp_path, "left_out")
    assert left["reason"].value_counts().to_dict() == {"duplicate": 3, "arrived too late": 1}
    assert set(zip(left["unique_id"], left["reason"], strict=True)) == {
        ("b", "arrived too late"), ("c", "duplicate"), ("n", "duplicate"),
    }  # fmt: skip
    assert_states(stream, read_checkpoint(spark, tmp_path / "checkpoint", saved).toPandas())


def test_bad_rows_go_aside_with_their_reason_and_the_query_goes_on(spark: Any, saved: Path, tmp_path: Path) -> None:
    from aru.spark import forecast_stream, read_checkpoint

    good = [both([TRAINED], IDS)[PLAIN], both([TRAINED + 1], IDS)[PLAIN]]
    good = [batch.astype({"ds": "datetime64[us]"}) for batch in good]
    day = rows("a", [TRAINED + 1])[PLAIN].astype({"ds": "datetime64[us]"})
    bad = pd.concat(
        [
            day.assign(unique_id=None),
            day.assign(ds=day["ds"].where([False])),
            day.assign(ds=np.datetime64("1500-01-01", "us")),
            day.assign(y=-np.inf),
            day.assign(ds=day["ds"] + pd.Timedelta(hours=1)),
            day.assign(unique_id="m", y=np.nan),
            *(day.assign(unique_id="k", y=y) for y in (1.0, 2.0)),
            good[0].iloc[:1],
        ]
    )
    write_batches(tmp_path / "input", [pd.concat([good[0], bad]), good[1]])
    query = run(forecast_stream(read_stream(spark, tmp_path / "input"), saved, shards=3), tmp_path)
    assert query.exception() is None
    stream = Stream(saved)
    wanted = expected(stream, good, [])
    found = result(spark, tmp_path, "forecast")
    pd.testing.assert_frame_equal(found, wanted[found.columns], rtol=1e-5, check_dtype=False)
    assert_states(stream, read_checkpoint(spark, tmp_path / "checkpoint", saved).toPandas())
    left = result(spark, tmp_path, "left_out")
    assert sorted(left["reason"]) == [
        "a new series must begin with a value",
        "does not lie on the grid of its series",
        "ds is missing",
        "ds lies outside the years 1678 to 2261: 1500-01-01 00:00:00",
        "duplicate",
        "several rows for this time came at once",
        "several rows for this time came at once",
        "unique_id is missing",
        "y is infinite",
    ]
    assert left.set_index("reason")["unique_id"]["y is infinite"] == "a"


def test_covariates_static_and_future_ones(spark: Any, rich: Forecaster, tmp_path: Path) -> None:
    from aru.spark import forecast_stream

    columns = "unique_id string, ds date, y double, promo string, temp double, kind string"
    new = both([TRAINED, TRAINED + 1], "abno").merge(STATIC)
    plan = both(range(TRAINED - 1, TRAINED + 9), "abn")[["unique_id", "ds", "promo"]]
    folder = tmp_path / "input"
    folder.mkdir()
    new.assign(ds=new["ds"].dt.date).to_parquet(folder / "0.parquet")
    futr = spark.createDataFrame(plan).selectExpr("unique_id", "cast(ds as date) ds", "promo")
    run(forecast_stream(read_stream(spark, folder, columns), rich, shards=2, level=[90], futr_df=futr), tmp_path)
    stream = Stream(rich)
    stream.update(new, STATIC)
    wanted = stream.predict(plan, [90], ["a", "b", "n"])
    found = result(spark, tmp_path, "forecast")
    pd.testing.assert_frame_equal(found[wanted.columns], wanted, rtol=1e-5, check_dtype=False)
    assert result(spark, tmp_path, "no_forecast")["unique_id"].tolist() == ["o"]


def test_what_cannot_work_is_refused_before_it_starts(spark: Any, saved: Path, rich: Forecaster) -> None:
    from aru.spark import forecast_batch, forecast_stream

    frame = spark.createDataFrame(rows("a", [TRAINED])[PLAIN])
    with pytest.raises(ColumnError, match="observations has no column 'y'"):
        forecast_stream(frame.drop("y"), saved)
    with pytest.raises(ColumnError, match="unique_id of observations has type double, but must be string"):
        forecast_stream(frame.withColumn("unique_id", frame["y"]), saved)
    with pytest.raises(ColumnError, match="'promo'"):
        forecast_stream(frame, rich)
    with pytest.raises(
        FutureError, match=r"need unique_id, ds, promo of the next 3 steps of each series\. Give futr_df"
    ):
        forecast_batch(spark.createDataFrame(rows("a", [TRAINED]).assign(kind="x")), rich)
    with pytest.raises(ConfigError, match="shards must be"):
        forecast_batch(frame, saved, shards=0)
    with pytest.raises(ConfigError, match="level must hold"):
        forecast_batch(frame, saved, level=[101])


def test_states_of_another_model_are_refused(spark: Any, saved: Path, trained: Forecaster, tmp_path: Path) -> None:
    from aru.spark import forecast_stream, read_checkpoint, read_export

    other = make(**BASE, random_seed=1).fit(both(range(TRAINED), IDS))
    Stream(other).export(tmp_path / "other.parquet")
    with pytest.raises(StorageError, match="another model"):
        read_export(spark, tmp_path / "other.parquet", saved)
    write_batches(tmp_path / "input", [both([TRAINED], "a")[PLAIN]])
    run(forecast_stream(read_stream(spark, tmp_path / "input"), saved, shards=2), tmp_path)
    with pytest.raises(StorageError, match="another model"):
        read_checkpoint(spark, tmp_path / "checkpoint", other)
    write_batches(tmp_path / "input", [both([TRAINED + 1], "a")[PLAIN]], begin=1)
    with pytest.raises(Exception, match="was written by another model"):
        run(forecast_stream(read_stream(spark, tmp_path / "input"), other, shards=2), tmp_path)
    with pytest.raises(Exception, match="The checkpoint has shards=2, here it is 1"):
        run(forecast_stream(read_stream(spark, tmp_path / "input"), saved, shards=1), tmp_path)
