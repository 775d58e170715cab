"""Types of the columns of CSV and Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from aru.cli import table_files
from tests.cli.running import fails, sales, write


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["007", "12"], ["007", "12"]),
        (["7", "-12", "0"], [7, -12, 0]),
        (["1.0", "2"], ["1.0", "2"]),
        (["1e5", "2"], ["1e5", "2"]),
        (["NA", "null"], ["NA", "null"]),
        (["99999999999999999999", "1"], ["99999999999999999999", "1"]),
        (["True", "False"], ["True", "False"]),
        (["Zürich", "東京"], ["Zürich", "東京"]),
    ],
)
def test_ids_of_csv_files(cells: list[str], expected: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    path.write_text("unique_id,ds,y\n" + "".join(f"{c},2024-01-01,1\n" for c in cells), encoding="utf-8-sig")
    assert table_files.read_data(path, table_files.TableFormat())["unique_id"].tolist() == expected
    again = write(table_files.read_data(path, table_files.TableFormat()), tmp_path / "again.csv")
    assert table_files.read_data(again, table_files.TableFormat())["unique_id"].tolist() == expected
    text = table_files.read_data(path, table_files.TableFormat().like(str))
    assert text["unique_id"].tolist() == cells


def test_ids_of_parquet_files_keep_their_type(tmp_path: Path) -> None:
    path = write(sales(ids=["1", "2"]), tmp_path / "text.parquet")
    assert table_files.read_data(path, table_files.TableFormat())["unique_id"].iloc[0] == "1"
    assert table_files.read_data(path, table_files.TableFormat().like(int))["unique_id"].iloc[0] == 1
    path = write(sales(ids=["1", "2"]).astype({"unique_id": int}), tmp_path / "numbers.parquet")
    assert table_files.read_data(path, table_files.TableFormat())["unique_id"].iloc[0] == 1
    assert table_files.read_data(path, table_files.TableFormat().like(str))["unique_id"].iloc[0] == "1"
    sales().set_index(["unique_id", "ds"]).to_parquet(tmp_path / "index.parquet")
    assert len(table_files.read_data(tmp_path / "index.parquet", table_files.TableFormat())) == 72


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("2024-02-01", pd.Timestamp("2024-02-01")),
        ("2024-02", pd.Timestamp("2024-02-01")),
        ("2024-02-01 07:30", pd.Timestamp("2024-02-01 07:30")),
        ("2024-02-01T07:30:00.5", pd.Timestamp("2024-02-01 07:30:00.5")),
        ("20240201", 20240201),
        ("-3", -3),
    ],
)
def test_times_of_csv_files(cell: str, expected: Any, tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(f"unique_id,ds,y\na,{cell},1\n")
    assert table_files.read_data(path, table_files.TableFormat())["ds"].iloc[0] == expected


@pytest.mark.parametrize("cell", ["2024-01-31T10:00Z", "2024-01-31 10:00 +01:00", "2024-01-31T10+01"])
def test_zones_of_csv_files_are_refused(cell: str, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "zones.csv"
    path.write_text(f"unique_id,ds,y\n007,{cell},1\n007,2024-02-01,1\n")
    message = fails("update", model, path)
    assert "time zone" in message
    assert "--date-format" not in message


def test_zones_of_parquet_files_are_refused(model: Path, tmp_path: Path) -> None:
    path = write(sales().assign(ds=sales()["ds"].dt.tz_localize("UTC")), tmp_path / "zone.parquet")
    assert "carries a time zone, for instance 2024-01-01 00:00:00+00:00" in fails("update", model, path)
