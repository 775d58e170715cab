"""What the SQLite file promises beyond the contract: creation, copies, damage, paths."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from aru.errors import StorageError
from aru.store import About, SQLiteStore, Transaction, exchange
from aru.store.layout import Layout

LAYOUT = Layout([("now.last", "<i8", ()), ("now.context.count", "<f8", ())])
ABOUT = About(1, "f" * 32, 0, LAYOUT.size, LAYOUT.to_json(), False, False)
IDS = [f"series-{i:04}" for i in range(2000)]
ROOT = Path(__file__).resolve().parents[2]


def fill(path: Path, day: int = 1) -> SQLiteStore:
    store = SQLiteStore(path)
    with store.writing() as change:
        change.describe(ABOUT)
        arrays = {"now.last": np.full(len(IDS), day), "now.context.count": np.ones(len(IDS))}
        change.put(IDS, LAYOUT.pack(arrays, IDS))
    return store


def days(path: Path) -> set[int]:
    with closing(SQLiteStore(path)) as store:
        return set(exchange.contents(store).last.tolist())


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("state.db")
    monkeypatch.chdir(tmp_path / "elsewhere")
    with store.writing() as change:
        change.put(["a"], [b"1"])
    store.close()
    assert os.listdir(tmp_path / "elsewhere") == []
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "state.db"]


def test_a_store_is_created_by_whoever_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has created it between our look and our attempt."""
    path = tmp_path / "state.db"
    fill(path).close()
    with monkeypatch.context() as late:
        late.setattr(Path, "exists", lambda _: False)
        store = SQLiteStore(path)
        with store.reading() as view:
            assert view.keys() == IDS
    store.close()
    assert os.listdir(tmp_path) == ["state.db"]


def test_a_file_that_is_deleted_while_it_is_in_use_is_not_created_again(tmp_path: Path) -> None:
    store = fill(tmp_path / "state.db")
    store.close()
    with closing(SQLiteStore(tmp_path / "state.db")) as other:
        other.remove()
    with pytest.raises(StorageError, match="was deleted or replaced while it was in use"), store.reading():
        pass
    assert os.listdir(tmp_path) == []
    assert fill(tmp_path / "state.db").path.exists()  # as a new store


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_to_a_file_that_has_lost_its_name(replaced: bool, tmp_path: Path) -> None:
    """An open connection would go on with it: what it takes in would be gone with the process."""
    path = tmp_path / "state.db"
    store = fill(path)
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()
    if replaced:
        fill(path).close()
    for use in (store.writing, store.reading):
        with pytest.raises(StorageError, match="was deleted or replaced while it was in use"), use():
            pass
    store.close()
    assert path.exists() == replaced


def test_an_empty_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    with pytest.raises(StorageError, match=r"state\.db is empty, which a store never is\. Restore it from a backup"):
        days(tmp_path / "state.db")
    assert (tmp_path / "state.db").stat().st_size == 0


def test_a_copy_without_its_log_is_refused(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    store = fill(path)
    shutil.copy(path, copy)
    for _ in range(2):  # the first attempt must leave nothing behind that lets the second one in
        with pytest.raises(
            StorageError, match=r"copy without its write-ahead log|without its write-ahead log, copy\.db-wal"
        ):
            days(copy)
    assert sorted(p.name for p in tmp_path.glob("copy*")) == ["copy.db"]
    shutil.copy(f"{path}-wal", f"{copy}-wal")  # with it all is well
    assert days(copy) == {1}
    assert days(path) == {1}  # and so is the store, whoever else has it open
    store.close()
    shutil.copy(path, tmp_path / "closed.db")
    assert days(tmp_path / "closed.db") == {1}


def test_what_was_in_the_log_alone_is_missed(tmp_path: Path) -> None:
    """The file holds an older state, which looks complete."""
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    fill(path).close()
    store = fill(path, day=2)
    shutil.copy(path, copy)
    with pytest.raises(StorageError, match="it lacks the latest changes"):
        days(copy)
    store.close()


def test_whoever_closes_last_leaves_a_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    one, two = fill(path), fill(path, day=2)
    for store in (two, one):
        store.close()
    assert os.listdir(tmp_path) == ["state.db"]
    assert days(path) == {2}
    one, two = SQLiteStore(path), fill(path, day=3)
    with one.reading() as view:
        assert view.keys() == IDS
    two.close()
    one.close()  # a reader
    assert os.listdir(tmp_path) == ["state.db"]
    assert days(path) == {3}


@pytest.mark.parametrize(
    "end", ["", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "import os; os._exit(0)"]
)
def test_a_process_that_never_closes_its_store_leaves_a_complete_one(end: str, tmp_path: Path) -> None:
    begin = "import sys, pathlib, tests.store.test_sqlite as t; store = t.fill(pathlib.Path(sys.argv[1]))"
    code = f"{begin}\n{end}"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "state.db")], check=not end, env=environment, cwd=ROOT)
    assert days(tmp_path / "state.db") == {1}


