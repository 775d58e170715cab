"""How the records of a shard lie in Spark's state store: many in one entry, as a call costs more than a record.

A series belongs to a bucket by its id. A bucket has a base, with all its series, and recent changes. A batch that
changes few series of a bucket rewrites the recent ones only; when they are many, they are merged into the base. So
dense batches pay a few calls for a whole bucket, and sparse ones write little more than what changed. Buckets are
doubled in number when series become more.

Entries are text: Spark sends text to Python several times as fast as bytes.
"""

from __future__ import annotations

import binascii
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from aru.store import Key

SIZE = 32  # series of a bucket, at most, on average
MERGED_SHARE = 4  # recent changes are merged when they are one in so many of the bucket's series
CODEC = pa.Codec("lz4_raw")
ENTRY_HEAD = struct.Struct("<II")  # sizes: of everything, and of the ids and lengths
Records = dict[Any, bytes]


def pack(records: Mapping[Any, bytes]) -> str:
    """Ids and records as text."""
    ids = json.dumps([list(records), [len(record) for record in records.values()]]).encode()
    plain = b"".join((ids, *records.values()))
    packed = ENTRY_HEAD.pack(len(plain), len(ids)) + CODEC.compress(plain, asbytes=True)
    return binascii.b2a_base64(packed, newline=False).decode("ascii")


def unpack(text: str) -> Records:
    """The reverse of `pack`."""
    packed = binascii.a2b_base64(text)
    size, begin = ENTRY_HEAD.unpack_from(packed)
    plain = CODEC.decompress(memoryview(packed)[ENTRY_HEAD.size :], decompressed_size=size, asbytes=True)
    ids, lengths = json.loads(plain[:begin])
    records = {}
    for key, length in zip(ids, lengths, strict=True):
        records[key] = plain[begin : begin + length]
        begin += length
    return records


class Counts(NamedTuple):
    """What has to be known of a shard before its entries are read."""

    buckets: int = 0
    series: int = 0  # in bases
    bases: int = 0  # entries
    recents: int = 0


class Buckets:
    """The records of one shard during one batch, over Spark's map states of bases and recent changes."""

    def __init__(self, base: Any, recent: Any, shards: int, counts: Counts) -> None:
        self._base, self._recent, self._shards = _Entries(base, counts.bases), _Entries(recent, counts.recents), shards
        self._count, self._series = counts.buckets, counts.series

    def counts(self) -> Counts:
        """The present counts."""
        return Counts(self._count, self._series, self._base.count, self._recent.count)

    def load(self, keys: Iterable[Key]) -> Iterator[bytes | None]:
        """The record of each key."""
        for key in keys:
            bucket = self._bucket(key)
            found = self._recent[bucket].get(key)
            yield self._base[bucket].get(key) if found is None else found

    def keys(self) -> set[Key]:
        """All series."""
        return {key for bucket in range(self._count) for part in (self._base, self._recent) for key in part[bucket]}

    def apply(self, changed: Mapping[Key, bytes | None]) -> None:
        """Write and remove records."""
        self._make_room(len(changed))
        groups: dict[int, dict[Key, bytes | None]] = {}
        for key, record in changed.items():
            groups.setdefault(self._bucket(key), {})[key] = record
        for bucket, some in groups.items():
            recent = {**self._recent[bucket], **some}
            if None in some.values() or self._many(bucket, len(recent)):
                self._merge(bucket, recent)
            else:
                self._recent.write(bucket, recent)

    def _many(self, bucket: int, recent: int) -> bool:
        """Whether so many recent changes are to be merged. Few of them are left alone without reading the base."""
        return MERGED_SHARE * recent >= SIZE // 2 and MERGED_SHARE * recent >= len(self._base[bucket])

    def _merge(self, bucket: int, recent: Mapping[Key, bytes | None]) -> None:
        merged = {**self._base[bucket], **recent}
        merged = {key: record for key, record in merged.items() if record is not None}
        self._series += len(merged) - len(self._base[bucket])
        self._base.write(bucket, merged)
        self._recent.write(bucket, {})

    def _make_room(self, first: int) -> None:
        """Begin with buckets for the `first` series, and double them, one after the other, when series are many."""
        if self._count == 0:
            self._count = 1
            while self._count * SIZE < first:
                self._count *= 2
        while self._count * SIZE < self._series:
            old, self._count = self._count, 2 * self._count
            for bucket in range(old):
                for part in (self._base, self._recent):
                    here = part[bucket]
                    moved = {key: record for key, record in here.items() if self._bucket(key) != bucket}
                    if moved:
                        part.write(bucket, {key: record for key, record in here.items() if key not in moved})
                        part.write(bucket + old, moved)

    def _bucket(self, key: Key) -> int:
        return zlib.crc32(str(key).encode()) // self._shards % max(1, self._count)


class _Entries:
    """The buckets of one map state. What was read or written is remembered."""

    def __init__(self, state: Any, count: int) -> None:
        self._state, self.count = state, count  # of entries: a state without any is not asked
        self._open: dict[int, Records] = {}

    def __getitem__(self, bucket: int) -> Records:
        if bucket not in self._open:
            found = self._state.getValue((bucket,)) if self.count else None
            self._open[bucket] = {} if found is None else unpack(found[0])
        return self._open[bucket]

    def write(self, bucket: int, records: Any) -> None:
        """Replace the records of a bucket."""
        self.count += bool(records) - bool(self[bucket])
        if records:
            self._state.updateValue((bucket,), (pack(records),))
        elif self[bucket]:
            self._state.removeKey((bucket,))
        self._open[bucket] = records
