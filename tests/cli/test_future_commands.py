"""`aru predict` for fewer steps, totals, paths and pictures, and `aru future`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from aru.cli import table_files
from aru.forecaster import Forecaster
from tests.cli.running import IDS, TINY, aru, fails, sales, write

PRETRAINED = ["--pretrained", "nano", "--h", "3", "--freq", "D"]
MINE = {"unique_id": "shop", "ds": "day", "y": "sales"}
FLAGS = ["--id-col", "shop", "--time-col", "day", "--target-col", "sales"]


@pytest.fixture(scope="module")
def promoted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a covariate, of a file with columns of its own names."""
    folder = tmp_path_factory.mktemp("future")
    data = write(sales().rename(columns=MINE), folder / "sales.csv")
    assert aru("fit", data, folder / "model", *TINY, *FLAGS, "--futr-exog", "promo").code == 0
    return folder / "model"


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype={"shop": str, "unique_id": str}, keep_default_na=False)


def test_fewer_steps(model: Path) -> None:
    whole = pd.DataFrame(aru("predict", model, "--level", "80", "--json").json["forecasts"])
    short = aru("predict", model, "--level", "80", "--h", "2", "--json").json
    assert (short["h"], short["rows"]) == (2, 6)
    expected = whole[whole.groupby("unique_id").cumcount() < 2].reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.DataFrame(short["forecasts"]), expected)
    assert fails("predict", model, "--h", "4") == (
        "--h 4 is longer than the horizon of this model, which is 3 steps. Ask for fewer steps, or make a model with a "
        "longer horizon."
    )


def test_future_rows_are_filled_and_forecast(promoted: Path, tmp_path: Path) -> None:
    path = tmp_path / "next.csv"
    assert aru("future", promoted, "--output", path) == (0, f"Wrote 9 rows (3 series, 3 steps) to {path}\n", "")
    rows = read(path)
    assert list(rows.columns) == ["shop", "day"]
    missing = aru("future", promoted, "--futr", path, "--json").json
    assert missing["rows"] == 9
    assert list(missing["missing"][0]) == ["shop", "day", "promo"]
    filled = rows.assign(promo=1)
    write(filled.drop(index=[2, 7]), path)
    assert "no row for 2 of 9 future steps" in fails("predict", promoted, "--futr", path)
    found = aru("future", promoted, "--futr", path, "--json").json["missing"]
    assert found == rows.loc[[2, 7]].to_dict("records")
    assert aru("future", promoted, "--futr", path, "--h", "2", "--ids", "a,b", "--json").json["missing"] != []
    write(filled, path)
    assert aru("future", promoted, "--futr", path) == (0, f"Nothing is missing in {path}.\n", "")
    out = tmp_path / "forecasts.csv"
    assert aru("predict", promoted, "--futr", path, "--output", out).code == 0
    pd.testing.assert_frame_equal(read(out)[["shop", "day"]], rows)
    other = rows.rename(columns={"shop": "where", "day": "when"}).assign(promo=1)
    write(other, path)
    named = ["--id-col", "where", "--time-col", "when"]
    assert aru("future", promoted, "--futr", path, *named, "--json").json["missing"] == []
    assert list(aru("future", promoted, *named, "--json").json["future"][0]) == ["where", "when"]
    again = aru("predict", promoted, "--futr", path, *named, "--json").json["forecasts"]
    assert list(again[0])[:2] == ["where", "when"]


def test_totals_and_paths_equal_the_library(model: Path, data: Path, tmp_path: Path) -> None:
    f = Forecaster.load(model)
    df = table_files.read_data(data, table_files.TableFormat())
    result = aru("predict", model, "--total", "--level", "80", "--history", data, "--json").json
    expected = f.predict_total(level=[80], df=df)
    assert result["rows"] == 3
    assert pd.DataFrame(result["forecasts"])["aru-hi-80"].tolist() == expected["aru-hi-80"].tolist()
    out = tmp_path / "paths.parquet"
    assert aru("predict", model, "--paths", "4", "--seed", "3", "--history", data, "--output", out).code == 0
    assert pd.read_parquet(out)["aru"].tolist() == f.predict_paths(4, df=df, random_seed=3)["aru"].tolist()
    assert "Give the history of the series as --history FILE" in fails("predict", model, "--total")
    assert "--total and --paths are two results" in fails("predict", model, "--total", "--paths", "3")
    assert "--paths must" in fails("predict", model, "--paths", "0", "--history", data)


def test_a_pretrained_model_needs_no_history(tmp_path: Path) -> None:
    data = write(sales(0, 40).rename(columns=MINE), tmp_path / "sales.csv")
    steps = pd.DataFrame(aru("predict", data, *PRETRAINED, *FLAGS, "--json").json["forecasts"])
    total = pd.DataFrame(aru("predict", data, *PRETRAINED, *FLAGS, "--total", "--json").json["forecasts"])
    assert list(total["shop"]) == sorted(IDS)
    assert total["aru"].to_numpy() == pytest.approx(steps.groupby("shop")["aru"].sum().to_numpy(), rel=1e-5)
    assert aru("future", data, *PRETRAINED, *FLAGS, "--json").json["future"][0] == {"shop": "007", "day": "2024-02-10"}


def test_a_picture_beside_the_forecasts(model: Path, data: Path, tmp_path: Path) -> None:
    picture = tmp_path / "fan.svg"
    result = aru("predict", model, "--history", data, "--plot", picture, "--ids", "NA", "--h", "2")
    assert result.code == 0, result
    assert f"Drew {picture}" in result.out
    text = picture.read_text()
    assert "unique_id NA" in text
    assert "unique_id 007" not in text
    assert "it must end in .svg" in fails("predict", model, "--plot", tmp_path / "fan.png")
    assert "there is no folder" in fails("predict", model, "--plot", tmp_path / "none" / "fan.svg")


def test_ended_series(tmp_path: Path) -> None:
    df = pd.concat([sales(0, 40, ["old"]), sales(0, 50, ["young"])])
    data = write(df, tmp_path / "sales.csv")
    kept = aru("predict", data, *PRETRAINED)
    assert "1 of 2 series ended more than 5 steps before" in kept.err
    assert "--ended skip leaves them out" in kept.err
    left = aru("predict", data, *PRETRAINED, "--ended", "skip", "--json")
    assert left.err == ""
    assert {row["unique_id"] for row in left.json["forecasts"]} == {"young"}
    assert "--ended drop is not known. Choose" in fails("predict", data, *PRETRAINED, "--ended", "drop")
