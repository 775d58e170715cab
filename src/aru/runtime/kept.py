"""Rows that a service keeps in the journal of its store, call by call, for models that come later.

An entry is what one update brought: the rows that were applied or corrected, as they were sent, or the series that were
deleted. Whoever replays all entries in order has the history that the series have had. An entry is

    time (microseconds since 1970, 8 bytes), CRC-32 of the rest (4 bytes), JSON compressed by zlib
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aru.data.clock import UTC, Clock
from aru.data.columns import as_frame
from aru.data.moments import read_times
from aru.errors import InputError, StorageError, verbatim
from aru.runtime.runtime import Runtime
from aru.runtime.update import Update
from aru.store import Key, Store, Transaction

ENTRY_HEADER = struct.Struct("<qI")
FASTEST = 1  # of zlib's levels
READ_ENTRIES = 2**8  # at a time
MERGED = 2**14  # calls that become one frame


class Call(NamedTuple):
    """One update of a stream. Without rows, series were deleted."""

    rows: Mapping[str, Sequence[Any]]  # unique_id, ds, y and covariates; ds as integers
    clock: tuple[str | None, bool] | None  # zone and wall of timestamps (`aru.data.clock`); None: integers
    static: Mapping[str, Sequence[Any]] | None  # static covariates of new series
    correct: bool  # whether rows may replace what was consumed
    requests: Sequence[str]  # digests of the requests that the rows came with
    forgotten: Sequence[Key] = ()

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.rows.get("ds", ()))

    def frame(self) -> pd.DataFrame:
        """The rows."""
        frame = pd.DataFrame(self.rows)
        if self.clock is not None:
            frame["ds"] = Clock(*self.clock).write(np.asarray(self.rows["ds"], np.int64))
        return frame

    def static_frame(self) -> pd.DataFrame | None:
        """The static covariates."""
        return None if self.static is None else pd.DataFrame(self.static)

    def to_entry(self) -> bytes:
        """As bytes, with the time of now."""
        body = zlib.compress(json.dumps(self._asdict(), separators=(",", ":")).encode(), FASTEST)
        return ENTRY_HEADER.pack(time.time_ns() // 1000, zlib.crc32(body)) + body

    @classmethod
    def from_entry(cls, number: int, entry: bytes) -> Call:
        """The inverse of `to_entry`."""
        try:
            (_, checksum), body = ENTRY_HEADER.unpack_from(entry), entry[ENTRY_HEADER.size :]
            if zlib.crc32(body) != checksum:
                raise ValueError("its checksum is wrong")
            found = json.loads(zlib.decompress(body))
            clock = found.pop("clock")
            return cls(**found, clock=None if clock is None else (clock[0], clock[1]))
        except (struct.error, zlib.error, ValueError, TypeError) as error:
            raise StorageError(
                f"Entry {number} of the kept rows is damaged ({verbatim(error)})", "Restore the store from a backup."
            ) from error


def merged(some: Sequence[Call]) -> Call:
    """Calls of one clock as one. Columns that some of them lack are None there."""
    first = some[0]
    if len(some) == 1:
        return first
    statics = [call.static for call in some if call.static is not None]
    return first._replace(
        rows=_stacked([call.rows for call in some]),
        static=_stacked(statics) if statics else None,
        requests=[digest for call in some for digest in call.requests],
    )


def _stacked(tables: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, list[Any]]:
    sizes = [len(table["unique_id"]) for table in tables]
    names = dict.fromkeys(name for table in tables for name in table)
    return {
        name: [value for table, n in zip(tables, sizes, strict=True) for value in table.get(name) or [None] * n]
        for name in names
    }


def forgotten(keys: Sequence[Key]) -> bytes:
    """The entry of series that were deleted."""
    return Call({}, None, None, False, (), list(keys)).to_entry()


def consumed_call(
    runtime: Runtime[Any],
    rows: Mapping[str, Any],
    static: Mapping[str, Any] | None,
    correct: bool,
    requests: Sequence[bytes],
    update: Update,
) -> Call | None:
    """What an update has consumed of these columns; None if it was nothing."""
    result = update.result
    if not (result.applied or result.corrected):
        return None
    frame = as_frame({name: rows[name] for name in ("unique_id", "ds")}, "df")
    ds, clock = read_times(frame, runtime.freq, "df")
    columns: dict[str, Any] = {**rows, "ds": ds}
    refused = {
        pair for part in (result.left_out, update.repeated) for pair in zip(part["unique_id"], part["ds"], strict=True)
    }
    if refused:
        pairs = zip(rows["unique_id"].tolist(), ds.tolist(), strict=True)
        kept = np.fromiter((pair not in refused for pair in pairs), bool, len(ds))
        columns = {name: values[kept] for name, values in columns.items()}
    begun = set(update.new_ids.tolist())
    fresh = None
    if static is not None and begun:
        of = np.fromiter((key in begun for key in static["unique_id"].tolist()), bool, len(static["unique_id"]))
        fresh = {name: values[of].tolist() for name, values in static.items()}
    return Call(
        {name: values.tolist() for name, values in columns.items()},
        None if clock is None else (clock.zone, clock.wall),
        fresh,
        correct and result.corrected > 0,
        [digest.hex() for digest in requests],
    )


def calls(view: Transaction, after: int = 0, until: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The entries after a number, one by one."""
    while found := view.entries(after, READ_ENTRIES):
        for number, entry in found:
            if until is not None and number > until:
                return
            yield number, entry
        after = found[-1][0]


