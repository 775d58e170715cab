"""The command line, end to end on small files."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from aru import Stream, cli
from aru.cli import files, fitting, options
from aru.cli.screen import Screen
from aru.errors import AruWarning, ConfigError, StorageError
from aru.forecaster import Forecaster
from aru.settings import PAPER, Settings

ROOT = Path(__file__).resolve().parents[1]
TINY = ["--h", "3", "--freq", "D", "--max-steps", "5", "--size", "4,4,4,3", "--val-size", "3", "--quiet"]
IDS = ["007", "NA", "a,b"]


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def aru(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(cli.app, [str(a) for a in arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Result(result.exit_code, result.stdout, result.stderr)


def fails(*arguments: str | Path) -> str:
    """The one line with which a command refuses its input."""
    result = aru(*arguments)
    assert result.code == 2, result
    assert result.out == ""
    assert result.err.startswith("Error: ")
    assert result.err.endswith(".\n")
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err
    return result.err.removeprefix("Error: ").strip()


def sales(begin: int = 0, end: int = 24, ids: list[str] = IDS) -> pd.DataFrame:
    """Daily values of a few series with a weekly pattern; `kind` is a category that often looks like a number."""
    t = np.arange(begin, end)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(t, unit="D")
    frames = [
        pd.DataFrame(
            {
                "unique_id": name,
                "ds": days,
                "y": 10.0 * (i + 1) + t % 7 + (t * (i + 3) % 5) / 7,
                "promo": t % 3,
                "kind": np.where(t % 4 == 1, "x", "0"),
            }
        )
        for i, name in enumerate(ids)
    ]
    return pd.concat(frames, ignore_index=True)


def write(frame: pd.DataFrame, path: Path) -> Path:
    files.write(frame, path)
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 24 days of three series, without covariates."""
    folder = tmp_path_factory.mktemp("cli")
    data = write(sales(), folder / "sales.csv")
    result = aru("fit", data, folder / "model", *TINY)
    assert result.code == 0, result
    return folder / "model"


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "model"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(sales(), tmp_path / "sales.csv")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return write(sales(24, 27), tmp_path / "new.csv")


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


# fit


def test_fit_shows_a_summary_and_saves(data: Path, tmp_path: Path) -> None:
    result = aru("fit", data, tmp_path / "model", *TINY)
    assert result.code == 0
    assert result.err == ""
    assert re.search(r"series +rows +steps +seconds", result.out)
    assert re.search(r"3 +72 +5 ", result.out)
    assert f"Saved the model to {tmp_path / 'model'}." in result.out
    assert Forecaster.load(tmp_path / "model").ids == IDS
    assert "Replaced the model in" in aru("fit", data, tmp_path / "model", *TINY).out


def test_fit_options_reach_the_forecaster(tmp_path: Path) -> None:
    frame = sales().rename(columns={"unique_id": "shop", "ds": "date", "y": "sold"})
    data = write(frame.assign(date=frame["date"].dt.strftime("%d/%m/%Y"), day=1.0), tmp_path / "sales.csv")
    static = write(pd.DataFrame({"shop": IDS, "kind": [*"uvu"], "space": [1.0, 2.0, 3.0]}), tmp_path / "static.parquet")
    result = aru(
        "fit", data, tmp_path / "model", "--h", "3", "--freq", "D", "--input-size", "5", "--model", "aru",
        "--futr", "promo,day", "--hist", "kind", "--stat", "space", "--lags", "7,4", "--size", "4,4,4,3",
        "--alphas", "1,0.9", "--ridge", "0.5", "--integration", "residual", "--scaler", "level",
        "--transform", "asinh", "--no-robust", "--distribution", "gaussian", "--ensemble", "2", "--max-steps", "2",
        "--learning-rate", "0.01", "--batch-size", "2", "--seed", "3", "--accelerator", "cpu", "--alias", "mine",
        "--gate", "--calibration", "online", "--static", static, "--val-size", "3",
        "--set", "encoder=gru", "--set", "dropout=0.1",
        "--set", "learn_ridge=false", "--id-col", "shop", "--time-col", "date", "--target-col", "sold",
        "--date-format", "%d/%m/%Y", "--quiet", "--json",
    )  # fmt: skip
    assert result.code == 0, result
    values = result.json
    assert values.pop("seconds") > 0
    assert values == {
        "model": str(tmp_path / "model"),
        "method": "aru",
        "series": 3,
        "rows": 72,
        "steps": 2,
        "members": 2,
        "chosen": {},
        "notes": [],
    }
    assert Forecaster.load(tmp_path / "model", "cpu").settings == Settings(
        h=3, freq="D", input_size=5, model="aru", futr_exog_list=["promo", "day"], hist_exog_list=["kind"],
        stat_exog_list=["space"], lags=[4, 7], size=[4, 4, 4, 3], alphas=[1, 0.9], ridge=0.5, integration="residual",
        scaler="level", transform="asinh", robust=False, distribution="gaussian", ensemble=2, max_steps=2,
        learning_rate=0.01, batch_size=2, random_seed=3, accelerator="cpu", alias="mine", encoder="gru", dropout=0.1,
        learn_ridge=False, gate=True, calibration="online",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "settings", "learned"),
    [([], "auto", (7,)), (["--lags", "none"], (), ()), (["--lags", "auto"], "auto", (7,)), (["--paper"], None, ())],
)
def test_lags_of_the_command_line(tmp_path: Path, given: list[str], settings: Any, learned: Any) -> None:
    data = write(sales(), tmp_path / "sales.csv")
    assert aru("fit", data, tmp_path / "model", *TINY, *given).code == 0
    f = Forecaster.load(tmp_path / "model", "cpu")
    assert f.settings.lags == settings
    assert f._require_fit().schema.lags == learned
    assert f.settings.scaler == ("mean" if "--paper" in given else "auto")


