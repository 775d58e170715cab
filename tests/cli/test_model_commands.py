"""`aru predict`, `update` and `backtest` on small files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from aru.cli import table_files
from aru.forecaster import Forecaster
from tests.cli.running import TINY, aru, contents, fails, sales, write
from tests.making import make


def test_predict_equals_the_library(model: Path, tmp_path: Path) -> None:
    expected = Forecaster.load(model).predict(level=[80, 90.5])
    for name in ("forecasts.csv", "forecasts.csv.gz", "forecasts.parquet"):
        result = aru("predict", model, "--level", "80", "--level", "90.5", "--output", tmp_path / name)
        assert result == (0, f"Wrote 9 rows (3 series, 3 steps) to {tmp_path / name}\n", "")
        read = table_files.read_future(tmp_path / name, table_files.TableFormat())
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
    assert fails("predict", model, "--ids", "7,NA") == "The model has no series 7. It has 007, NA, a,b."
    assert "names no series" in fails("predict", model, "--ids", ",")


def test_predict_reads_categories_as_training_did(tmp_path: Path) -> None:
    data = write(sales(), tmp_path / "sales.csv")
    assert aru("fit", data, tmp_path / "model", *TINY, "--futr-exog", "promo", "--futr-exog", "kind").code == 0
    message = fails("predict", tmp_path / "model")
    assert "need unique_id, ds, promo, kind of the next 3 steps of each series. Give --futr FILE." in message
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
    assert aru("fit", data, tmp_path / "model", *TINY, "--futr-exog", "promo").code == 0
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
    forecaster = make(h=3, freq="D", max_steps=2, size=[4, 4, 4, 3], trainer={"enable_progress_bar": False})
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
        "held_back": [],
        "series": 4, "notes": [],
    }  # fmt: skip
    updated = Forecaster.load(model)
    assert updated.ids == expected.ids
    assert updated.predict()["aru"].tolist() == expected.predict()["aru"].tolist()


def test_update_names_outliers(model: Path, new: Path) -> None:
    rows = sales(24, 25)
    rows.loc[rows.index[0], "y"] = -1e6
    write(rows, new)
    result = aru("update", model, new, "--json")
    assert [(row["unique_id"], row["y"]) for row in result.json["held_back"]] == [(rows.unique_id.iloc[0], -1e6)]


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


def test_the_same_file_again_is_known_however_long(model: Path, new: Path) -> None:
    """Longer than a series remembers; as long as no row of it was left out."""
    write(sales(24, 90), new)
    assert aru("update", model, new, "--json").json["applied"] == 3 * 66
    before = contents(model)
    again = aru("update", model, new, "--json").json
    assert (again["applied"], again["duplicates"], again["late"]) == (0, 3 * 66, [])
    assert contents(model) == before
    write(sales(91, 93), new)
    assert aru("update", model, new, "--json").json["gaps_filled"] == 3
    write(sales(24, 90), new)
    assert aru("update", model, new, "--json").json["duplicates"] == 3 * 66
    write(sales(24, 89), new)
    assert fails("update", model, new).endswith("Drop them, or pass --late skip.")


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
    about = "12 forecasts of 3 series, rows that training has not seen"
    assert result.err.startswith(f"Note: The forecasts of aru are worse than seasonal naive on {about}: ND ")
    assert re.search(r"ND +MASE +RMSE +coverage 90 +width 90", result.out)
    assert re.search(r"adapting +[\d.]+ .*\n *frozen .*\n *seasonal naive \(7\) ", result.out)
    assert f"Scores on {about}." in result.out
    assert "series: 3, forecasts: 12, steps of each: 3" in result.out
    expected = Forecaster.load(model).cross_validation(sales(0, 40), 4, level=[90])
    assert pd.read_csv(tmp_path / "out.csv")["aru"].tolist() == pytest.approx(expected["aru"].tolist())


def test_backtest_notes_what_flatters_the_model(model: Path, data: Path) -> None:
    arguments = ["--n-windows", "2", "--step-size", "1", "--level", "50", "--level", "80", "--no-adapt", "--json"]
    result = aru("backtest", model, data, *arguments)
    values = result.json
    assert list(values["scores"]) == ["frozen"]
    kinds = {"nd", "mase", "rmse", "values", "coverage-50", "width-50", "coverage-80", "width-80"}
    assert set(values["scores"]["frozen"]) == kinds
    assert values["scorecard"]["model"] == values["scores"]["frozen"]
    assert set(values["scorecard"]["naive"]) == kinds
    assert values["scorecard"]["about"].endswith(", some of them rows that training has seen")
    assert len(values["notes"]) == 2
    assert values["notes"][0].startswith("3 series have cutoffs inside the training data: (007, 2024-01-20)")
    assert values["notes"][1].startswith("The forecasts of aru are worse than seasonal naive on ")
    assert result.err == "".join(f"Note: {note}\n" for note in values["notes"])
    assert "Leave out --no-adapt" in fails("backtest", model, data, "--no-adapt", "--compare")


def test_backtest_notes_series_that_are_too_short(model: Path, tmp_path: Path) -> None:
    late = sales(37, 40)
    df = pd.concat([sales(0, 40), late[late["unique_id"] == late["unique_id"].iloc[0]].assign(unique_id="new")])
    result = aru("backtest", model, write(df, tmp_path / "sales.parquet"), "--compare")
    assert result.code == 0, result
    assert result.err.startswith("Note: 1 of 4 series are too short for 4 windows: new. They are scored on")
    assert [line.partition(" are ")[0] for line in result.err.splitlines()[1:]] == ["Note: The forecasts of aru"] * 2


def test_places_to_write_are_checked_before_any_work(model: Path, data: Path, tmp_path: Path) -> None:
    (model / "mine.txt").write_text("keep")
    before = contents(model)
    assert "holds other files" in fails("fit", data, model, *TINY)
    assert "holds other files" in fails("fit", data, data, *TINY)
    assert f"cannot be written: {data} does not allow it" in fails("fit", data, data / "model", *TINY)
    assert contents(model) == before
    assert "must end in .csv" in fails("predict", model, "--output", tmp_path / "out.txt")
    assert "there is no folder" in fails("predict", model, "--output", tmp_path / "no" / "out.csv")
    (tmp_path / "folder.csv").mkdir()
    assert "it is a folder" in fails("backtest", model, data, "--output", tmp_path / "folder.csv")


def test_models_that_are_none_are_refused(data: Path, tmp_path: Path) -> None:
    assert fails("predict", tmp_path / "no") == f"{tmp_path / 'no'} does not exist. Give the folder that aru fit wrote."
    assert "is not a saved forecaster" in fails("update", tmp_path, data)


@pytest.mark.usefixtures("as_users_run_it")
def test_other_bad_arguments_are_refused(model: Path, data: Path, tmp_path: Path) -> None:
    assert "between 0 and 100, got 120" in fails("predict", model, "--level", "120")
    assert "--late drop is not known" in fails("update", model, data, "--late", "drop")
    assert "--n-windows must be a whole number of at least 1" in fails("backtest", model, data, "--n-windows", "0")
    write(sales(0, 3), data)
    assert "No series is long enough for 2 windows of h=3" in fails("backtest", model, data, "--n-windows", "2")
    assert "--accelerator mps has no float64" in fails("predict", model, "--accelerator", "mps")
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


def test_rows_far_ahead_need_an_option(model: Path, tmp_path: Path) -> None:
    far = sales(24, 25).assign(ds=pd.Timestamp("2099-01-01"))
    new = write(far, tmp_path / "far.csv")
    message = fails("update", model, new)
    assert f"{new} has 3 rows far beyond 2024-01-24, the newest time of all series: (007, 2099-01-01)" in message
    assert message.endswith("or pass --allow-jump if time really went on that far. Nothing was applied.")
    both = write(pd.concat([sales(0, 24), far[:1]]), tmp_path / "both.csv")
    assert "--allow-jump if these times are right" in fails("backtest", model, both, "--n-windows", "1")
    assert aru("update", model, new, "--allow-jump", "--json").json["applied"] == 3


def test_columns_are_called_as_in_the_files(tmp_path: Path) -> None:
    theirs = {"unique_id": "shop", "ds": "date", "y": "sold"}
    data = write(sales().rename(columns=theirs), tmp_path / "sales.csv")
    columns = ["--id-col", "shop", "--time-col", "date", "--target-col", "sold"]
    model, out = tmp_path / "model", tmp_path / "out.csv"
    assert aru("fit", data, model, *TINY, *columns).code == 0
    assert list(aru("predict", model, "--json").json["forecasts"][0]) == ["shop", "date", "aru", "aru-median"]
    assert aru("predict", model, "-o", out).code == 0
    assert pd.read_csv(out).columns.tolist() == ["shop", "date", "aru", "aru-median"]
    assert aru("backtest", model, data, "--n-windows", "1", "-o", out).code == 0
    assert pd.read_csv(out).columns.tolist()[:4] == ["shop", "date", "cutoff", "sold"]
    late = aru("update", model, data, "--late", "skip", "--json").json["late"]
    assert list(late[0]) == ["shop", "date", "sold", "reason"]
    new = write(sales(24, 25).rename(columns={"unique_id": "store", "ds": "date", "y": "sold"}), tmp_path / "new.csv")
    assert aru("update", model, new, "--id-col", "store", "--json").json["applied"] == 3
    assert "has no column 'shop'" in fails("update", model, new)
