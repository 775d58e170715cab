"""Exports: all records travel, damaged files are refused whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aru.errors import InputError, StorageError
from aru.store import About, MemoryStore, SQLiteStore, Store, exchange
from aru.store.layout import Layout

LAYOUT = Layout([("now.last", "<i8", ()), ("now.context.count", "<f8", ())])
ABOUT = About(1, "f" * 32, 0, LAYOUT.size, LAYOUT.to_json(), False, False)
IDS = ["", "a,b", "b", "ü"]


def records(day: int) -> list[bytes]:
    return LAYOUT.pack({"now.last": np.full(4, day), "now.context.count": np.ones(4)}, IDS)


@pytest.fixture
def store() -> Store:
    store = MemoryStore()
    with store.writing() as change:
        change.describe(ABOUT)
        change.put(IDS, records(1))
    return store


@pytest.fixture
def target(tmp_path: Path) -> Iterator[SQLiteStore]:
    target = SQLiteStore(tmp_path / "target.db")
    yield target
    target.close()


def test_records_of_the_panel_travel_too(store: Store, target: SQLiteStore, tmp_path: Path) -> None:
    with store.writing() as change:
        change.put(["all", "more"], [b"shared by all", bytes(range(256))], "panel")
    assert exchange.export(store, tmp_path / "states.parquet") == 4
    assert exchange.import_(target, tmp_path / "states.parquet") == 4
    with target.reading() as view:
        assert view.get(["all", "more"], "panel") == [b"shared by all", bytes(range(256))]
        assert view.get(IDS) == records(1)
        assert (view.keys(), view.keys("panel")) == (IDS, ["all", "more"])
    assert exchange.read_notes(tmp_path / "states.parquet")[0] == ABOUT
    assert pq.read_table(tmp_path / "states.parquet")["unique_id"].to_pylist() == IDS  # anybody can read it


def test_a_damaged_export_is_refused_whole(store: Store, target: SQLiteStore, tmp_path: Path) -> None:
    path = tmp_path / "states.parquet"
    exchange.export(store, path)
    exchange.import_(target, path)
    whole = path.read_bytes()
    with store.writing() as change:
        change.put(IDS, records(2))
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(StorageError, match=r"states\.parquet (is damaged|cannot be read|is no export)"):
            exchange.import_(target, path)
    for cut in (0, 5, 100, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(StorageError, match=r"states\.parquet (cannot be read|is no export)"):
            exchange.import_(target, path)
    with target.reading() as view:
        assert view.get(IDS) == records(1)


def test_an_export_that_somebody_made_up_is_refused_whole(store: Store, target: SQLiteStore, tmp_path: Path) -> None:
    """Even with a checksum of the file: every record has its own, and belongs to its series."""
    path = tmp_path / "states.parquet"
    one, two, three, four = records(1)
    cases = [
        (IDS, [two, one, three, four]),
        (IDS, [one, two, three, four[:-8] + bytes(8)]),
        (IDS, [one, two, three, b""]),
    ]
    for ids, made in cases:
        with pytest.raises(StorageError, match="series are damaged"):
            exchange.write_export(path, ABOUT, [(ids, made)])
    assert os.listdir(tmp_path) == []
    forged = {"check": lambda *_: None, "size": LAYOUT.size}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "Layout", lambda _: type("Anything", (), forged))
        exchange.write_export(path, ABOUT, [(IDS, [two, one, three, four])])
    with pytest.raises(StorageError, match=r"2 series are damaged or of another version: , a,b\."):
        exchange.import_(target, path)
    with target.reading() as view:
        assert (view.about(), view.keys()) == (None, [])


def test_ids_of_an_export_are_ids(store: Store, target: SQLiteStore, tmp_path: Path) -> None:
    path = tmp_path / "states.parquet"
    exchange.write_export(path, ABOUT, [(IDS, records(1))])
    table = pq.read_table(path)
    nobody = table.set_column(0, "unique_id", pa.array([None, *IDS[1:]], pa.string()))
    pq.write_table(
        nobody.replace_schema_metadata({**table.schema.metadata, exchange.SEAL_KEY: exchange.UNSEALED}), path
    )
    with path.open("r+b") as file:
        place = exchange._seal_place(file, path)
        seal = exchange._digest(file, place)
        file.seek(place)
        file.write(seal)
    with pytest.raises(InputError, match="not ids of series: None"):
        exchange.import_(target, path)


def test_an_export_replaces_an_older_one_when_it_is_complete(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "states.parquet"
    exchange.export(store, path)
    before = path.read_bytes()

    def broken() -> Iterator[tuple[list[str], list[bytes]]]:
        yield IDS, records(1)
        raise OSError("no space left on device")

    with pytest.raises(StorageError, match="no space left"):
        exchange.write_export(path, ABOUT, broken())
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["states.parquet"]