def test_every_setting_can_be_reached() -> None:
    defaults = Settings(h=1, freq="D").to_json()
    assert set(options.parse_set([f"{name}={json.dumps(value)}" for name, value in defaults.items() if value])) == {
        name for name, value in defaults.items() if value
    }


def test_paper_is_a_preset_that_options_override() -> None:
    given = fitting.combine({"h": 2, "freq": "D", "ridge": 0.3, "batch_size": 8}, {"snapshots": 2}, True, False)
    assert given == {
        **PAPER,
        "h": 2,
        "freq": "D",
        "ridge": 0.3,
        "batch_size": 8,
        "snapshots": 2,
        "search": {"alphas": PAPER["search"]["alphas"]},
    }
    with pytest.raises(ConfigError, match="h is given by its option and by --set"):
        fitting.combine({"h": 2}, {"h": 3}, False, False)


def test_paper_search_says_what_it_chose(data: Path, tmp_path: Path) -> None:
    result = aru("fit", data, tmp_path / "model", "--paper", *TINY[:6], "--alphas", "1", "--size", "small", "--json")
    assert result.code == 0, result
    assert list(result.json["chosen"]) == ["ridge"]
    assert result.json["chosen"]["ridge"] in PAPER["search"]["ridge"]


def test_integer_times_and_rows_without_frequency(tmp_path: Path) -> None:
    frame = sales().assign(ds=np.tile(np.arange(24) * 2, 3))
    data = write(frame, tmp_path / "sales.csv")
    assert aru("fit", data, tmp_path / "model", *TINY, "--freq", "2").code == 0
    assert [f["ds"] for f in aru("predict", tmp_path / "model", "--json").json["forecasts"][:3]] == [48, 50, 52]
    assert aru("fit", data, tmp_path / "model", *TINY, "--freq", "none").code == 0
    assert "need --futr FILE with unique_id, ds for the next 3 steps" in fails("predict", tmp_path / "model")


# predict


def test_predict_equals_the_library(model: Path, tmp_path: Path) -> None:
    expected = Forecaster.load(model).predict(level=[80, 90.5])
    for name in ("forecasts.csv", "forecasts.csv.gz", "forecasts.parquet"):
        result = aru("predict", model, "--level", "80", "--level", "90.5", "--output", tmp_path / name)
        assert result == (0, f"Wrote 9 rows (3 series, 3 steps) to {tmp_path / name}\n", "")
        read = files.read_future(tmp_path / name, files.Layout())
        assert read["unique_id"].tolist() == expected["unique_id"].tolist()
        pd.testing.assert_frame_equal(read, expected, check_dtype=False)
    rows = aru("predict", model, "--level", "80", "--level", "90.5", "--json").json["forecasts"]
    assert rows[0]["ds"] == "2024-01-25"
    assert pd.DataFrame(rows)["aru-lo-90.5"].tolist() == expected["aru-lo-90.5"].tolist()


def test_predict_previews_on_the_terminal(model: Path) -> None:
    result = aru("predict", model, "--level", "90")
    lines = result.out.splitlines()
    assert re.search(r"unique_id +ds +mean +median +lo-90 +hi-90", lines[1])
    assert re.match(r" 007 +2024-01-25 +\d+\.\d\d ", lines[3])


