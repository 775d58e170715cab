"""Types of the columns of CSV and Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from aru.cli import table_files
from aru.data.missing import MISSING_TEXT
from tests.cli.running import TINY, aru, sales, write


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


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_the_autumn_hour_survives(ending: str, tmp_path: Path) -> None:
    """Text with offsets, as CSV has it, is UTC; a Parquet file knows its zone."""
    hours = pd.date_range("2024-10-24", periods=72, freq="h", tz="Europe/Berlin")
    df = pd.DataFrame({"unique_id": "a", "ds": hours, "y": 10.25 + hours.hour})
    data = write(df, tmp_path / f"hours{ending}")
    model, out = tmp_path / "model", tmp_path / f"out{ending}"
    assert aru("fit", data, model, *TINY[:2], "--freq", "h", *TINY[4:]).code == 0
    assert aru("predict", model, "--output", out).code == 0
    night = pd.date_range(hours[-1] + pd.Timedelta(hours=1), periods=5, freq="h")  # 02:00 comes twice
    assert night.strftime("%H").tolist() == ["00", "01", "02", "02", "03"]
    assert pd.to_datetime(table_files.read_future(out, table_files.TableFormat())["ds"]).tolist() == list(night[:3])
    times = [f["ds"] for f in aru("predict", model, "--json").json["forecasts"]]
    assert times[2] == ("2024-10-27 00:00:00+0000" if ending == ".csv" else "2024-10-27 02:00:00+0200")
    new = write(pd.DataFrame({"unique_id": "a", "ds": night, "y": 1.0}), tmp_path / f"night{ending}")
    assert aru("update", model, new, "--json").json["applied"] == 5


def test_zones_in_a_given_date_format(tmp_path: Path) -> None:
    path = tmp_path / "zones.csv"
    path.write_text("unique_id,ds,y\na,31.12.2024 23:00 +0100,1\na,31.12.2024 23:00 +0000,1\n")
    read = table_files.read_data(path, table_files.TableFormat(date_format="%d.%m.%Y %H:%M %z"))["ds"]
    assert read.tolist() == [pd.Timestamp("2024-12-31 22:00Z"), pd.Timestamp("2024-12-31 23:00Z")]


@pytest.mark.parametrize("cell", MISSING_TEXT)
def test_missing_values_of_csv_files(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "missing.csv"
    path.write_text(f"unique_id,ds,y,x,kind\nNA,2024-01-01,{cell},{cell},{cell}\nNA,2024-01-02,1,2,x\n")
    read = table_files.read_data(path, table_files.TableFormat().like(str, ["kind"]))
    assert read[["y", "x", "kind"]].isna().to_numpy().tolist() == [[True] * 3, [False] * 3]
    assert read["unique_id"].tolist() == ["NA", "NA"]
