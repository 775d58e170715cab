"""The byte format of a record: the same in memory, in every store and in an export.

    3 bytes   "ARU"
    1 byte    format version
    the fields of the record one after the other, little-endian, as the layout lists them
    zeros     up to a multiple of 8 bytes
    8 bytes   checksum of all that and of the series' id

All records of one kind have the same layout, so that many of them are one (record, bytes) array.

The checksum of the 64-bit words x_1, x_2, ... is sum(w_i x_i + v_i floor(x_i / 2^32)) + u crc32(id) modulo 2^64, with
fixed odd weights. It always finds damage within one half of a word, and other damage but for a chance of about 2^-32. A
sum is all that numpy needs for it, so that it costs far less than crc32 of every record.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from aru.errors import StorageError, name_series

FORMAT = 1
HEAD = np.frombuffer(b"ARU" + bytes([FORMAT]), np.uint8)
WORD = np.dtype("<u8")
_HEAD, _PADDING, _CHECKSUM = "head", "padding", "checksum"  # no path of a field
_AT_ONCE = 2**19  # bytes of records that are packed or unpacked together: they fit into the processor's cache

Words = npt.NDArray[np.uint64]
Arrays = Mapping[str, npt.NDArray[Any]]
Names: TypeAlias = "Sequence[Any] | pd.Index[Any]"


class Field(NamedTuple):
    """One array of a record."""

    name: str
    dtype: str  # as numpy writes it, little-endian
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes in a record."""
        return int(np.dtype(self.dtype).itemsize * math.prod(self.shape))


class Layout:
    """Which fields a record has, in order."""

    def __init__(self, fields: Sequence[Sequence[Any]]) -> None:
        self.fields = [_field(*field) for field in fields]
        padding = -(len(HEAD) + sum(field.size for field in self.fields)) % WORD.itemsize
        parts = [(_HEAD, "u1", (len(HEAD),)), *self.fields, (_PADDING, "u1", (padding,)), (_CHECKSUM, WORD, ())]
        self._dtype = np.dtype(parts)  # packed, as the fields are
        self.size = self._dtype.itemsize
        weights = _weights(2 * (self.size // WORD.itemsize - 1) + 1)
        self._key_weight, (self._whole, self._high) = weights[0], weights[1:].reshape(2, -1)
        self._block = max(1, _AT_ONCE // self.size)

    @classmethod
    def of(cls, arrays: Arrays) -> Layout:
        """The layout of records that hold the (record, ...) arrays."""
        return cls([(name, array.dtype.newbyteorder("<").str, array.shape[1:]) for name, array in arrays.items()])

    def to_json(self) -> list[list[Any]]:
        """Name, type and shape of every field."""
        return [[f.name, f.dtype, list(f.shape)] for f in self.fields]

    def pack(self, arrays: Arrays, names: Names) -> list[bytes]:
        """One blob per record, from the (record, ...) arrays of all fields. `names` are the ids of the series."""
        blobs: list[bytes] = []
        out = np.zeros(min(len(names), self._block), self._dtype)
        out[_HEAD] = HEAD
        for at in range(0, len(names), self._block):
            here = names[at : at + self._block]
            part = out[: len(here)]
            for field in self.fields:
                part[field.name] = arrays[field.name][at : at + len(here)]
            part[_CHECKSUM] = self._checksums(part, here)
            blobs += part.view(f"V{self.size}").tolist()
        return blobs

    def unpack(
        self, blobs: Sequence[Any], names: Names, fields: Sequence[str] | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """The inverse of `pack`, for all or some fields. Damaged records are an error that names their series.

        Files that are damaged may hold anything in place of bytes.
        """
        wanted = [field for field in self.fields if fields is None or field.name in fields]
        out = {f.name: np.empty((len(blobs), *f.shape), f.dtype) for f in wanted}
        damaged: list[int] = []
        for at in range(0, len(blobs), self._block):
            part, wrong = self._read(blobs[at : at + self._block], names[at : at + self._block])
            damaged += [at + i for i in wrong]
            if not damaged:
                for field in wanted:
                    out[field.name][at : at + len(part)] = part[field.name]
        if damaged:
            raise unreadable([names[i] for i in damaged])
        return out

    def check(self, blobs: Sequence[Any], names: Names) -> None:
        """Refuse damaged records."""
        self.unpack(blobs, names, ())

    def _read(self, blobs: Sequence[Any], names: Names) -> tuple[npt.NDArray[Any], list[int]]:
        """Blobs as an array, and the positions of damaged ones."""
        wrong = [i for i, blob in enumerate(blobs) if type(blob) is not bytes or len(blob) != self.size]
        if wrong:
            return np.zeros(0, self._dtype), wrong
        data = np.frombuffer(bytearray().join(blobs), self._dtype)
        good = (data[_HEAD] == HEAD).all(1) & (data[_CHECKSUM] == self._checksums(data, names))
        return data, np.flatnonzero(~good).tolist()

    def _checksums(self, data: npt.NDArray[Any], names: Names) -> Words:
        words = data.view(WORD).reshape(len(data), -1)[:, :-1]
        keys = np.array([zlib.crc32(str(name).encode("utf-8", "surrogatepass")) for name in names], WORD)
        sums: Any = np.einsum("ij,j->i", words, self._whole) + np.einsum("ij,j->i", words >> WORD.type(32), self._high)
        sums += self._key_weight * keys
        return np.asarray(sums, WORD)


def _field(name: Any, dtype: Any, shape: Any) -> Field:
    """A field of plain numbers."""
    if not (np.dtype(dtype).kind in "biuf" and all(type(size) is int and 0 <= size < 2**31 for size in shape)):
        raise ValueError(f"{name} is no array of numbers")
    return Field(name, dtype, tuple(shape))


def _weights(count: int) -> Words:
    """Fixed odd numbers: the sequence of splitmix64."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=WORD) * WORD.type(0x9E3779B97F4A7C15)
        z = (z ^ (z >> WORD.type(30))) * WORD.type(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> WORD.type(27))) * WORD.type(0x94D049BB133111EB)
        odd: Words = (z ^ (z >> WORD.type(31))) | WORD.type(1)
    return odd


def unreadable(names: Sequence[Any]) -> StorageError:
    """The error for damaged records of these series."""
    rows = name_series(names)
    return StorageError(
        f"The stored states of {len(rows)} series are damaged or of another version: {rows}",
        "Restore them from a backup or an export, or rebuild them with aru state migrate.",
        rows=rows,
    )