def test_predict_some_series(model: Path) -> None:
    def ids(*wanted: str) -> list[str]:
        given = [argument for name in wanted for argument in ("--ids", name)]
        return list(dict.fromkeys(f["unique_id"] for f in aru("predict", model, *given, "--json").json["forecasts"]))

    assert ids("007,NA") == ["007", "NA"]
    assert ids("a,b", "007") == ["a,b", "007"]
    assert fails("predict", model, "--ids", "7,NA") == "The model has no series 7; it has 007, NA, a,b."
    assert "names no series" in fails("predict", model, "--ids", ",")


def test_predict_reads_categories_as_training_did(tmp_path: Path) -> None:
    data = write(sales(), tmp_path / "sales.csv")
    assert aru("fit", data, tmp_path / "model", *TINY, "--futr", "promo", "--futr", "kind").code == 0
    assert "--futr FILE with unique_id, ds, promo, kind" in fails("predict", tmp_path / "model")
    future = sales(24, 27).drop(columns="y").assign(kind="0")  # a column of numbers, for all that the file says
    for name in ("futr.csv", "futr.parquet"):
        path = write(future, tmp_path / name)
        assert aru("predict", tmp_path / "model", "--futr", path, "--json").json["rows"] == 9
    short = write(future[future["ds"] < "2024-01-27"], tmp_path / "short.csv")
    message = fails("predict", tmp_path / "model", "--futr", short)
    assert f"{short} has no row for 3 of 9 future steps: (007, 2024-01-27), (NA, 2024-01-27)" in message


def test_bools_of_files_mean_what_they_meant_in_training(tmp_path: Path) -> None:
    """A file may write true, another one True, and a third one 1."""
    frame = sales().assign(promo=lambda df: df["promo"] > 0)

    def spell(df: pd.DataFrame, yes: Any, no: Any) -> pd.DataFrame:
        return df.assign(promo=df["promo"].map({True: yes, False: no}))

    data = write(spell(frame, "true", "false"), tmp_path / "sales.csv")
    assert aru("fit", data, tmp_path / "model", *TINY, "--futr", "promo").code == 0
    future = sales(24, 27).drop(columns="y").assign(promo=np.resize([True, False, False], 9))
    expected = Forecaster.load(tmp_path / "model").predict(future)["aru"].tolist()
    assert expected != Forecaster.load(tmp_path / "model").predict(future.assign(promo=None))["aru"].tolist()
    scores = []
    for number, (yes, no) in enumerate([("true", "false"), ("True", "False"), ("TRUE", "FALSE"), (1, 0)]):
        path = write(spell(future, yes, no), tmp_path / f"futr-{number}.csv")
        forecasts = aru("predict", tmp_path / "model", "--futr", path, "--json").json["forecasts"]
        assert [row["aru"] for row in forecasts] == expected
        path = write(spell(frame, yes, no), tmp_path / f"sales-{number}.csv")
        scores.append(aru("backtest", tmp_path / "model", path, "--json").json["scores"])
    assert all(score == scores[0] for score in scores)
    path = write(spell(future, "yes", "no"), tmp_path / "odd.csv")
    message = fails("predict", tmp_path / "model", "--futr", path)
    assert "'promo' was true or false in training and is 'no', 'yes' now, at (007, 2024-01-25)" in message


