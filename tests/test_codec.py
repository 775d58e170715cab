"""The byte format: what goes in comes out, in a layout that anybody can read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from aru.codec import FORMAT, Codec, fields_of, stack
from aru.errors import StorageError


class Inner(NamedTuple):
    matrix: torch.Tensor
    nothing: torch.Tensor


class Outer(NamedTuple):
    time: torch.Tensor
    flags: torch.Tensor
    parts: tuple[Inner, ...]
    empty: tuple[()] = ()


def tree(n: int) -> Outer:
    inner = Inner(torch.randn(n, 2, 3, dtype=torch.float64), torch.zeros(n, 4, 0))
    flags = torch.rand(n, 5) > 0.5
    return Outer(torch.arange(n) - 2**40, flags, (inner, Inner(inner.matrix.mT.reshape(n, 2, 3), inner.nothing)))


@pytest.mark.parametrize("n", [0, 1, 7])
def test_records_survive_bytes(n: int) -> None:
    codec = Codec(tree(0))
    record = tree(n)
    blobs = codec.encode(record)
    assert [len(b) for b in blobs] == [codec.size] * n
    assert codec.size == 4 + 8 + 5 + 2 * 48
    decoded = codec.decode([bytes(b) for b in blobs], range(n))
    assert isinstance(decoded.parts[0], Inner)
    for mine, theirs in zip(
        torch.utils._pytree.tree_leaves(decoded), torch.utils._pytree.tree_leaves(record), strict=True
    ):
        assert torch.equal(mine, theirs)
        assert mine.dtype == theirs.dtype
    decoded.time.add_(1)  # no view of read-only bytes


def test_a_record_does_not_depend_on_its_neighbours() -> None:
    codec, record = Codec(tree(0)), tree(3)
    alone = codec.encode(
        Outer(record.time[1:2], record.flags[1:2], tuple(Inner(*(v[1:2] for v in p)) for p in record.parts))
    )
    assert bytes(alone[0]) == bytes(codec.encode(record)[1])


def test_the_layout_says_where_everything_lies() -> None:
    codec, record = Codec(tree(0)), tree(2)
    assert codec.layout[:3] == [["time", "<i8", []], ["flags", "|b1", [5]], ["parts.0.matrix", "<f8", [2, 3]]]
    blob = bytes(codec.encode(record)[1])
    assert blob[:4] == b"ARU" + bytes([FORMAT])
    assert int.from_bytes(blob[4:12], "little", signed=True) == int(record.time[1])
    field = fields_of(codec.layout)["parts.0.matrix"]
    assert (field.begin, field.end) == (17, 65)
    np.testing.assert_array_equal(np.frombuffer(blob[17:65], "<f8").reshape(2, 3), record.parts[0].matrix[1])
    np.testing.assert_array_equal(
        fields_of(codec.layout)["time"].decode(stack([blob[:12]], 12, ["a"])), record.time[1:]
    )


def test_other_bytes_are_refused() -> None:
    codec = Codec(tree(0))
    good = [bytes(b) for b in codec.encode(tree(3))]
    for bad in (good[1][:-1], good[1] + b"\0", b"", b"BRU" + good[1][3:], b"ARU\x00" + good[1][4:]):
        with pytest.raises(StorageError, match=r"1 series cannot be read by this version: two\."):
            codec.decode([good[0], bad, good[2]], ["one", "two", "three"])
