"""The real files: descriptions say what they hold, and originals and Parquet copies give the same frames."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from aru.datasets import DESCRIPTIONS, load

pytestmark = pytest.mark.data


@pytest.mark.parametrize("name", ["parts", "tourism_monthly", "electricity_10", "m4_hourly", "rossmann"])
def test_the_description_is_true(data_dir: Path, name: str) -> None:
    df, static, about = load(name, data_dir)
    lengths = df.groupby("unique_id").size()
    assert (len(lengths), (lengths.min(), lengths.max())) == (about.series, about.lengths)
    assert {*about.futr_exog_list, *about.hist_exog_list} == set(df.columns) - {"unique_id", "ds", "y"}
    assert set(about.stat_exog_list) == (set() if static is None else set(static.columns) - {"unique_id"})


def test_tourism_in_its_published_form_is_the_copy(data_dir: Path, tmp_path: Path) -> None:
    """Written back as it was published and read again."""
    copy = pd.read_parquet(data_dir / "tourism_monthly" / "data.parquet")
    (tmp_path / "tourism_monthly").mkdir()
    for name, test in zip(DESCRIPTIONS["tourism_monthly"].files, (0, 1), strict=True):
        part = copy[copy["is_test"] == test]
        columns = {}
        for series, rows in part.groupby("unique_id"):
            first = rows["ds"].iloc[0]
            columns[series] = pd.Series([len(rows), first.year, first.month, *rows["y"]])
        pd.DataFrame(columns).to_csv(tmp_path / "tourism_monthly" / name, index=False)
    read = load("tourism_monthly", tmp_path).df
    expected = load("tourism_monthly", data_dir).df.sort_values(["unique_id", "ds"], ignore_index=True)
    pd.testing.assert_frame_equal(read, expected, check_dtype=False)