def test_a_model_trained_on_polars_frames_writes_files(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.from_pandas(sales())
    forecaster = Forecaster(
        h=3, freq="D", max_steps=2, size=[4, 4, 4, 3], trainer_options={"enable_progress_bar": False}
    )
    forecaster.fit(frame, val_size=3).save(tmp_path / "model")
    assert aru("predict", tmp_path / "model", "--output", tmp_path / "out.parquet").code == 0
    assert len(pd.read_parquet(tmp_path / "out.parquet")) == 9


# update


def test_update_equals_the_library(model: Path, new: Path) -> None:
    expected = Forecaster.load(model)
    expected.update(pd.concat([sales(24, 27), sales(24, 26, ["new"])]))
    write(pd.concat([sales(24, 27), sales(24, 26, ["new"])]), new)
    result = aru("update", model, new, "--json")
    assert result.code == 0, result
    assert result.json == {
        "model": str(model), "applied": 11, "duplicates": 0, "gaps_filled": 0, "new_series": ["new"], "late": [],
        "series": 4, "notes": [],
    }  # fmt: skip
    updated = Forecaster.load(model)
    assert updated.ids == expected.ids
    assert updated.predict()["aru"].tolist() == expected.predict()["aru"].tolist()


def test_update_reports_late_and_known_rows(model: Path, new: Path) -> None:
    assert "Saved" in aru("update", model, new).out
    before = contents(model)
    again = aru("update", model, new)
    assert re.search(r"applied +new series +gaps filled +already known +late", again.out)
    assert re.search(r"0 +0 +0 +9 +0", again.out)
    assert "Nothing new" in again.out
    write(sales(24, 28).assign(y=99.0), new)
    message = fails("update", model, new)
    assert f"{new} has 9 rows at or before the latest time of their series: (007, 2024-01-25)" in message
    assert message.endswith("Nothing was applied. Drop them, or pass --late skip.")
    assert contents(model) == before
    skipped = aru("update", model, new, "--late", "skip", "--json").json
    assert (skipped["applied"], len(skipped["late"])) == (3, 9)
    assert skipped["late"][0]["ds"] == "2024-01-25"
    assert "Late rows, left out:" in aru("update", model, new, "--late", "skip").out


def test_update_reads_columns_by_other_names(model: Path, new: Path) -> None:
    frame = sales(24, 27).rename(columns={"unique_id": "shop", "ds": "date", "y": "sold"}).assign(y="unused")
    write(frame, new)
    result = aru("update", model, new, "--id-col", "shop", "--time-col", "date", "--target-col", "sold", "--json")
    assert result.json["applied"] == 9


# backtest


def test_backtest_scores_and_compares(model: Path, tmp_path: Path) -> None:
    data = write(sales(0, 40), tmp_path / "sales.parquet")
    result = aru("backtest", model, data, "--compare", "--output", tmp_path / "out.csv")
    assert result.code == 0, result
    assert result.err == ""
    assert re.search(r"statistics +ND +RMSE +coverage 90 +width 90", result.out)
    assert re.search(r"adapting +[\d.]+ .*\n *frozen ", result.out)
    assert "series: 3, forecasts: 12, steps of each: 3" in result.out
    expected = Forecaster.load(model).cross_validation(sales(0, 40), 4, level=[90])
    assert pd.read_csv(tmp_path / "out.csv")["aru"].tolist() == pytest.approx(expected["aru"].tolist())


def test_backtest_notes_what_flatters_the_model(model: Path, data: Path) -> None:
    arguments = ["--windows", "2", "--step", "1", "--level", "50", "--level", "80", "--no-adapt", "--json"]
    result = aru("backtest", model, data, *arguments)
    values = result.json
    assert list(values["scores"]) == ["frozen"]
    assert {"nd", "rmse", "coverage-50", "width-50", "coverage-80", "width-80"} < set(values["scores"]["frozen"])
    assert len(values["notes"]) == 1
    assert values["notes"][0].startswith("3 series have cutoffs inside the training data: (007, 2024-01-20)")
    assert result.err == f"Note: {values['notes'][0]}\n"
    assert "leave out --no-adapt" in fails("backtest", model, data, "--no-adapt", "--compare")


def test_backtest_notes_series_that_are_too_short(model: Path, tmp_path: Path) -> None:
    late = sales(37, 40)
    df = pd.concat([sales(0, 40), late[late["unique_id"] == late["unique_id"].iloc[0]].assign(unique_id="new")])
    result = aru("backtest", model, write(df, tmp_path / "sales.parquet"), "--compare")
    assert result.code == 0, result
    assert result.err.startswith("Note: 1 of 4 series are too short for 4 windows: new. They count with")
    assert result.err.count("\n") == 1


# demo, models, version, help


def test_demo_hands_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(output: Path, seed: int = 0, quick: bool = False, console: Any = None) -> Path:
        console.print(f"a table for seed {seed}")
        return output / "report.html"

    monkeypatch.setattr("aru.demo.run", run, raising=False)
    assert aru("demo", "--output", tmp_path, "--seed", "4").out == "a table for seed 4\n"
    result = aru("demo", "--output", tmp_path, "--json")
    assert result.json == {"report": str(tmp_path / "report.html"), "notes": []}
    assert result.err == "a table for seed 0\n"


def test_models_are_listed() -> None:
    from aru.models import MODELS

    listed = aru("models", "--json").json["models"]
    assert {m["name"]: m["adapts"] for m in listed} == {name: m.adapts for name, m in MODELS.items()}
    assert all(m["about"].endswith(".") for m in listed)
    out = aru("models").out
    assert all(name in out for name in MODELS)


def test_datasets_are_listed_with_what_is_missing(tmp_path: Path) -> None:
    from aru.datasets import DESCRIPTIONS

    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "carparts.csv").touch()
    result = aru("datasets", "--data-dir", tmp_path, "--json").json
    listed = {d["name"]: d for d in result["datasets"]}
    assert set(listed) == set(DESCRIPTIONS)
    assert {name: listed[name]["present"] for name in ("parts", "walmart", "synthetic")} == {
        "parts": "original",
        "walmart": "",
        "synthetic": "generated",
    }
    assert listed["rossmann"]["paper"] == {"series": 1115, "length": 1600, "features": 39}
    out = aru("datasets", "--data-dir", tmp_path).out
    assert "walmart: get train.csv, features.csv, stores.csv from kaggle.com" in out


