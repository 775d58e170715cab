"""List, delete, export and import the records of a store. This needs no model."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from aru.errors import InputError, StorageError, UnknownSeriesError, listing, name_series, verbatim
from aru.store.atomic import new_file
from aru.store.contract import About, Key, Store, Transaction, chunks
from aru.store.layout import Layout
from aru.store.sqlite import SQLiteStore

ROW_GROUP = 2**13  # of a Parquet row group
DESCRIPTION_KEY, PANEL_KEY, SEAL_KEY = b"aru", b"aru.panel", b"aru.checksum"  # in the metadata of a file
SEAL_TYPE = b"\x18\x20"  # a text of 32 characters follows, as Parquet's metadata say it
UNSEALED = b"0" * 32
LAST, COUNT = "now.last", "now.context.count"  # fields of a record: latest time, number of observations


@dataclasses.dataclass(frozen=True)
class Contents:
    """The series of a store: latest time and number of observations of each."""

    about: About
    ids: pd.Index[Any]
    last: npt.NDArray[np.int64]
    observations: npt.NDArray[np.int64]


def contents(store: Store) -> Contents:
    """The series of a store. Every record is read and checked."""
    with store.reading() as view:
        about = view.require_about()
        keys, layout = view.keys(), Layout(about.layout)
        parts = [
            layout.unpack(require_known(some, view.get(some)), some, (LAST, COUNT)) for some in chunks(keys, ROW_GROUP)
        ]
    none = np.zeros(0, np.int64)
    last, count = (np.concatenate([none, *(part[name] for part in parts)]) for name in (LAST, COUNT))
    return Contents(about, index_of(keys, about.integer_ids), last, count.astype(np.int64))


def observations(view: Transaction, about: About) -> int:
    """The number of observations of all series. All records are read."""
    layout, keys = Layout(about.layout), view.keys()
    parts = (layout.unpack(require_known(some, view.get(some)), some, (COUNT,)) for some in chunks(keys, ROW_GROUP))
    return int(sum(float(part[COUNT].sum()) for part in parts))


def newest_time(view: Transaction, about: About) -> int | None:
    """The newest time of all series, None if there are none. All records are read if the store does not know it."""
    newest = view.newest()
    if newest is not None:
        return newest
    layout = Layout(about.layout)
    parts = (
        layout.unpack(require_known(some, view.get(some)), some, (LAST,)) for some in chunks(view.keys(), ROW_GROUP)
    )
    return max((int(part[LAST].max()) for part in parts), default=None)


def index_of(keys: Sequence[Any], integer: bool) -> pd.Index[Any]:
    """Ids as an index of integers or of strings."""
    index: pd.Index[Any] = pd.Index(keys, dtype=np.int64 if integer else object)
    return index


def forget(
    store: Store, ids: Iterable[Any] | str | int, together: Callable[[Transaction], None] = lambda change: None
) -> int:
    """Delete the records of series, all of them or none. Unknown series are an error. Returns their number.

    `together` is called before the transaction ends.
    """
    wanted = list(dict.fromkeys(as_keys(ids)))
    with store.writing() as change:
        require_known(wanted, change.get(wanted))
        change.delete(wanted)
        together(change)
    return len(wanted)


def as_keys(ids: Iterable[Any] | str | int) -> list[Key]:
    """Ids as keys of a store."""
    items = [ids] if isinstance(ids, (str, int, np.generic)) else ids
    if isinstance(items, (np.ndarray, pd.Index, pd.Series)):
        keys = items.tolist()
    else:
        keys = [i.item() if isinstance(i, np.generic) else i for i in items]
    other = [] if set(map(type, keys)) <= {str, int} else [key for key in keys if not isinstance(key, (str, int))]
    if other:
        raise InputError(f"These are not ids of series: {listing(other)}", "Give strings or integers.")
    return keys


def require_known(keys: Sequence[Key], blobs: Sequence[bytes | None]) -> list[bytes]:
    """The records, if there is one for every series."""
    unknown = [key for key, blob in zip(keys, blobs, strict=True) if blob is None]
    if unknown:
        raise unknown_series(unknown)
    return [blob for blob in blobs if blob is not None]


def unknown_series(ids: Sequence[Any]) -> UnknownSeriesError:
    """The error for series that were never observed."""
    rows = name_series(ids)
    return UnknownSeriesError(
        f"These series are not known: {rows}", "Give their observations to `update` first.", rows=rows
    )


def export(store: Store, path: str | Path) -> int:
    """Write all records to a Parquet file. Returns the number of series."""
    with store.reading() as view:
        shared = view.keys("panel")
        panel = dict(zip(shared, require_known(shared, view.get(shared, "panel")), strict=True))
        return write_export(path, view.require_about(), _batches(view), panel)


def _batches(view: Transaction) -> Iterable[tuple[Sequence[Key], list[bytes]]]:
    for some in chunks(view.keys(), ROW_GROUP):
        yield some, require_known(some, view.get(some))


def write_export(
    path: str | Path,
    about: About,
    batches: Iterable[tuple[Sequence[Key], Sequence[bytes]]],
    panel: Mapping[Key, bytes] | None = None,
) -> int:
    """Write records, batch by batch, to a Parquet file, which appears when complete. Returns the number of series.

    `panel` are the records that all series share. They are few, so that they fit into the metadata of the file.
    """
    target = Path(path)
    kind = pa.int64() if about.integer_ids else pa.string()
    shared = json.dumps([[key, base64.b64encode(record).decode()] for key, record in (panel or {}).items()])
    notes = {DESCRIPTION_KEY: about.to_json(), PANEL_KEY: shared, SEAL_KEY: UNSEALED}
    schema = pa.schema([("unique_id", kind), ("record", pa.binary())], notes)
    layout, total = Layout(about.layout), 0
    try:
        with new_file(target, replace=True) as part:
            with pq.ParquetWriter(part, schema) as writer:
                for keys, records in batches:
                    layout.check(records, keys)
                    writer.write_table(pa.table([pa.array(keys, kind), records], schema=schema))
                    total += len(keys)
            with part.open("r+b") as file:
                place = _seal_place(file, part)
                seal = _digest(file, place)
                file.seek(place)
                file.write(seal)
    except OSError as error:
        raise StorageError(
            f"{verbatim(target)} cannot be written ({verbatim(error)})", "Choose another file."
        ) from error
    return total


def import_(store: Store, path: str | Path, new: bool = False) -> int:
    """Put the records of an export into a store, replacing those of the same series. Returns the number of series.

    `new`: refuse a store that has records.
    """
    about, panel = read_notes(path)
    layout, total = Layout(about.layout), 0
    with _opened(path) as file, store.writing() as change:  # creates the file, so only after the export was checked
        present = change.about_or_new()
        if present is None:
            change.describe(about)
        elif new:
            raise StorageError(f"{verbatim(store)} has states already", "Choose a new one.")
        else:
            present.require(about, path)
        for batch in file.iter_batches(ROW_GROUP):
            keys, blobs = as_keys(batch.column("unique_id").to_pylist()), batch.column("record").to_pylist()
            layout.check(blobs, keys)
            change.put(keys, blobs)
            total += len(keys)
        change.put(list(panel), list(panel.values()), "panel")
    return total


def backup(store: Store, path: str | Path) -> int:
    """Write a complete copy of a SQLite file, also one in use, to a new file. Returns the number of series.

    Every record of the copy is read and checked.
    """
    if not isinstance(store, SQLiteStore):
        raise StorageError(
            f"{verbatim(store)} is no SQLite file", "Use pg_dump, or export its states: aru state export."
        )
    store.backup(path)
    copy = SQLiteStore(path)
    try:
        return len(contents(copy).ids)
    except BaseException:
        copy.close()
        copy.path.unlink()
        raise
    finally:
        copy.close()


def read_notes(path: str | Path) -> tuple[About, dict[Key, bytes]]:
    """The description of an export, and the records that all its series share. A damaged file is an error."""
    try:
        with Path(path).open("rb") as file:
            place = _seal_place(file, path)
            file.seek(place)
            if file.read(len(UNSEALED)) != _digest(file, place):
                raise StorageError(
                    f"{verbatim(path)} is damaged: its checksum is wrong", "Export the store again; nothing was read."
                )
    except OSError as error:
        raise _unreadable(path, error) from error
    with _opened(path) as parquet:
        notes = parquet.metadata.metadata
    return About.from_json(notes[DESCRIPTION_KEY]), {
        key: base64.b64decode(record) for key, record in json.loads(notes[PANEL_KEY])
    }


def _seal_place(file: BinaryIO, path: str | Path) -> int:
    """Where the checksum of an export is, in the metadata at the end of the file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    end = file.read()
    length = int.from_bytes(end[:4], "little")
    if size < 12 or end[4:] != b"PAR1" or length > size - 12:
        raise _unreadable(path, "it is no Parquet file, or not all of one")
    file.seek(size - 8 - length)
    at = file.read(length).rfind(SEAL_KEY + SEAL_TYPE)
    if at < 0:
        raise StorageError(f"{verbatim(path)} is no export of a store", "Give a file that an export wrote.")
    return size - 8 - length + at + len(SEAL_KEY + SEAL_TYPE)


def _digest(file: BinaryIO, place: int) -> bytes:
    """The checksum of a whole file, in which it counts as zeros itself."""
    digest = hashlib.blake2b(digest_size=len(UNSEALED) // 2)
    file.seek(0)
    left = place
    while left and (block := file.read(min(left, 2**20))):
        digest.update(block)
        left -= len(block)
    digest.update(UNSEALED)
    file.seek(place + len(UNSEALED))
    while block := file.read(2**20):
        digest.update(block)
    return digest.hexdigest().encode()


def _opened(path: str | Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | Path, reason: object) -> StorageError:
    return StorageError(f"{verbatim(path)} cannot be read ({verbatim(reason)})", "Give a file that an export wrote.")
