"""Several small numbers in the bits of a few bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class Packing:
    """Small whole numbers in as few bytes as they need, none of them across two bytes."""

    def __init__(self, bits: Sequence[int]) -> None:
        self._bits, self._places = list(bits), [(0, 0)] * len(bits)
        room: list[int] = []  # bits that are taken of each byte
        for i in sorted(range(len(bits)), key=lambda i: -bits[i]):
            byte = next((b for b, taken in enumerate(room) if taken + bits[i] <= 8), len(room))
            room += [0] if byte == len(room) else []
            self._places[i] = byte, room[byte]
            room[byte] += bits[i]
        self.bytes = len(room)

    def pack(self, values: Sequence[Any]) -> Any:
        """(..., byte) from each of the (...) numbers."""
        out = np.zeros((*values[0].shape, self.bytes), np.uint8)
        for (byte, shift), value in zip(self._places, values, strict=True):
            out[..., byte] |= value.astype(np.uint8) << shift
        return out

    def unpack(self, packed: Any, which: int) -> Any:
        """One of these numbers."""
        byte, shift = self._places[which]
        return (packed[..., byte] >> shift) & (2 ** self._bits[which] - 1)