def test_version() -> None:
    from aru import __version__

    assert aru("--version").out == f"aru {__version__}\n"


def test_every_option_has_help() -> None:
    group: Any = typer.main.get_command(cli.app)
    commands = [c for name, c in group.commands.items() if name != "state"] + [
        *group.commands["state"].commands.values()
    ]
    for command in [group, group.commands["state"], *commands]:
        assert command.help, command.name
        for param in command.params:
            assert getattr(param, "help", None), (command.name, param.name)
    shared = {"--json", "--debug"}
    assert all(shared <= {o for p in c.params for o in p.opts} for c in commands)


def test_the_reference_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate_cli", ROOT / "docs" / "generate_cli.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == generator.reference(), (
        "docs/cli.md is out of date: run python docs/generate_cli.py"
    )


# bad input


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
    "zone": (sales().assign(ds=sales()["ds"].dt.tz_localize("UTC")), "carries a time zone"),
    "zones": (broken(sales(), 1, "ds", "2024-01-02T00:00:00+02:00"), r"zone, for instance 2024-01-02T00:00:00\+02"),
    "frequency": (broken(sales(), 2, "ds", "2024-01-03 07:30:00"), r"\(007, 2024-01-03 07:30:00\)"),
    "integers": (sales().assign(ds=1), "--freq D: use an integer freq or datetimes"),
    "no id": (broken(sales(), 4, "unique_id", None), "unique_id of .*sales.csv is missing .*row 4"),
    "no time": (broken(sales(), 4, "ds", None), "ds of .*sales.csv is missing .*row 4"),
    "too short": (sales(0, 3), "--h 3 needs at least 4"),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_bad_tables_are_refused(kind: str, tmp_path: Path) -> None:
    frame, message = BAD_TABLES[kind]
    data = write(frame, tmp_path / "sales.csv")
    error = fails("fit", data, tmp_path / "model", "--h", "3", "--freq", "D")
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
        ("table.xlsx", b"", r"tables are \.csv, \.csv\.gz, \.parquet files"),
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
        (["--model", "arima"], "--model arima is not known: choose one of aru, aru-control, aru-direct, "),
        (["--freq", "fortnight"], "--freq fortnight is not a pandas offset alias"),
        (["--h", "0"], "h must be a whole number of at least 1, got 0"),
        (["--size", "tiny"], "--size tiny is not known"),
        (["--size", "1,2"], "An explicit size is four positive numbers"),
        (["--lags", "1"], r"Lags \[1\] are shorter than --h 3"),
        (["--lags", "week"], "--lags takes numbers separated by commas, got 'week'"),
        (["--alphas", "2"], r"alphas must be one or more numbers in \(0, 1\]"),
        (["--alphas", "high"], "--alphas takes numbers"),
        (["--accelerator", "tpu"], "--accelerator tpu is not known"),
        (["--learning-rate", "0"], "--learning-rate must be positive"),
        (["--val-size", "-1"], "--val-size must be a whole number of at least 0, got -1"),
        (["--val-size", "23"], "The longest series has 1 rows to train on besides --val-size 23, but --h 3 needs"),
        (["--futr", "price"], "has no column 'price'; it has unique_id, ds, y, promo, kind"),
        (["--futr", "promo", "--hist", "promo"], "'promo' is listed in --futr and in --hist: list it once"),
        (["--stat", "size"], "--stat names size: pass --static FILE with unique_id and these columns"),
        (["--set", "stride"], "--set takes name=value"),
        (["--set", "color=red"], "--set knows no setting 'color'"),
        (["--set", "robust=yes"], "--set robust takes true or false, got 'yes'"),
        (["--set", "dropout=true"], "--set dropout takes a number"),
        (["--set", "max_windows=2.5"], "--set max_windows takes a whole number"),
        (["--set", "search=3"], "--set search takes a JSON object"),
        (["--set", 'search={"ridge":1}'], "wrong kind"),
        (["--set", "stride=9"], "stride=9 is longer than --h 3"),
        (["--set", "h=9"], "h is given by its option and by --set"),
        (["--set", "snapshots=2"], "give fit a --val-size"),
        (["--id-col", "ds"], "three different columns"),
        (["--id-col", "shop"], "has no column 'shop'"),
        (["--date-format", "%Q"], "--date-format %Q is no format"),
        (["--date-format", "%Y"], "is not a date written as %Y in 72 rows"),
    ],
)
def test_wrong_settings_are_refused(arguments: list[str], message: str, data: Path, tmp_path: Path) -> None:
    error = fails("fit", data, tmp_path / "model", "--h", "3", "--freq", "D", *arguments)
    assert re.search(message, error), error
    assert os.listdir(tmp_path) == ["sales.csv"]


