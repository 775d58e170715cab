"""The byte format: what goes in comes out, in a layout that anybody can read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from aru.errors import StorageError
from aru.nn.tree import leaves, rebuild, take
from aru.store.layout import FORMAT, Arrays, Layout


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


def arrays(record: Outer) -> Arrays:
    return {path: value.numpy() for path, value in leaves(record)}


LAYOUT = Layout.of(arrays(tree(0)))


@pytest.mark.parametrize("n", [0, 1, 7])
def test_records_survive_bytes(n: int) -> None:
    record = tree(n)
    blobs = LAYOUT.pack(arrays(record))
    assert [type(b) for b in blobs] == [bytes] * n
    assert [len(b) for b in blobs] == [LAYOUT.size] * n
    assert LAYOUT.size == 4 + 8 + 5 + 2 * 48
    unpacked = LAYOUT.unpack(blobs, range(n))
    decoded = rebuild(tree(0), {path: torch.from_numpy(value) for path, value in unpacked.items()})
    assert isinstance(decoded.parts[0], Inner)
    for (path, mine), (_, theirs) in zip(leaves(decoded), leaves(record), strict=True):
        assert torch.equal(mine, theirs), path
        assert mine.dtype == theirs.dtype
    decoded.time.add_(1)  # no view of read-only bytes


def test_a_record_does_not_depend_on_its_neighbours() -> None:
    record = tree(3)
    alone = LAYOUT.pack(arrays(take(record, torch.tensor([1]))))
    assert alone[0] == LAYOUT.pack(arrays(record))[1]


def test_the_layout_says_where_everything_lies() -> None:
    record = tree(2)
    told = LAYOUT.to_json()
    assert told[:3] == [["time", "<i8", []], ["flags", "|b1", [5]], ["parts.0.matrix", "<f8", [2, 3]]]
    blob = LAYOUT.pack(arrays(record))[1]
    assert blob[:4] == b"ARU" + bytes([FORMAT])
    assert int.from_bytes(blob[4:12], "little", signed=True) == int(record.time[1])
    assert [LAYOUT.end_of(names) for names in (["flags"], ["parts.0.matrix"], ["time", "flags"])] == [17, 65, 17]
    np.testing.assert_array_equal(np.frombuffer(blob[17:65], "<f8").reshape(2, 3), record.parts[0].matrix[1])
    read = Layout(told)
    assert (read.size, read.fields) == (LAYOUT.size, LAYOUT.fields)
    np.testing.assert_array_equal(read.peek([blob[:12]], "time", ["a"]), record.time[1:])
    matrix = read.peek([b[:65] for b in LAYOUT.pack(arrays(record))], "parts.0.matrix", ["a", "b"])
    np.testing.assert_array_equal(matrix, record.parts[0].matrix)
    assert read.peek([], "parts.0.matrix", []).shape == (0, 2, 3)


def test_other_bytes_are_refused() -> None:
    good = LAYOUT.pack(arrays(tree(3)))
    for bad in (good[1][:-1], good[1] + b"\0", b"", b"BRU" + good[1][3:], b"ARU\x00" + good[1][4:]):
        with pytest.raises(StorageError, match=r"1 series cannot be read by this version: two\."):
            LAYOUT.unpack([good[0], bad, good[2]], ["one", "two", "three"])
