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
NAMES = ["one", "two", "three"]


@pytest.mark.parametrize("n", [0, 1, 7])
def test_records_survive_bytes(n: int) -> None:
    record = tree(n)
    blobs = LAYOUT.pack(arrays(record), range(n))
    assert [type(b) for b in blobs] == [bytes] * n
    assert [len(b) for b in blobs] == [LAYOUT.size] * n
    assert LAYOUT.size == 4 + 8 + 5 + 2 * 48 + 7 + 8  # zeros to the next multiple of 8, and the checksum
    unpacked = LAYOUT.unpack(blobs, range(n))
    decoded = rebuild(tree(0), {path: torch.from_numpy(value) for path, value in unpacked.items()})
    assert isinstance(decoded.parts[0], Inner)
    for (path, mine), (_, theirs) in zip(leaves(decoded), leaves(record), strict=True):
        assert torch.equal(mine, theirs), path
        assert mine.dtype == theirs.dtype
    decoded.time.add_(1)  # no view of read-only bytes


def test_a_record_does_not_depend_on_its_neighbours() -> None:
    record = tree(3)
    alone = LAYOUT.pack(arrays(take(record, torch.tensor([1]))), ["two"])
    assert alone[0] == LAYOUT.pack(arrays(record), NAMES)[1]


def test_the_layout_says_where_everything_lies() -> None:
    record = tree(2)
    told = LAYOUT.to_json()
    assert told[:3] == [["time", "<i8", []], ["flags", "|b1", [5]], ["parts.0.matrix", "<f8", [2, 3]]]
    blob = LAYOUT.pack(arrays(record), NAMES[: len(record.time)])[1]
    assert blob[:4] == b"ARU" + bytes([FORMAT])
    assert int.from_bytes(blob[4:12], "little", signed=True) == int(record.time[1])
    np.testing.assert_array_equal(np.frombuffer(blob[17:65], "<f8").reshape(2, 3), record.parts[0].matrix[1])
    read = Layout(told)
    assert (read.size, read.fields) == (LAYOUT.size, LAYOUT.fields)
    some = read.unpack([blob], ["two"], ["time"])
    assert list(some) == ["time"]
    np.testing.assert_array_equal(some["time"], record.time[1:])


def test_other_bytes_are_refused() -> None:
    good = LAYOUT.pack(arrays(tree(3)), NAMES)
    for bad in (
        good[1][:-1],
        good[1] + b"\0",
        b"",
        b"BRU" + good[1][3:],
        b"ARU\x00" + good[1][4:],
        good[0],
        "text",
        None,
    ):
        with pytest.raises(StorageError, match=r"1 series are damaged or of another version: two\."):
            LAYOUT.unpack([good[0], bad, good[2]], NAMES)


def test_every_changed_bit_is_found() -> None:
    (good,) = LAYOUT.pack(arrays(tree(1)), ["one"])
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StorageError, match="damaged"):
            LAYOUT.check([bytes(bad)], ["one"])


def test_longer_damage_is_found() -> None:
    """Noise, zeros, and the highest bits of two numbers, where sums of products are weakest."""
    random = np.random.default_rng(0)
    (good,) = LAYOUT.pack(arrays(tree(1)), ["one"])
    damaged = []
    for _ in range(2000):
        at, n = random.integers(0, len(good) - 1), int(random.integers(2, 40))
        damaged += [good[:at] + part + good[at + len(part) :] for part in (random.bytes(n), bytes(n))]
    for first in range(16):
        for second in range(first):
            words = np.frombuffer(good, "<u8").copy()
            words[[first, second]] ^= np.uint64(2**63)
            damaged.append(words.tobytes())
    for bad in damaged:
        bad = bad[: len(good)]
        if bad != good:
            with pytest.raises(StorageError, match="damaged"):
                LAYOUT.check([bad], ["one"])


def test_the_checksum_is_the_one_that_is_documented() -> None:
    """A record of one number, word by word. Stored records must be readable for ever: these numbers are fixed."""
    (blob,) = Layout([("x", "<i8", ())]).pack({"x": np.array([7])}, ["one"])
    assert blob.hex() == "4152550107000000" + "0000000000000000" + "6f26b80e4a3c0441"


def test_many_records_are_those_of_one_call_each() -> None:
    n = 20_000  # more than are packed together
    layout, x = Layout([("x", "<f8", (8,))]), np.random.default_rng(0).normal(size=(n, 8))
    blobs = layout.pack({"x": x}, range(n))
    assert [blobs[i] for i in (0, 7000, n - 1)] == [layout.pack({"x": x[[i]]}, [i])[0] for i in (0, 7000, n - 1)]
    np.testing.assert_array_equal(layout.unpack(blobs, range(n))["x"], x)
    blobs[9000], blobs[15000] = blobs[9001], blobs[15001]  # records of other series
    with pytest.raises(StorageError, match=r"2 series are damaged or of another version: 9000, 15000\."):
        layout.check(blobs, range(n))


@pytest.mark.parametrize("field", [("x", "|O", ()), ("x", "<M8[us]", ()), ("x", "<f8", (-1,)), ("x", "<f8", (2.0,))])
def test_a_layout_has_numbers_alone(field: tuple[str, str, tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="x is no array of numbers"):
        Layout([field])