def test_places_to_write_are_checked_before_any_work(model: Path, data: Path, tmp_path: Path) -> None:
    (model / "mine.txt").write_text("keep")
    before = contents(model)
    assert "holds other files" in fails("fit", data, model, *TINY)
    assert "holds other files" in fails("fit", data, data, *TINY)
    assert contents(model) == before
    assert "must end in .csv" in fails("predict", model, "--output", tmp_path / "out.txt")
    assert "there is no folder" in fails("predict", model, "--output", tmp_path / "no" / "out.csv")
    (tmp_path / "folder.csv").mkdir()
    assert "it is a folder" in fails("backtest", model, data, "--output", tmp_path / "folder.csv")


def test_models_that_are_none_are_refused(data: Path, tmp_path: Path) -> None:
    assert fails("predict", tmp_path / "no") == f"{tmp_path / 'no'} does not exist: give the folder that aru fit wrote."
    assert "is not a saved forecaster" in fails("update", tmp_path, data)


def test_other_bad_arguments_are_refused(model: Path, data: Path, tmp_path: Path) -> None:
    assert "between 0 and 100, got 120" in fails("predict", model, "--level", "120")
    assert "--late drop is not known" in fails("update", model, data, "--late", "drop")
    assert "--windows must be a whole number of at least 1" in fails("backtest", model, data, "--windows", "0")
    write(sales(0, 3), data)
    assert "No series is long enough for 2 windows of h=3" in fails("backtest", model, data, "--windows", "2")
    assert "--accelerator mps is not known" in fails("predict", model, "--accelerator", "mps")
    assert aru("fit", data, tmp_path / "other").code == 2  # typer's own message for a missing option


def test_numbered_series_stay_numbered(tmp_path: Path) -> None:
    data = write(sales(ids=["1", "2", "30"]), tmp_path / "sales.csv")
    assert aru("fit", data, tmp_path / "model", *TINY).code == 0
    assert Forecaster.load(tmp_path / "model").ids == [1, 2, 30]
    assert aru("predict", tmp_path / "model", "--ids", "30", "--json").json["forecasts"][0]["unique_id"] == 30
    new = write(sales(24, 25, ["1", "007"]), tmp_path / "new.csv")
    assert "series of the model are numbered, but unique_id of" in fails("update", tmp_path / "model", new)


def test_rows_beside_the_grid_of_a_model_are_refused_without_another_frequency(model: Path, tmp_path: Path) -> None:
    hours = sales(24, 27).assign(ds=lambda f: f["ds"] + pd.to_timedelta(f.groupby("unique_id").cumcount(), "h"))
    path = write(hours, tmp_path / "hours.csv")
    for command in ("update", "backtest"):
        message = fails(command, model, path)
        assert f"rows of {path} do not lie on the grid of freq='D': (007, 2024-01-26 01:00:00)" in message
        assert message.endswith(
            "This grid is settled, by training or by earlier rows: correct or drop the rows that do not fit."
        )


def test_debug_shows_the_traceback(model: Path) -> None:
    result = aru("predict", model, "--ids", "x", "--debug")
    assert result.code == 2
    assert "Traceback" in result.err
    assert result.err.splitlines()[-1].startswith("Error: The model has no series x")


