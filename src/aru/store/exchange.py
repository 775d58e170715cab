"""List, delete, export and import the records of a store. This needs no model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from aru.errors import InputError, StorageError, UnknownSeriesError, listing, name_series, verbatim
from aru.store.contract import About, Key, Store, Transaction, chunks
from aru.store.layout import Layout, stack

ROW_GROUP = 2**13  # of a Parquet row group
DESCRIPTION_KEY = b"aru"  # key of the store's description in the metadata of a file
LAST, COUNT = "now.last", "now.context.count"  # fields of a record: latest time, number of observations


@dataclasses.dataclass(frozen=True)
class Contents:
    """The series of a store: latest time and number of observations of each."""

    about: About
    ids: pd.Index[Any]
    last: npt.NDArray[np.int64]
    observations: npt.NDArray[np.int64]


def contents(store: Store) -> Contents:
    """The series of a store, read from the first bytes of each record."""
    with store.reading() as view:
        about = view.require_about()
        keys = view.keys()
        layout = Layout(about.layout)
        heads = view.heads(layout.end_of([LAST, COUNT]))
    last, count = (layout.peek(heads, name, keys) for name in (LAST, COUNT))
    return Contents(about, index_of(keys, about.integer_ids), last, count.astype(np.int64))


def newest_time(view: Transaction, about: About) -> int | None:
    """The newest time of all series, None if there are none. The heads are read only if the store does not know it."""
    newest = view.newest()
    if newest is not None:
        return newest
    keys = view.keys()
    layout = Layout(about.layout)
    return int(layout.peek(view.heads(layout.end_of([LAST])), LAST, keys).max()) if keys else None


def index_of(keys: Sequence[Any], integer: bool) -> pd.Index[Any]:
    """Ids as an index of integers or of strings."""
    index: pd.Index[Any] = pd.Index(keys, dtype=np.int64 if integer else object)
    return index


def forget(store: Store, ids: Iterable[Any] | str | int) -> int:
    """Delete the records of series, all of them or none. Unknown series are an error. Returns their number."""
    wanted = list(dict.fromkeys(as_keys(ids)))
    with store.writing() as change:
        require_known(wanted, change.get(wanted))
        change.delete(wanted)
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
        return write_export(path, view.require_about(), _batches(view))


def _batches(view: Transaction) -> Iterable[tuple[Sequence[Key], list[bytes]]]:
    for some in chunks(view.keys(), ROW_GROUP):
        yield some, require_known(some, view.get(some))


def write_export(path: str | Path, about: About, batches: Iterable[tuple[Sequence[Key], Sequence[bytes]]]) -> int:
    """Write records, batch by batch, to a Parquet file, which appears when complete. Returns their number."""
    target = Path(path)
    part = target.with_name(f".{target.name}.part")
    kind = pa.int64() if about.integer_ids else pa.string()
    schema = pa.schema([("unique_id", kind), ("record", pa.binary())], {DESCRIPTION_KEY: about.to_json()})
    total = 0
    try:
        with pq.ParquetWriter(part, schema) as writer:
            for keys, records in batches:
                stack(records, about.size, keys)
                writer.write_table(pa.table([pa.array(keys, kind), records], schema=schema))
                total += len(keys)
        os.replace(part, target)
    except OSError as error:
        raise StorageError(
            f"{verbatim(target)} cannot be written ({verbatim(error)})", "Choose another file."
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return total


def import_(store: Store, path: str | Path) -> int:
    """Put the records of an export into a store, replacing those of the same series. Returns the number of series."""
    with _opened(path) as file:
        about = _description(file, path)
        with store.writing() as change:  # creates the file, so only after the export was opened
            present = change.about()
            if present is None:
                change.describe(about)
            else:
                present.require(about, path)
            total = 0
            for batch in file.iter_batches(ROW_GROUP):
                keys, blobs = batch.column("unique_id").to_pylist(), batch.column("record").to_pylist()
                stack(blobs, about.size, keys)
                change.put(keys, blobs)
                total += len(keys)
    return total


def describe(path: str | Path) -> About:
    """The description of the records of an export."""
    with _opened(path) as file:
        return _description(file, path)


def _opened(path: str | Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(
            f"{verbatim(path)} cannot be read ({verbatim(error)})", "Give a file that an export wrote."
        ) from error


def _description(file: pq.ParquetFile, path: str | Path) -> About:
    description = (file.schema_arrow.metadata or {}).get(DESCRIPTION_KEY)
    if description is None:
        raise StorageError(f"{verbatim(path)} is no export of a store", "Give a file that an export wrote.")
    return About.from_json(description)
