"""What every store promises."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aru import store as stores
from aru.errors import StorageError
from aru.store import About, Kind, MemoryStore, SQLiteStore, Store
from tests.spark.fakes import FakeMapState, FakeValueState

ABOUT = About(1, "f" * 32, 3, 24, [["now.last", "<i8", []]], False, True)
Open = Callable[[], Store]


def spark_store() -> Store:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'aru-forecast[spark]'")
    from aru.spark.state_store import StateStore

    store = StateStore()
    store.attach(FakeMapState(), FakeMapState(), FakeValueState(), FakeValueState(), 1)
    return store


def opener(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Open]:
    """Opens the same store again and again; closes all of them in the end."""
    shared, opened = spark_store() if kind == "spark" else MemoryStore(), list[Store]()
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None

    def make() -> Store:
        if url is not None:
            opened.append(stores.open_store(url))
        else:
            opened.append(SQLiteStore(folder / "state.db") if kind == "sqlite" else shared)
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture(params=["memory", "sqlite", "spark", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Every store."""
    yield from opener(request.param, request, tmp_path)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def open_whole(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Every store that sees a whole panel. On Spark a store is a shard of one."""
    yield from opener(request.param, request, tmp_path)


def fill(store: Store, **records: bytes) -> None:
    with store.writing() as change:
        change.put(list(records), list(records.values()))


def read(store: Store, *keys: Any) -> list[bytes | None]:
    with store.reading() as view:
        return view.get(keys)


def test_a_new_store_is_empty(open_store: Open) -> None:
    with open_store().reading() as view:
        assert view.about() is None
        assert view.keys() == []
        assert view.get(["a"]) == [None]
        assert view.get([]) == []


def test_records_come_back_as_they_were(open_store: Open) -> None:
    store = open_store()
    odd = ["", "ü ß", "a,b", "7", "x\x00y", "'); DROP TABLE series; --"]
    with store.writing() as change:
        change.describe(ABOUT)
        change.put(odd, [bytes([i]) * (1 + i * 3000) for i in range(len(odd))])
        change.put([odd[1]], [b"later"])
        assert change.get([odd[1], "nobody"]) == [b"later", None]
        assert change.keys() == sorted(odd)
    again = open_store()
    with again.reading() as view:
        assert view.about() == ABOUT
        assert view.keys() == sorted(odd)
        assert view.get([odd[2], "nobody", odd[0], odd[2]]) == [b"\x02" * 6001, None, b"\x00", b"\x02" * 6001]


def test_numbers_are_keys_of_their_own(open_store: Open) -> None:
    store = open_store()
    with store.writing() as change:
        change.put([10, 9, -3], [b"ten", b"nine", b"minus"])
    assert read(store, 9, 10, "9", -3) == [b"nine", b"ten", None, b"minus"]
    with store.reading() as view:
        assert view.keys() == [-3, 9, 10]


def test_many_records_at_once(open_store: Open) -> None:
    store = open_store()
    keys = [f"s{i:06}" for i in range(40_000)]
    with store.writing() as change:
        change.put(keys, [key.encode() for key in keys])
    with store.reading() as view:
        assert view.get(keys[::-1]) == [key.encode() for key in keys[::-1]]
        assert view.keys() == keys


def test_a_failed_change_leaves_nothing_behind(open_store: Open) -> None:
    store = open_store()
    fill(store, a=b"1", b=b"2")

    def fail() -> None:
        with store.writing() as change:
            change.describe(ABOUT)
            change.put(["a", "c"], [b"9", b"9"])
            change.delete(["b"])
            assert change.get(["a", "b", "c"]) == [b"9", None, b"9"]
            assert change.keys() == ["a", "c"]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert read(store, "a", "b", "c") == [b"1", b"2", None]
    with open_store().reading() as view:
        assert view.about() is None
        assert view.keys() == ["a", "b"]
    fill(store := open_store(), c=b"3")  # and the store goes on working
    assert read(store, "a", "b", "c") == [b"1", b"2", b"3"]


def test_removed_records_are_gone(open_store: Open) -> None:
    store = open_store()
    fill(store, a=b"1", b=b"2", c=b"3")
    with store.writing() as change:
        change.delete(["a", "c", "nobody"])
    with open_store().reading() as view:
        assert view.keys() == ["b"]
        assert view.get(["a", "b"]) == [None, b"2"]


def test_readers_see_all_of_a_change_or_nothing_and_do_not_wait_for_it(open_store: Open) -> None:
    store = open_store()
    fill(store, a=b"old", b=b"old")
    with store.writing() as change:
        change.put(["a", "b"], [b"new", b"new"])
        assert in_thread(lambda: read(store, "a", "b")) == [b"old", b"old"]
    assert in_thread(lambda: read(store, "a", "b")) == [b"new", b"new"]


def test_writers_take_turns(open_store: Open) -> None:
    store = open_store()
    fill(store, a=b"0")

    def count() -> None:
        for _ in range(20):
            with store.writing() as change:
                (value,) = change.get(["a"])
                assert value is not None
                change.put(["a"], [str(int(value) + 1).encode()])

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(store, "a") == [b"160"]


def test_every_change_adds_one_to_the_version(open_store: Open) -> None:
    store = open_store()

    def version() -> int | None:
        with store.reading() as view:
            return view.version()

    start = version()
    assert start is not None
    fill(store, a=b"1")
    with store.writing() as change:
        assert change.version() == start + 1
        change.delete(["a"])
    with pytest.raises(RuntimeError, match="broken off"), store.writing():
        raise RuntimeError("broken off")
    assert version() == start + 2


def in_thread(work: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join(10)
    return results[0]


# Records of the panel


def read_panel(store: Store, *keys: Any) -> list[bytes | None]:
    with store.reading() as view:
        return view.get(keys, "panel")


def test_a_new_store_has_no_records_of_a_panel(open_store: Open) -> None:
    with open_store().reading() as view:
        assert view.keys("panel") == []
        assert view.get(["a", 7], "panel") == [None, None]
        assert view.get([], "panel") == []


def test_records_of_a_panel_come_back_as_they_were(open_whole: Open) -> None:
    store = open_whole()
    odd = ["", "ü ß", "x\x00y", "'); DROP TABLE panel; --"]
    with store.writing() as change:
        change.put(odd, [bytes([i]) * (1 + i * 3000) for i in range(len(odd))], "panel")
        change.put([odd[1]], [b"later"], "panel")
        assert change.get([odd[1], "nobody"], "panel") == [b"later", None]
        assert change.keys("panel") == sorted(odd)
    with open_whole().reading() as view:
        assert view.keys("panel") == sorted(odd)
        assert view.get([odd[2], "nobody", odd[0], odd[2]], "panel") == [b"\x02" * 6001, None, b"\x00", b"\x02" * 6001]


def test_numbers_are_keys_of_their_own_in_a_panel_too(open_whole: Open) -> None:
    store = open_whole()
    with store.writing() as change:
        change.put([10, 9, -3], [b"ten", b"nine", b"minus"], "panel")
    assert read_panel(store, 9, 10, "9", -3) == [b"nine", b"ten", None, b"minus"]
    with store.reading() as view:
        assert view.keys("panel") == [-3, 9, 10]


def test_many_records_of_a_panel_at_once(open_whole: Open) -> None:
    store = open_whole()
    keys = [f"s{i:06}" for i in range(40_000)]
    with store.writing() as change:
        change.put(keys, [key.encode() for key in keys], "panel")
    with store.reading() as view:
        assert view.get(keys[::-1], "panel") == [key.encode() for key in keys[::-1]]
        assert view.keys("panel") == keys


@pytest.mark.parametrize(("kind", "other"), [("series", "panel"), ("panel", "series")])
def test_a_series_and_a_panel_of_one_key_are_two_records(open_whole: Open, kind: Kind, other: Kind) -> None:
    store = open_whole()
    with store.writing() as change:
        change.put(["a", "b"], [b"1", b"2"], kind)
        assert change.get(["a"], other) == [None]
        change.put(["a"], [b"9"], other)
        assert (change.get(["a"], kind), change.get(["a"], other)) == ([b"1"], [b"9"])
        assert (change.keys(kind), change.keys(other)) == (["a", "b"], ["a"])
    with store.writing() as change:
        change.put(["a"], [b"3"], kind)
    with open_whole().reading() as view:
        assert (view.get(["a", "b"], kind), view.get(["a", "b"], other)) == ([b"3", b"2"], [b"9", None])
    with store.writing() as change:
        change.delete(["a", "b", "nobody"], kind)
        assert (change.keys(kind), change.keys(other)) == ([], ["a"])
    with open_whole().reading() as view:
        assert (view.keys(kind), view.keys(other)) == ([], ["a"])
        assert (view.get(["a"], kind), view.get(["a"], other)) == ([None], [b"9"])


def test_series_are_meant_where_no_kind_is_said(open_whole: Open) -> None:
    store = open_whole()
    with store.writing() as change:
        change.put(["a"], [b"1"])
        change.put(["a"], [b"9"], "panel")
    with store.writing() as change:
        assert (change.keys(), change.get(["a"])) == (["a"], [b"1"])
        change.delete(["a"])
    assert (read(store, "a"), read_panel(store, "a")) == ([None], [b"9"])


def test_a_failed_change_leaves_neither_kind_behind(open_whole: Open) -> None:
    store = open_whole()
    with store.writing() as change:
        change.put(["a"], [b"1"])
        change.put(["a", "b"], [b"2", b"3"], "panel")

    def fail() -> None:
        with store.writing() as change:
            change.put(["a", "c"], [b"9", b"9"])
            change.put(["a", "c"], [b"9", b"9"], "panel")
            change.delete(["b"], "panel")
            assert change.keys("panel") == ["a", "c"]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    for again in (store, open_whole()):
        assert read(again, "a", "c") == [b"1", None]
        assert read_panel(again, "a", "b", "c") == [b"2", b"3", None]


def test_readers_see_both_kinds_of_a_change_or_neither(open_whole: Open) -> None:
    store = open_whole()

    def seen() -> Any:
        with store.reading() as view:
            return view.get(["a"]), view.get(["a"], "panel")

    with store.writing() as change:
        change.put(["a"], [b"old"])
        change.put(["a"], [b"old"], "panel")
    with store.writing() as change:
        change.put(["a"], [b"new"])
        change.put(["a"], [b"new"], "panel")
        assert in_thread(seen) == ([b"old"], [b"old"])
    assert in_thread(seen) == ([b"new"], [b"new"])


def test_a_change_of_a_panel_adds_one_to_the_version(open_whole: Open) -> None:
    store = open_whole()
    with store.reading() as view:
        start = view.version()
    with store.writing() as change:
        change.put(["a"], [b"1"], "panel")
    with store.reading() as view:
        assert view.version() == start + 1


def test_a_shard_on_spark_keeps_no_records_of_a_panel() -> None:
    """It sees some of the series only. Nothing of such a change is applied."""
    store = spark_store()
    fill(store, a=b"1")

    def put() -> None:
        with store.writing() as change:
            change.put(["a"], [b"2"])
            change.put(["a"], [b"2"], "panel")

    with pytest.raises(StorageError, match=r"a shard sees its own series only.*Use a model without"):
        put()
    assert (read(store, "a"), read_panel(store, "a")) == ([b"1"], [None])


def test_the_newest_time_is_known_until_series_change_without_it(open_store: Open) -> None:
    store = open_store()

    def newest() -> int | None:
        with open_store().reading() as view:
            return view.newest()

    assert newest() is None
    with store.writing() as change:
        change.put(["a"], [b"1"])
        change.keep_newest(5)
        assert change.newest() == 5
    assert newest() == 5
    with store.writing() as change:
        change.describe(ABOUT)
        assert change.newest() == 5
    assert newest() == 5
    with contextlib.suppress(ZeroDivisionError), store.writing() as change:
        change.keep_newest(7)
        raise ZeroDivisionError
    assert newest() == 5
    with store.writing() as change:
        change.keep_newest(3)
    assert newest() == 3
    for forget in (lambda c: c.put(["a"], [b"2"]), lambda c: c.delete(["a"])):
        with store.writing() as change:
            change.keep_newest(9)
        with store.writing() as change:
            forget(change)
            assert change.newest() is None
        assert newest() is None


# SQLite


def test_files_that_are_no_stores_are_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("these are my notes " * 100)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE mine (x)")
    other.close()
    for path in (text, tmp_path / "other.db", tmp_path, tmp_path / "no" / "folder.db"):
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(StorageError, match=r"cannot be used as a store: .*Give the path"):
            read(SQLiteStore(path), "a")
        assert before == (path.read_bytes() if path.is_file() else b"")


def test_a_change_is_on_disk_when_it_is_acknowledged(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state.db")
    with store._transaction("BEGIN") as connection:
        settings = {n: connection.execute(f"PRAGMA {n}").fetchone()[0] for n in ("journal_mode", "synchronous")}
    assert settings == {"journal_mode": "wal", "synchronous": 2}
    store.close()


def test_closing_merges_the_log_and_the_store_opens_again(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state.db")
    fill(store, a=b"1")
    store.close()
    assert os.listdir(tmp_path) == ["state.db"]
    assert read(store, "a") == [b"1"]
    store.close()


def test_a_forked_process_gets_connections_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLiteStore(tmp_path / "state.db")
    fill(store, a=b"1")
    parents = list(store._idle)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        assert read(store, "a") == [b"1"]
        assert not set(map(id, parents)) & set(map(id, store._idle))
    store.close()
    for connection in parents:
        connection.close()


def test_a_writer_that_never_gets_its_turn_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aru.store.sqlite.WAIT", 0.1)
    one, other = SQLiteStore(tmp_path / "state.db"), SQLiteStore(tmp_path / "state.db")
    with one.writing():
        with pytest.raises(StorageError, match=r"was busy for 0\.1 s with other writers\. Try again\."):
            fill(other, a=b"1")
        assert read(other, "a") == [None]
    fill(other, a=b"1")
    one.close()
    other.close()


def test_descriptions_that_cannot_be_read_are_refused() -> None:
    assert About.from_json(ABOUT.to_json()) == ABOUT
    for text in ("{", "[1]", '{"colour": 1}'):
        with pytest.raises(StorageError, match="Use the version of aru that wrote it"):
            About.from_json(text)
