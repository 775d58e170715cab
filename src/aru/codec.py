"""The byte format of a series: the same in memory, in every store and in an export.

    3 bytes   "ARU"
    1 byte    format version
    the tensors of the record one after the other, little-endian, as `Codec.layout` lists them

All series of one model have the same layout, so that many records are one (series, bytes) array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from aru.errors import StorageError, listing
from aru.state import leaves, replace_leaves

FORMAT = 1
HEAD = np.frombuffer(b"ARU" + bytes([FORMAT]), np.uint8)

_HEAD = "head"
Bytes = npt.NDArray[np.uint8]
Tree = TypeVar("Tree")


class Field(NamedTuple):
    """One tensor of a record."""

    name: str
    dtype: str  # as numpy writes it, little-endian
    shape: tuple[int, ...]
    begin: int
    end: int

    def decode(self, data: Bytes) -> npt.NDArray[Any]:
        """The tensor of many series, from the bytes of each, or as many of them as reach to its end."""
        part = data[:, self.begin : self.end].copy()
        return part.view(self.dtype).reshape(len(data), *self.shape)


class Codec(Generic[Tree]):
    """Turns records of many series into bytes and back. `like` is a record of any number of series."""

    def __init__(self, like: Tree) -> None:
        self._like = like
        # Name, type and shape of every tensor, in order.
        self.layout = [[name, _little(value).str, list(value.shape[1:])] for name, value in leaves(like)]
        self._fields = list(fields_of(self.layout).values())
        self.size = self._fields[-1].end
        parts = [(_HEAD, "u1", (len(HEAD),)), *((f.name, f.dtype, f.shape) for f in self._fields)]
        self._dtype = np.dtype(parts)  # packed, as the fields are

    def encode(self, record: Tree) -> list[bytes]:
        """One blob per series."""
        parts = [value for _, value in leaves(record)]
        out = np.empty(len(parts[0]), self._dtype)
        out[_HEAD] = HEAD
        for field, value in zip(self._fields, parts, strict=True):
            out[field.name] = value.cpu().numpy()
        blobs: list[bytes] = out.view(f"V{self.size}").tolist()
        return blobs

    def decode(self, blobs: Sequence[bytes], names: Sequence[Any] | pd.Index[Any]) -> Tree:
        """The inverse of `encode`; `names` are the series, for errors."""
        data = stack(blobs, self.size, names).view(self._dtype)[:, 0]
        return self.build({f.name: torch.from_numpy(data[f.name].copy()) for f in self._fields})

    def build(self, flat: Mapping[str, Tensor]) -> Tree:
        """Records from their tensors by name."""
        return replace_leaves(self._like, flat)


def stack(blobs: Sequence[bytes], size: int, names: Sequence[Any] | pd.Index[Any]) -> Bytes:
    """(series, bytes) of blobs that all have this size and begin as records of this format do."""
    odd: list[int] = []
    if not all(map(size.__eq__, map(len, blobs))):
        odd = [i for i, blob in enumerate(blobs) if len(blob) != size]
    else:
        data = np.frombuffer(bytearray().join(blobs), np.uint8).reshape(len(blobs), size)
        odd = np.flatnonzero((data[:, : len(HEAD)] != HEAD).any(1)).tolist()
    if odd:
        raise StorageError(
            f"The stored states of {len(odd)} series cannot be read by this version: "
            f"{listing([names[i] for i in odd])}. Restore them from an export, or rebuild them with aru state migrate."
        )
    return data


def fields_of(layout: Sequence[Sequence[Any]]) -> dict[str, Field]:
    """Where each tensor of a layout lies."""
    fields, begin = {}, len(HEAD)
    for name, dtype, shape in layout:
        end = begin + np.dtype(dtype).itemsize * math.prod(shape)
        fields[name] = Field(name, dtype, tuple(shape), begin, end)
        begin = end
    return fields


def _little(value: Tensor) -> np.dtype[Any]:
    return value.cpu().numpy().dtype.newbyteorder("<")
