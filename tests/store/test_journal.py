"""The journal of a store, what a service keeps in it, who leads, and stores that are removed."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aru.errors import StorageError
from aru.store import MemoryStore, SQLiteStore, Store, open_store
from aru.store.sqlite import FIRST_TABLES, LATER_TABLES


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Every store that can keep a journal."""
    if request.param == "memory":
        yield MemoryStore()
        return
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else tmp_path / "state.db"
    with closing(open_store(url)) as opened:
        yield opened


def append(store: Store, *entries: bytes) -> None:
    with store.writing([]) as change:
        for entry in entries:
            change.append(entry)


def test_entries_have_rising_numbers_and_the_latest_one_stays(store: Store) -> None:
    with store.reading() as view:
        assert (view.last_entry(), view.entries(0, 10), view.keys()) == (0, [], [])
    append(store, b"one", b"two")
    append(store, b"\x00three")
    with store.reading() as view:
        assert view.entries(0, 10) == [(1, b"one"), (2, b"two"), (3, b"\x00three")]
        assert view.entries(1, 1) == [(2, b"two")]
        assert view.last_entry() == 3
        assert view.journal_bytes() >= 12
    with store.writing() as change:
        change.drop_entries(2)
        assert change.entries(0, 10) == [(3, b"\x00three")]
        change.drop_entries(9)
    assert store.settled() == 3
    append(store, b"four")
    with store.reading() as view:
        assert view.entries(0, 10) == [(3, b"\x00three"), (4, b"four")]
        assert view.keys() == []
        assert view.about_or_new() is None


def test_a_failed_change_leaves_no_entry(store: Store) -> None:
    append(store, b"one")

    def fail() -> None:
        with store.writing([]) as change:
            change.append(b"two")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with store.reading() as view:
        assert view.entries(0, 10) == [(1, b"one")]


def test_a_copy_has_the_numbers_of_the_original(store: Store) -> None:
    with store.writing() as change:
        change.append(b"seven", 7)
        change.append(b"nine", 9)
        assert change.last_entry() == 9
    append(store, b"ten")
    with store.reading() as view:
        assert view.entries(6, 10) == [(7, b"seven"), (9, b"nine"), (10, b"ten")]


def test_what_a_service_keeps_is_beside_the_series(store: Store) -> None:
    with store.writing() as change:
        change.put(["model"], [b"{}"], "service")
        change.put(["model", 2], [b"[]", b"bytes"], "service")
    with store.reading() as view:
        assert view.get(["model", 2, 3], "service") == [b"[]", b"bytes", None]
        assert (view.number(), view.keys()) == (0, [])
    with store.writing(["a"]) as change:
        change.put(["a"], [b"1"])
        change.keep_newest(1)
        change.put(["model"], [b"later"], "service")
        change.delete([2], "service")
    with store.reading() as view:
        assert (view.number(), view.keys("service"), view.get(["model"], "service")) == (1, ["model"], [b"later"])


def test_a_file_of_an_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(SQLiteStore(path)) as store, store.writing() as change:
        change.put(["a"], [b"1"])
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for name in (name for name in LATER_TABLES if "_" not in name):
            file.execute(f"DROP TABLE {name}")
        assert dict(file.execute("SELECT name, sql FROM sqlite_master")) == FIRST_TABLES
    with closing(SQLiteStore(path)) as store:
        append(store, b"entry")
        with store.reading() as view:
            assert (view.get(["a"]), view.entries(0, 1)) == ([b"1"], [(1, b"entry")])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_removed_store_is_gone(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    where = request.getfixturevalue("postgres_url") if kind == "postgres" else tmp_path / "state.db"
    with closing(open_store(where)) as store:
        append(store, b"entry")
        assert store.size() > 1000
        store.remove()
        assert list(tmp_path.iterdir()) == []
        with store.reading() as view:  # a new one
            assert view.last_entry() == 0
    with pytest.raises(StorageError, match="cannot be removed"):
        MemoryStore().remove()


def test_one_process_of_all_leads_in_postgres_until_it_ends(postgres_url: str) -> None:
    one, other = open_store(postgres_url), open_store(postgres_url)
    assert one.lead("follow")
    assert one.lead("follow")
    assert not other.lead("follow")
    assert other.lead("something else")
    one._leading["follow"].close()  # type: ignore[attr-defined] # as when its process dies
    assert other.lead("follow")
    assert not one.lead("follow")
    other.close()
    assert one.lead("follow")
    one.close()


def test_settled_waits_in_postgres_for_those_who_may_still_write(postgres_url: str) -> None:
    """A number that is taken before another one may become visible after it."""
    with closing(open_store(postgres_url)) as store, closing(open_store(postgres_url)) as other:
        append(store, b"one")
        found = list[int]()
        with store.writing(["a"]) as change:
            change.append(b"two, slowly")
            append(other, b"three")
            with other.reading() as view:
                assert view.entries(0, 9) == [(1, b"one"), (3, b"three")]
            waiting = threading.Thread(target=lambda: found.append(other.settled()))
            waiting.start()
            waiting.join(0.3)
            assert found == []
        waiting.join(10)
        assert found == [3]
        with other.reading() as view:
            assert [number for number, _ in view.entries(0, 9)] == [1, 2, 3]
            assert view.version() == 3  # to ask changes nothing
