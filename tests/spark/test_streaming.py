"""A stream on Spark: the forecasts and states of a `Stream` in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from aru import Stream
from tests.shops import TRAINED, both, rows
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