def oldest_time(view: Transaction) -> float | None:
    """When the first of the entries was written; None if there is none."""
    found = view.entries(0, 1)
    return time_of(found[0][1]) if found else None


def time_of(entry: bytes) -> float:
    """When an entry was written, in seconds since 1970."""
    microseconds: int = ENTRY_HEADER.unpack_from(entry)[0]
    return microseconds / 1e6


def drop_older(change: Transaction, before: float, until: int) -> None:
    """Remove entries up to a number that were written before a time.

    Numbers and times rise together, so bisection finds the place.
    """
    low, high = 0, change.last_entry()  # entries up to `low` are older; from `high` on they are not, or are the latest
    while high - low > 1:
        middle = (low + high) // 2
        ((number, entry),) = change.entries(middle - 1, 1)
        if number < high and time_of(entry) < before:
            low = number
        else:
            high = middle
    change.drop_entries(min(low, until))


def kept_frames(store: Store) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The rows that a store keeps, each series and time once, and the static covariates of its series."""
    frames, statics, pending = list[pd.DataFrame](), list[pd.DataFrame](), list[Call]()

    def flush() -> None:
        if pending:
            whole = merged(pending)
            frames.append(whole.frame())
            if (static := whole.static_frame()) is not None:
                statics.append(static)
            pending.clear()

    with store.reading() as view:
        for number, entry in calls(view):
            call = Call.from_entry(number, entry)
            if pending and (call.forgotten or call.clock != pending[0].clock or len(pending) >= MERGED):
                flush()
            if call.forgotten:
                gone = list(call.forgotten)
                frames[:], statics[:] = ([f[~f["unique_id"].isin(gone)] for f in part] for part in (frames, statics))
            else:
                pending.append(call)
        flush()
    if not frames:
        raise InputError(
            f"{verbatim(store)} keeps no rows", "Start the service with --keep 400d, and wait until rows have come."
        )
    zones = {str(frame["ds"].dt.tz) for frame in frames if frame["ds"].dtype.kind == "M"}
    if len(zones) > 1:
        frames = [frame.assign(ds=pd.to_datetime(frame["ds"], utc=True).dt.tz_convert(UTC)) for frame in frames]
    rows = pd.concat(frames, ignore_index=True).drop_duplicates(["unique_id", "ds"], keep="last")
    static = pd.concat(statics).drop_duplicates("unique_id", keep="last") if statics else None
    rows = rows.sort_values(["unique_id", "ds"], kind="stable", ignore_index=True)
    return rows, static if static is None else static.reset_index(drop=True)