def test_bugs_keep_their_traceback(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Forecaster, *arguments: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Forecaster, "predict", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        aru("predict", model)


# files


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
    assert files.read_data(path, files.Layout())["unique_id"].tolist() == expected
    again = write(files.read_data(path, files.Layout()), tmp_path / "again.csv")
    assert files.read_data(again, files.Layout())["unique_id"].tolist() == expected
    text = files.read_data(path, files.Layout().like(str))
    assert text["unique_id"].tolist() == cells


def test_ids_of_parquet_files_keep_their_type(tmp_path: Path) -> None:
    path = write(sales(ids=["1", "2"]), tmp_path / "text.parquet")
    assert files.read_data(path, files.Layout())["unique_id"].iloc[0] == "1"
    assert files.read_data(path, files.Layout().like(int))["unique_id"].iloc[0] == 1
    path = write(sales(ids=["1", "2"]).astype({"unique_id": int}), tmp_path / "numbers.parquet")
    assert files.read_data(path, files.Layout())["unique_id"].iloc[0] == 1
    assert files.read_data(path, files.Layout().like(str))["unique_id"].iloc[0] == "1"
    sales().set_index(["unique_id", "ds"]).to_parquet(tmp_path / "index.parquet")
    assert len(files.read_data(tmp_path / "index.parquet", files.Layout())) == 72


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
    assert files.read_data(path, files.Layout())["ds"].iloc[0] == expected


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


# the streams


def test_messages_speak_of_files_and_options() -> None:
    show = Screen()
    show.files = {"df": Path("sales.csv"), "new_df": Path("new.csv")}
    assert (
        show.translate("new_df lacks\n what df has, e.g. df['ds'].")
        == "new.csv lacks what sales.csv has, e.g. df['ds']."
    )
    assert show.translate("pass static_df") == "pass --static FILE"
    assert show.translate("h=3 and freq=None or late='skip'") == "--h 3 and --freq none or --late skip"
    assert show.translate("val_size, n_windows=0, width=3") == "--val-size, --windows 0, width=3"


def test_settings_of_a_saved_model_are_no_options() -> None:
    show = Screen()
    show.trained = True
    assert (
        show.translate("h=3, freq='D', lags, n_windows=2, late='skip'")
        == "h=3, freq='D', lags, --windows 2, --late skip"
    )


def test_foreign_warnings_stay_warnings(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predict = Forecaster.predict

    def warns(self: Forecaster, *arguments: Any) -> Any:
        warnings.warn("df is odd", AruWarning, stacklevel=2)
        warnings.warn("not ours", UserWarning, stacklevel=2)
        return predict(self, *arguments)

    monkeypatch.setattr(Forecaster, "predict", warns)
    with pytest.warns(UserWarning, match="not ours"):
        result = aru("predict", model)
    assert result.err == "Note: df is odd\n"


def start(*arguments: str | Path, code: str = "from aru.cli import main; main()") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_a_process_keeps_stdout_clean(data: Path, tmp_path: Path) -> None:
    done = start("fit", data, tmp_path / "model", *TINY[:-1], "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["series"] == 3
    assert done.stderr == ""
    failed = start("fit", data, tmp_path / "other", *TINY, "--transform", "sqrt")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("Error: --transform sqrt is not known: choose one of ")
    assert failed.stderr.count("\n") == 1


def test_the_package_runs_as_a_module() -> None:
    for module in ("aru", "aru.cli"):
        done = start("--version", code=f"import runpy; runpy.run_module({module!r}, run_name='__main__')")
        assert (done.stdout, done.stderr) == (aru("--version").out, "")


def test_help_needs_no_heavy_library() -> None:
    heavy = ("torch", "lightning", "pandas", "numpy", "narwhals", "scipy")
    code = f"import sys, aru.cli; print([m for m in {heavy!r} if m in sys.modules])"
    assert start(code=code).stdout == "[]\n"


# state


@pytest.fixture
def store(model: Path, tmp_path: Path) -> Path:
    with Stream(model, tmp_path / "state.db", correctable=2) as stream:
        stream.update(sales(24, 27, [*IDS, "new"]))
    return tmp_path / "state.db"


def test_state_info_says_what_is_in_a_store(store: Path, tmp_path: Path) -> None:
    shown = aru("state", "info", store)
    assert shown.code == 0
    assert re.search(r"series +observations +bytes a series +format +correctable +model", shown.out)
    assert "Latest times of series: from 2024-01-27 to 2024-01-27." in shown.out
    values = aru("state", "info", store, "--json").json
    assert values.pop("bytes_per_series") > 500
    assert len(values.pop("fingerprint")) == 32
    assert values == {
        "store": str(store), "series": 4, "observations": 3 * 27 + 3, "format": 1, "correctable": 2,
        "oldest_last_time": "2024-01-27", "newest_last_time": "2024-01-27", "notes": [],
    }  # fmt: skip


def test_state_moves_and_forgets(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "states.parquet"
    assert aru("state", "export", store, file, "--json").json["series"] == 4
    assert "states of 4 series" in aru("state", "import", file, tmp_path / "copy.db").out
    one, two = (aru("state", "info", path, "--json").json for path in (store, tmp_path / "copy.db"))
    assert {**one, "store": ""} == {**two, "store": ""}
    gone = aru("state", "forget", tmp_path / "copy.db", "--ids", "a,b", "--ids", "new", "--json").json
    assert gone == {"store": str(tmp_path / "copy.db"), "forgotten": ["a,b", "new"], "series": 2, "notes": []}
    assert "The model has no series x" in fails("state", "forget", store, "--ids", "x")
    assert aru("state", "info", store, "--json").json["series"] == 4


def test_state_migrate_replays_history_for_another_model(store: Path, model: Path, tmp_path: Path) -> None:
    history = write(sales(0, 27), tmp_path / "history.csv")
    assert aru("fit", history, tmp_path / "other", *TINY, "--seed", "5").code == 0
    with pytest.raises(StorageError, match="another model"):
        Stream(tmp_path / "other", store)
    arguments = ("--model", tmp_path / "other", "--data", history)
    result = aru("state", "migrate", store, tmp_path / "new.db", *arguments, "--json")
    assert result.code == 0, result
    assert result.json["missing"] == ["new"]
    assert (result.json["series"], result.json["applied"]) == (3, 3 * 27)
    assert "has no rows of 1 series" in result.err
    with Stream(tmp_path / "other", tmp_path / "new.db") as stream:
        assert stream.correctable == 2
        expected = Forecaster.load(tmp_path / "other").predict()
        pd.testing.assert_frame_equal(stream.predict(), expected, rtol=1e-5)
    assert "exists already: choose a new file" in fails("state", "migrate", store, tmp_path / "new.db", *arguments)
    bad = write(sales(0, 27).assign(y=np.inf), tmp_path / "bad.csv")
    before = sorted(os.listdir(tmp_path))
    message = fails("state", "migrate", store, tmp_path / "no.db", "--model", tmp_path / "other", "--data", bad)
    assert f"y of {bad} is infinite" in message
    assert sorted(os.listdir(tmp_path)) == before


def test_state_refuses_what_is_no_store(data: Path, tmp_path: Path) -> None:
    for command in (["info"], ["export"], ["forget"]):
        rest = {"export": [tmp_path / "x.parquet"], "forget": ["--ids", "a"]}.get(command[0], [])
        assert "does not exist: give the SQLite file" in fails("state", *command, tmp_path / "no.db", *rest)
        assert "cannot be used as a store" in fails("state", *command, data, *rest)
    assert "must end in .parquet" in fails("state", "export", data, tmp_path / "x.csv")
    assert "x.parquet does not exist" in fails("state", "import", tmp_path / "x.parquet", tmp_path / "new.db")
    table = write(sales(), tmp_path / "table.parquet")
    assert "is no export of a store" in fails("state", "import", table, tmp_path / "new.db")
    table.write_text("nothing of the kind")
    assert "cannot be read" in fails("state", "import", table, tmp_path / "new.db")
    assert sorted(os.listdir(tmp_path)) == ["sales.csv", "table.parquet"]


# serve


def test_serve_refuses_what_is_not_safe(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi", reason="the service needs the extra serve")
    monkeypatch.delenv("ARU_TOKEN", raising=False)
    serve = ["serve", model, "--state", tmp_path / "state.db"]
    assert "can be reached by other machines: give a token" in fails(*serve, "--host", "0.0.0.0")
    assert "at least 16 characters" in fails(*serve, "--token-file", write_text(tmp_path / "token", "short\n"))
    monkeypatch.setenv("ARU_TOKEN", "short")
    assert "at least 16 characters" in fails(*serve)
    monkeypatch.delenv("ARU_TOKEN")
    assert "cannot be read" in fails(*serve, "--token-file", tmp_path / "nothing")
    assert "port must lie between" in fails(*serve, "--port", "70000")
    assert "max_rows must be" in fails(*serve, "--max-rows", "0")
    assert "Nothing can listen on 192.0.2.1" in fails(
        *serve, "--host", "192.0.2.1", "--token-file", write_text(tmp_path / "token", "a-long-and-secret-token\n")
    )
    assert not (tmp_path / "state.db").exists()


def write_text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_serve_without_its_packages(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = importlib.import_module("aru.serve")
    monkeypatch.setattr(sys.modules["aru"], "serve", package)  # which the import that fails replaces
    for name in [name for name in sys.modules if name.startswith("aru.serve")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("fastapi", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "pip install 'aru-forecast[serve]'" in fails("serve", model, "--state", tmp_path / "state.db")