def test_a_backup_of_a_store_in_use(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy.db"
    store = fill(path)
    with store.writing() as change:
        change.put(["new"], LAYOUT.pack({"now.last": np.array([9]), "now.context.count": np.array([1.0])}, ["new"]))
        other = SQLiteStore(path)
        assert exchange.backup(other, copy) == len(IDS)  # of what is complete
        other.close()
    assert days(copy) == {1}
    with pytest.raises(StorageError, match=r"copy\.db exists already\. Choose a new file"):
        exchange.backup(store, copy)
    with pytest.raises(StorageError, match="cannot be written"):
        exchange.backup(store, tmp_path / "no" / "folder.db")
    store.close()
    assert sorted(os.listdir(tmp_path)) == ["copy.db", "state.db"]


def test_a_backup_takes_what_a_copy_without_log_holds_if_told_so(tmp_path: Path) -> None:
    path, copy, saved = tmp_path / "state.db", tmp_path / "copy.db", tmp_path / "saved.db"
    fill(path).close()
    store = fill(path, day=2)
    shutil.copy(path, copy)
    store.close()
    with closing(SQLiteStore(copy, without_log=True)) as opened:
        assert exchange.backup(opened, saved) == len(IDS)
    assert len(days(saved)) == 1


def test_a_damaged_record_is_no_backup(tmp_path: Path) -> None:
    fill(tmp_path / "state.db").close()
    change_file(tmp_path / "state.db", "UPDATE series SET record = zeroblob(length(record)) WHERE id = 'series-0007'")
    store = SQLiteStore(tmp_path / "state.db")
    with pytest.raises(StorageError, match=r"1 series are damaged or of another version: series-0007\."):
        exchange.backup(store, tmp_path / "copy.db")
    store.close()
    assert os.listdir(tmp_path) == ["state.db"]


def change_file(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_an_index_that_lost_a_series_is_found(tmp_path: Path) -> None:
    """Else the series would begin anew. Its id is in the table, which nobody reads, and in two indexes."""
    path, lost = tmp_path / "state.db", IDS[1234]
    fill(path).close()
    data = path.read_bytes()
    places = [at for at in range(len(data)) if data.startswith(lost.encode(), at)]
    looks: list[Callable[[Transaction], bool]] = [
        lambda view: view.get([lost]) != [None],
        lambda view: view.keys() == IDS,
    ]

    def refused(look: Callable[[Transaction], bool]) -> bool:
        with closing(SQLiteStore(path)) as store:
            try:
                with store.reading() as view:
                    assert look(view)
            except StorageError as error:
                return "its index of series is damaged" in str(error)
        return False

    found = []
    for at in places:
        path.write_bytes(data[:at] + b"series-xxxx" + data[at + len(lost) :])
        found.append([refused(look) for look in looks])
    assert sorted(found) == [[False, False], [False, True], [True, True]]


def test_tables_of_another_kind_are_refused(tmp_path: Path) -> None:
    fill(tmp_path / "state.db").close()
    trigger = "CREATE TRIGGER t AFTER INSERT ON series BEGIN DELETE FROM series; END"
    change_file(tmp_path / "state.db", trigger)
    with pytest.raises(StorageError, match="its tables are damaged, or of another version"):
        days(tmp_path / "state.db")


@pytest.mark.parametrize(
    "statement", ["DELETE FROM about", "UPDATE about SET description = replace(description, 'f', 'e')"]
)
def test_a_store_does_not_begin_anew_without_its_description(statement: str, tmp_path: Path) -> None:
    fill(tmp_path / "state.db").close()
    change_file(tmp_path / "state.db", statement)
    store = SQLiteStore(tmp_path / "state.db")
    with pytest.raises(StorageError, match="description"), store.writing() as change:
        change.about_or_new()
    store.close()
