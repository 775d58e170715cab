"""The byte format of a record: the same in memory, in every store and in an export.

    3 bytes   "ARU"
    1 byte    format version
    the fields of the record one after the other, little-endian, as the layout lists them

All records of one kind have the same layout, so that many of them are one (record, bytes) array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from aru.errors import StorageError, name_series

FORMAT = 1
_HEAD_BYTES = b"ARU" + bytes([FORMAT])
HEAD = np.frombuffer(_HEAD_BYTES, np.uint8)
_HEAD = "head"

Bytes = npt.NDArray[np.uint8]
Arrays = Mapping[str, npt.NDArray[Any]]


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
        self.fields = [Field(name, dtype, tuple(shape)) for name, dtype, shape in fields]
        parts = [(_HEAD, "u1", (len(HEAD),)), *((f.name, f.dtype, f.shape) for f in self.fields)]
        self._dtype = np.dtype(parts)  # packed, as the fields are
        self.size = self._dtype.itemsize

    @classmethod
    def of(cls, arrays: Arrays) -> Layout:
        """The layout of records that hold the (record, ...) arrays."""
        return cls([(name, array.dtype.newbyteorder("<").str, array.shape[1:]) for name, array in arrays.items()])

    def to_json(self) -> list[list[Any]]:
        """Name, type and shape of every field."""
        return [[f.name, f.dtype, list(f.shape)] for f in self.fields]

    def pack(self, arrays: Arrays) -> list[bytes]:
        """One blob per record, from the (record, ...) arrays of all fields."""
        n = len(arrays[self.fields[0].name])
        if n == 1:
            return [b"".join([_HEAD_BYTES, *(np.asarray(arrays[f.name], f.dtype).tobytes() for f in self.fields)])]
        out = np.empty(n, self._dtype)
        out[_HEAD] = HEAD
        for field in self.fields:
            out[field.name] = arrays[field.name]
        blobs: list[bytes] = out.view(f"V{self.size}").tolist()
        return blobs

    def unpack(self, blobs: Sequence[bytes], names: Sequence[Any] | pd.Index[Any]) -> dict[str, npt.NDArray[Any]]:
        """The inverse of `pack`; `names` are those of the records, for errors."""
        data = stack(blobs, self.size, names).view(self._dtype)[:, 0]
        return {f.name: data[f.name].copy() for f in self.fields}

    def end_of(self, names: Sequence[str]) -> int:
        """Number of leading bytes of a record that contain these fields."""
        return max(self._dtype.fields[name][1] + f.size for f in self.fields for name in names if f.name == name)  # type: ignore[index]

    def peek(self, heads: Sequence[bytes], name: str, names: Sequence[Any]) -> npt.NDArray[Any]:
        """One field, from the leading bytes of records."""
        field = next(f for f in self.fields if f.name == name)
        begin = self._dtype.fields[name][1]  # type: ignore[index]
        data = stack(heads, len(heads[0]) if heads else self.size, names)
        return data[:, begin : begin + field.size].copy().view(field.dtype).reshape(len(data), *field.shape)


def stack(blobs: Sequence[bytes], size: int, names: Sequence[Any] | pd.Index[Any]) -> Bytes:
    """Blobs as one (record, bytes) array; refuse those of another size or format."""
    if not all(map(size.__eq__, map(len, blobs))):
        damaged = [i for i, blob in enumerate(blobs) if len(blob) != size]
    else:
        data = np.frombuffer(bytearray().join(blobs), np.uint8).reshape(len(blobs), size)
        damaged = np.flatnonzero((data[:, : len(HEAD)] != HEAD).any(1)).tolist()
    if damaged:
        rows = name_series([names[i] for i in damaged])
        raise StorageError(
            f"The stored states of {len(rows)} series cannot be read by this version: {rows}",
            "Restore them from an export, or rebuild them with aru state migrate.",
            rows=rows,
        )
    return data
