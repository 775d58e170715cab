"""`aru state`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aru import Stream
from aru.errors import StorageError
from aru.forecaster import Forecaster
from tests.cli.running import IDS, TINY, aru, fails, sales, write


@pytest.fixture
def store(model: Path, tmp_path: Path) -> Path:
    with Stream(model, tmp_path / "state.db", correctable_steps=2) as stream:
        stream.update(sales(24, 27, [*IDS, "new"]))
    return tmp_path / "state.db"


def test_state_info_says_what_is_in_a_store(store: Path, tmp_path: Path) -> None:
    shown = aru("state", "info", store)
    assert shown.code == 0
    assert re.search(r"series +observations +bytes a series +format +correctable steps +model", shown.out)
    assert "Latest times of series: from 2024-01-27 to 2024-01-27." in shown.out
    values = aru("state", "info", store, "--json").json
    assert values.pop("bytes_per_series") > 500
    assert len(values.pop("fingerprint")) == 32
    assert values == {
        "store": str(store), "series": 4, "observations": 3 * 27 + 3, "format": 1, "correctable_steps": 2,
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
    assert f"{store} has no series x" in fails("state", "forget", store, "--ids", "x")
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
        assert stream.correctable_steps == 2
        expected = Forecaster.load(tmp_path / "other").predict()
        pd.testing.assert_frame_equal(stream.predict(), expected, rtol=1e-5)
    assert "exists already. Choose a new file" in fails("state", "migrate", store, tmp_path / "new.db", *arguments)
    bad = write(sales(0, 27).assign(y=np.inf), tmp_path / "bad.csv")
    before = sorted(os.listdir(tmp_path))
    message = fails("state", "migrate", store, tmp_path / "no.db", "--model", tmp_path / "other", "--data", bad)
    assert f"y of {bad} is infinite" in message
    assert sorted(os.listdir(tmp_path)) == before


def test_state_refuses_what_is_no_store(data: Path, tmp_path: Path) -> None:
    for command in (["info"], ["export"], ["forget"]):
        rest = {"export": [tmp_path / "x.parquet"], "forget": ["--ids", "a"]}.get(command[0], [])
        assert "does not exist. Give the SQLite file" in fails("state", *command, tmp_path / "no.db", *rest)
        assert "cannot be used as a store" in fails("state", *command, data, *rest)
    assert "must end in .parquet" in fails("state", "export", data, tmp_path / "x.csv")
    assert "x.parquet does not exist" in fails("state", "import", tmp_path / "x.parquet", tmp_path / "new.db")
    table = write(sales(), tmp_path / "table.parquet")
    assert "is no export of a store" in fails("state", "import", table, tmp_path / "new.db")
    table.write_text("nothing of the kind")
    assert "cannot be read" in fails("state", "import", table, tmp_path / "new.db")
    assert sorted(os.listdir(tmp_path)) == ["sales.csv", "table.parquet"]
