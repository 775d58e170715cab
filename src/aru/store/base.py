"""The contract of every store."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aru.errors import StorageError

Key = str | int


@dataclasses.dataclass(frozen=True)
class About:
    """What a store remembers about its records: who wrote them and how to read them."""

    format: int
    fingerprint: str
    correctable: int
    size: int  # bytes a record
    layout: Sequence[Sequence[Any]]  # name, type and shape of every field
    integer_ids: bool
    datetime: bool  # whether times are microseconds since 1970 or plain integers
    adapter: Mapping[str, Any] | None = None  # settings and columns, where an adapter wrote the records

    def to_json(self) -> str:
        """As text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> About:
        """The inverse of `to_json`."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise StorageError(
                f"The description of the store cannot be read ({error}). Use the version of aru that wrote it."
            ) from error


class Transaction(abc.ABC):
    """Reads that belong together, and writes that take effect together."""

    @abc.abstractmethod
    def about(self) -> About | None:
        """What the records are; None in a store that is still empty."""

    def version(self) -> int | None:
        """How many changes were made before this transaction: each adds one. None where nobody counts."""
        return None

    @abc.abstractmethod
    def describe(self, about: About) -> None:
        """Say what the records are."""

    @abc.abstractmethod
    def get(self, keys: Sequence[Key]) -> list[bytes | None]:
        """The record of each series, None where there is none."""

    @abc.abstractmethod
    def keys(self) -> list[Key]:
        """All series, in order."""

    @abc.abstractmethod
    def heads(self, size: int) -> list[bytes]:
        """The first bytes of every record, in the order of `keys`."""

    @abc.abstractmethod
    def put(self, keys: Sequence[Key], records: Sequence[bytes | memoryview]) -> None:
        """Write or replace records."""

    @abc.abstractmethod
    def delete(self, keys: Sequence[Key]) -> None:
        """Remove records."""


class Store(abc.ABC):
    """Records by series, with one writer at a time."""

    @abc.abstractmethod
    def __str__(self) -> str:
        """What messages call it."""

    @abc.abstractmethod
    def reading(self) -> contextlib.AbstractContextManager[Transaction]:
        """One consistent view; never waits for a computation of a writer."""

    @abc.abstractmethod
    def writing(self) -> contextlib.AbstractContextManager[Transaction]:
        """The only writer. Leaving with an exception undoes everything; leaving without one makes it durable."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of files. The store is opened again when it is next used."""


def chunks(keys: Sequence[Key], size: int) -> Iterator[Sequence[Key]]:
    """Keys in pieces of at most `size`."""
    for at in range(0, len(keys), size):
        yield keys[at : at + size]
