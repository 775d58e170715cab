"""`aru state`."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aru import Stream
from aru.errors import StorageError
from aru.forecaster import Forecaster
from aru.store.layout import FORMAT
from tests.cli.running import IDS, TINY, aru, fails, sales, write
from tests.postgres import Server, new_url


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
        "store": str(store), "series": 4, "observations": 3 * 27 + 3, "format": FORMAT, "correctable_steps": 2,
        "oldest_last_time": "2024-01-27", "newest_last_time": "2024-01-27", "version": 1, "kept_bytes": 0,
        "notes": [],
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
    history = write(sales(0, 27, [*IDS, "new"]), tmp_path / "history.csv")
    assert aru("fit", history, tmp_path / "other", *TINY, "--seed", "5").code == 0
    with pytest.raises(StorageError, match="another model"):
        Stream(tmp_path / "other", store)
    arguments = ("--model", tmp_path / "other", "--data", history)
    result = aru("state", "migrate", store, tmp_path / "new.db", *arguments, "--json")
    assert result.code == 0, result
    assert (result.json["series"], result.json["applied"]) == (4, 4 * 27)
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


def test_state_migrate_refuses_a_history_that_ends_before_the_store(store: Path, model: Path, tmp_path: Path) -> None:
    whole = sales(0, 27, [*IDS, "new"])
    last = whole["ds"].max()
    cases = {
        "days": (whole[whole["ds"] < last - pd.Timedelta(days=3)], "for 4 series: "),
        "one": (whole[(whole["ds"] < last) | (whole["unique_id"] != "new")], "for 1 series: (new, 2024-01-27)"),
        "series": (whole[whole["unique_id"] != "new"], "for 1 series: (new, 2024-01-27)"),
    }
    for name, (rows, named) in cases.items():
        data = write(rows, tmp_path / f"{name}.csv")
        message = fails("state", "migrate", store, tmp_path / "out.db", "--model", model, "--data", data)
        assert f"{data} ends before {store} does, {named}" in message
        assert "aru state forget" in message
    assert not list(tmp_path.glob("*out.db*"))
    data = write(whole, tmp_path / "whole.csv")
    assert aru("state", "migrate", store, tmp_path / "out.db", "--model", model, "--data", data).code == 0


def test_state_backup_copies_a_store_in_use(store: Path, model: Path, tmp_path: Path) -> None:
    with Stream(model, store) as stream:
        stream.update(sales(27, 28, [*IDS, "new"]))
        assert "has the states of 4 series" in aru("state", "backup", store, tmp_path / "copy.db").out
        expected = stream.predict()
        shutil.copy(store, tmp_path / "bare.db")
    with Stream(model, tmp_path / "copy.db") as copy:
        pd.testing.assert_frame_equal(copy.predict(), expected)
    message = fails("state", "info", tmp_path / "bare.db")
    assert "without its write-ahead log, bare.db-wal: it lacks the latest changes" in message
    assert "aru state backup --without-log" in message
    assert aru("state", "backup", tmp_path / "bare.db", tmp_path / "kept.db", "--without-log").code == 0
    assert aru("state", "info", tmp_path / "kept.db", "--json").json["series"] == 4
    assert "exists already" in fails("state", "backup", store, tmp_path / "copy.db")
    assert "does not exist" in fails("state", "backup", tmp_path / "no.db", tmp_path / "new.db")


def test_of_a_folder_of_stores_all_are_copied_or_none(store: Path, tmp_path: Path) -> None:
    states, copy = tmp_path / "states", tmp_path / "copies" / "today"
    states.mkdir()
    shutil.copy(store, states / "a.db")
    (states / "b.db").write_bytes(b"no store")
    assert "b.db cannot be used as a store" in fails("state", "backup", states, copy)
    assert list(copy.parent.iterdir()) == []
    shutil.copy(store, states / "b.db")
    assert f"{copy / 'b.db'} has the states of 4 series" in aru("state", "backup", states, copy).out
    assert sorted(path.name for path in copy.iterdir()) == ["a.db", "b.db"]
    assert "exists already" in fails("state", "backup", states, copy)
    assert "cannot be written" in fails("state", "backup", states, states / "a.db" / "copy")


def test_state_rewind_takes_back_the_latest_rows(store: Path, model: Path, tmp_path: Path) -> None:
    with Stream(model, tmp_path / "expected.db", correctable_steps=2) as stream:
        stream.update(sales(24, 26, [*IDS, "new"]))
        expected = stream.predict()
    arguments = ("--model", model, "--ids", "new", "--ids", ",".join(i for i in IDS if "," not in i))
    whole = [i for i in IDS if "," in i]
    result = aru(
        "state",
        "rewind",
        store,
        *arguments,
        *(v for i in whole for v in ("--ids", i)),
        "--before",
        "2024-01-27",
        "--json",
    )
    assert result.code == 0, result
    assert result.json["rows"] == 4
    with Stream(model, store) as stream:
        pd.testing.assert_frame_equal(stream.predict(), expected, rtol=1e-5)
        assert stream.update(sales(26, 27, [*IDS, "new"])).applied == 4
    rewind = ("state", "rewind", store, "--model", model, "--ids", "new", "--before")
    assert "1 series have no rows at or after 2024-01-28, their latest are (new, 2024-01-27)" in fails(
        *rewind, "2024-01-28"
    )
    assert "keep only the latest 2 rows" in fails(*rewind, "2024-01-20")
    assert "--before cannot be read as timestamps" in fails(*rewind, "soon")
    assert "has no series x" in fails(
        "state", "rewind", store, "--model", model, "--ids", "x", "--before", "2024-01-27"
    )
    with Stream(model, tmp_path / "fixed.db") as stream:
        stream.update(sales(24, 27))
    message = fails(
        "state", "rewind", tmp_path / "fixed.db", "--model", model, "--ids", IDS[0], "--before", "2024-01-27"
    )
    assert "keeps no recent rows that could be taken back" in message


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


def test_state_commands_take_the_address_of_a_postgres_database(
    model: Path, store: Path, tmp_path: Path, postgres_url: str, postgres_server: Server
) -> None:
    """As they take a file; none shows the password, and none creates what it looks into."""
    ours = postgres_url.replace("@", ":s3cret@", 1)
    for look in (["info", ours], ["export", ours, tmp_path / "x.parquet"], ["forget", ours, "--ids", "a"]):
        message = fails("state", *look)
        assert "holds no store. Give the address of one." in message
        assert "s3cret" not in message
    file = tmp_path / "states.parquet"
    aru("state", "export", store, file)
    shown = [aru("state", "import", file, ours), aru("state", "info", ours, "--json")]
    shown += [aru("state", "export", ours, tmp_path / "again.parquet")]
    shown += [aru("state", "rewind", ours, "--model", model, "--ids", "new", "--before", "2024-01-27", "--json")]
    shown += [aru("state", "forget", ours, "--ids", "new", "--json")]
    assert [result.code for result in shown] == [0] * 5, shown
    assert not any("s3cret" in text for result in shown for text in (result.out, result.err))
    one, two = aru("state", "info", store, "--json").json, shown[1].json
    assert {**two, "store": ""} == {**one, "store": ""}
    assert two["store"] == postgres_url
    assert (shown[3].json["rows"], shown[4].json["series"]) == (1, 3)
    assert "is no SQLite file. Use pg_dump" in fails("state", "backup", ours, tmp_path / "copy.db")

    history = write(sales(0, 27, [*IDS, "new"]), tmp_path / "history.csv")
    target = new_url(postgres_server)
    migrate = ("state", "migrate", ours, target, "--model", model, "--data", history, "--json")
    assert aru(*migrate).json == {"store": target, "series": 4, "applied": 4 * 27, "notes": []}
    assert "has states already. Choose a new one." in aru(*migrate).err
    with Stream(model, target) as stream:
        assert stream.series()["observations"].tolist() == [27] * 4
        assert stream.update(sales(27, 28, [*IDS, "new"])).applied == 4
