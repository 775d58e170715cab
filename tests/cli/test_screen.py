"""What a command says, on which stream, and in whose words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from aru.cli.setting_options import OPTIONS
from aru.cli.wording import Wording, flags
from aru.errors import AruWarning
from aru.forecaster import Forecaster
from tests.cli.running import ROOT, TINY, aru, sales, write


def test_messages_speak_of_files_and_options() -> None:
    settings = {name: option.flag for name, option in OPTIONS.items()}
    word = Wording({**settings, **flags("val_size", "late"), "df": Path("sales.csv"), "static_df": "--static FILE"})
    assert word("df") == "sales.csv"
    assert word("static_df") == "--static FILE"
    assert word("df['ds']") == "df['ds']"
    assert [word(m) for m in ("h=3", "freq=None", "late='skip'")] == ["--h 3", "--freq none", "--late skip"]
    assert [word(m) for m in ("val_size", "futr_exog_list", "width=3")] == ["--val-size", "--futr-exog", "width=3"]
    assert [word(m) for m in ("gate", "gate=True", "gate=False")] == ["--gate", "--gate", "--no-gate"]
    assert [word(m) for m in ("lags=(7, 14)", "ridge=0.5", "random_seed=3")] == [
        "--lags 7,14",
        "--ridge 0.5",
        "--seed 3",
    ]


def test_settings_of_a_saved_model_are_no_options() -> None:
    word = Wording({"n_windows": "--n-windows", **flags("late")})
    marked = ("h=3", "freq='D'", "lags", "n_windows=2", "late='skip'")
    assert [word(m) for m in marked] == ["h=3", "freq='D'", "lags", "--n-windows 2", "--late skip"]


def test_a_failure_as_json(model: Path, new: Path) -> None:
    """Standard output has one object, whether a command succeeds or not; standard error has the line for people."""
    assert aru("update", model, new).code == 0
    write(sales(24, 28).assign(y=99.0), new)
    result = aru("update", model, new, "--json")
    assert result.code == 2
    error = result.json["error"]
    assert result.json["notes"] == []
    assert result.err == f"Error: {error['message']}\n"
    assert error["type"] == "LateError"
    assert error["message"].startswith(f"{new} has 9 rows at or before the latest time of their series")
    assert error["remedy"] == "Nothing was applied. Drop them, or pass --late skip."
    assert error["message"].endswith(error["remedy"])
    assert error["total_rows"] == len(error["rows"]) == 9
    assert {name: error["rows"][0][name] for name in ("unique_id", "ds")} == {"unique_id": "007", "ds": "2024-01-25"}
    assert error["rows"][0]["reason"]


def test_what_users_name_stays_as_they_wrote_it(model: Path, tmp_path: Path) -> None:
    """Backticks mark names of the library in its messages, not in files, ids, columns and values."""
    odd = "a`late`b"
    error = aru("predict", model, "--ids", odd, "--json").json["error"]
    assert error["message"].startswith(f"The model has no series {odd}. ")
    assert error["rows"] == [{"unique_id": odd}]
    frame = sales(24, 27).rename(columns={"y": odd})
    path = write(frame, tmp_path / f"{odd}.csv")
    assert f"Error: {path} has no column 'y'; it has 'unique_id', 'ds', {odd!r}" in aru("update", model, path).err
    path = write(frame.assign(**{odd: odd, "unique_id": odd}), path)
    result = aru("update", model, path, "--target-col", odd)
    assert f"Error: {odd} of {path} is not a number in " in result.err
    assert f"{odd!r} at ({odd}, 2024-01-25)" in result.err


def test_a_failure_about_columns_as_json(model: Path, tmp_path: Path) -> None:
    frame = sales(24, 27).astype({"y": object})
    frame.loc[4, "y"] = "abc"
    error = aru("update", model, write(frame, tmp_path / "new.csv"), "--json").json["error"]
    assert (error["type"], error["columns"], error["total_rows"]) == ("ColumnError", ["y"], 1)
    assert error["rows"] == [{"unique_id": "NA", "ds": "2024-01-26", "row": 4}]
    assert aru("predict", tmp_path / "nothing", "--json").json == {
        "error": {
            "type": "StorageError",
            "message": f"{tmp_path / 'nothing'} does not exist. Give the folder that aru fit wrote.",
            "remedy": "Give the folder that aru fit wrote.",
            "columns": [],
            "rows": [],
            "total_rows": 0,
        },
        "notes": [],
    }


def test_foreign_warnings_stay_warnings(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predict = Forecaster.predict

    def warns(self: Forecaster, *arguments: Any) -> Any:
        warnings.warn("`futr_df` is strange", AruWarning, stacklevel=2)
        warnings.warn("not ours", UserWarning, stacklevel=2)
        return predict(self, *arguments)

    monkeypatch.setattr(Forecaster, "predict", warns)
    with pytest.warns(UserWarning, match="not ours"):
        result = aru("predict", model)
    assert result.err == "Note: --futr FILE is strange\n"


def start(*arguments: str | Path, code: str = "from aru.cli import main; main()") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_a_process_keeps_stdout_clean(data: Path, tmp_path: Path) -> None:
    done = start("fit", data, tmp_path / "model", *TINY[:-1], "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["series"] == 3
    assert len(told["notes"]) == 1  # after five steps: worse than seasonal naive
    assert done.stderr == f"Note: {told['notes'][0]}\n"
    failed = start("fit", data, tmp_path / "other", *TINY, "--transform", "sqrt")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("Error: --transform sqrt is not known. Choose one of ")
    assert failed.stderr.count("\n") == 1


def test_the_package_runs_as_a_module() -> None:
    for module in ("aru", "aru.cli"):
        done = start("--version", code=f"import runpy; runpy.run_module({module!r}, run_name='__main__')")
        assert (done.stdout, done.stderr) == (aru("--version").out, "")


def test_help_needs_no_heavy_library() -> None:
    heavy = ("torch", "lightning", "pandas", "numpy", "narwhals", "scipy")
    code = f"import sys, aru.cli; print([m for m in {heavy!r} if m in sys.modules])"
    assert start(code=code).stdout == "[]\n"
