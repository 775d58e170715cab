"""Adapted forecasts on Spark: those of an `Adapter` in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from aru import Adapter
from aru.errors import ColumnError, ConfigError
from tests.spark.conftest import MARKS
from tests.spark.runs import read_stream, run, write_batches

pytestmark = MARKS
H, IDS = 3, "abcde"
SETTINGS: dict[str, Any] = {"h": H, "freq": "D", "gate": True, "calibration": "online"}
COLUMNS = "unique_id string, ds timestamp_ntz, cutoff timestamp_ntz, m double, `m-lo-80` double, `m-hi-80` double"
START = pd.Timestamp("2024-01-01").as_unit("us")


def observed(day: int, ids: str = IDS) -> pd.DataFrame:
    y = [10 * (1 + ord(i) % 5) + 3 * np.sin(day + ord(i)) + day % 7 for i in ids]
    return pd.DataFrame({"unique_id": list(ids), "ds": START + pd.Timedelta(days=day), "y": y})


def issued(day: int, ids: str = IDS) -> pd.DataFrame:
    """Forecasts from the end of a day: always too low."""
    parts = [observed(day + k, ids).assign(cutoff=START + pd.Timedelta(days=day)) for k in range(1, H + 1)]
    made = pd.concat(parts, ignore_index=True)
    m = made["y"].round(-1) - 5
    columns = {"m": m, "m-lo-80": m - 4, "m-hi-80": m + 4}
    return made.assign(**columns)[["unique_id", "ds", "cutoff", *columns]]


def expected(adapter: Adapter, days: range) -> pd.DataFrame:
    parts = []
    for day in days:
        adapter.update(observed(day))
        parts.append(adapter.adapt(issued(day)))
    return pd.concat(parts).sort_values(["unique_id", "cutoff", "ds"], ignore_index=True)


def test_a_stream_adapts_as_an_adapter_does(spark: Any, tmp_path: Path) -> None:
    """From states that were there before; several days in a batch; rows that cannot be used."""
    from aru.spark import adapt_stream

    alone, begun = Adapter(**SETTINGS), Adapter(**SETTINGS)
    expected(alone, range(8))
    expected(begun, range(8))
    days = [range(8, 11), range(11, 14)]
    bad = pd.concat([observed(9).assign(unique_id=None).iloc[:1], observed(2, "a"), observed(10, "b").assign(y=0.5)])
    again = issued(9, "c").assign(unique_id="z", cutoff=lambda d: d["cutoff"] + pd.Timedelta(hours=1))
    write_batches(tmp_path / "seen", [pd.concat([observed(d) for d in some]) for some in days])
    write_batches(tmp_path / "seen", [bad], begin=2)
    write_batches(tmp_path / "made", [pd.concat([issued(d) for d in some]) for some in days])
    write_batches(tmp_path / "made", [again], begin=2)
    observations = read_stream(spark, tmp_path / "seen")
    run(adapt_stream(observations, read_stream(spark, tmp_path / "made", COLUMNS), begun, shards=3), tmp_path)
    output = spark.read.parquet(str(tmp_path / "output")).toPandas()
    found = output[output["kind"] == "forecast"].sort_values(["unique_id", "cutoff", "ds"], ignore_index=True)
    wanted = expected(alone, range(8, 14))
    pd.testing.assert_frame_equal(found[wanted.columns], wanted, rtol=1e-9, check_dtype=False)
    assert not np.allclose(wanted["m"], pd.concat([issued(d) for d in range(8, 14)])["m"])
    left = output[output["kind"] == "left_out"]
    reasons = left["reason"].str.slice(0, 30).value_counts().to_dict()
    assert reasons["unique_id is missing"] == 1
    assert reasons["arrived too late"] + reasons.get("duplicate", 0) == 1
    assert set(left["unique_id"].dropna()) == {"a", "b", "z"}


def test_a_history_adapts_as_in_cross_validation(spark: Any) -> None:
    from aru.spark import adapt_batch

    made, seen = pd.concat([issued(d) for d in range(12)]), pd.concat([observed(d) for d in range(15)])
    frames = (spark.createDataFrame(f) for f in (made, seen))
    found = adapt_batch(*frames, Adapter(**SETTINGS), shards=2).toPandas()
    keys = ["unique_id", "cutoff", "ds"]
    wanted = Adapter(**SETTINGS).cross_validation(made, seen).sort_values(keys, ignore_index=True)
    found = found.sort_values(keys, ignore_index=True)
    pd.testing.assert_frame_equal(found[wanted.columns], wanted, rtol=1e-9, check_dtype=False)


def test_what_cannot_work_is_refused_before_it_starts(spark: Any) -> None:
    from aru.spark import adapt_batch

    made, seen = spark.createDataFrame(issued(0)), spark.createDataFrame(observed(0))
    with pytest.raises(ConfigError, match="Give Adapter the freq"):
        adapt_batch(made, seen, Adapter(h=H))
    with pytest.raises(ConfigError, match="shards must be"):
        adapt_batch(made, seen, Adapter(**SETTINGS), shards=0)
    with pytest.raises(ColumnError, match="cutoff"):
        adapt_batch(made.drop("cutoff"), seen, Adapter(**SETTINGS))
    with pytest.raises(ColumnError, match="unique_id of forecasts"):
        adapt_batch(made.selectExpr("1 unique_id", "ds", "cutoff", "m"), seen, Adapter(**SETTINGS))
