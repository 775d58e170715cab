"""`aru fit`: its options, what it saves, and what it refuses."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from aru.cli.fit_command import arguments_of
from aru.forecaster import Forecaster
from aru.settings import PAPER, TrainingOptions
from tests.cli.running import IDS, TINY, aru, contents, fails, sales, write
from tests.making import make_settings


def test_fit_shows_a_summary_and_saves(data: Path, tmp_path: Path) -> None:
    result = aru("fit", data, tmp_path / "model", *TINY)
    assert result.code == 0
    rows = "the last 3 rows of 3 series, forecast by weights that had not seen them"
    assert result.err.startswith(f"Note: The forecasts of aru are worse than seasonal naive on {rows}: ND ")
    assert result.err.endswith("Train longer (--max-steps), give more history or covariates, and check --freq.\n")
    assert re.search(r"series +rows +steps +seconds", result.out)
    assert re.search(r"ND +MASE +RMSE +coverage 90", result.out)
    assert re.search(r"aru +[\d.]+ +[\d.]+ .* %.*\n *seasonal naive \(7\) +[\d.]+ +[\d.]+ .* %", result.out)
    assert f"Scores on {rows}." in result.out
    assert re.search(r"3 +72 +5 ", result.out)
    assert f"Saved the model to {tmp_path / 'model'}." in result.out
    assert Forecaster.load(tmp_path / "model").ids == IDS
    assert "Replaced the model in" in aru("fit", data, tmp_path / "model", *TINY).out


def test_fit_options_reach_the_forecaster(tmp_path: Path) -> None:
    frame = sales().rename(columns={"unique_id": "shop", "ds": "date", "y": "sold"})
    data = write(frame.assign(date=frame["date"].dt.strftime("%d/%m/%Y"), day=1.0), tmp_path / "sales.csv")
    static = write(pd.DataFrame({"shop": IDS, "kind": [*"uvu"], "space": [1.0, 2.0, 3.0]}), tmp_path / "static.parquet")
    result = aru(
        "fit", data, tmp_path / "model", "--h", "3", "--freq", "D", "--input-size", "5",
        "--model", "aru-rnn", "--futr-exog", "promo,day", "--hist-exog", "kind", "--stat-exog", "space",
        "--lags", "7,4", "--size", "4,4,4,3",
        "--alphas", "1,0.9", "--ridge", "0.5", "--integration", "residual", "--scaler", "level",
        "--transform", "asinh", "--no-robust", "--distribution", "gaussian", "--ensemble", "2", "--max-steps", "2",
        "--learning-rate", "0.01", "--batch-size", "2", "--seed", "3", "--accelerator", "cpu", "--alias", "mine",
        "--gate", "--calibration", "online", "--static", static, "--val-size", "3",
        "--encoder", "gru", "--dropout", "0.1", "--no-learn-ridge",
        "--id-col", "shop", "--time-col", "date", "--target-col", "sold",
        "--date-format", "%d/%m/%Y", "--quiet", "--json",
    )  # fmt: skip
    assert result.code == 0, result
    values = result.json
    assert values.pop("seconds") > 0
    assert values.pop("summary")[0]["choice"] == "aru-rnn, (4, 4, 4, 3)"
    card = values.pop("scorecard")
    assert card == Forecaster.load(tmp_path / "model", "cpu").scorecard.to_json()
    assert (card["name"], card["season"], card["series"], card["forecasts"]) == ("mine", 7, 3, 3)
    assert set(card["model"]) == set(card["naive"]) == {"nd", "mase", "rmse", "values", "coverage-90", "width-90"}
    assert [note.partition(" are worse than ")[0] for note in values.pop("notes")] == ["The forecasts of mine"]
    assert values == {
        "model": str(tmp_path / "model"),
        "method": "aru-rnn",
        "series": 3,
        "rows": 72,
        "steps": 2,
        "members": 2,
        "chosen": {},
    }
    assert Forecaster.load(tmp_path / "model", "cpu").settings == make_settings(
        h=3, freq="D", input_size=5, model="aru", futr_exog_list=["promo", "day"], hist_exog_list=["kind"],
        stat_exog_list=["space"], lags=[4, 7], size=[4, 4, 4, 3], alphas=[1, 0.9], ridge=0.5, integration="residual",
        scaler="level", transform="asinh", robust=False, distribution="gaussian", ensemble=2, max_steps=2,
        learning_rate=0.01, batch_size=2, random_seed=3, accelerator="cpu", alias="mine", encoder="gru", dropout=0.1,
        learn_ridge=False, gate=True, calibration="online",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "settings", "learned"),
    [([], "auto", (7,)), (["--lags", "none"], None, ()), (["--lags", "auto"], "auto", (7,)), (["--paper"], None, ())],
)
def test_lags_of_the_command_line(tmp_path: Path, given: list[str], settings: Any, learned: Any) -> None:
    data = write(sales(), tmp_path / "sales.csv")
    assert aru("fit", data, tmp_path / "model", *TINY, *given).code == 0
    f = Forecaster.load(tmp_path / "model", "cpu")
    assert f.settings.lags == settings
    assert f.runtime.engine.schema.lags == learned
    assert f.settings.network.scaler == ("mean" if "--paper" in given else "auto")


def test_paper_is_a_preset_that_options_override() -> None:
    given = arguments_of({"h": 2, "freq": "D", "ridge": 0.3, "batch_size": 8, "snapshots": 2}, paper=True, quiet=False)
    search = PAPER["training"].search
    assert given == {
        **PAPER,
        "h": 2,
        "freq": "D",
        "batch_size": 8,
        "network": dataclasses.replace(PAPER["network"], ridge=0.3),
        "training": dataclasses.replace(PAPER["training"], snapshots=2, search={"alphas": search["alphas"]}),
    }
    assert arguments_of({"search": None}, paper=True, quiet=False)["training"].search is None


def test_quiet_adds_to_what_was_given_to_the_trainer() -> None:
    assert arguments_of({}, paper=False, quiet=True) == {
        "training": TrainingOptions(trainer={"enable_progress_bar": False})
    }
    kept = arguments_of({"trainer": {"devices": 2, "enable_progress_bar": True}}, paper=False, quiet=True)
    assert kept["training"].trainer == {"devices": 2, "enable_progress_bar": True}


def test_paper_search_says_what_it_chose(data: Path, tmp_path: Path) -> None:
    result = aru("fit", data, tmp_path / "model", "--paper", *TINY[:10], "--alphas", "1", "--size", "small", "--json")
    assert result.code == 0, result
    assert list(result.json["chosen"]) == ["ridge"]
    assert result.json["chosen"]["ridge"] in PAPER["training"].search["ridge"]


def test_integer_times_and_rows_without_frequency(tmp_path: Path) -> None:
    frame = sales().assign(ds=np.tile(np.arange(24) * 2, 3))
    data = write(frame, tmp_path / "sales.csv")
    assert aru("fit", data, tmp_path / "model", *TINY, "--freq", "2").code == 0
    assert [f["ds"] for f in aru("predict", tmp_path / "model", "--json").json["forecasts"][:3]] == [48, 50, 52]
    assert aru("fit", data, tmp_path / "model", *TINY, "--freq", "none").code == 0
    message = fails("predict", tmp_path / "model")
    assert "need unique_id, ds of the next 3 steps of each series. Give --futr FILE." in message


def broken(frame: pd.DataFrame, row: int, column: str, value: Any) -> pd.DataFrame:
    return frame.assign(**{column: frame[column].astype(object)}).pipe(
        lambda f: f.assign(**{column: [value if i == row else v for i, v in enumerate(f[column])]})
    )


BAD_TABLES = {
    "column": (
        sales().drop(columns="y"),
        "no column 'y'; it has 'unique_id', 'ds', 'promo', 'kind'. Name .* --target-col",
    ),
    "rows": (sales().head(0), "has no rows"),
    "duplicates": (pd.concat([sales(), sales().head(1)]), r"duplicate rows for a series and time: \(007, 2024-01-01\)"),
    "infinite": (broken(sales(), 3, "y", np.inf), "y of .*sales.csv is infinite .*row 3"),
    "no value": (sales().assign(y=np.nan), "have no value of y at all: 007, NA, a,b"),
    "text": (broken(sales(), 2, "y", "abc"), r"y of .* is not a number in 1 rows: 'abc' at \(007, 2024-01-03\)"),
    "the clock": (broken(sales(), 2, "ds", "now"), r"'now' \(series 007\)"),
    "dates": (broken(sales(), 2, "ds", "31/01/2024"), r"'31/01/2024' \(series 007\). .*--date-format %d/%m/%Y"),
    "zones": (broken(sales(), 1, "ds", "2024-01-02T00:00:00+02:00"), r"\(007, 2024-01-01 22:00:00\)"),
    "far away": (broken(sales(), 23, "ds", "2099-01-01"), r"\(007, 2099-01-01\).*or pass --allow-jump if"),
    "frequency": (broken(sales(), 2, "ds", "2024-01-03 07:30:00"), r"\(007, 2024-01-03 07:30:00\)"),
    "integers": (sales().assign(ds=1), "--freq D. Use an integer freq or datetimes"),
    "no id": (broken(sales(), 4, "unique_id", None), "unique_id of .*sales.csv is missing .*row 4"),
    "no time": (broken(sales(), 4, "ds", None), "ds of .*sales.csv is missing .*row 4"),
    "too short": (sales(0, 3), "--h 3 needs at least 4"),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_bad_tables_are_refused(kind: str, tmp_path: Path) -> None:
    frame, message = BAD_TABLES[kind]
    data = write(frame, tmp_path / "sales.csv")
    error = fails("fit", data, tmp_path / "model", "--h", "3", "--freq", "D", "--model", "aru-rnn")
    assert str(data) in error or kind == "too short"
    assert re.search(message, error), error
    assert os.listdir(tmp_path) == ["sales.csv"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "cannot be read as CSV: No columns to parse from file"),
        ("ragged.csv", b"unique_id,ds,y\na,2024-01-01,1,2,3\n", "more cells than its first line"),
        ("ragged2.csv", b"unique_id,ds,y\na,2024-01-01,1\nb,2024-01-01,1,2,3\n", "cannot be read as CSV"),
        ("latin.csv", "unique_id,ds,y\nZürich,2024-01-01,1\n".encode("latin-1"), "cannot be read as CSV"),
        (
            "blanks.csv",
            b"unique_id, ds, y\na,2024-01-01,1\n",
            "no column 'ds', 'y'; .* ' ds', ' y'. .* remove the blanks",
        ),
        ("semicolons.csv", b"unique_id;ds;y\na;2024-01-01;1,5\n", "semicolons: .*'unique_id;ds;y'.* columns by commas"),
        ("tabs.csv", b"unique_id\tds\ty\na\t2024-01-01\t1\n", "separated by tabs"),
        ("bad.parquet", b"PAR1", "cannot be read as Parquet"),
        ("bad.csv.gz", b"no archive", "cannot be read"),
        ("table.xlsx", b"", r"Tables are \.csv, \.csv\.gz, \.parquet files"),
        ("missing.csv", None, "does not exist"),
        ("missing.parquet", None, "does not exist"),
    ],
)
def test_unreadable_files_are_refused(
    name: str, content: bytes | None, message: str, model: Path, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    for arguments in (["fit", path, tmp_path / "other", "--h", "3", "--freq", "D"], ["update", model, path]):
        error = fails(*arguments)
        assert error.startswith(str(path))
        assert re.search(message, error), error
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "arima"], "--model arima is not known. Choose one of aru, aru-control, aru-direct, "),
        (["--freq", "fortnight"], "--freq fortnight is not a pandas offset alias"),
        (["--h", "0"], "--h must be a whole number of at least 1, got 0"),
        (["--size", "tiny"], "--size tiny is not known"),
        (["--size", "1,2"], "An explicit size is four positive numbers"),
        (["--lags", "1"], r"Lags \[1\] are shorter than --h 3"),
        (["--lags", "week"], "--lags takes numbers separated by commas, got 'week'"),
        (["--alphas", "2"], r"--alphas must be one or more numbers in \(0, 1\]"),
        (["--alphas", "high"], "--alphas takes numbers"),
        (["--accelerator", "tpu"], "--accelerator tpu is not known"),
        (["--learning-rate", "0"], "--learning-rate must be positive"),
        (["--val-size", "-1"], "--val-size must be a whole number of at least 0, got -1"),
        (["--val-size", "23"], "The longest series has 1 rows to train on besides --val-size 23, but --h 3 needs"),
        (["--futr-exog", "price"], "has no column 'price'; it has unique_id, ds, y, promo, kind"),
        (
            ["--futr-exog", "promo", "--hist-exog", "promo"],
            "'promo' is listed in --futr-exog and in --hist-exog. List it once",
        ),
        (["--stat-exog", "size"], "--stat-exog names size. Pass --static FILE with unique_id and these columns"),
        (["--season-length", "9", "--input-size", "9"], "--season-length 9 needs a context of a season and a stride"),
        (["--dropout", "1"], r"--dropout must lie in \[0, 1\), got 1"),
        (["--encoder", "rnn"], "--encoder rnn is not known. Choose one of 'lstm', "),
        (["--encoder-layers", "0"], "--encoder-layers must be a whole number of at least 1"),
        (["--search", "3"], "--search takes a JSON object, got '3'"),
        (["--search", "{"], "--search takes a JSON object, got '{'"),
        (["--search", '{"ridge":1}'], "--search has a setting without candidates"),
        (["--search", '{"h":[1]}'], "--search cannot choose 'h'"),
        (["--search", '{"ridge":["a"]}', "--val-size", "3"], "--ridge must be a finite number, got 'a'"),
        (["--trainer", '{"wings":2}'], "Lightning's Trainer refuses these options of --trainer"),
        (["--model", "aru", "--size", "tiny"], "--size tiny is no size of --model aru. Choose one of nano, mini, base"),
        (["--model", "aru", "--lags", "7"], "--lags .* does not apply to --model aru. Leave it out, or use a model"),
        (["--warm-start"], "--warm-start goes on with the settings of .*model. Leave out --h and --freq and --model"),
        (["--stride", "9"], "--stride 9 is longer than --h 3"),
        (["--snapshots", "2", "--val-size", "0"], "--search and --snapshots choose by validation loss"),
        (["--model", "deepar", "--encoder", "sru"], "--model deepar does not work with --encoder sru"),
        (["--model", "baseline", "--gate"], "--model baseline does not adapt: --gate has nothing to mix"),
        (["--id-col", "ds"], "three different columns"),
        (["--id-col", "shop"], "has no column 'shop'"),
        (["--date-format", "%Q"], "--date-format %Q is no format"),
        (["--date-format", "%Y"], "is not a date written as %Y in 72 rows"),
    ],
)
@pytest.mark.usefixtures("as_users_run_it")
def test_wrong_settings_are_refused(arguments: list[str], message: str, data: Path, tmp_path: Path) -> None:
    chosen = [] if "--model" in arguments else ["--model", "aru-rnn"]
    error = fails("fit", data, tmp_path / "model", "--h", "3", "--freq", "D", *chosen, *arguments)
    assert re.search(message, error), error
    assert os.listdir(tmp_path) == ["sales.csv"]


def test_a_model_that_has_taken_in_rows_is_not_replaced_by_accident(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    assert aru("fit", data, folder, *TINY).code == 0
    assert "Replaced the model in" in aru("fit", data, folder, *TINY).out
    assert aru("update", folder, write(sales(24, 27), tmp_path / "new.csv")).code == 0
    before = contents(folder)
    message = fails("fit", data, folder, *TINY)
    assert f"{folder} is a model that has taken in 9 observations since its training" in message
    assert message.endswith("Choose another folder, or give --force to replace it.")
    assert contents(folder) == before
    assert "Replaced the model in" in aru("fit", data, folder, *TINY, "--force").out
    assert Forecaster.load(folder).rows_since_fit == 0
    (weights,) = folder.glob("weights-*.safetensors")
    weights.write_bytes(b"")  # a damaged model has nothing to lose
    assert "Replaced the model in" in aru("fit", data, folder, *TINY).out


def test_without_a_scorecard_fit_says_why(tmp_path: Path) -> None:
    data = write(sales(0, 14), tmp_path / "sales.csv")
    short = [*TINY[:-3], "--quiet"]
    assert short[-3:] == ["--size", "4,4,4,3", "--quiet"]
    result = aru("fit", data, tmp_path / "model", *short)
    assert "No scorecard: no series has 5 horizons (15 rows), with values in its last rows." in result.out
    assert aru("fit", data, tmp_path / "model", *short, "--json").json["scorecard"] is None
    assert "No scorecard" not in aru("fit", data, tmp_path / "model", *short, "--val-size", "0").out
